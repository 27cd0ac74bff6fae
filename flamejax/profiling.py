"""A trace of one round and one evaluation, and what they cost, stage by stage.

In the folder: perfetto_trace.json.gz, plugins/ (the same for TensorBoard), costs.json, costs.txt.
"""

from __future__ import annotations

import json
import os
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import jax
from jax.profiler import ProfileData, ProfileOptions

from flamejax import costs
from flamejax.engine import Engine
from flamejax.records import write
from flamejax.report.costs import as_text

PERFETTO = "perfetto_trace.json.gz"


class Event(NamedTuple):
    """A run of an instruction on a device; times in nanoseconds."""

    start: float
    end: float  # of the thread's part in it
    done: float  # of all of it, if another thread goes on; may be noted late
    name: str


class Spent(NamedTuple):
    """By all devices on the instructions of a program."""

    runs: dict[str, int]
    nanoseconds: dict[str, float]


@contextmanager
def traced(folder: Path) -> Iterator[None]:
    """A trace of what happens inside; none where none can be had: the run is worth more."""

    def start() -> bool:
        options = ProfileOptions()
        options.python_tracer_level = 0  # it would slow the host down and says nothing of devices
        jax.profiler.start_trace(folder, create_perfetto_trace=True, profiler_options=options)
        return True

    def stop() -> None:
        jax.profiler.stop_trace()
        made = max(folder.glob(f"plugins/profile/*/{PERFETTO}"))
        os.replace(made, folder / PERFETTO)  # where it is easily found

    started = _attempt(start)
    try:
        yield
    finally:
        if started:
            _attempt(stop)


def write_costs(engine: Engine, timings: Path, folder: Path) -> None:
    """costs.json and costs.txt beside a trace, if there is one; timings: of the run."""

    def compute() -> None:
        traces = sorted(folder.glob("plugins/profile/*/*.xplane.pb"))
        lines = timings.read_text("utf-8").splitlines() if timings.exists() else []
        rows = [json.loads(line) for line in lines]
        if traces and any(row.get("traced") for row in rows):  # not if that round diverged
            table = cost_table(engine, traces[-1], rows)
            write(folder / "costs.json", (json.dumps(table, indent=1) + "\n").encode())
            write(folder / "costs.txt", as_text(table).encode())

    _attempt(compute)


def _attempt(f: Callable[[], Any]) -> Any:
    try:
        return f()
    except Exception as error:
        warnings.warn(f"--profile: {str(error) or repr(error)}", stacklevel=2)
        return None


def read_trace(path: Path, programs: list[costs.Program]) -> dict[str, Spent]:
    """Runs and time of every instruction, by program; path: an .xplane.pb file."""
    loops = {program.name: costs.loops(program) for program in programs}
    found: dict[tuple[str, str, Any], list[tuple[Any, Event]]] = defaultdict(list)
    ends: dict[Any, float] = {}
    for plane in ProfileData.from_file(str(path)).planes:
        for line in plane.lines:
            for event in line.events:
                facts = dict(event.stats)
                end = event.start_ns + event.duration_ns
                if "hlo_op" in facts:
                    device = (str(facts["hlo_module"]), plane.name, facts.get("device_ordinal"))
                    run = Event(event.start_ns, end, end, str(facts["hlo_op"]))
                    found[device].append((facts.get("_p"), run))
                elif event.name.startswith("end: "):
                    ends[facts.get("_c")] = end
    totals: dict[str, Spent] = defaultdict(lambda: Spent(defaultdict(int), defaultdict(float)))
    for (name, *_), events in found.items():
        if name in loops:
            runs = [event._replace(done=ends.get(key, event.end)) for key, event in events]
            share_out(sorted(runs), loops[name], totals[name])
    return totals


def share_out(events: list[Event], loops: set[str], spent: Spent) -> None:
    """Share the time of one device out among its instructions. Events are by rising start.

    Loops contain what runs in them, which has events of its own; so a moment belongs to the event
    that began last. Between two events something is still at work if a part of it was left to
    another thread, as in large matrix products; otherwise the time went into starting the next.
    """
    left: Event | None = None
    next_start = [event.start for event in events[1:]] + [events[-1].end]
    for event, then in zip(events, next_start, strict=True):
        if event.done > event.end and event.name not in loops:
            left = event
        at_work = left if left and left.done > event.end else event
        own = min(event.end, then) - event.start
        spent.runs[event.name] += 1
        spent.nanoseconds[event.name] += own
        spent.nanoseconds[at_work.name] += then - event.start - own


def cost_table(engine: Engine, path: Path, timings: list[dict[str, Any]]) -> dict[str, Any]:
    """The content of costs.json. path: of a trace; timings: lines of timings.jsonl."""
    programs = {name: costs.parse(p.as_text()) for name, p in engine.programs.items()}
    trace = read_trace(path, list(programs.values()))
    quick = [row for row in timings if not row.get("traced")] or timings  # tracing takes time
    seconds = {
        "rounds": [row["seconds"] / row["rounds"] for row in quick],
        "evaluation": [row["evaluate_seconds"] for row in timings if "evaluate_seconds" in row],
    }
    memory = costs.memory(engine)
    return {
        "round": next(row["round"] for row in timings if row.get("traced")),
        "devices": engine.facts.plan.devices,
        "programs": {
            name: {
                "seconds": median(seconds[name]) if seconds[name] else None,
                "memory": memory[name],
                **_costs(program, trace[program.name]),
            }
            for name, program in programs.items()
        },
    }


def _costs(program: costs.Program, spent: Spent) -> dict[str, Any]:
    kernels = []
    for name, runs in spent.runs.items():
        if name not in program.home:
            continue
        one = costs.cost(program, name)
        if not spent.runs.keys().isdisjoint(costs.within(program, name)):
            one = costs.Cost("other", one.path, 0, 0, 0)  # what runs in it has events of its own
        kernels.append(
            {
                "name": name,
                "stage": one.stage,
                "runs": runs,
                "flops": runs * one.flops,
                "matmul_flops": runs * one.matmul_flops,
                "bytes": runs * one.nbytes,
                "device_seconds": spent.nanoseconds[name] / 1e9,
                "path": one.path,
            }
        )

    def total(kernels: list[dict[str, Any]]) -> dict[str, Any]:
        keys = ("flops", "matmul_flops", "bytes", "device_seconds")
        return {key: sum(kernel[key] for kernel in kernels) for key in keys}

    of = {stage: [k for k in kernels if k["stage"] == stage] for stage in costs.STAGES}
    return {
        "total": total(kernels),
        "stages": {stage: total(some) for stage, some in of.items() if some},
        "kernels": sorted(kernels, key=lambda kernel: -kernel["device_seconds"]),
    }
