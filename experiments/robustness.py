"""Four attacks by 0, 20, 50 and 80 % of fifty clients, on FLAME, pFedMe, Ditto and multi-Krum.

    python experiments/robustness.py MNIST_FOLDER OUT [--form standard|published] [--set KEY=VALUE]

Every run is an ordinary results folder below OUT, and finished runs are not repeated. The table and
the picture go to OUT as well.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

import flamejax as fj
from flamejax.config import lay_over, load, override
from flamejax.report.palette import COLORS

CONFIG = Path(__file__).parents[1] / "configs" / "mnist_hybrid_robustness.toml"
ATTACKS = ("label_poison", "same_value", "sign_flip", "gaussian")
FRACTIONS = (0.0, 0.2, 0.5, 0.8)
# multi-Krum is FedAvg with another aggregator; it has no personalized models
SHOWN = dict.fromkeys(("flame", "pfedme", "ditto"), ("pm", "gm", "hm")) | {"fedavg": ("gm",)}
LINES = {"pm": "-", "gm": "--"}  # HM is in the table


def methods(form: str) -> list[str]:
    flame = "flame:published" if form == "published" else "flame"
    others = [f"{name}:{form}" for name in ("pfedme", "ditto")]
    return [flame, *others, "fedavg+multi_krum"]


def measure(values: dict[str, Any], form: str, out: Path) -> dict[tuple[str, float], list[dict]]:
    """(attack, fraction) -> a row of figures per method."""
    honest = fj.compare(values, methods=methods(form), out=out / "none").rows
    found = {}
    for attack in ATTACKS:
        for fraction in FRACTIONS:
            if fraction == 0:
                found[attack, fraction] = honest
                continue
            attacked = lay_over(values, {"attack": {"name": attack, "fraction": fraction}})
            folder = out / f"{attack}-{fraction}"
            found[attack, fraction] = fj.compare(attacked, methods=methods(form), out=folder).rows
    return found


def title(method: str, model: str) -> str:
    return "multi-Krum" if method == "fedavg" else f"{method} {model.upper()}"


def table(found: dict[tuple[str, float], list[dict]]) -> str:
    columns = [(method, model) for method, models in SHOWN.items() for model in models]
    lines = [f"| attack | malicious | {' | '.join(title(*c) for c in columns)} |"]
    lines.append("|" + "---|" * (len(columns) + 2))
    for (attack, fraction), rows in found.items():
        by_method = {row["method"]: row for row in rows}
        values = [by_method[method][f"{model}_accuracy_mean"] for method, model in columns]
        best = max(v for v in values if v is not None)
        shown = ["-" if v is None else f"{v:.4f}".removeprefix("0") for v in values]
        shown = [f"**{s}**" if v == best else s for s, v in zip(shown, values, strict=True)]
        lines.append(f"| {attack} | {fraction:.0%} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def draw(found: dict[tuple[str, float], list[dict]]) -> plt.Figure:
    """An axes per attack: accuracy against the fraction of malicious clients."""
    figure, panels = plt.subplots(1, 4, figsize=(13, 3.6), sharey=True, layout="constrained")
    for axes, attack in zip(panels, ATTACKS, strict=True):
        for number, (method, models) in enumerate(SHOWN.items()):
            for model in (m for m in models if m in LINES):
                values = [found[attack, f][number][f"{model}_accuracy_mean"] for f in FRACTIONS]
                look = {"color": COLORS[method], "marker": "o", "ms": 3.5, "lw": 1.6}
                axes.plot(FRACTIONS, values, LINES[model], label=title(method, model), **look)
        axes.set(title=attack, xlabel="fraction of malicious clients", xticks=FRACTIONS)
        axes.grid(alpha=0.25, lw=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set(ylabel="test accuracy, benign clients")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("mnist", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--form", choices=["standard", "published"], default="standard")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    changes: dict[str, Any] = {"data": {"dir": str(options.mnist)}}
    for assignment in options.set:
        override(changes, assignment)
    found = measure(lay_over(load(CONFIG), changes), options.form, options.out)
    (options.out / "table.md").write_text(table(found))
    draw(found).savefig(options.out / "robustness.png", dpi=130)
    print(table(found))


if __name__ == "__main__":
    main()
