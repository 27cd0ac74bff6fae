"""Where the experiments are: their definitions, and the paper's figures."""

from __future__ import annotations

import sysconfig
from collections.abc import Sequence
from pathlib import Path

from flamejax.errors import InputError


def places() -> tuple[Path, Path]:
    """Where the folder `experiments` may be: in a checkout, or as installed."""
    beside = Path(__file__).parents[2] / "experiments"
    return beside, Path(sysconfig.get_path("data")) / "share" / "flamejax" / "experiments"


def shelf(among: Sequence[Path] = ()) -> Path:
    """The first of these folders that holds experiments; without any, of `places()`."""
    folders = among or places()
    for folder in folders:
        if (folder / "table2.toml").is_file() or (folder / "paper").is_dir():
            return folder
    tried = " or ".join(map(str, folders))
    raise InputError(f"no experiments in {tried}: install flamejax again")
