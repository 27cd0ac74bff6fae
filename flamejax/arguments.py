"""What the commands of the command line have in common."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from flamejax.errors import InputError

DONE, BAD_INPUT, FAILED, INTERRUPTED = 0, 2, 3, 130


class Parser(argparse.ArgumentParser):
    """Errors in one line."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see {self.prog} --help)")


def add_settings(command: argparse.ArgumentParser, help_on_set: str) -> None:
    """A config file, and changes to it."""
    command.add_argument(
        "config", nargs="?", metavar="CONFIG.toml", help="settings; default: built in"
    )
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
    changes: dict[str, Any] = {}
    for assignment in options.assignments:
        configs.override(changes, assignment)
    return values, changes
