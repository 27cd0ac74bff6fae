"""The tables of experiments, by what these are about."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from flamejax.experiment.paper import Cell as PaperCell
from flamejax.experiment.results import Experiment, Group
from flamejax.report.experiment_names import (
    ATTACKS,
    FORMS,
    KEYS,
    Block,
    Line,
    Shown,
    attack,
    blocks,
    data_name,
    lines,
    model_name,
    partition_name,
    points,
)
from flamejax.report.sheet import MISSING, Cell, Sheet, figure, mark, number
from flamejax.report.sheet import Shown as Figure

Methods = Mapping[str, Shown]
ORACLE = "HM (oracle)"
MOST = 6  # names of runs in a note


def accuracy_sheet(experiment: Experiment, form: str, shown: Methods, title: str) -> Sheet:
    """A row per data set and partition, a column per method and model, as in the paper."""
    groups = [group for block in blocks(experiment, shown) for group in block]
    return _wide(experiment, form, shown, title, [(group, []) for group in groups], [], True)


def robustness_sheet(experiment: Experiment, form: str, shown: Methods, title: str) -> Sheet:
    """A row per attack and fraction of malicious clients."""
    rows = []
    for block in blocks(experiment, shown):
        for group in sorted(block, key=lambda group: attack(group)[0] != "none"):
            name, fraction = attack(group)
            rows.append((group, [ATTACKS.get(name, name), f"{100 * fraction:g} %"]))
    return _wide(experiment, form, shown, title, rows, ["attack", "malicious"], False)


def _wide(
    experiment: Experiment,
    form: str,
    shown: Methods,
    title: str,
    rows: Sequence[tuple[Group, list[str]]],
    names: list[str],
    oracle: bool,
) -> Sheet:
    """A column per method and model; the best of a row is bold, the oracle's out of competition."""
    groups = [group for group, _ in rows]
    columns = [
        (label, model)
        for label, method in shown.items()
        for model in (["oracle"] if oracle and "hm" in method.models else []) + method.models
    ]
    headings = [f"{shown[x].name} {model_name(model, groups[0])}" for x, model in columns]
    cells = []
    for group, more in rows:
        by_label = {line.row["label"]: line.row for line in lines(group, shown)}
        found = [
            figure(by_label[x], f"{model}_accuracy", ".4f") if x in by_label else (None, MISSING)
            for x, model in columns
        ]
        honest = [heading.endswith(ORACLE) for heading in headings]
        competing = [(None if out else f[0], f[1]) for f, out in zip(found, honest, strict=True)]
        cells.append([*_names(group, *more), *mark(competing, 1)])
    notes = _notes(experiment, form, shown, groups, "Bold: best of its row")
    return Sheet(title, ["data", "partition", *names], headings, cells, notes)


def fairness_sheet(experiment: Experiment, form: str, shown: Methods, title: str) -> Sheet:
    """A row per method and model: accuracy, and how evenly clients share it."""
    columns = {"accuracy": ("accuracy", 1, ".4f"), "loss variance": ("loss_var", -1, ".3g")}
    columns["worst 10 %"] = ("worst10", 1, ".4f")

    def figures(line: Line, model: str, block: Block) -> list[Figure]:
        return [figure(line.row, f"{model}_{name}", form) for name, _, form in columns.values()]

    signs = [sign for _, sign, _ in columns.values()]
    notes = ["Variance of test losses over clients; worst 10 %: mean accuracy of that tenth."]
    return _long(experiment, form, shown, title, list(columns), signs, figures, notes)


def curves_sheet(experiment: Experiment, form: str, shown: Methods, title: str) -> Sheet:
    """A row per method and model: last accuracy, and the first round with a common one."""
    headings = ["accuracy", "common", "rounds to it"]

    def figures(line: Line, model: str, block: Block) -> list[Figure]:
        target = common([other for group in block for other in lines(group, shown)], model)
        rounds = first_round(line, model, target)
        text = MISSING if rounds is None else str(rounds)
        return [
            figure(line.row, f"{model}_accuracy", ".4f"),
            (None, number(target, ".2f") or MISSING),
            (rounds, text),
        ]

    notes = [
        "Common: the accuracy, cut to hundredths, that the PM (GM) of every method reaches in the "
        "mean over seeds; rounds to it: the first evaluated round with it. HM has that of PM."
    ]
    return _long(experiment, form, shown, title, headings, [1, 0, 0], figures, notes)


