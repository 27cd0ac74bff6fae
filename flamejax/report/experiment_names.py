"""What the parts of an experiment are called in tables and figures, and what belongs together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from flamejax.experiment.results import Experiment, Group
from flamejax.plan import parts as parts_of
from flamejax.report.palette import MARKERS, Style, styles
from flamejax.report.sweep import labels as value_labels

DATA = {
    "mnist": "MNIST",
    "mnist_mini": "MNIST mini",
    "fashion_mnist": "Fashion MNIST",
    "medical_mnist": "Medical MNIST",
    "cifar10": "CIFAR10",
    "femnist": "FEMNIST",
}
PARTITIONS = {
    "hybrid": "hybrid skew",
    "dirichlet": "Dirichlet labels",
    **{f"q{q}": f"{q} labels" for q in range(2, 7)},
    "quality": "quality skew",
    "quantity": "quantity skew",
    "writer": "writers",
    "iid": "IID",
}
METHODS = {
    "flame": "FLAME",
    "pfedme": "pFedMe",
    "ditto": "Ditto",
    "fedadmm": "FedADMM",
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "per_fedavg": "Per-FedAvg",
    "lp_proj": "Lp-Proj-2",
    "flame_lp_proj": "ADMM Lp-Proj-2",
}
ATTACKS = {
    "label_poison": "label poisoning",
    "same_value": "same value",
    "sign_flip": "sign flipping",
    "gaussian": "Gaussian",
}
KEYS = {
    "method.lam": "λ",
    "method.rho": "ρ",  # noqa: RUF001
    "method.epochs": "H",
    "participation.clients_per_round": "clients a round",
}
FORMS = {
    "standard": "methods as their authors define them",
    "published": "methods as the published figures were made",
}


Block = list[Group]  # of one data set and partition


class Shown(NamedTuple):
    """How a method of one form is shown, everywhere the same."""

    name: str
    method: str
    models: list[str]
    style: Style


class Line(NamedTuple):
    """A method in one group."""

    shown: Shown
    row: Mapping[str, Any]
    curves: Mapping[str, np.ndarray]  # empty if it diverged


def place(group: Group) -> str:
    return f"{data_name(group.data)}, {partition_name(group.partition)}"


def data_name(data: str) -> str:
    return DATA.get(data, data)


def partition_name(partition: str) -> str:
    return PARTITIONS.get(partition, partition)


def method_names(labels: Sequence[str]) -> dict[str, str]:
    """Label -> name; presets are named only where methods would be called the same.

    >>> list(method_names(["flame:published", "fedavg+multi_krum", "fedavg+median"]).values())
    ['FLAME', 'multi-Krum', 'FedAvg + median']
    """
    found = {}
    for label in labels:
        method, _, aggregator = parts_of(label)
        name = METHODS.get(method, method)
        if aggregator:
            name = "multi-Krum" if label == "fedavg+multi_krum" else f"{name} + {aggregator}"
        found[label] = name
    names = list(found.values())
    return {label: name if names.count(name) == 1 else label for label, name in found.items()}


def methods(experiment: Experiment, form: str) -> dict[str, Shown]:
    """Label -> how it is shown, of the methods of a form that there are runs of."""
    rows: dict[str, list[Mapping[str, Any]]] = {label: [] for label in experiment.forms[form]}
    for group in experiment.groups:
        for row in group.comparison.rows:
            rows.get(row["label"], []).append(row)
    names = method_names([label for label, found in rows.items() if found])
    looks = styles([rows[label][0] for label in names])
    order = zip(names.items(), looks, MARKERS * len(names), strict=False)
    return {
        label: Shown(name, rows[label][0]["method"], _models(rows[label]), Style(look.color, mark))
        for (label, name), look, mark in order
    }


def _models(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Those with figures of their own: as in the paper the hybrid of FLAME only, and one of two
    models that are the same."""
    found = [row for row in rows if row["status"] == "finished"]
    if rows[0]["method"] == "flame":
        return ["hm", "pm", "gm"]
    if found and all(row["pm_loss_mean"] == row["gm_loss_mean"] for row in found):
        return ["gm"]
    if found and all(row["gm_loss_mean"] is None for row in found):
        return ["pm"]
    return ["pm", "gm"]


def lines(group: Group, shown: Mapping[str, Shown]) -> list[Line]:
    """The methods that a group has, in the order of the form."""
    rows, curves = group.comparison.rows, group.comparison.curves
    at = {row["label"]: number for number, row in enumerate(rows)}
    return [Line(shown[x], rows[at[x]], curves[at[x]]) for x in shown if x in at]


def model_name(model: str, group: Group) -> str:
    """PM, GM or HM; a hybrid that is chosen on the test split itself says so."""
    oracle = model == "oracle" or (model == "hm" and group.comparison.about["selection"] == "test")
    return "HM (oracle)" if oracle else model.upper()


def blocks(experiment: Experiment, shown: Mapping[str, Shown]) -> list[Block]:
    """Groups with these methods by data set and partition; those of a partition together."""
    groups = [group for group in experiment.groups if lines(group, shown)]
    data = list(dict.fromkeys(group.data for group in groups))
    found: dict[tuple[str, str], Block] = {}
    for partition in dict.fromkeys(group.partition for group in groups):
        for name in data:
            block = [
                group for group in groups if (group.data, group.partition) == (name, partition)
            ]
            if block:
                found[name, partition] = block
    return list(found.values())


def points(groups: Sequence[Group]) -> tuple[str, dict[Any, str]]:
    """What varies in a trend: the key, and its values with what they are called."""
    keys = list(dict.fromkeys(key for group in groups for key in group.point))
    varied = [key for key in keys if len({group.point.get(key) for group in groups}) > 1]
    key = (varied or keys or [""])[0]
    values = list(dict.fromkeys(group.point.get(key) for group in groups))
    return key, dict(zip(values, value_labels(values), strict=True))


def attack(group: Group) -> tuple[str, float]:
    """Its name and the fraction of malicious clients; ("none", 0) without any."""
    name = str(group.point.get("attack.name", "none"))
    return name, float(group.point.get("attack.fraction", 0)) if name != "none" else 0.0
