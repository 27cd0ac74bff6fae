"""A whole run, from the command to its results, beside the same training as a PyTorch loop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from flamejax.bench.events import OURS
from flamejax.bench.race import PATIENCE, WORKERS, wait_for_quiet
from flamejax.bench.workers import protocol
from flamejax.bench.workloads import make_job
from flamejax.errors import RunError

ROUNDS, EVERY, CLIENTS = 100, 10, 10


def whole(
    torch: str | None,
    mnist: Path | None,
    repeats: int,
    patience: float = PATIENCE,
    workload: str = "W2",
    rounds: int = ROUNDS,
) -> list[dict[str, Any]]:
    """Best wall-clock seconds of the processes: FLAME, an MLP, 10 clients, 100 rounds."""
    with tempfile.TemporaryDirectory(prefix="flamejax-bench-") as name:
        folder = Path(name)
        job, data = make_job(workload), folder / "images.npz"
        if mnist is None:
            np.savez(data, images=job.images, labels=job.labels, mean=job.mean, std=job.std)
            source = [f"data.name=npz:{data}"]
        else:
            job = with_mnist(job, mnist)
            source = ["data.name=mnist", f"data.dir={mnist}"]
        protocol.save(job, folder)
        settings = [
            *source, f"rounds={rounds}", f"eval_every={EVERY}", "partition.name=iid",
            f"partition.clients={CLIENTS}", "model.name=mlp", "selection.on=test",
        ]  # fmt: skip
        ours = [sys.executable, "-m", "flamejax", "run", "--quiet"]
        ours += [part for setting in settings for part in ("--set", setting)]
        contestants = {f"{OURS}, first start": ours, f"{OURS}, later starts": ours}
        if torch:
            contestants["PyTorch"] = [
                torch, str(WORKERS / "torch_loop.py"), name, str(rounds)
            ]  # fmt: skip
        times: dict[str, list[float]] = {label: [] for label in contestants}
        found: dict[str, Any] = {}
        for turn in range(repeats):
            for label, command in contestants.items():
                out = folder / f"{turn}-{len(found)}-{label[-6:].replace(' ', '-')}"
                cache = folder / (f"cache-{turn}" if "first" in label else "cache-0")
                wait_for_quiet(patience)
                started = time.perf_counter()
                added = ["--out", str(out)] if OURS in label else []
                done = subprocess.run(
                    [*command, *added],
                    env={**os.environ, "FLAMEJAX_CACHE": str(cache)},
                    capture_output=True,
                    text=True,
                    check=False,
                )
                times[label].append(time.perf_counter() - started)
                if done.returncode:
                    said = done.stderr.strip().splitlines() or ["no word"]
                    raise RunError(f"bench: {label} ended: {said[-1]}")
                found[label] = _found(label, out, done.stdout)
    best = {label: min(seconds) for label, seconds in times.items()}
    return [
        {
            "contestant": label,
            "workload": "MNIST" if mnist else "made-up images",
            "command": f"{rounds} rounds, start to end",
            "seconds": seconds,
            "ratio": best["PyTorch"] / seconds if torch else None,
            "turns": repeats,
            "found": found[label],
        }
        for label, seconds in best.items()
    ]


def with_mnist(job: protocol.Job, folder: Path) -> protocol.Job:
    """The job with the real digits, dealt at random."""
    from flamejax.config import Data
    from flamejax.datasets import load

    data: Any = load(Data(name="mnist", dir=str(folder)), np.random.default_rng(0))
    order = np.random.default_rng(0).permutation(len(data.labels))
    labels = data.labels[order].astype(np.int32)
    return job._replace(
        images=data.images[order], labels=labels, mean=float(data.mean), std=float(data.std)
    )


def _found(label: str, out: Path, printed: str) -> dict[str, float]:
    if OURS not in label:
        return json.loads(printed)
    last = json.loads((out / "summary.json").read_text())["last"]
    return {"loss": last["train_loss"], **{m: last[m]["accuracy"] for m in ("gm", "pm")}}
