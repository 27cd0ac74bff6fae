"""What the commands of the command line have in common."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from flamejax.errors import InputError

DONE, BAD_INPUT, FAILED, INTERRUPTED = 0, 2, 3, 130
FORMS = (".png", ".pdf", ".svg")  # of pictures


class Parser(argparse.ArgumentParser):
    """Errors in one line."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see {self.prog} --help)")


def add_settings(command: argparse.ArgumentParser, help_on_set: str) -> None:
    """A config file, and changes to it."""
    command.add_argument(
        "config", nargs="?", metavar="CONFIG.toml", help="settings; default: built in"
    )
    add_changes(command, help_on_set)


def add_changes(command: argparse.ArgumentParser, help_on_set: str) -> None:
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="assignments",
        help=help_on_set,
    )


def settings(options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of the config file, and those of --set."""
    from flamejax import config as configs

    values: dict[str, Any] = {} if options.config is None else configs.load(options.config)
    return values, changes_of(options)


def changes_of(options: argparse.Namespace) -> dict[str, Any]:
    """The values of --set."""
    from flamejax import config as configs

    changes: dict[str, Any] = {}
    for assignment in options.assignments:
        configs.override(changes, assignment)
    return changes


def say(what: object, code: int) -> int:
    """One line, whatever was typed or read."""
    text = " ".join(str(what).split())
    text = "".join(c if c.isprintable() else "?" for c in text)  # nothing a terminal would obey
    print(f"flamejax: {text}", file=sys.stderr)
    return code


def continues(stopped: KeyboardInterrupt, options: argparse.Namespace, out: Path) -> int:
    """Say what of several runs is done, and how to go on."""
    same = "the same command" if options.out else f"the same command with --out {out}"
    done = f"; {stopped}, and {same} continues" if stopped.args else " before the first run"
    return say(f"interrupted{done}", INTERRUPTED if stopped.args else FAILED)


def ended(runs: Iterable[Mapping[str, Any]]) -> int:
    """The exit code of several runs; those that diverged are named."""
    diverged = [run["name"] for run in runs if run["status"] != "finished"]
    return say(f"diverged: {'; '.join(diverged)}", FAILED) if diverged else DONE


def picture_path(name: str) -> Path:
    """What --plot names, if it is a picture."""
    path = Path(name)
    if path.suffix not in FORMS:
        hint = "; name the config before --plot" if path.suffix == ".toml" else ""
        raise InputError(f"--plot {path}: should end in {', '.join(FORMS)}{hint}")
    return path


def write_picture(path: Path, content: bytes) -> None:
    """An older one is replaced."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot be written: {reason}") from None


def add_run(command: argparse.ArgumentParser, help_on_set: str) -> None:
    add_settings(command, help_on_set)
    command.add_argument("--out", type=Path, metavar="DIR", help="results; default: runs/...")
    command.add_argument("--quiet", action="store_true", help="no progress bar and no table")
    command.add_argument(
        "-v", "--verbose", action="store_true", help="say how the engine runs it, and why"
    )


def add_against(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--against",
        choices=("rounds", "bytes"),
        default="rounds",
        help="the horizontal axis of curves.png: rounds, or bytes sent up and down",
    )
