"""What a run that did not end has left, and whether it can go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flamejax import checkpoints
from flamejax.checkpoints import Checkpoint
from flamejax.config import Config, load, make
from flamejax.errors import InputError
from flamejax.history import History
from flamejax.records import CHECKPOINTS


class Earlier(NamedTuple):
    """What is in the folder of a run."""

    text: str  # config.toml
    checkpoint: Checkpoint | None

    def restore(self, history: History) -> list[Mapping[str, Any]]:
        """What was measured until the checkpoint goes to `history`; the timings are returned."""
        assert self.checkpoint
        kept = self.checkpoint.history
        try:
            history.restore(kept, self.checkpoint.arrays())
            return list(kept["timings"])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise self.checkpoint.unfit("history.json") from None


def earlier(out: Path) -> Earlier:
    try:
        text = (out / "config.toml").read_text("utf-8")
    except (OSError, ValueError):
        raise InputError(f"--resume: there is no run in {out}") from None
    return Earlier(text, checkpoints.newest(out / CHECKPOINTS, text))


def resumed(
    config: Any, settings: Mapping[str, Any], folder: Path | None, own: Mapping[str, Any]
) -> tuple[Config, Earlier]:
    """The config of the run in a folder, and what is there of it."""
    if folder is None:
        raise InputError("--resume needs --out, the folder of the run that goes on")
    if config is not None or settings:
        raise InputError("--resume takes the config of the run in --out; leave out other settings")
    found = earlier(folder)
    for name in ("data", "model"):
        if (f"# {name}: passed from Python" in found.text) != (name in own):
            needs = "was" if name not in own else "was not"
            raise InputError(f"--resume: the {name} of the run in {folder} {needs} passed to it")
    return make(load(folder / "config.toml")), found


def all_earlier(outs: Sequence[Path]) -> Sequence[Earlier | None]:
    """What is there of runs, if all of them can go on from the same round; otherwise nothing."""
    if not all((out / CHECKPOINTS).is_dir() for out in outs):
        return [None] * len(outs)
    found = [earlier(out) for out in outs]
    there = {part.checkpoint.round if part.checkpoint else 0 for part in found}
    return found if len(there) == 1 and there != {0} else [None] * len(outs)