def common(found: Iterable[Line], model: str) -> float | None:
    """The accuracy that this model reaches with every method, in the mean over seeds."""
    model = "pm" if model == "hm" else model
    best = [
        np.nanmax(line.curves[f"{model}_accuracy"].mean(0))
        for line in found
        if line.curves and model in line.shown.models
        if np.isfinite(line.curves[f"{model}_accuracy"]).any()
    ]
    return float(np.floor(100 * min(best)) / 100) if best else None


def first_round(line: Line, model: str, target: float | None) -> int | None:
    """The first evaluated round in which the mean over seeds is at the target."""
    if not line.curves or target is None:
        return None
    there = np.flatnonzero(line.curves[f"{model}_accuracy"].mean(0) >= target)
    return int(line.curves["round"][there[0]]) if len(there) else None


def _long(
    experiment: Experiment,
    form: str,
    shown: Methods,
    title: str,
    headings: list[str],
    signs: Sequence[int],
    figures: Callable[[Line, str, Block], list[Figure]],
    notes: list[str],
) -> Sheet:
    """A row per method and model; the best of a data set and partition is bold."""
    cells, groups = [], []
    for block in blocks(experiment, shown):
        groups += block
        names, found = [], []
        for group in block:
            for line in lines(group, shown):
                for model in line.shown.models:
                    names.append(_names(group, line.shown.name, model_name(model, group)))
                    found.append(figures(line, model, block))
        cells += _marked(names, found, signs)
    notes = _notes(experiment, form, shown, groups, "Bold: best of its data and partition") + notes
    return Sheet(title, ["data", "partition", "method", "model"], headings, cells, notes)


def trend_sheet(experiment: Experiment, form: str, shown: Methods, title: str) -> Sheet:
    """A row per value: loss and accuracy of both models in the last round."""
    wanted = {
        "PM loss": ("pm_loss", -1, ".4g"),
        "GM loss": ("gm_loss", -1, ".4g"),
        "PM accuracy": ("pm_accuracy", 1, ".4f"),
        "GM accuracy": ("gm_accuracy", 1, ".4f"),
    }
    found = blocks(experiment, shown)
    groups = [group for block in found for group in block]
    key, called = points(groups)
    cells = []
    for block in found:
        for label, method in shown.items():
            rows = [(g, line.row) for g in block for line in lines(g, {label: method})]
            names = [_names(g, method.name, called[g.point.get(key)]) for g, _ in rows]
            figures = [[figure(row, name, f) for name, _, f in wanted.values()] for _, row in rows]
            cells += _marked(names, figures, [sign for _, sign, _ in wanted.values()])
    said = "Bold: best of the values for its data and partition"
    notes = _notes(experiment, form, shown, groups, said)
    heads = ["data", "partition", "method", KEYS.get(key, key)]
    return Sheet(title, heads, list(wanted), cells, notes)


SHEETS = {
    "table": accuracy_sheet,
    "robustness": robustness_sheet,
    "fairness": fairness_sheet,
    "curves": curves_sheet,
    "trend": trend_sheet,
}


