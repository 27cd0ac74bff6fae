"""The table of one run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flamejax.catalog import size
from flamejax.report.sheet import Sheet
from flamejax.theory.rate import speed

MODELS = {"pm": "PM personalized", "gm": "GM global", "hm": "HM hybrid"}


def sheet(summary: Mapping[str, Any]) -> Sheet:
    """A row per model, of a run that was evaluated."""
    oracle = " (oracle)" if summary["selection"] == "test" else ""
    last, best = summary["last"], summary["best"]
    benign, clients = summary["benign_clients"], summary["clients"]
    who = f"{clients} clients" if benign == clients else f"the {benign} benign of {clients} clients"
    if summary["evaluated_clients"] < benign:
        who = f"{summary['evaluated_clients']} of {who}, drawn by the seed"
    keys = {"loss": "loss", "loss_var": "loss var"}  # all that a regression has
    if classes(last):
        first = {"accuracy": "accuracy", "worst10": "worst10", "best10": "best10", "jain": "Jain"}
        keys = first | keys
    measure = next(iter(keys))
    rows = []
    for model, name in MODELS.items():
        figures: list[float | None] = [None] * (len(keys) + 1)
        if last[model] is not None:
            figures = [*(last[model][key] for key in keys), best[model][measure]]
        name += oracle * (model == "hm")
        rows.append([(name, False), *((_number(value), False) for value in figures)])
    title = f"Test figures over {who}, round {last['round']}"
    chosen = f"{measure} in round {best['round']}, the best by {best['chosen_on']} {measure}"
    notes = _notes(summary, f"* {chosen}{oracle}")
    return Sheet(title, ["model"], [*keys.values(), "best*"], rows, notes)


def _notes(summary: Mapping[str, Any], star: str) -> list[str]:
    said = []
    if summary["nonfinite"]:
        times = f"{summary['nonfinite']} time(s)"
        said.append(f"A client's numbers were not finite and left out {times}.")
    if summary["last"]["gm"] is None:
        said.append("This method has no usable global model.")
    if "theory" in summary:
        said.append(_theory(summary["theory"]))
    return [
        *said,
        star,
        f"Traffic: {size(summary['bytes_up'])} up, {size(summary['bytes_down'])} down.",
        f"{summary['rounds']} rounds in {summary['seconds']:.1f} s "
        f"({summary['compile_seconds']:.1f} s compiling, "
        f"{1000 * summary['round_seconds']:.1f} ms a round).",
    ]


def _theory(found: Mapping[str, Any]) -> str:
    """What a run that records the theory says of it, in a line or two."""
    lost = [f"({name})" for name, holds in found["conditions"].items() if not holds]
    held = f"{' and '.join(lost)} violated" if lost else "all hold"
    descent, rate = found["descent"], found["rates"]["lagrangian"]
    text = (
        f"Theory: convergence conditions with L = {found['smoothness']:.3g}: {held}. "
        f"The Lagrangian rose in {descent['rises']} of {descent['rounds']} rounds"
    )
    if "lemma1_shortfalls" in descent:
        text += f", fell short of Lemma 1 in {descent['lemma1_shortfalls']}"
    if rate:
        text += f", and goes to its limit like {speed(rate)} ({rate['kind']})"
    return text + "."


def classes(row: Mapping[str, Any]) -> bool:
    """Whether figures are of a classification, which has accuracies."""
    return row["pm"] is not None and row["pm"]["accuracy"] is not None


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
