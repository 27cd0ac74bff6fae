"""What a run has measured so far, and its forms: rows, columns, per-client arrays, a summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np

from flamejax.config import Config
from flamejax.engine import Facts, RoundInfo
from flamejax.evaluate import Evaluation, Figures, finite, gap, oracle, summarize
from flamejax.federation import Federation

MODELS = ("pm", "gm", "hm")
SPLITS = ("test", "selection")
PLAIN = ("rounds", "rows", "theory", "round_seconds", "steps", "executed", "nonfinite")
STATISTICS = (
    "accuracy",
    "accuracy_var",
    "loss",
    "loss_var",
    "worst10",
    "best10",
    "jain",
    "entropy",
)


class History:
    def __init__(self, config: Config, facts: Facts) -> None:
        self.up = facts.selected * facts.bytes_up  # bytes of all messages of a round,
        self.down = facts.selected * facts.bytes_down  # and of its broadcasts
        self.selection = config.selection.on
        self.rounds = 0
        self.rows: list[dict[str, Any]] = []  # a row per evaluated round, as in metrics.jsonl
        self.theory: list[dict[str, Any]] = []  # a row per round, as in theory.jsonl
        self.last: Evaluation | None = None
        self.best: tuple[int, Evaluation] | None = None  # its round, and its figures
        self.round_seconds: list[float] = []
        self.steps = self.executed = 0
        self.nonfinite: list[int] = []  # clients left out in each round

    def trained(self, log: RoundInfo, rounds: int, seconds: float) -> None:
        self.rounds += rounds
        self.round_seconds.append(seconds / rounds)
        self.steps += int(np.sum(log.steps, dtype=np.int64))
        self.executed += int(np.sum(log.executed, dtype=np.int64))
        self.nonfinite += log.nonfinite.tolist()

    def evaluated(self, train_loss: float, evaluation: Evaluation) -> dict[str, Any]:
        chosen = {
            figure: {name: finite(values.mean()) for name, values in models.items()}
            for figure, models in evaluation.selection._asdict().items()
        }
        row = {
            "round": self.rounds,
            "bytes": self.sent(),
            "train_loss": finite(train_loss),
            "nonfinite": self.nonfinite[self.rows[-1]["round"] if self.rows else 0 :],
            **summarize(evaluation.test),
            "gap": gap(evaluation.test),
            "oracle": {"accuracy": oracle(evaluation.test)},
            "selection": {"on": self.selection, **chosen},
        }
        self.rows.append(row)
        self.last = evaluation
        if self.best is None or _merit(evaluation) > _merit(self.best[1]):
            self.best = (self.rounds, evaluation)
        return row

    def export(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """All of it: for JSON, and arrays."""
        plain = {name: copy(getattr(self, name)) for name in PLAIN}  # they grow
        arrays: dict[str, np.ndarray] = {}
        found = {"last": self.last, "best": self.best and self.best[1]}
        for when, evaluation in found.items():
            if evaluation is not None:
                arrays[f"{when}-picks"] = evaluation.picks_global
                for split in SPLITS:
                    for figure, models in getattr(evaluation, split)._asdict().items():
                        arrays |= {f"{when}-{split}-{figure}-{m}": x for m, x in models.items()}
        return {**plain, "best": self.best and self.best[0]}, arrays

    def restore(self, plain: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """What `export` gave."""
        for name in PLAIN:
            setattr(self, name, plain[name])

        def figures(start: str) -> dict[str, np.ndarray]:
            known = {model: f"{start}-{model}" for model in MODELS}
            return {model: arrays[name] for model, name in known.items() if name in arrays}

        def evaluation(when: str) -> Evaluation:
            splits = {
                split: Figures(*(figures(f"{when}-{split}-{f}") for f in Figures._fields))
                for split in SPLITS
            }
            return Evaluation(picks_global=arrays[f"{when}-picks"], **splits)

        if plain["best"] is not None:
            self.last, self.best = evaluation("last"), (plain["best"], evaluation("best"))

    def sent(self) -> dict[str, int]:
        """Bytes from clients up to the server, and down from it; the totals are since round 0.

        What is sent once for a whole run, such as seeds and numbers of samples, is not counted, nor
        what only evaluation needs.
        """
        return {
            "up_per_round": self.up,
            "down_per_round": self.down,
            "up": self.rounds * self.up,
            "down": self.rounds * self.down,
        }

    def columns(self) -> dict[str, np.ndarray]:
        """Metrics as arrays over evaluated rounds; figures that do not exist are NaN."""
        return columns(self.rows)

    def client_arrays(self, federation: Federation, evaluated: np.ndarray) -> dict[str, np.ndarray]:
        """Per-client figures [C] of the last and the best round; only of clients looked at."""

        def spread(values: np.ndarray) -> np.ndarray:
            everyone = np.full(federation.clients, np.nan)
            everyone[evaluated] = values
            return everyone

        names = ("train_samples", "validation_samples", "test_samples")
        arrays = dict(zip(names, federation.counts.T, strict=True))
        arrays["malicious"] = federation.malicious
        found = {"last": self.last, "best": self.best and self.best[1]}
        for when, evaluation in found.items():
            if evaluation is None:
                continue
            for model in evaluation.test.accuracy:
                arrays[f"{when}_{model}_accuracy"] = spread(evaluation.test.accuracy[model])
                arrays[f"{when}_{model}_loss"] = spread(evaluation.test.loss[model])
            arrays[f"{when}_hm_is_global"] = spread(evaluation.picks_global) == 1
        return arrays

    def summary(self, facts: Facts, federation: Federation, seconds: float) -> dict[str, Any]:
        """The content of summary.json."""
        by_round = {row["round"]: row for row in self.rows}
        keys = ("round", *MODELS, "gap", "oracle", "train_loss")
        last, best = None, None
        if self.rows and self.best:
            last = {key: self.rows[-1].get(key) for key in keys}
            best = {key: by_round[self.best[0]].get(key) for key in keys}
            best["chosen_on"] = self.selection
        return {
            "rounds": self.rounds,
            "seconds": seconds,
            "compile_seconds": facts.compile_seconds,
            "round_seconds": float(np.median(self.round_seconds)) if self.rounds else None,
            "clients": federation.clients,
            "clients_per_round": facts.selected,
            "parameters": facts.parameters,
            "padding_overhead": self.executed / self.steps if self.steps else None,
            "bytes_up": self.sent()["up"],
            "bytes_down": self.sent()["down"],
            "execution": facts.plan._asdict(),
            "selection": self.selection,
            "last": last,
            "best": best,
            "benign_clients": int((~federation.malicious).sum()),
            "evaluated_clients": len(facts.evaluated),
            "together": facts.together,
            "nonfinite": sum(self.nonfinite),
        }


def columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Lines of metrics.jsonl as arrays over evaluated rounds; figures that do not exist are NaN."""
    columns = {
        "round": np.array([row["round"] for row in rows], int),
        "bytes_up": np.array([row["bytes"]["up"] for row in rows], int),
        "bytes_down": np.array([row["bytes"]["down"] for row in rows], int),
        "train_loss": np.array([row["train_loss"] for row in rows], float),
        "nonfinite": np.array([sum(row["nonfinite"]) for row in rows], int),
        "gap": np.array([row["gap"] for row in rows], float),
    }
    for name in MODELS:
        for key in STATISTICS:
            values = [(row[name] or {}).get(key) for row in rows]
            columns[f"{name}_{key}"] = np.array(values, float)
    return columns


def _merit(evaluation: Evaluation) -> float:
    """What the best round is best at: mean hybrid accuracy on the selection split."""
    models, losses = evaluation.selection.accuracy, evaluation.selection.loss
    value = models.get("hm", models["pm"]).mean()
    if np.isnan(value):  # regression has no accuracy: the lower loss
        value = -losses.get("hm", losses["pm"]).mean()
    return float(value)
