"""The races: who runs against whom, and what is made of their times."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

from flamejax.bench.race import Entrant, Outcome
from flamejax.bench.workloads import WORKLOADS, flops
from flamejax.errors import InputError


class Contestant(NamedTuple):
    script: str
    options: tuple[str, ...] = ()


# by the name of the peer they need; a layout of tensors or a number of processes is one of its own
PEERS = {
    "torch": {
        "PyTorch": Contestant("torch_loop.py"),
        "PyTorch, channels last": Contestant("torch_loop.py", ("channels_last",)),
        "PyTorch, process per core": Contestant("torch_loop.py", ("processes",)),
        "PyTorch, per core, ch. last": Contestant("torch_loop.py", ("channels_last", "processes")),
    },
    "fedjax": {
        "FedJAX": Contestant("fedjax_rounds.py"),
        "FedJAX, pmap": Contestant("fedjax_rounds.py", ("pmap",)),
    },
    "pfl": {
        "pfl": Contestant("pfl_rounds.py"),
        "pfl, two processes": Contestant("pfl_rounds.py", ("processes",)),
        "pfl, two, not shuffled": Contestant("pfl_rounds.py", ("processes", "ordered")),
    },
    "flwr": {"Flower": Contestant("flower_rounds.py")},
}
OURS, PEAK = "flamejax", "large matrix product"
PLAIN = ("PyTorch", "PyTorch, channels last")  # the one to beat is the faster of them


class Event(NamedTuple):
    """A race. The first workload is flamejax's; on a second one it runs against itself."""

    workloads: tuple[str, ...]
    command: str = "train"
    peers: tuple[str, ...] = ("torch",)


EVENTS = {
    **{name: Event((name,)) for name in ("W1", "W2", "W3a", "W3b", "W4", "W5")},
    "ragged": Event(("ragged", "W3a"), peers=()),
    "few": Event(("few", "ten"), peers=()),
    "evaluate": Event(("W2",), command="evaluate"),
    "P1": Event(("P1",), peers=tuple(PEERS)),
    "P2": Event(("P2",), peers=tuple(PEERS)),
    "small": Event(("small",)),
    "small-cnn": Event(("small-cnn",)),
}
QUICK = ("small", "small-cnn")
FULL = tuple(name for name in EVENTS if name not in QUICK)


def pythons(asked: Iterable[str] | None) -> dict[str, str]:
    """Which interpreter runs each peer: NAME or NAME=PYTHON; by default those that are installed
    beside flamejax."""
    if asked is None:
        return {name: sys.executable for name in PEERS if importlib.util.find_spec(name)}
    found = {}
    for text in asked:
        name, _, python = text.partition("=")
        if name not in PEERS:
            raise InputError(f"--peer {name}: not one of {', '.join(PEERS)}")
        if not python and not importlib.util.find_spec(name):
            raise InputError(f"--peer {name} is not installed here; --peer {name}=PYTHON names one")
        found[name] = python or sys.executable
    return found


def entrants(event: Event, peers: dict[str, str]) -> list[Entrant]:
    first = event.workloads[0]
    model = WORKLOADS[first].model
    ours = [
        Entrant(
            OURS if w == first else f"{OURS}, {w}", w, "flamejax_rounds.py", command=event.command
        )
        for w in event.workloads
    ]
    theirs = []
    for peer in event.peers:
        for label, contestant in PEERS[peer].items() if peer in peers else ():
            if "channels_last" in contestant.options and not model.startswith("cnn"):
                continue
            if "processes" in contestant.options and event.command != "train":
                continue
            theirs.append(
                Entrant(label, first, contestant.script, peers[peer], contestant.options,
                        event.command)
            )  # fmt: skip
    return [Entrant(PEAK, "", "matmul_peak.py"), *ours, *theirs]


def figures(event: Event, outcomes: list[Outcome]) -> list[dict[str, Any]]:
    """A row for every contestant but the peak: times, ratios and shares."""
    peak = max(o.ready["flops"] / o.seconds for o in outcomes if o.label == PEAK)
    plain = [o.seconds for o in outcomes if o.label in PLAIN]
    rows = []
    for o in outcomes:
        if o.label == PEAK:
            continue
        workload = WORKLOADS[o.workload]
        speed = flops(workload, o.command) / o.seconds
        rows.append(
            {
                "contestant": o.label,
                "workload": o.workload,
                "command": o.command,
                "seconds": o.seconds,
                "median": o.median,
                "samples_per_second": workload.trained / o.seconds
                if o.command == "train"
                else None,
                "ratio": min(plain) / o.seconds if plain else None,
                "gflops": speed / 1e9,
                "peak_gflops": peak / 1e9,
                "share": speed / peak,
                "rss": o.rss,
                "compile_seconds": o.ready.get("compile_seconds"),
                "turns": o.turns,
                "disturbed": o.disturbed,
                "clean": o.clean,
                "found": o.found,
                "version": o.ready["version"],
                "plan": o.ready.get("plan"),
                "memory": o.ready.get("memory"),
            }
        )
    return rows
