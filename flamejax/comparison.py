"""What a comparison found: statistics over seeds, and the choice between rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from flamejax.plan import Run
from flamejax.records import Record

MODELS = ("pm", "gm", "hm")
FIGURES = ("accuracy", "accuracy_var", "loss", "loss_var", "worst10", "best10")


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
        from flamejax.report.comparison import markdown

        return markdown(self)

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
    keys = dict.fromkeys(key for row in tried for key in row)
    for row in tried:  # the rows among them; all get all columns
        row |= {key: None for key in keys if key not in row}
    config, summary = runs[0].config, found[0].summary
    shared = ("data", "model", "clients", "clients_per_round", "benign_clients", "selection")
    about = {
        **{key: summary[key] for key in shared},
        "partition": config.partition.model_dump(),
        "attack": config.attack.model_dump(),
        "rounds": config.rounds,
        "seeds": rows[0]["seeds"],
        "measure": "loss" if _without_accuracy(rows) else "accuracy",
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


def _without_accuracy(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the task is a regression: methods finished, and none has an accuracy."""
    finished = [row for row in rows if row["status"] == "finished"]
    return bool(finished) and all(row["pm_accuracy_mean"] is None for row in finished)


def _row(runs: Sequence[Run], found: Sequence[Record]) -> dict[str, Any]:
    """One method at one rate, over its seeds."""
    config = runs[0].config
    finished = all(record.summary["status"] == "finished" for record in found)
    row: dict[str, Any] = {
        "label": runs[0].label,
        "method": config.method.name,
        "preset": config.method.preset,
        "aggregator": config.aggregator.name,
        "rate": getattr(config.method, "global_lr", None),
        "tuned": runs[0].rate is not None,
        "seeds": [run.config.seed for run in runs],
        "status": "finished" if finished else "diverged",
    }
    last = [_last(record) for record in found] if finished else []
    names = [f"{model}_{figure}" for model in MODELS for figure in FIGURES]
    names += ["bytes_up", "bytes_down"]
    for name in dict.fromkeys([*names, *(name for figures in last for name in figures)]):
        values = [figures[name] for figures in last if name in figures]
        whole = len(values) == len(runs)  # no mean over some of the seeds
        row[f"{name}_mean"] = float(np.mean(values)) if whole else None
        row[f"{name}_std"] = float(np.std(values, ddof=1)) if whole and len(values) > 1 else None
    return row


def _last(record: Record) -> dict[str, float]:
    """The figures of a finished run's last round, and what was sent until then."""
    sent = {"up": record.summary["bytes_up"], "down": record.summary["bytes_down"]}
    return _flat({**record.rows[-1], **record.summary["last"], "bytes": sent})


def _flat(figures: Mapping[str, Any]) -> dict[str, float]:
    """{"pm": {"loss": 1.0}, "gm": None} -> {"pm_loss": 1.0}: all numbers but the round's."""
    flat: dict[str, float] = {}
    for key, value in figures.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}_{inner}": number for inner, number in _flat(value).items()}
        elif isinstance(value, int | float) and key != "round":
            flat[key] = value
    return flat


def merit(row: Mapping[str, Any]) -> float:
    """What the best rate is best at: hybrid accuracy on the selection split, last round; for
    regression minus the loss."""
    for figure, sign in (("accuracy", 1), ("loss", -1)):
        for model in ("hm", "pm"):
            value = row.get(f"selection_{figure}_{model}_mean")
            if value is not None:
                return sign * float(value)
    return -np.inf  # diverged


def choose(candidates: Sequence[Mapping[str, Any]]) -> int:
    """Which of several rates to show; the first of equals."""
    return int(np.argmax([merit(row) for row in candidates]))


def _curves(found: Sequence[Record], status: str) -> dict[str, np.ndarray]:
    """The rows of each seed's metrics.jsonl -> arrays [seeds, R]; rounds and bytes are the same
    for all."""
    if status != "finished":
        return {}
    rounds = [row["round"] for row in found[0].rows]
    curves = {"round": np.array(rounds), "bytes": np.array(_sent(found[0]))}
    for model in MODELS:
        for figure in ("accuracy", "loss"):
            values = [[(row[model] or {}).get(figure) for row in seed.rows] for seed in found]
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
