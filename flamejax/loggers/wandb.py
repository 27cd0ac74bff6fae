"""Weights & Biases, with its files in RUN/wandb. A run that goes on is the same run there."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import wandb

from flamejax.catalog import stem
from flamejax.loggers import Logger, flat, scalars

PATIENCE = 120.0  # seconds for what is not yet sent at the end; `wandb sync` sends it later, too


class WandB(Logger):
    def __init__(self, values: Mapping[str, Any], folder: Path) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # to its makers, even if offline
        wandb.setup(wandb.Settings(silent=True))
        files = folder / "wandb"
        files.mkdir(exist_ok=True)
        for old in files.glob("offline-run-*"):  # what takes its place begins with the same rows
            shutil.rmtree(old)
        data = stem(values["data"]["name"])
        group = f"{values['method']['name']}-{data}-{values['partition']['name']}"
        self._round = 0
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "flamejax"),
            group=group,
            name=f"{group}-seed{values['seed']}",
            id=identity(files / "id.txt"),
            resume="allow",  # rows that W&B has are passed over
            reinit="create_new",  # several runs of a sweep at a time
            config=dict(values),
            dir=str(folder),
            mode=_mode(),
            settings=wandb.Settings(
                silent=True, console="off", finish_timeout=PATIENCE, finish_timeout_raises=True
            ),
        )

    def row(self, row: Mapping[str, Any]) -> None:
        self._round = row["round"]
        self._run.log(scalars(row), step=self._round)

    def close(self, summary: Mapping[str, Any], picture: Path | None) -> None:
        if picture is not None:
            self._run.log({"curves": wandb.Image(str(picture))}, step=self._round)
        found = flat(summary, "/")
        self._run.summary.update({k: v for k, v in found.items() if v is not None})
        self._run.finish(exit_code=int(summary["status"] != "finished"))


def identity(path: Path) -> str:
    """The run's name for W&B's server, kept in a file."""
    known = path.read_text("utf-8", errors="replace") if path.exists() else ""
    if re.fullmatch("[0-9a-f]{16}", known):
        return known
    made = secrets.token_hex(8)
    path.write_text(made, "utf-8")
    return made


def _mode() -> Literal["offline"] | None:
    """Offline where W&B would have to ask who is there; otherwise as it is set up."""
    mode = wandb.setup().settings.mode
    if mode not in ("offline", "dryrun", "disabled") and not wandb.login(prompt=False):
        warnings.warn(
            "record.log: not logged in to W&B, so this is logged offline; "
            "`wandb login` changes that, and `wandb sync` sends it later",
            stacklevel=2,
        )
        return "offline"
    return None
