"""Why checkpoints are plain .npy files with SHA-256: one wrong bit, in orbax's and in flamejax's.

    python experiments/reliability/orbax_flips.py [--flips 100] [--seed 1]

A tree of the size of a small federation is saved with orbax-checkpoint, in each of its formats; one
random bit of the files that hold its arrays is flipped, and it is restored. The same is done to the
arrays of a checkpoint of flamejax. Before that, both restore what nobody touched. Counted is how
often the flip was reported, how often it did not matter, and how often other values came back
without a word.
"""

from __future__ import annotations

import argparse
import collections
import logging
import platform
import random
import shutil
import tempfile
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from compared import newest
from damage import inside
from processes import DONE, beginning, settings
from rich.progress import track

COLUMNS = ("reported", "no difference", "other values in silence")
FORMATS: dict[str, dict[str, Any]] = {
    "OCDBT (default)": {},
    "OCDBT, zarr3": {"use_zarr3": True},
    "zarr": {"use_ocdbt": False},
}


def tree(rng: np.random.Generator) -> dict[str, Any]:
    """The parameters of a softmax regression, and those of six clients."""

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    return {
        "server": {"weights": normal(784, 10), "bias": normal(10)},
        "clients": {"weights": normal(6, 784, 10), "bias": normal(6, 10)},
    }


def flip_in(files: list[Path], rng: random.Random) -> None:
    """Flip one bit; every bit of all files is as likely as any other."""
    (path,) = rng.choices(files, [path.stat().st_size for path in files])
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def orbax_files(folder: Path) -> list[Path]:
    """Those that hold arrays: not the descriptions of the tree and of its arrays."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    described = ("_", ".", "manifest.", "zarr.json", "array_metadatas")
    return sorted(
        p for p in files if not p.name.startswith(described) and "array_meta" not in str(p)
    )


def orbax(options: dict[str, Any], flips: int, rng: random.Random, work: Path) -> list[str]:
    """What orbax makes of flips."""
    import orbax.checkpoint as ocp

    logging.getLogger("absl").setLevel(logging.CRITICAL)
    saved, there, copy = tree(np.random.default_rng(0)), work / "saved", work / "flipped"
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**options)) as keeper:
        keeper.save(there, saved)
        assert _equal(keeper.restore(there), saved), "orbax restores something else untouched"
        results = []
        for _ in track(range(flips), f"orbax, {options}"):
            shutil.copytree(there, copy)
            flip_in(orbax_files(copy), rng)
            try:
                results.append(COLUMNS[1 if _equal(keeper.restore(copy), saved) else 2])
            except Exception:  # whatever it is, the user is told
                results.append(COLUMNS[0])
            shutil.rmtree(copy)
    return results


def _equal(one: Any, other: Any) -> bool:
    import jax

    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


def flamejax(flips: int, rng: random.Random, work: Path) -> list[str]:
    """What flamejax makes of flips in the only checkpoint of a run."""
    whole, copy = work / "whole", work / "flipped"
    few = {"rounds": 8, "checkpoint.every": 4, "checkpoint.keep": 1}
    assert inside(beginning(whole, settings("flame", **few))).code == DONE
    (whole / "summary.json").unlink()
    shutil.copytree(whole, copy)
    untouched = inside(["run", "--quiet", "--resume", "--out", str(copy)])
    assert untouched.code == DONE, untouched.said
    assert "checkpoints/round-" not in untouched.said, untouched.said
    shutil.rmtree(copy)
    results = []
    for _ in track(range(flips), "flamejax"):
        shutil.copytree(whole, copy)
        checkpoint = newest(copy)
        assert checkpoint is not None
        flip_in(sorted(checkpoint.glob("*.npy")), rng)
        outcome = inside(["run", "--quiet", "--resume", "--out", str(copy)])
        silent = outcome.code == DONE and checkpoint.name not in outcome.said
        results.append(COLUMNS[2 if silent else 0])
        shutil.rmtree(copy)
    return results


def measure(
    flips: int, seed: int, formats: Mapping[str, dict[str, Any]] = FORMATS
) -> dict[str, collections.Counter[str]]:
    """Counts of what became of flips, for formats of orbax and for flamejax."""
    found = {}
    trials: dict[str, Callable[[random.Random, Path], list[str]]] = {
        f"orbax, {name}": lambda rng, work, options=options: orbax(options, flips, rng, work)
        for name, options in formats.items()
    }
    trials["flamejax"] = lambda rng, work: flamejax(flips, rng, work)
    for name, trial in trials.items():
        with tempfile.TemporaryDirectory(prefix="flamejax-flips-") as work:
            found[name] = collections.Counter(trial(random.Random(seed), Path(work)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Flip bits in checkpoints and restore them.")
    parser.add_argument("--flips", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    found = measure(options.flips, options.seed)
    print(f"| one bit flipped | {' | '.join(COLUMNS)} |\n|---|" + "---:|" * len(COLUMNS))
    for name, counts in found.items():
        print(f"| {name} | {' | '.join(str(counts[column]) for column in COLUMNS)} |")
    names = ("flamejax", "orbax-checkpoint", "tensorstore", "jax", "numpy")
    print(
        ", ".join(f"{name} {version(name)}" for name in names),
        f"Python {platform.python_version()}",
    )


if __name__ == "__main__":
    main()
