"""`python -m tests.errors`: plant errors in a copy, and see whether tests see them."""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .planted import PLANTED, Error
from .seen import WHERE

ROOT = Path(__file__).parents[2]
SHOWN = 4  # failed tests of an error


class CannotTry(Exception):  # noqa: N818
    """An error could not be planted, or its tests could not be run."""


def copy_tree(to: Path, committed: bool) -> None:
    """What git lists: as it is there now, or in HEAD."""
    if committed:
        tar = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True)
        with tarfile.open(fileobj=io.BytesIO(tar.stdout)) as archive:
            archive.extractall(to, filter="data")
        plugin = Path(__file__).parent.relative_to(ROOT)
        shutil.copytree(ROOT / plugin, to / plugin, dirs_exist_ok=True)
        return
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    new = ["git", "ls-files", "-z", "--others", "--exclude-standard", "tests", "flamejax"]
    others = subprocess.run(new, cwd=ROOT, capture_output=True, check=True)
    for name in (listed.stdout + others.stdout).decode().split("\0"):
        if name and (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)


@contextmanager
def planted(error: Error, tree: Path) -> Iterator[Path]:
    """The tree with an error in it; afterwards it is as it was."""
    found = {}
    for path in sorted((tree / "flamejax").rglob("*.py")):
        text = path.read_text()
        if error.old in text:
            found[path] = text
    times = sum(text.count(error.old) for text in found.values())
    if times != 1:
        where = ", ".join(str(path.relative_to(tree)) for path in found) or "no file"
        raise CannotTry(f"its text is found {times} times, in {where}")
    ((path, text),) = found.items()
    changed = text.replace(error.old, error.new)
    if changed == text:
        raise CannotTry("it changes nothing")
    compile(changed, str(path), "exec")
    try:
        _write(path, changed)
        yield path.relative_to(tree)
    finally:
        _write(path, text)


def _write(path: Path, text: str) -> None:
    """Not even Python's own copy of the file stays: it goes by seconds and size."""
    path.write_text(text)
    Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)


def run(tree: Path, arguments: Sequence[str]) -> tuple[int, list[str]]:
    """How many tests passed in the tree, and which ones failed."""
    note = tree.parent / "seen.json"
    note.unlink(missing_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(tree), WHERE: str(note)}
    environment.pop("FLAMEJAX_CACHE", None)
    command = [sys.executable, "-m", "pytest", "-p", "tests.errors.seen", "--tb=no", *arguments]
    done = subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    if not note.exists():
        raise CannotTry(f"pytest {' '.join(arguments)}:\n{done.stdout}{done.stderr}")
    found = json.loads(note.read_text())
    if not Path(found["flamejax"]).is_relative_to(tree):
        raise CannotTry(f"the tests imported {found['flamejax']}, not the copy in {tree}")
    if not found["passed"] and not found["failed"]:
        raise CannotTry(f"no test was run by pytest {' '.join(arguments)}:\n{done.stdout}")
    return found["passed"], found["failed"]


def attempt(number: int, error: Error, tree: Path, arguments: Sequence[str]) -> int:
    """Try one error, say what came of it: 0 if it was seen, 1 if not, 2 if it was not tried."""
    started = time.monotonic()
    try:
        with planted(error, tree) as path:
            passed, failed = run(tree, arguments)
    except (CannotTry, SyntaxError) as problem:
        print(f"{number:3d} CANNOT BE TRIED  {error.name}: {problem}", flush=True)
        return 2
    seconds = time.monotonic() - started
    verdict = "seen    " if failed else "NOT SEEN"
    print(f"{number:3d} {verdict}  {error.name} ({path}; {passed} passed, {seconds:.0f} s)")
    for test in failed[:SHOWN]:
        print(f"      by {test}")
    if len(failed) > SHOWN:
        print(f"      and {len(failed) - SHOWN} more")
    sys.stdout.flush()
    return 0 if failed else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.errors", description=__doc__)
    parser.add_argument("numbers", nargs="*", type=int, help="of errors; all of them without")
    parser.add_argument("--list", action="store_true", help="say which errors there are")
    parser.add_argument("--all-default", action="store_true", help="run the whole default command")
    parser.add_argument("--tests", help="run these instead of the tests named for an error")
    parser.add_argument("--committed", action="store_true", help="of HEAD, not the working tree")
    parser.add_argument("--to-the-end", action="store_true", help="do not stop at a first failure")
    given = parser.parse_args()
    numbers = given.numbers or list(range(1, len(PLANTED) + 1))
    if wrong := [n for n in numbers if not 1 <= n <= len(PLANTED)]:
        parser.error(f"there is no error {wrong[0]}; they go from 1 to {len(PLANTED)}")
    if given.list:
        for number in numbers:
            print(f"{number:3d} {PLANTED[number - 1].name}: {PLANTED[number - 1].tests}")
        return 0
    worst, unseen, tried = 0, [], 0
    with tempfile.TemporaryDirectory(prefix="flamejax-errors-") as folder:
        tree = Path(folder).resolve() / "tree"
        tree.mkdir()
        copy_tree(tree, given.committed)
        print(f"flamejax is that of {tree}", flush=True)
        for number in numbers:
            error = PLANTED[number - 1]
            chosen = [] if given.to_the_end else ["-x"]
            if not given.all_default:
                chosen += ["-n", "0", *shlex.split(given.tests or error.tests)]
            outcome = attempt(number, error, tree, chosen)
            unseen += [number] * (outcome == 1)
            tried += outcome < 2
            worst = max(worst, outcome)
    said = f"not seen: {', '.join(map(str, unseen))}" if unseen else "none was left unseen"
    print(f"{tried} of {len(numbers)} errors were tried; {said}")
    return worst


if __name__ == "__main__":
    sys.exit(main())
