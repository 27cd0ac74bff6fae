"""Do the tests see errors? A tool for engineers; nothing in here is collected as a test.

`planted.py` is a list of small errors, each a change of text somewhere in `flamejax/` that somebody
could have made, and the tests that should see it. For each of them

    python -m tests.errors                    # all of them, against the tests named for each
    python -m tests.errors 3 11 20            # only these
    python -m tests.errors --all-default 3    # against everything that `pytest` runs
    python -m tests.errors --tests tests/test_figures.py 1 2     # against these instead
    python -m tests.errors --list

makes the change in a copy of the checkout (what git lists, as it is in the working tree; with
`--committed` as it is in HEAD), runs the tests there in a process of its own, and says which of
them failed: `seen`, or `NOT SEEN`. It ends with 1 if an error was not seen, and with 2 if one could
not be tried: its text must be found exactly once, in exactly one file of `flamejax/`, and the tests
must have imported the flamejax of the copy. Files may move: an error names none. When a test is
dropped or rebuilt, run this again; when a line that an error changes is rewritten, write the error
anew. Where a new feature computes a figure, add an error to it and see it seen.
"""
