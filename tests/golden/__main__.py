"""python -m tests.golden NAME ... | --all: write golden figures anew."""

from __future__ import annotations

import difflib
import os
import sys
import tempfile

import jax


def main(names: list[str]) -> int:
    from . import cases, differences, precision_of, read, run, write

    own = {name: case for name, case in cases().items() if case.figures == name}
    if not names:
        print(__doc__, *own, sep="\n", file=sys.stderr)
        return 2
    for name in names:
        if name not in own and name != "--all":
            near = difflib.get_close_matches(name, own, n=3, cutoff=0)
            print(f"{name!r} is not a case with figures of its own; near: {near}", file=sys.stderr)
            return 2
    before = read()
    kept = {name: figures for name, figures in before.items() if name in own}
    for name in own if names == ["--all"] else names:
        kept[name] = run(own[name].values)
        if name not in before:
            print(f"{name}: new")
            continue
        far, what = differences(kept[name], before[name], precision_of(own[name].values))[0]
        moved = "moved" if far > 1 else "as before"
        print(f"{name}: {moved}, at most {far:.3g} times rounding: {what}")
        if far <= 1:  # so that a change shows only what it moved
            kept[name] = before[name]
    write(kept)
    return 0


if __name__ == "__main__":
    os.environ.setdefault("FLAMEJAX_CACHE", tempfile.mkdtemp(prefix="flamejax-golden-"))
    jax.config.update("jax_num_cpu_devices", 4)
    jax.config.update("jax_disable_most_optimizations", True)  # as in the tests
    sys.exit(main(sys.argv[1:]))
