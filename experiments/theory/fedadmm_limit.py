"""FLAME as lam grows: its solution becomes FedADMM's, its steps do not.

    python experiments/theory/fedadmm_limit.py

Least squares on clients with inputs of different shapes. Left: how far FLAME's fixed point is from
FedADMM's, by the closed form and where the engine stops. Right: how fast each gets to its own.
Writes fedadmm_limit.{png,json} beside this file.
"""

from __future__ import annotations

import json
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap

from flamejax import config, engine
from flamejax.federation import federate
from flamejax.models.dense import linear
from flamejax.report.palette import COLORS
from flamejax.theory.linear import Problem, consensus, problem, stationary
from flamejax.types import Dataset

HERE = Path(__file__).parent
LAMS = (0.1, 1.0, 10.0, 100.0, 1000.0)
CLIENTS, FEATURES, SAMPLES = 5, 4, 300


def data() -> Dataset:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(SAMPLES, FEATURES)) * rng.uniform(0.5, 1.5, FEATURES)
    return Dataset(x, x @ rng.normal(size=FEATURES) + rng.normal(size=SAMPLES), 1)


def trace(method: dict, rounds: int, looks: int) -> tuple[Problem, np.ndarray, np.ndarray, list]:
    """The problem, the rounds at which the engine was looked at, w then [looks, d], and the
    personalized models in the end."""
    settings = config.make(
        {
            "partition": {"name": "quantity", "clients": CLIENTS, "beta": 2.0, "min_samples": 20},
            "method": method,
            "engine": {"precision": "float64"},
        }
    )
    with jax.enable_x64(True):
        federation = federate(settings, data(), np.random.default_rng(0))
        model = linear(0)
        every = rounds // looks
        built = engine.build(settings, settings.method.build(model), model, federation, every)
        state, found = built.state, []
        for _ in range(looks):
            state, _ = built.run(state, every)
            found.append(built.models(state, 0)[0])
        personal = [built.models(state, i)[1] for i in range(CLIENTS)]
    return problem(federation), every * np.arange(1, looks + 1), np.stack(found), personal


def main(folder: Path = HERE, lams: tuple[float, ...] = LAMS) -> None:
    curves, points = {}, []
    local = {"batch": 400, "max_steps": 1000}
    for lam in lams:
        x = lam / CLIENTS
        method = {"name": "flame", "lam": lam, "rho": min(0.3, 2.6 * x), "lr": 1 / (3 + lam)}
        method |= {"local_solver": "until_epsilon", "epsilon0": 1e-26, "upsilon": 0.999999}
        rounds = int(60 * max(5.0, lam))
        given, at, w, theta = trace(method | local, rounds, 200)
        best, one = stationary(given, lam)[0], consensus(given)
        curves[f"FLAME, λ = {lam:g}"] = at, np.linalg.norm(w - best, axis=1)
        points.append(
            {
                "lam": lam,
                "engine": float(np.linalg.norm(w[-1] - one)),
                "exact": float(np.linalg.norm(best - one)),
                "engine_spread": float(max(np.linalg.norm(t - w[-1]) for t in theta)),
                "engine_error": float(np.linalg.norm(w[-1] - best)),
                "rounds": rounds,
            }
        )
        print(points[-1], flush=True)
    method = {"name": "fedadmm", "rho": 0.3, "lr": 0.3, "batch": 400, "epochs": 100}
    given, at, w, _ = trace(method, 400, 200)
    one = consensus(given)
    curves["FedADMM"] = at, np.linalg.norm(w - one, axis=1)
    fedadmm = float(np.linalg.norm(w[-1] - one))
    report = {"points": points, "fedadmm_error": fedadmm}
    (folder / "fedadmm_limit.json").write_text(json.dumps(report, indent=1) + "\n")
    draw(given, points, curves, folder / "fedadmm_limit.png")


def draw(given: Problem, points: list[dict], curves: dict, path: Path) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    lams, one = np.logspace(-1.3, 3.3, 60), consensus(given)
    solved = [stationary(given, lam) for lam in lams]
    far = [np.linalg.norm(w - one) for w, _ in solved]
    spread = [np.linalg.norm(theta - w, axis=1).max() for w, theta in solved]
    left.loglog(lams, far, "-", color=COLORS["flame"], label="|w - w of FedADMM|")
    left.loglog(lams, spread, "--", color="#1f6f8b", label="largest |θᵢ - w|")
    at = [p["lam"] for p in points]
    left.loglog(at, [p["engine"] for p in points], "o", color=COLORS["flame"], label="the engine")
    left.loglog(at, [p["engine_spread"] for p in points], "o", color="#1f6f8b")
    left.loglog(lams[-25:], 2 * far[-25] * lams[-25] / lams[-25:], ":", color="#666666")
    left.annotate("1/λ", (lams[-12], 2.6 * far[-25] * lams[-25] / lams[-12]), color="#666666")
    left.set(xlabel="λ", title="The solution becomes FedADMM's,")
    shades = LinearSegmentedColormap.from_list("flame", ["#f6c7a8", COLORS["flame"], "#4d1600"])
    colors = [*shades(np.linspace(0, 1, len(curves) - 1)), COLORS["fedadmm"]]
    for color, (name, (rounds, error)) in zip(colors, curves.items(), strict=True):
        line = "--" if name == "FedADMM" else "-"
        right.loglog(rounds, np.maximum(error, 1e-16), line, color=color, label=name, lw=1.5)
    right.set(xlabel="round", ylabel="|w - its own limit|", title="but it takes λ times as long")
    for axes in (left, right):
        axes.grid(alpha=0.25, lw=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8, loc="lower left")
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
