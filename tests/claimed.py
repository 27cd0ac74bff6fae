"""Experiments that were not, which find what the paper says, but for changes of some figures."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from flamejax.comparison import Comparison
from flamejax.experiment.results import Experiment, Group

ROUNDS = np.arange(5, 55, 5)
Q = ("q2", "q3", "q4", "q5", "q6")
LABEL = ("dirichlet", *Q)
OTHER = ("quality", "quantity", "writer")
PARTITIONS = ("hybrid", *LABEL, *OTHER)
ATTACKS = ("label_poison", "same_value", "sign_flip", "gaussian")
NO_ATTACK = {"attack.name": "none", "attack.fraction": 0.0}
KEYS = {
    "lambda": ("method.lam", (1.0, 3.0, 5.0)),
    "local-iterations": ("method.epochs", (1, 5, 10)),
    "rho": ("method.rho", (0.1, 0.5, 1.0)),
    "participation": ("participation.clients_per_round", (10, 30, "all")),
}
LABELS = {
    "standard": {"flame": "flame", "pfedme": "pfedme", "ditto": "ditto"},
    "published": {m: f"{m}:published" for m in ("flame", "pfedme", "ditto")},
}
KRUM = "fedavg+multi_krum"


class Line(NamedTuple):
    """One model of one method at one place, and its figures."""

    partition: str
    point: dict[str, Any]
    form: str
    method: str
    model: str
    figures: dict[str, float]

    @property
    def name(self) -> str:
        return f"{self.method} {self.model}"


Change = Callable[[Line], None]


def as_the_paper_says(partition, point, method, model) -> dict[str, float]:
    """Last accuracy, loss and variance of losses, and the speed of convergence."""
    pm, gm = (0.75, 0.9) if partition in OTHER else (0.93, 0.85)
    if partition in Q:
        pm, gm = pm - 0.005 * int(partition[1]), gm + 0.005 * int(partition[1])
    pm -= {"flame": 0, "pfedme": 0.029, "ditto": 0.049}.get(method, 0)
    gm -= {"flame": 0, "pfedme": 0.049, "ditto": 0.235}.get(method, 0.1)
    accuracy = {"pm": pm, "gm": gm}.get(model, max(pm, gm) + 0.01)
    variance = 2.0 if model == ("pm" if partition in OTHER else "gm") else 1.0
    variance *= 0.956 if model == "hm" else 1
    figures = {"accuracy": accuracy, "loss": 1.0, "loss_var": variance, "speed": 0.3}
    if method != "flame":
        figures |= {"loss": 1.5, "loss_var": 2 * variance, "speed": 0.1}
    fraction = point.get("attack.fraction", 0)
    spared = point.get("attack.name") == "label_poison" and model in ("hm", "oracle")
    figures["accuracy"] -= fraction * (0.02 if spared else 0.1 if method == "flame" else 0.5)
    better = 1 if model == "gm" else -1
    lam = point.get("method.lam", 0)
    if lam:
        figures |= {"loss": 1 + better * (1 - 0.1 * lam), "speed": 0.3 + better * 0.02 * lam}
    progress = {
        "method.epochs": {1: 0, 5: 0.2, 10: 0.21},
        "method.rho": {0.1: 0.2, 0.5: 0.1, 1.0: 0},
        "participation.clients_per_round": {10: 0, 30: 0.1, "all": 0.2},
    }
    for key, value in point.items():
        gained = progress.get(key, {}).get(value, 0)
        figures["loss"] -= gained
        figures["speed"] += gained
    return figures


def measured(method, line_figures, seeds, std) -> tuple[dict, dict]:
    """Figures of each model -> a row and curves."""
    row, curves = {}, {"round": ROUNDS}
    for model, figures in line_figures.items():
        noise = np.zeros((1, 1))
        if seeds > 1:  # another in every model, and the same wherever that is
            turns = np.random.default_rng(list(f"{method} {model}".encode())).normal(size=seeds)
            noise = std * ((turns - turns.mean()) / turns.std(ddof=1))[:, None]
        left = np.where(ROUNDS[-1] > ROUNDS, np.exp(-figures["speed"] * ROUNDS), 0)
        curves[f"{model}_accuracy"] = figures["accuracy"] * (1 - left) + noise
        curves[f"{model}_loss"] = figures["loss"] + left + noise
        curves[f"{model}_loss_var"] = figures["loss_var"] + left + noise
        for figure in ("accuracy", "loss", "loss_var"):
            row[f"{model}_{figure}_mean"] = figures[figure]
            row[f"{model}_{figure}_std"] = std if seeds > 1 else None
    return row, curves


def methods(name: str) -> dict[str, str]:
    """Label -> form, of the methods of an experiment."""
    only = ["flame"] if name in KEYS else ["flame", "pfedme", "ditto"]
    found = {LABELS[form][method]: form for form in LABELS for method in only}
    return found | ({KRUM: "both"} if name == "robustness" else {})


def world(name: str, change: Change = lambda line: None, seeds=3, std=1e-6) -> Experiment:
    """An experiment that finds what the paper says, but for a change of some figures."""
    places = [(partition, {}) for partition in PARTITIONS]
    if name in KEYS:
        key, values = KEYS[name]
        places = [("hybrid", {key: value}) for value in values]
    if name == "robustness":
        points = [
            {"attack.name": a, "attack.fraction": f} for a in ATTACKS for f in (0.2, 0.5, 0.8)
        ]
        places = [("hybrid", point) for point in [NO_ATTACK, *points]]
    groups = []
    for partition, point in places:
        rows, curves = [], []
        for label, form in methods(name).items():
            method = KRUM if label == KRUM else label.split(":")[0]
            lines = {}
            for model in ("pm", "gm", "hm", "oracle"):
                figures = as_the_paper_says(partition, point, method, model)
                change(Line(partition, point, form, method, model, figures))
                lines[model] = figures
            row, of_row = measured(method, lines, seeds, std)
            row |= {"label": label, "method": method, "status": "finished"}
            rows.append({**row, "seeds": list(range(seeds))})
            curves.append(of_row)
        about = {"rounds": 50}
        groups.append(
            Group("mnist_mini", partition, point, Comparison(rows, [], curves, [], about))
        )
    forms = {
        form: [label for label, of in methods(name).items() if of in (form, "both")]
        for form in LABELS
    }
    return Experiment(name, name, "table", forms, groups, [], {})


def shift(figure: str, by: float, *names: str, where: Callable[[Line], bool] = lambda _: True):
    def change(line: Line) -> None:
        if line.name in names and where(line):
            line.figures[figure] += by

    return change


def turn(key: str, figure: str, slope: float, *names: str) -> Change:
    """Lets a figure depend on a key of the grid the other way."""
    order = {
        value: i for of, values in KEYS.values() if of == key for i, value in enumerate(values)
    }

    def change(line: Line) -> None:
        if line.name in names:
            line.figures[figure] = 1.0 + slope * order[line.point[key]]

    return change


def diverge(experiment: Experiment, *labels: str, groups=slice(None)) -> Experiment:
    for group in experiment.groups[groups]:
        for i, row in enumerate(group.comparison.rows):
            if row["label"] in labels:
                gone = {key: None for key in row if key.endswith(("_mean", "_std"))}
                group.comparison.rows[i] = row | gone | {"status": "diverged"}
                group.comparison.curves[i] = {}
    return experiment