def beside_paper(cells: Sequence[PaperCell], shown: Methods, title: str) -> list[Sheet]:
    """A row per figure that the paper has as well; no sheet if there is none."""
    rows = [cell for cell in cells if cell.paper is not None and cell.ours is not None]
    if not rows:
        return []
    headings = ["ours", "paper", "difference", "within 2σ"]  # noqa: RUF001
    written = []
    for cell in rows:
        texts = [
            data_name(cell.data),
            partition_name(cell.partition),
            shown[cell.label].name if cell.label in shown else cell.label,
            ORACLE if cell.model == "oracle" else cell.model.upper(),
            figure({"x_mean": cell.ours, "x_std": cell.std}, "x", ".4f")[1],
            figure({"x_mean": cell.paper, "x_std": cell.paper_std}, "x", ".4f")[1],
            _signed(cell.difference),
            MISSING if cell.within_2sigma is None else "yes" if cell.within_2sigma else "no",
        ]
        written.append([(text, False) for text in texts])
    close, near = (sum(bool(c[at]) for c in rows) for at in (-2, -1))
    notes = [
        f"{close} of {len(rows)} figures are within two of the paper's standard deviations (σ) of "  # noqa: RUF001
        f"its means, {near} within the larger of these and .02. The paper's HM is an oracle's.",
    ]
    names = ["data", "partition", "method", "model"]
    return [Sheet(f"{title}, beside the paper", names, headings, written, notes)]


def _signed(value: float | None) -> str:
    if value is None:
        return MISSING
    text = number(abs(value), ".4f") or ""
    return f"{'−' if value < 0 else '+'}{text}"  # noqa: RUF001


def _names(group: Group, *more: str) -> list[Cell]:
    return [
        (text, False) for text in (data_name(group.data), partition_name(group.partition), *more)
    ]


def _marked(
    names: list[list[Cell]], found: list[list[Figure]], signs: Sequence[int]
) -> list[list[Cell]]:
    """Rows of names and figures, the best of every column marked; sign 0: there is no best."""
    if not found:
        return []
    columns = [
        mark(list(column), sign) if sign else [(text, False) for _, text in column]
        for column, sign in zip(zip(*found, strict=True), signs, strict=True)
    ]
    return [[*a, *b] for a, *b in zip(names, *columns, strict=True)]


def _notes(
    experiment: Experiment, form: str, shown: Methods, groups: Sequence[Group], bold: str
) -> list[str]:
    """How the figures came about, and what is not there."""
    about = [group.comparison.about for group in groups]
    rows = [line.row for group in groups for line in lines(group, shown)]
    attacked = any(each["attack"].get("name", "none") != "none" for each in about)
    who = "benign clients" if attacked else "clients"
    seeds = _span(len(row["seeds"]) for row in rows)
    over = (
        f", mean ± sample standard deviation over {seeds} seeds" if seeds != "1" else ", one seed"
    )
    said = [
        f"Form: {FORMS.get(form, form)}.",
        f"Last round ({_span(each['rounds'] for each in about)}), test split, mean over the {who}"
        f"{over}. {bold}.",
    ]
    hybrids = any("hm" in method.models for method in shown.values())
    if hybrids and experiment.kind != "trend":
        chosen = {each["selection"] for each in about}
        honest = "HM: for each client the one of PM and GM with the better validation accuracy. "
        oracle = f"{ORACLE}: with the better test accuracy itself, as in the paper; not ranked."
        if chosen == {"test"}:
            said.append(oracle)
        else:
            said.append(honest + oracle if experiment.kind == "table" else honest.strip())
    tuned = dict.fromkeys(shown[row["label"]].name for row in rows if row["tuned"])
    if tuned:
        tried = dict.fromkeys(rate for each in about for rate in each["rates"])
        rates = ", ".join(f"{rate:g}" for rate in tried)
        said.append(f"{', '.join(tuned)}: global_lr chosen from {rates} by HM on that split.")
    diverged = [
        f"{group.data} {group.partition} {run['name']}"
        for group in groups
        for run in group.comparison.runs
        if run["status"] != "finished" and run["label"] in shown
    ]
    said += _listed("Diverged", diverged) + _listed("Not done", experiment.missing)
    return said


def _span(numbers: Iterable[Any]) -> str:
    """Numbers that are mostly the same: "100", or "60 to 100"."""
    found = sorted(set(numbers))
    return str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"


def _listed(what: str, names: Sequence[str]) -> list[str]:
    if not names:
        return []
    more = f"; and {len(names) - MOST} more" if len(names) > MOST else ""
    return [f"{what}: {'; '.join(names[:MOST])}{more}."]
