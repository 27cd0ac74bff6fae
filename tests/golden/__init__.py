"""Figures that stay: small runs of everything, and what they gave when they were last written.

`python -m tests.golden NAME ...` writes the figures of these cases anew (`--all`: of all of them)
and says how far they moved; `tests/test_golden.py` compares. A change that is meant to move figures
writes only those it means to move, in a commit of its own that says why.

Cases that share `figures` differ in how a run is carried out, not in what it computes, so they are
held to the same numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import flamejax as fj
from flamejax import config, registry

from ..faults import Rows

FILE = Path(__file__).with_name("figures.json")
ROUNDING = {"float32": (1e-4, 1e-5), "float64": (1e-9, 1e-11)}  # relative and absolute

BASE = {
    "seed": 3,
    "rounds": 4,
    "eval_every": 2,
    "data": {"name": "mnist_mini", "limit": 240},
    "partition": {"name": "dirichlet", "clients": 6, "min_samples": 12},
    "participation": {"clients_per_round": 4},
    "model": {"name": "mlr"},
    "method": {"name": "flame", "lr": 0.02, "batch": 16},
    "engine": {"devices": 1},
}


class Case(NamedTuple):
    values: dict[str, Any]  # a config
    figures: str  # the name that its figures have in the file
    how: str = "run"  # or "packed", "resumed", "two processes"


def changed(values: Mapping[str, Any], **settings: Any) -> dict[str, Any]:
    """`values` with other settings, `section__key=value`."""
    merged = {k: dict(v) if isinstance(v, Mapping) else v for k, v in values.items()}
    for path, value in settings.items():
        section, _, key = path.partition("__")
        if key:
            merged.setdefault(section, {})[key] = value
        else:
            merged[section] = value
    return merged


def method(name: str, **settings: Any) -> dict[str, Any]:
    small = {"batch": 16}
    if name in ("pfedme", "lp_proj"):
        small |= {"local_rounds": 2, "inner_steps": 2}
    return {"name": name, "lr": 0.02, **small, **settings}


def _methods() -> Iterator[tuple[str, dict[str, Any]]]:
    for name in registry.names("methods"):
        for preset in registry.get("methods", name).presets:
            governed = registry.get("methods", name).presets[preset]
            own = {k: v for k, v in method(name).items() if k not in governed}
            yield f"{name} {preset}", changed(BASE, method={**own, "preset": preset})
    for label, own in {
        "flame until epsilon": method("flame", local_solver="until_epsilon", max_steps=7),
        "flame weighted by samples": method("flame", alpha="samples"),
        "flame two epochs, momentum": method("flame", epochs=2, momentum=0.5, weight_decay=0.01),
        "ditto one global step": method("ditto", global_steps="one"),
        "ditto tracks of its own": method("ditto", reload=False, epochs=2),
        "pfedme thetas of its own": method("pfedme", restart=False, beta=0.5),
    }.items():
        yield label, changed(BASE, method=own)
    for name in ("flame", "fedavg", "fedadmm"):
        yield f"{name}, all clients", changed(BASE, method=method(name), participation={})


def _data() -> Iterator[tuple[str, dict[str, Any]]]:
    base = changed(BASE, method=method("fedavg"))
    for name in registry.names("partitions"):
        if name not in ("dirichlet", "natural"):
            yield name, changed(base, partition__name=name)
    for name in ("iid", "qlabel", "quality", "quantity", "hybrid"):
        yield (
            f"{name} with overlap",
            changed(base, partition__name=name, partition__overlap=True, data__samples=30),
        )
    yield "chosen on the test split", changed(base, selection={"on": "test"})
    synthetic = {"name": "synthetic", "features": 8, "samples": 20}
    natural = {"name": "natural", "clients": 6}
    yield "synthetic", changed(BASE, data=synthetic, partition=natural, model={"name": "auto"})
    yield (
        "synthetic, equal sizes",
        changed(base, data=synthetic, partition={"name": "iid", "clients": 6}),
    )
    theory = {
        "data": {"name": "linreg", "features": 5, "samples": 20, "scale": 0.1},
        "partition": natural,
        "model": {"name": "auto"},
        "method": {
            "name": "flame", "lam": 0.2365, "rho": 0.1, "lr": 2.97, "batch": 20,
            "local_solver": "until_epsilon", "epsilon0": 1e-4, "upsilon": 0.91, "max_steps": 20,
        },
        "engine": {"devices": 1, "precision": "float64"},
        "record": {"theory": True, "prox_steps": 3},
    }  # fmt: skip
    yield "theory", changed(BASE, **theory)
    images = {"data__limit": 60, "partition__name": "iid", "partition__clients": 2}
    yield (
        "a convolutional network",
        changed(base, **images, participation={}, model={"name": "cnn_femnist"}),
    )
    yield "a multilayer perceptron", changed(base, model={"name": "mlp"})


def _messages() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every attack and every aggregator, those of several families together."""
    attacks = [name for name in registry.names("attacks") if name != "none"]
    aggregators = [name for name in registry.names("aggregators") if name != "mean"]
    for number, aggregator in enumerate(aggregators):
        attack = attacks[number % len(attacks)]
        name = ("flame", "fedavg")[number % 2]
        yield (
            f"{name}, {attack}, {aggregator}",
            changed(
                BASE,
                method=method(name),
                attack={"name": attack, "fraction": 0.34},
                aggregator={"name": aggregator},
                participation={"clients_per_round": 5},
            ),
        )
    for name, attack in (("flame", "sign_flip"), ("fedavg", "gaussian")):
        lies = {"name": attack, "fraction": 0.34, "preset": "published"}
        yield f"{name}, {attack}, mean", changed(BASE, method=method(name), attack=lies)


