"""How fast FLAME converges, and whether it descends: inside the conditions, and outside.

    python experiments/theory/rates.py [--smoke]

Three problems, each with a lam and rho that satisfy the convergence conditions and with the paper's
(lam alpha = rho = 0.1): least squares (strongly convex), softmax regression with weight decay
(convex), the MLP (not convex). Local steps go on until (16) holds with the tolerances of (17).
Writes rates.{png,json,md} beside this file.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import flamejax as fj
from flamejax.theory import conditions
from flamejax.theory.rate import speed

HERE = Path(__file__).parent
SCALE = 0.05  # of the pixels, which makes the losses smooth enough for the conditions
DECAY = 0.01
LINES = {"lagrangian": "-", "lyapunov": ":"}
COLORS = {"conditions hold": "#1f6f8b", "paper's setting": "#c1440e"}


def digits(smoke: bool) -> fj.Dataset:
    data = fj.load_data("mnist_mini")
    images = (data.images / 255.0 * SCALE).reshape(len(data.images), -1)
    keep = slice(0, 1000) if smoke else slice(None)
    return fj.Dataset(images[keep], data.labels[keep], 10)


def softmax_bound(data: fj.Dataset) -> float:
    """L of softmax regression on any client is at most this: |x|^2/2 of the longest x, and the
    weight decay. Clients' largest eigenvalues of X'X/N are smaller."""
    ones = np.append(data.images, np.ones((len(data.images), 1)), axis=1)
    return float((ones**2).sum(1).max() / 2 + DECAY)


def problems(smoke: bool) -> dict[str, dict[str, Any]]:
    data, clients = digits(smoke), 100
    images = {"partition": {"name": "iid", "clients": clients}, "data": data}
    return {
        "least squares": {
            "data": {"name": "linreg", "features": 5, "samples": 20, "scale": 0.1},
            "partition": {"clients": 10},
            "rounds": 400 if not smoke else 100,
            "method": {"upsilon": 0.89},  # so that tolerances shrink faster than all else
        },
        "softmax regression": {
            **images,
            "model": {"name": "mlr"},
            "method": {"weight_decay": DECAY},
            "record": {"smoothness": softmax_bound(data)},
            "rounds": 500 if not smoke else 10,
        },
        "MLP": {
            **images,
            "model": {"name": "mlp"},
            "rounds": 200 if not smoke else 3,
            "method": {
                "epsilon0": 1e-8,
                "max_steps": 20,
            },  # (16) squares small numbers
        },
    }


def carry_out(settings: dict[str, Any], lam: float, rho: float, smoothness: float) -> fj.Result:
    method = {
        "lam": lam,
        "rho": rho,
        "lr": 1 / (smoothness + lam),
        "batch": 1000,
        "local_solver": "until_epsilon",
        "epsilon0": 1e-6,
        "upsilon": 0.95,
        "max_steps": 50,
        **settings.get("method", {}),
    }
    record = {"theory": True, "smoothness": smoothness}
    engine = {"precision": "float64"}
    rest = {**settings, "method": method, "record": record, "engine": engine}
    return fj.run(eval_every=rest["rounds"], **rest)


def smoothness_of(settings: dict[str, Any]) -> float:
    """Given, or estimated by a run of one round."""
    given = settings.get("record", {}).get("smoothness")
    if given is not None:
        return given
    one = {**settings, "rounds": 1, "record": {"theory": True}}
    return fj.run(engine={"precision": "float64"}, quiet=True, **one).summary["theory"][
        "smoothness"
    ]


def study(problems: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for name, settings in problems.items():
        clients, smoothness = settings["partition"]["clients"], smoothness_of(settings)
        asked = conditions.Point(0.235 * clients / 10, 0.1, 1 / clients, smoothness)
        inside = conditions.nearest(asked)
        if inside is None:
            raise SystemExit(f"{name}: L = {smoothness} leaves no feasible lam and rho")
        points = {"conditions hold": inside, "paper's setting": asked._replace(lam=0.1 * clients)}
        for where, point in points.items():
            result = carry_out(settings, point.lam, point.rho, smoothness)
            theory = result.summary["theory"]
            row = {"problem": name, "where": where, "clients": clients, **point._asdict()}
            row |= {"rounds": settings["rounds"], "seconds": result.summary["seconds"]}
            row |= {key: theory[key] for key in ("conditions", "descent", "rates")}
            print(json.dumps(row), flush=True)
            curves = {energy: result.theory[energy].tolist() for energy in LINES}
            found.append({**row, "curves": curves})
    return found


def draw(found: list[dict[str, Any]], path: Path) -> None:
    names = list(dict.fromkeys(row["problem"] for row in found))
    figure, grid = plt.subplots(
        1, len(names), figsize=(11, 4.2), layout="constrained", squeeze=False
    )
    panels = grid[0]
    for row in found:
        axes, color = panels[names.index(row["problem"])], COLORS[row["where"]]
        for energy, line in LINES.items():
            rate, values = row["rates"][energy], np.array(row["curves"][energy], float)
            if rate:
                far = values - rate["limit"]
                far = np.where(far > 1e-15, far, np.nan)
                label = f"{energy}, {row['where']}: {speed(rate)}"
                axes.loglog(np.arange(len(far)) + 1, far, line, color=color, label=label)
    for axes, name in zip(panels, names, strict=True):
        axes.set(title=name, xlabel="round + 1")
        axes.grid(alpha=0.25, lw=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.18))
    panels[0].set(ylabel="distance to the limit")
    figure.savefig(path, dpi=150)


def table(found: list[dict[str, Any]]) -> str:
    heads = ["problem", "lam, rho", "clients", "L", "conditions", "rounds", "(16) missed in"]
    heads += ["Lagrangian rose in", "short of Lemma 1 in", "Lagrangian", "Lyapunov function"]
    lines = [heads, ["---"] * len(heads)]
    for row in found:
        lost = [f"({c})" for c, holds in row["conditions"].items() if not holds]
        descent = row["descent"]
        lines.append(
            [
                row["problem"],
                f"{row['lam']:.4g}, {row['rho']:.4g}",
                str(row["clients"]),
                f"{row['smoothness']:.3g}",
                f"{' '.join(lost)} violated" if lost else "all hold",
                str(row["rounds"]),
                str(descent["tolerance_missed"]),
                str(descent["rises"]),
                str(descent.get("lemma1_shortfalls", "-")),
                *(_fit(row["rates"][energy]) for energy in LINES),
            ]
        )
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _fit(rate: dict[str, Any] | None) -> str:
    """A rate, and what the fits of both kinds leave of the variance of the logarithms."""
    if rate is None:
        return "-"
    left = f"{rate['error_linear']:.0e} / {rate['error_sublinear']:.0e}"
    return f"{rate['kind']}, {speed(rate)} ({left})"


def write(found: list[dict[str, Any]], folder: Path) -> None:
    lines = ",\n".join(json.dumps(row) for row in found)
    (folder / "rates.json").write_text(f"[\n{lines}\n]\n")
    (folder / "rates.md").write_text(table(found))
    draw(found, folder / "rates.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a few rounds, nothing written")
    smoke = parser.parse_args().smoke
    found = study(problems(smoke))
    if not smoke:
        write(found, HERE)
    print(table(found))


if __name__ == "__main__":
    main()
