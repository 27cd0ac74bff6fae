"""Whether two results folders are the same, bit for bit, but for the clock."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

# in names of values that may differ: the clock, and who ran which source with which command
OTHERWISE = ("seconds", "timings", "command", "commit")


def differences(found: Path, expected: Path) -> list[str]:
    """What of a run differs from the undisturbed one; nothing if they are the same."""
    wrong = []
    for name, same in CHECKS.items():
        try:
            if not same(found / name, expected / name):
                wrong.append(f"{name} differs")
        except (OSError, ValueError) as error:
            wrong.append(f"{name} cannot be read: {error}")
    return wrong


def rounds(metrics: Path) -> list[int]:
    """The rounds in metrics.jsonl, line by line."""
    return [json.loads(line)["round"] for line in metrics.read_text("utf-8").splitlines()]


def newest(folder: Path) -> Path | None:
    """The newest checkpoint in a results folder."""
    return max((folder / "checkpoints").glob("round-*"), default=None)


def _bytes(found: Path, expected: Path) -> bool:
    return found.read_bytes() == expected.read_bytes()


def _metrics(found: Path, expected: Path) -> bool:
    return rounds(found) == rounds(expected) and _bytes(found, expected)


def _json(found: Path, expected: Path) -> bool:
    one, other = (_without_clock(json.loads(path.read_text("utf-8"))) for path in (found, expected))
    return one == other


def _without_clock(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if not any(word in k for word in OTHERWISE)}
        return {k: _without_clock(v) for k, v in kept.items()}
    return [_without_clock(v) for v in value] if isinstance(value, list) else value


def _arrays(found: Path, expected: Path) -> bool:
    with np.load(found) as one, np.load(expected) as other:
        return set(one.files) == set(other.files) and all(
            one[name].dtype == other[name].dtype
            and one[name].shape == other[name].shape
            and one[name].tobytes() == other[name].tobytes()
            for name in one.files
        )


def _last_checkpoint(found: Path, expected: Path) -> bool:
    """Parameters and states of the last round, and what was measured until then."""
    one, other = newest(found.parent), newest(expected.parent)
    if one is None or other is None or one.name != other.name:
        return False
    names = {path.name for path in other.glob("*.npy")}
    return (
        names == {path.name for path in one.glob("*.npy")}
        and all(_bytes(one / name, other / name) for name in names)
        and _json(one / "history.json", other / "history.json")
    )


CHECKS: dict[str, Callable[[Path, Path], bool]] = {
    "config.toml": _bytes,
    "metrics.jsonl": _metrics,
    "summary.json": _json,
    "clients.npz": _arrays,
    "curves.png": _bytes,
    "environment.json": _json,
    "checkpoints": _last_checkpoint,
}
