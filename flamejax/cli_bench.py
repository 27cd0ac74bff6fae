"""The command `flamejax bench`: speed beside others that do the same work."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from flamejax.arguments import DONE
from flamejax.errors import InputError, RunError
from flamejax.reading import read_text

WIDTH = 110  # of the table where no terminal says otherwise
TRIES = 3  # a speed below half of the baseline counts when it repeats this often


def add(commands: Any) -> None:
    bench = commands.add_parser(
        "bench",
        help="speed on this machine, beside other simulators",
        description="Time rounds of flamejax and of others on the same work, taking turns, and "
        "print milliseconds a round, speed relative to a plain PyTorch loop, the share of this "
        "machine's matrix-product peak, memory and compile time.",
    )
    bench.add_argument(
        "races", nargs="*", metavar="RACE", help="W1 W2 W3a W3b W4 W5 ragged few evaluate P1 P2 "
        "whole, or small small-cnn; default: all but the small ones"
    )  # fmt: skip
    bench.add_argument("--quick", action="store_true", help="the small races only")
    bench.add_argument(
        "--peer", action="append", dest="peers", metavar="NAME[=PYTHON]",
        help="torch, fedjax, pfl or flwr, and the interpreter that has it (repeatable); default: "
        "those installed beside flamejax",
    )  # fmt: skip
    bench.add_argument("--alone", action="store_true", help="no peers")
    bench.add_argument("--repeats", type=int, default=5, metavar="N", help="turns; default: 5")
    bench.add_argument(
        "--patience", type=float, default=20.0, metavar="SECONDS",
        help="how long to wait for an idle machine before each turn; default: 20",
    )  # fmt: skip
    bench.add_argument("--memory", action="store_true", help="what the compiled programs hold")
    bench.add_argument("--mnist", type=Path, metavar="DIR", help="real digits for the whole run")
    bench.add_argument("--out", type=Path, metavar="DIR", help="also write bench.json, .md, .png")
    bench.add_argument(
        "--baseline", type=Path, metavar="FILE",
        help="a bench.json to compare with; fails if a share of the peak is below half of it, "
        "three times in a row",
    )  # fmt: skip
    bench.set_defaults(action=command)


def command(options: argparse.Namespace) -> int:
    from rich.console import Console

    from flamejax.bench.events import EVENTS, FULL, QUICK, pythons
    from flamejax.report import bench as report
    from flamejax.report.costs import memory_table

    names = options.races or (QUICK if options.quick else (*FULL, "whole"))
    for name in names:
        if name not in EVENTS and name != "whole":
            raise InputError(f"bench {name}: not one of {', '.join((*EVENTS, 'whole'))}")
    if options.repeats < 1:
        raise InputError("--repeats should be at least 1")
    if not 0 <= options.patience <= 3600:
        raise InputError("--patience should be from 0 to 3600 seconds")
    baseline = _read(options.baseline) if options.baseline else {}
    peers = {} if options.alone else pythons(options.peers)
    console = Console(stderr=True)
    results: dict[str, Any] = {}
    with console.status("") as status:
        for name in names:
            results[name] = _one(name, peers, options, status)
    shown = Console()
    shown = shown if shown.is_terminal else Console(width=WIDTH)
    shown.print(report.terminal_table(results))
    if options.memory:
        shown.print(memory_table(report.programs(results)))
    if options.out:
        _write(options.out, results)
    return _judge(results, baseline, lambda name: _one(name, peers, options, None))


def _one(name: str, peers: dict[str, str], options: argparse.Namespace, status: Any) -> list[Any]:
    from flamejax.bench.events import EVENTS, entrants, figures
    from flamejax.bench.race import race
    from flamejax.bench.whole import whole

    def say(text: str) -> None:
        if status is not None:
            status.update(f"{name}: {text}")

    wait = options.patience
    if name == "whole":
        say("whole runs")
        return whole(peers.get("torch"), options.mnist, max(1, options.repeats // 2), wait)
    event = EVENTS[name]
    return figures(event, race(entrants(event, peers), options.repeats, say, wait))


def _read(path: Path) -> dict[str, float]:
    """Shares of the peak in an earlier bench.json."""
    from flamejax.bench.events import OURS

    try:
        found = json.loads(read_text(path))["results"]
        return {
            name: float(row["share"])
            for name, race in found.items()
            for row in race
            if row["contestant"] == OURS and row.get("share")
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"--baseline {path}: not a bench.json ({error})") from None


def _judge(results: dict[str, Any], baseline: dict[str, float], again: Any) -> int:
    """Say how flamejax stands against the baseline; a speed that stays below half of it fails."""
    from flamejax.bench.events import OURS
    from flamejax.report.bench import against_baseline

    slow = []
    for name, race in results.items():
        for attempt in range(TRIES):
            share = next((row.get("share") for row in race if row["contestant"] == OURS), None)
            if name not in baseline or share is None:
                break
            print(f"{name}: {against_baseline(share, baseline[name])}")
            if share >= baseline[name] / 2:
                break
            if attempt == TRIES - 1:
                slow.append(name)
            else:
                race = again(name)
    if slow:
        raise RunError(f"bench: less than half of the baseline's speed: {', '.join(slow)}")
    return DONE


def _write(folder: Path, results: dict[str, Any]) -> None:
    from flamejax.records import environment, write
    from flamejax.report import bench as report

    folder.mkdir(parents=True, exist_ok=True)
    kept = {"environment": environment(), "results": results}
    write(folder / "bench.json", json.dumps(kept, indent=1).encode())
    write(folder / "bench.md", report.markdown(results).encode())
    if any(row.get("ratio") for race in results.values() for row in race):
        write(folder / "bench.png", report.picture(results))
    print(f"Results: {folder}", file=sys.stderr)
