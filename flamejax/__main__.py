"""`python -m flamejax`, the same as `flamejax`."""

from flamejax.cli import entry

if __name__ == "__main__":
    entry()
