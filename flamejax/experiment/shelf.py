"""Where the experiments are: their definitions, and the paper's figures."""

from __future__ import annotations

import sysconfig
from pathlib import Path

from flamejax.errors import InputError


def shelf() -> Path:
    """The folder `experiments`, of a checkout or as installed."""
    beside = Path(__file__).parents[2] / "experiments"
    installed = Path(sysconfig.get_path("data")) / "share" / "flamejax" / "experiments"
    for folder in (beside, installed):
        if (folder / "table2.toml").is_file() or (folder / "paper").is_dir():
            return folder
    raise InputError(f"no experiments in {beside} or {installed}: install flamejax again")