EXECUTIONS = {
    "vmap": {"execution": "vmap"},
    "chunk, three devices": {"execution": "chunk", "chunk": 2, "devices": 3},
    "map, two devices": {"execution": "map", "devices": 2},
    "one round a call": {"rounds_per_call": 1},
    "states on the host": {"store": "touched", "devices": 2},
}


def _executions() -> Iterator[tuple[str, Case]]:
    for name in ("flame paper", "ditto standard"):
        values = dict(_methods())[name]
        for how, engine in EXECUTIONS.items():
            yield f"{name}, {how}", Case(changed(values, engine={"devices": 1, **engine}), name)
    values = dict(_methods())["flame paper"]
    for how in ("packed", "resumed", "two processes"):
        yield f"flame paper, {how}", Case(values, "flame paper", how)
    exact = changed(values, engine__precision="float64")
    yield "flame paper, float64", Case(exact, "flame paper, float64")
    exact = changed(exact, engine__execution="vmap", engine__devices=2)
    yield "flame paper, float64, vmap", Case(exact, "flame paper, float64")
    for name, values in _messages():
        if name.endswith(("multi_krum", "trimmed_mean")):
            more = changed(values, engine={"devices": 3})
            yield f"{name}, three devices", Case(more, name)


def cases() -> dict[str, Case]:
    plain = {**dict(_methods()), **dict(_data()), **dict(_messages())}
    return {name: Case(values, name) for name, values in plain.items()} | dict(_executions())


# --- figures ---


def run(values: Mapping[str, Any], **how: Any) -> dict[str, Any]:
    """The figures of a run from Python."""
    seen = Rows()
    result = fj.run(dict(values), quiet=True, callbacks=[seen], **how)
    found = recorded(seen.rows, result.clients, result.summary)
    for name, column in result.theory.items():
        found[f"theory {name}"] = numbers(column)
    models = [result.models(client) for client in range(len(result.clients["malicious"]))]
    shared = models[0][0]
    found["global model"] = [] if shared is None else digest(shared)
    found["personalized models"] = [x for _, personal in models for x in digest(personal)]
    return found


def recorded(
    rows: Sequence[Mapping[str, Any]], clients: Mapping[str, Any], summary: Mapping[str, Any]
) -> dict[str, Any]:
    """Of the lines of metrics.jsonl, the arrays of clients.npz and the content of summary.json."""
    columns = [dict(leaves(row)) for row in rows]
    found = {name: numbers([column[name] for column in columns]) for name in columns[0]}
    for name, values in clients.items():
        found[f"clients {name}"] = numbers(values)
    for name in ("rounds", "clients_per_round", "parameters", "benign_clients", "nonfinite"):
        found[f"summary {name}"] = summary[name]
    for when in ("last", "best"):
        found |= {f"summary {when} {name}": x for name, x in leaves(summary[when])}
    return found


def read_back(folder: Path) -> dict[str, Any]:
    """The figures of a results folder: all but those of models."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    with np.load(folder / "clients.npz") as clients:
        summary = json.loads((folder / "summary.json").read_text())
        return recorded([json.loads(line) for line in lines], clients, summary)


def leaves(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Numbers of nested tables by their path; of lists the sum."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{before}{key} ")
        elif not isinstance(value, str):
            yield f"{before}{key}", sum(value) if isinstance(value, list) else value


def numbers(values: Any) -> list[float | None]:
    """With as many digits as comparing needs; None where there is no number."""
    flat = np.ravel(np.array(values, float))
    return [float(f"{x:.12g}") if np.isfinite(x) else None for x in flat]


def digest(params: Any) -> list[float | None]:
    """A norm, and a sum that depends on where every number stands."""
    flat = np.concatenate([np.ravel(np.asarray(x, float)) for x in jax.tree.leaves(params)])
    return numbers([np.linalg.norm(flat), flat @ np.cos(np.arange(len(flat)))])


# --- comparing ---


def read() -> dict[str, dict[str, Any]]:
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def write(everything: Mapping[str, Mapping[str, Any]]) -> None:
    def lines() -> Iterator[str]:
        for name in sorted(everything):
            body = (f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in everything[name].items())
            yield f"{json.dumps(name)}: {{\n" + ",\n".join(body) + "\n }"

    FILE.write_text("{\n" + ",\n".join(lines()) + "\n}\n")


def differences(
    found: Mapping[str, Any], expected: Mapping[str, Any], precision: str
) -> list[tuple[float, str]]:
    """How far every figure is from what is expected, in units of what rounding may do; the worst
    first. A figure that is missing, or new, or another kind of thing is infinitely far."""
    relative, absolute = ROUNDING[precision]
    far = []
    for name in {**expected, **found}:
        if name not in found or name not in expected:
            far.append((np.inf, f"{name}: is {'new' if name in found else 'missing'}"))
            continue
        a, b = (np.ravel(np.array(x[name], float)) for x in (found, expected))
        if a.shape != b.shape or (np.isnan(a) != np.isnan(b)).any():
            far.append((np.inf, f"{name}: {found[name]} instead of {expected[name]}"))
        elif (here := ~np.isnan(a)).any():
            off = np.abs(a - b)[here] / (absolute + relative * np.abs(b[here]))
            at = int(np.argmax(off))
            far.append((off[at], f"{name}: {a[here][at]:.9g} instead of {b[here][at]:.9g}"))
    return sorted(far, reverse=True)


def precision_of(values: Mapping[str, Any]) -> str:
    return config.make(values).engine.precision
