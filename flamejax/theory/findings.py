"""What a run that records the theory found out: rows of theory.jsonl, and their summary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from flamejax.config import Config
from flamejax.evaluate import finite
from flamejax.theory import conditions
from flamejax.theory.lagrangian import Measured
from flamejax.theory.rate import fit

ROUNDING = 256  # times that of the largest value: a rise or a shortfall above it counts
ENVELOPE = ("envelope", "envelope_gradient", "prox_residual")
OF_A_ROUND = ("moved", "inexactness", "inexactness_ratio")  # not there before the first

Row = dict[str, Any]


def row(config: Config, round: int, found: Measured) -> Row:
    """A line of theory.jsonl; numbers that do not exist are null."""
    values = {name: finite(value) for name, value in found._asdict().items()}
    if not config.record.prox_steps:
        values = {name: value for name, value in values.items() if name not in ENVELOPE}
    if not scheduled(config):
        values |= {"epsilon": None, "inexactness_ratio": None}
    if not round:
        values |= dict.fromkeys(OF_A_ROUND)
    return {"round": round, **values}


def rows(config: Config, first: int, found: Measured) -> Iterable[Row]:
    """The same for some rounds [R] from `first` on."""
    for number, values in enumerate(zip(*found, strict=True)):
        yield row(config, first + number, Measured(*values))


def columns(rows: Sequence[Row]) -> dict[str, np.ndarray]:
    """Name -> values [rows]; null is NaN."""
    names = rows[0] if rows else ()
    return {name: np.array([row[name] for row in rows], float) for name in names}


def scheduled(config: Config) -> bool:
    """The local solver keeps to the tolerances of (16) and (17)."""
    return getattr(config.method, "local_solver", None) == "until_epsilon"


def summarize(
    config: Config, rows: Sequence[Row], smoothness: float, alphas: np.ndarray
) -> dict[str, Any]:
    """For summary.json. alphas: of all clients."""
    method: Any = config.method
    points = [
        conditions.Point(method.lam, method.rho, float(alpha), smoothness)
        for alpha in np.unique(alphas)
    ]
    held = {
        name: all(condition.holds for condition in found)
        for name, found in zip("abc", zip(*map(conditions.check, points), strict=True), strict=True)
    }
    table = columns(rows)
    rates = {name: fit(table[name]) for name in ("lagrangian", "lyapunov")}
    return {
        "smoothness": smoothness,
        "smoothness_from": "estimate" if config.record.smoothness == "estimate" else "given",
        "conditions": held,
        "descent": descent(config, table, points, all(held.values())),
        "rates": {name: found and found._asdict() for name, found in rates.items()},
        "last": rows[-1],
    }


def descent(
    config: Config,
    table: Mapping[str, np.ndarray],
    points: Sequence[conditions.Point],
    proven: bool,
) -> dict[str, Any]:
    """Whether what should fall falls, over the recorded rounds; what is below rounding is not
    counted. proven: the conditions hold, so Lemma 1 and, with everyone, Lemma 2 should too."""
    eps = np.finfo(config.engine.precision).eps
    lagrangian, lyapunov, moved = (table[n] for n in ("lagrangian", "lyapunov", "moved"))
    rounding = ROUNDING * eps * np.abs(lagrangian).max()
    rises = np.diff(lagrangian)
    found: dict[str, Any] = {
        "rounds": len(rises),
        "rises": int((rises > rounding).sum()),
        "largest_rise": finite(rises.max(initial=0.0)),
    }
    if scheduled(config):
        ratio = table["inexactness_ratio"][1:]
        found["tolerance_missed"] = int((ratio > 1 + ROUNDING * eps).sum())  # rounds against (16)
    if proven and np.isfinite(lyapunov).all():
        least = min(map(conditions.descent_constant, points))
        short = least * moved[1:] + np.diff(lyapunov)
        found["lemma1_shortfalls"] = int((short > rounding).sum())
        most = max(map(conditions.relative_error_constant, points))
        bound = most * (moved[1:] + table["epsilon"][1:])
        slope = table["gradient"]
        above = slope[:-1] > np.sqrt(bound) + ROUNDING * eps * slope.max()
        found["lemma2_excesses"] = int(above.sum())
    return found
