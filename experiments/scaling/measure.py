"""What a round costs: over clients, over selected clients, over devices, and beyond memory.

    python experiments/scaling/measure.py [PART ...] [--out DIR] [--repeats N]

Runs that are compared take turns, each in a process of its own; every figure is the best of several
turns. Figures of earlier parts in DIR/scaling.json stay. PARTS: see below; all by default.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flamejax.bench.race import Entrant, Outcome, race
from flamejax.records import environment

HERE = Path(__file__).parent
MLR = ("data.name=synthetic", "data.samples=100", "partition.name=iid", "model.name=mlr")
MLP = ("data.name=synthetic", "data.samples=100", "data.features=784", "partition.name=iid")
MLP += ("model.name=mlp",)


def entrant(label: str, base: tuple[str, ...], clients: int, selected: int, *more: str) -> Entrant:
    settings = [f"partition.clients={clients}", "eval_clients=100", *more]
    if selected < clients:
        settings.append(f"participation.clients_per_round={selected}")
    return Entrant(label, "", str(HERE / "worker.py"), options=(*base, *settings))


def row(outcome: Outcome, **about: Any) -> dict[str, Any]:
    """Seconds of a round, and what it took to get there."""
    ready = outcome.ready
    return {
        **about,
        "round_seconds": outcome.seconds / ready["rounds"],
        "rss": outcome.rss,
        **{name: ready[name] for name in ("import_seconds", "setup_seconds", "compile_seconds")},
        "store": ready["store"],
        "plan": ready["plan"],
        "clean": outcome.clean,
    }


def clients(repeats: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Over the number of clients, 10 or 100 of them selected."""
    rows = []
    for selected in (10, 100):
        sizes = [10**k for k in range(1, 7) if 10**k >= selected]
        names = [f"{selected} of {m:,}" for m in sizes]
        field = [entrant(n, MLR, m, selected) for n, m in zip(names, sizes, strict=True)]
        found = race(field, repeats, say)
        rows += [row(o, clients=m, selected=selected) for o, m in zip(found, sizes, strict=True)]
    return rows


def selected(repeats: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Over the number of selected clients, of a million."""
    sizes = [1, 10, 100, 1000, 10_000]
    field = [entrant(f"{s:,} of a million", MLR, 10**6, s) for s in sizes]
    found = race(field, repeats, say)
    return [row(o, clients=10**6, selected=s) for o, s in zip(found, sizes, strict=True)]


def everyone(repeats: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Over the number of clients, all of them selected."""
    sizes = [10**2, 10**3, 10**4]
    found = race([entrant(f"all {m:,}", MLR, m, m) for m in sizes], repeats, say)
    return [row(o, clients=m, selected=m) for o, m in zip(found, sizes, strict=True)]


def devices(repeats: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Over devices of this machine, 100 clients with a network of 109,386 parameters."""
    counts = [1, 2, 4, 8]
    field = [
        entrant(f"{n} device(s)", MLP, 100, 100, f"engine.devices={n}", "engine.execution=map")
        for n in counts
    ]
    found = race(field, repeats, say)
    return [
        row(o, clients=100, selected=100, devices=n) for o, n in zip(found, counts, strict=True)
    ]


def disk(repeats: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """100,000 clients, 200 a round, 100 rounds: states in memory, or mostly on disk."""
    rows = []
    for turn in range(max(1, repeats // 2)):
        for budget in ("2GB", "18GB"):
            say(f"states in {budget}, turn {turn + 1}")
            rows.append(whole_run(
                *MLP,
                "partition.clients=100000", "participation.clients_per_round=200",
                "rounds=100", "eval_every=100", "eval_clients=100", "checkpoint.every=never",
                "engine.store=touched", f"engine.state_budget={budget}",
            ) | {"budget": budget})  # fmt: skip
    return rows


def million(repeats: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """A million clients, 100 a round, 100 rounds, from the command to its results."""
    say("a million clients")
    return [whole_run(
        "data.name=synthetic", "partition.name=natural", "model.name=mlr",
        "partition.clients=1000000", "participation.clients_per_round=100",
        "rounds=100", "eval_every=50",
    )]  # fmt: skip


def processes(repeats: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """The same run in one, two and four processes, each with one device."""
    rows = []
    for count in (1, 2, 4):
        say(f"{count} process(es)")
        rows.append(whole_run(
            *MLP,
            "partition.clients=100", "rounds=30", "eval_every=30", f"engine.devices={count}",
            processes=count,
        ) | {"processes": count})  # fmt: skip
    return rows


def grid(repeats: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """3 x 3 x 5 runs in one program, and one after another with everything compiled before."""
    settings = ["--set", "model.name=mlr", "--set", "rounds=50", "--set", "eval_every=10"]
    grid = ["--grid", "method.lam=0.5,1,2", "--grid", "method.rho=0.05,0.1,0.2"]
    rows = []
    for pack in ("1", "auto", "1", "auto"):  # the first of each compiles
        say(f"a grid of 45 runs, --pack {pack}")
        with tempfile.TemporaryDirectory() as out:
            options = ["--seeds", "0,1,2,3,4", "--pack", pack, "--quiet", "--out", f"{out}/grid"]
            began = time.perf_counter()
            subprocess.run([*COMMAND, "sweep", *settings, *grid, *options], check=True)
            rows.append({"pack": pack, "seconds": time.perf_counter() - began})
    return rows


COMMAND = [sys.executable, "-m", "flamejax"]


def whole_run(*assignments: str, processes: int = 1) -> dict[str, Any]:
    """`flamejax run` as a user starts it: its own timings, and the peak of its memory."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        command = [*COMMAND, "run", "--quiet", "--out", f"{folder}/run"]
        for assignment in assignments:
            command += ["--set", assignment]
        several = ["--coordinator", f"127.0.0.1:{random.randint(20000, 40000)}"]
        several += ["--processes", str(processes)]
        began = time.perf_counter()
        started = [
            subprocess.Popen([*command, *([*several, "--rank", str(r)] if processes > 1 else [])])
            for r in range(processes)
        ]
        peaks = [os.wait4(process.pid, 0)[2].ru_maxrss * 1024 for process in started]
        seconds = time.perf_counter() - began
        summary = json.loads(Path(folder, "run", "summary.json").read_text())
        lines = Path(folder, "run", "timings.jsonl").read_text().splitlines()
    timings = [json.loads(line) for line in lines]
    rounds = sum(timing["seconds"] for timing in timings)
    evaluations = sum(timing.get("evaluate_seconds", 0) for timing in timings)
    return {
        "seconds": seconds,
        "compile_seconds": summary["compile_seconds"],
        "rounds_seconds": rounds,
        "evaluate_seconds": evaluations,
        "setup_seconds": seconds - summary["compile_seconds"] - rounds - evaluations,
        "round_seconds": rounds / summary["rounds"],
        "rounds": summary["rounds"],
        "rss": sum(peaks),
        "loss": summary["last"]["pm"]["loss"],
    }


ALL = (clients, selected, everyone, devices, million, disk, processes, grid)
PARTS = {part.__name__: part for part in ALL}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(unknown)}")
    path = options.out / "scaling.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    for name in options.parts or PARTS:
        found[name] = PARTS[name](options.repeats, lambda text: print(f"  {text}", file=sys.stderr))
        found["environment"] = {**environment(), "machine": platform.machine()}
        options.out.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=1) + "\n")
        for one in found[name]:
            print(name, {k: v for k, v in one.items() if k not in ("plan", "store")})

    from picture import draw

    draw(found).savefig(options.out / "scaling.png", dpi=110)


if __name__ == "__main__":
    main()
