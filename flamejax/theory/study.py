"""Every closed form of `flamejax.theory.regression` beside its estimate from the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from flamejax import config as configs
from flamejax.config import Config
from flamejax.errors import InputError
from flamejax.registry import short
from flamejax.theory import monte_carlo, printed, regression
from flamejax.theory.monte_carlo import METHODS, Estimate, Simulation, Size
from flamejax.theory.regression import ATTACKS, MODELS, Problem

DEFAULTS: dict[str, Any] = {  # FLAME is better than Ditto in some respects and worse in others
    "data": {"name": "linreg", "features": 6, "samples": 8, "noise": 1.5, "spread": 0.7},
    "partition": {"clients": 5},
    "method": {"name": "flame", "lam": 0.8, "rho": 0.15},
    "attack": {"name": "same_value", "fraction": 0.2, "gamma2": 1.0},
}
ELSEWHERE = (0.1, 0.4, 0.7, 1.0)  # further points on the curves, of the largest q up to 1
SIMULATIONS = len(METHODS) * len(ATTACKS)
ROUNDING = 1e-12  # relative; differences below it are not the formula's


def configure(values: Mapping[str, Any], changes: Mapping[str, Any]) -> Config:
    """The run of FLAME that is studied: settings over the defaults. What would lead away from the
    analysis is refused."""
    given = configs.lay_over(values, changes)
    config = configs.make(configs.lay_over(DEFAULTS, given))
    fixed = {
        "data.name": ("linreg",),
        "partition.name": ("natural",),
        "model.name": ("auto", "linear"),
        "participation.clients_per_round": ("all",),
        "aggregator.name": ("mean",),
        "attack.name": ATTACKS,  # all of them are shown
        "method.name": ("flame",),  # and pFedMe and Ditto with its lam
    }
    for key, known in fixed.items():
        section, name = key.split(".")
        found = getattr(getattr(config, section), name)
        if found not in known:
            raise InputError(
                f"{key} = {short(found)}: the analysis is of {' or '.join(map(repr, known))}"
            )
    if config.data.samples < 3:
        raise InputError(f"data.samples = {config.data.samples}: at least 3")
    exact = monte_carlo.exactly(config, "flame", "same_value")
    for key in given.get("method", {}):
        found, needed = getattr(config.method, key), getattr(exact.method, key)
        if found != needed:
            raise InputError(
                f"method.{key} = {short(found)}: local solutions are exact, with {short(needed)}; "
                "leave it out"
            )
    if not exact.malicious:
        who = f"none of {config.partition.clients} clients is malicious"
        raise InputError(f"attack.fraction = {config.attack.fraction}: {who}; give more")
    return exact


class Lab(NamedTuple):
    """A problem, and the programs that simulate it."""

    config: Config
    problem: Problem
    qs: list[float]  # of FLAME: the config's, and further ones
    size: Size
    programs: dict[str, Future[Simulation]]  # by method

    @property
    def q(self) -> float:
        return self.qs[0]


def set_up(config: Config, draws: int) -> Lab:
    """config: from `configure`. The programs are compiled in the background."""
    federation, problem = monte_carlo.clients_of(config)
    hyper, b, clients = config.method.hyper(), config.data.scale, config.partition.clients
    lam, rho = hyper.lam, hyper.rho
    most = min(1.0, 0.99 * regression.most_q(lam, b))
    qs = [regression.q_of(lam, rho, clients, b), *(most * x for x in ELSEWHERE)]
    rhos = [rho, *(regression.rho_of(lam, q, clients, b) for q in qs[1:])]
    pool = ThreadPoolExecutor(2)
    programs = {
        method: pool.submit(monte_carlo.compile_draws, config, method, federation, rhos, draws)
        for method in METHODS
    }
    pool.shutdown(wait=False)
    return Lab(config, problem, qs, Size.of(draws), programs)


def simulate(lab: Lab, method: str, attack: str, fresh: int = 0) -> np.ndarray:
    """Batch means of test losses [B, Q, m_b, 2]; Q = 1 unless the method is FLAME.

    Every method and attack has draws of its own. fresh: so many times as many, and none of those.
    """
    number = METHODS.index(method) * len(ATTACKS) + ATTACKS.index(attack)
    runs = range(number, number + 1)
    if fresh:
        start = SIMULATIONS + number * fresh
        runs = range(start, start + fresh)
    program = lab.programs[method].result()
    losses = np.concatenate([program(attack, run * lab.size.draws) for run in runs])
    return losses if attack == "none" else losses[:, :, ~lab.problem.malicious]


Row = dict[str, Any]


def compare(lab: Lab, method: str, attack: str, losses: np.ndarray) -> list[Row]:
    """A row for each figure and model: "figure" (a function of `flamejax.theory.regression`),
    "attack", "method", "model", "q", "closed", "measured", "error" (standard), "z", "printed" and
    "printed_z", which are None where the paper is right."""
    q = lab.q if method == "flame" else 1.0
    qs = lab.qs
    rows = []
    for j, model in enumerate(MODELS):
        seen = losses[..., j]
        found: dict[str, tuple[Estimate, tuple[Any, ...]]] = {
            "average_loss": (monte_carlo.average_loss(seen[:, 0]), (q,)),
            "loss_variance": (monte_carlo.loss_variance(seen[:, 0]), (q,)),
        }
        if method == "flame":
            found["threshold"] = (monte_carlo.threshold(seen, qs), ())
            found["variance_curvature"] = (monte_carlo.variance_curvature(seen, qs), ())
        for figure, (estimate, at) in found.items():
            arguments = (lab.problem, attack, *at, model)
            closed = getattr(regression, figure)(*arguments)
            wrong = getattr(printed, figure)(*arguments)
            rows.append(
                {
                    "figure": figure,
                    "attack": attack,
                    "method": method,
                    "model": model,
                    "q": q if at else None,
                    "closed": closed,
                    "measured": estimate.value,
                    "error": estimate.error,
                    "z": score(estimate, closed),
                    "printed": wrong,
                    "printed_z": None if wrong is None else score(estimate, wrong),
                }
            )
    return rows


def repeat(lab: Lab, row: Row, fresh: int) -> Row:
    """The same comparison from `fresh` times as many draws, all of them new."""
    method, attack = row["method"], row["attack"]
    rows = compare(lab, method, attack, simulate(lab, method, attack, fresh))
    same = {"figure": row["figure"], "model": row["model"]}
    return next(one for one in rows if same.items() <= one.items())


def score(estimate: Estimate, value: float) -> float:
    """How many standard errors the estimate lies above a value; rounding does not count."""
    away = estimate.value - value
    return away / np.hypot(estimate.error, ROUNDING * abs(value)) if away else 0.0


def points(lab: Lab, method: str, attack: str, losses: np.ndarray) -> list[Row]:
    """Average losses at every q, for the picture: "attack", "method", "model", "q", "measured",
    "error"."""
    rows = []
    for k, q in enumerate(lab.qs if method == "flame" else [1.0]):
        for j, model in enumerate(MODELS):
            found = monte_carlo.average_loss(losses[:, k, :, j])
            of = {"attack": attack, "method": method, "model": model, "q": q}
            rows.append(of | {"measured": found.value, "error": found.error})
    return rows


class Study(NamedTuple):
    lab: Lab
    rows: list[Row]  # see `compare`
    points: list[Row]

    def to_dict(self) -> dict[str, Any]:
        """All figures, for JSON."""
        lab = self.lab
        return {
            "q": lab.q,
            "draws": lab.size.draws,
            "theta": lab.problem.theta.tolist(),
            "malicious": np.flatnonzero(lab.problem.malicious).tolist(),
            "rows": self.rows,
            "points": self.points,
        }


def study(config: Config, draws: int, watch: Callable[[int], None] = lambda done: None) -> Study:
    """All methods under all attacks, as in `study(configure({}, {"seed": 1}), draws=200_000)`.

    watch: is told how many of `SIMULATIONS` are done.
    """
    lab = set_up(config, draws)
    rows: list[Row] = []
    curves: list[Row] = []
    done = 0
    for method in METHODS:
        for attack in ATTACKS:
            losses = simulate(lab, method, attack)
            rows += compare(lab, method, attack, losses)
            curves += points(lab, method, attack, losses)
            done += 1
            watch(done)
    return Study(lab, rows, curves)
