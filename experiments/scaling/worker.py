"""A run that waits for its turn: `train N` makes it go on for N calls of some rounds.

worker.py UNUSED KEY=VALUE ...
"""

from __future__ import annotations

import sys
import time

BEGAN = time.perf_counter()

from flamejax.bench.workers import protocol  # noqa: E402
from flamejax.config import make, override  # noqa: E402
from flamejax.engine import build  # noqa: E402
from flamejax.federation import assemble  # noqa: E402
from flamejax.readying import model_of, rounds_per_call  # noqa: E402


def main(assignments: list[str]) -> None:
    values: dict = {"rounds": 10**6, "eval_every": 10**6}
    for assignment in assignments:
        override(values, assignment)
    config = make(values)
    imported = time.perf_counter()
    federation = assemble(config)[1]
    _, model = model_of(config, None, federation)
    per_call = min(20, rounds_per_call(config, model, federation))
    engine = build(config, config.method.build(model), model, federation, per_call)
    ready = time.perf_counter()
    state, done = engine.state, 0

    def train(calls: int) -> dict[str, float]:
        nonlocal state, done
        for _ in range(calls):
            rounds = engine.stride(done)
            state, log = engine.run(state, rounds)
            done += rounds
        return {"loss": float(log.loss[-1] / log.samples[-1])}

    def evaluate(times: int) -> dict[str, float]:
        for _ in range(times):
            sums = engine.evaluate(state)
        return {"clients": len(sums.loss)}

    compiling = engine.facts.compile_seconds
    protocol.serve(
        {"train": train, "evaluate": evaluate},
        rounds=engine.stride(0),
        import_seconds=imported - BEGAN,
        setup_seconds=ready - imported - compiling,
        compile_seconds=compiling,
        store="dense" if engine.store is None else "touched",
        plan=str(engine.facts.plan),
    )


if __name__ == "__main__":
    main(sys.argv[2:])
