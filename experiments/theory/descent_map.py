"""Where the Lagrangian falls: a map of lam alpha and rho on least squares.

    python experiments/theory/descent_map.py

Ten clients with X'X = N I, exact theta-steps, 100 rounds from zero for every point; a cell is the
share of rounds in which the Lagrangian rose. Lines: what the paper's conditions allow, and what is
enough for convex losses and exact steps, rho >= 2.56 lam alpha (tests/test_errata.py).
Writes descent_map.{png,json} beside this file.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import flamejax as fj
from flamejax.theory import conditions

HERE = Path(__file__).parent
CLIENTS = 10
XS = np.logspace(-3, 0.5, 15)
RHOS = np.logspace(-3, 1, 17)
ENOUGH = (1 + 17**0.5) / 2


def shares(x: float, rhos: np.ndarray, rounds: int) -> list[float]:
    """For every rho the share of rounds with a rise."""
    lam = float(x * CLIENTS)
    settings = {
        "rounds": rounds,
        "eval_every": rounds,
        "data": {"name": "linreg", "features": 5, "samples": 20},
        "partition": {"clients": CLIENTS},
        # a step of this rate is exact here; it is the second that finds that out
        "method": {"lam": lam, "lr": 1 / (1 + lam), "batch": 20, "local_solver": "until_epsilon",
                   "epsilon0": 1e-20, "upsilon": 0.999, "max_steps": 2},
        "engine": {"precision": "float64"},
        "record": {"theory": True, "smoothness": 1.0},
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "sweep"
        grid = {"method.rho": [float(rho) for rho in rhos]}
        rows = fj.sweep(settings, grid=grid, out=out, quiet=True).runs
        found = [json.loads((out / row["folder"] / "summary.json").read_text()) for row in rows]
    return [summary["theory"]["descent"]["rises"] / rounds for summary in found]


def main(
    folder: Path = HERE, xs: np.ndarray = XS, rhos: np.ndarray = RHOS, rounds: int = 100
) -> None:
    found = []
    for x in xs:
        found.append(shares(x, rhos, rounds))
        print(f"lam alpha = {x:.4g}: {found[-1]}", flush=True)
    report = {"lam_alpha": xs.tolist(), "rho": rhos.tolist(), "share_of_rounds_with_a_rise": found}
    (folder / "descent_map.json").write_text(json.dumps(report) + "\n")
    draw(np.array(found), xs, rhos, folder / "descent_map.png")


def draw(found: np.ndarray, xs: np.ndarray, rhos: np.ndarray, path: Path) -> None:
    figure, axes = plt.subplots(figsize=(6.4, 4.6), layout="constrained")
    cells = axes.pcolormesh(rhos, xs, found, cmap="Oranges", vmin=0, vmax=1, shading="nearest")
    figure.colorbar(cells, label="share of rounds in which the Lagrangian rose")
    inside = np.logspace(-3, np.log10(0.28), 100)
    low, high = np.array([conditions.band(rho, 0.0) for rho in inside]).T
    axes.fill_between(inside, low, high, color="#1f6f8b", lw=2, label="conditions hold (L = 0)")
    wide = np.array([rhos[0], rhos[-1]])
    axes.plot(
        wide,
        wide / ENOUGH,
        "--",
        color="#333333",
        label="$\\rho = 2.56\\,\\lambda\\alpha$: enough below",
    )
    axes.plot(0.1, 0.1, "kx", label="the paper's experiments")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="$\\rho$",
        ylabel="$\\lambda\\alpha$",
        ylim=(xs[0] / 1.2, xs[-1] * 1.2),
    )
    axes.set(title="Least squares, exact steps: descent outside the conditions")
    axes.legend(loc="lower right", fontsize=8)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
