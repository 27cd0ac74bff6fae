"""What a comparison found: figures over seeds, and the choice between rates."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from flamejax.averages import MODELS, choose, fill, measure, over_seeds
from flamejax.plan import Run
from flamejax.records import Record


class Comparison(NamedTuple):
    """What a comparison found out.

    rows: a dict per method, as in table.csv: "label", "method", "preset", "aggregator", "rate"
    (global_lr, or None), "tuned" (whether that is the best of several), "seeds", "status"
    ("finished" or "diverged"), and of every figure of the last round the mean and the sample
    standard deviation over seeds: "pm_accuracy_mean", "pm_accuracy_std", "gm_loss_var_mean", ...;
    None where there is no such figure. "bytes_up" and "bytes_down" are of all rounds of a run.
    rates: the same for every global_lr tried, in the order tried; one per method without rates.
    curves: a dict per row: "round" [R], "bytes" [R] sent up and down until then, and "pm_accuracy",
    "gm_loss", ... [seeds, R], NaN where there is no such model; empty for a method that diverged.
    runs: a dict per run: "name", "label", "rate", "seed", "status", "folder" (below OUT).
    about: what all runs have in common: "data", "partition", "clients", "rounds", "seeds", ...;
    "measure" is "accuracy", or "loss" for a regression.
    """

    rows: list[dict[str, Any]]
    rates: list[dict[str, Any]]
    curves: list[dict[str, np.ndarray]]
    runs: list[dict[str, Any]]
    about: dict[str, Any]

    def table(self) -> str:
        """The table in Markdown, the best of every column bold."""
        from flamejax.report.comparison import sheet
        from flamejax.report.sheet import markdown

        return markdown(sheet(self))

    def plot(self, against: str = "rounds") -> Any:
        """Test accuracy and loss against "rounds", or "bytes" sent, as a Matplotlib figure."""
        import matplotlib.pyplot as plt

        from flamejax.report.comparison_figures import draw_curves

        return draw_curves(plt.figure(layout="constrained"), self, against)

    def fairness(self) -> Any:
        """Accuracy against the variance of losses over clients, as a Matplotlib figure."""
        import matplotlib.pyplot as plt

        from flamejax.report.comparison_figures import draw_fairness

        return draw_fairness(plt.figure(layout="constrained"), self)

    def _repr_markdown_(self) -> str:
        return self.table()


def gather(runs: Sequence[Run], found: Sequence[Record]) -> Comparison:
    """Runs and their records, in the same order -> what is shown of them."""
    rows, tried, curves = [], [], []
    pairs = list(zip(runs, found, strict=True))
    for _, of_label in groupby(pairs, lambda pair: pair[0].label):
        groups = [list(group) for _, group in groupby(of_label, lambda pair: pair[0].rate)]
        candidates = [_row(*zip(*group, strict=True)) for group in groups]
        chosen = choose(candidates)
        tried += candidates
        rows.append(candidates[chosen])
        curves.append(_curves([record for _, record in groups[chosen]], rows[-1]["status"]))
    fill(tried)  # the rows among them
    config, summary = runs[0].config, found[0].summary
    shared = ["data", "model", "clients", "clients_per_round", "selection"]
    shared += ["benign_clients", "evaluated_clients"]
    about = {
        **{key: summary[key] for key in shared},
        "partition": config.partition.model_dump(),
        "attack": config.attack.model_dump(),
        "rounds": config.rounds,
        "seeds": rows[0]["seeds"],
        "measure": measure(rows),
        "rates": list(dict.fromkeys(run.rate for run in runs if run.rate is not None)),
    }
    done = [
        {
            "name": str(run),
            "label": run.label,
            "rate": run.rate,
            "seed": run.config.seed,
            "status": record.summary["status"],
            "folder": str(run.path),
        }
        for run, record in pairs
    ]
    return Comparison(rows, tried, curves, done, about)


def _row(runs: Sequence[Run], found: Sequence[Record]) -> dict[str, Any]:
    """One method at one rate, over its seeds."""
    config = runs[0].config
    return {
        "label": runs[0].label,
        "method": config.method.name,
        "preset": config.method.preset,
        "aggregator": config.aggregator.name,
        "rate": getattr(config.method, "global_lr", None),
        "tuned": runs[0].rate is not None,
        "seeds": [run.config.seed for run in runs],
        **over_seeds(found),
    }


def _curves(found: Sequence[Record], status: str) -> dict[str, np.ndarray]:
    """The rows of each seed's metrics.jsonl -> arrays [seeds, R]; rounds and bytes are the same
    for all."""
    if status != "finished":
        return {}
    rounds = [row["round"] for row in found[0].rows]
    curves = {"round": np.array(rounds), "bytes": np.array(_sent(found[0]))}
    figures = [(model, figure) for model in MODELS for figure in ("accuracy", "loss", "loss_var")]
    for model, figure in [*figures, ("oracle", "accuracy")]:  # older folders have no oracle
        values = [[(row.get(model) or {}).get(figure) for row in seed.rows] for seed in found]
        curves[f"{model}_{figure}"] = np.array(values, float)
    return curves


def _sent(record: Record) -> list[int]:
    """Bytes sent until each evaluated round. Rows of older folders do not say; there every round
    sent the same."""
    summary = record.summary
    whole = summary["bytes_up"] + summary["bytes_down"]
    return [
        sum(row["bytes"][way] for way in ("up", "down"))
        if "bytes" in row
        else whole * row["round"] // summary["rounds"]
        for row in record.rows
    ]
