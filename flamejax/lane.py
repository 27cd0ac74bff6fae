"""One run on its way: what it has measured, where that is recorded, whether it failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flamejax import hosts, loggers
from flamejax.checkpoints import Snapshot
from flamejax.config import Config, Named
from flamejax.engine import Facts, RoundInfo
from flamejax.errors import DivergedError
from flamejax.evaluate import Sums, figures
from flamejax.federation import TRAIN, Federation
from flamejax.history import History
from flamejax.records import CHECKPOINTS, Folder, environment
from flamejax.resuming import Earlier
from flamejax.theory import findings
from flamejax.theory.lagrangian import Measured
from flamejax.types import States, Tree
from flamejax.writer import Writer


class Result(NamedTuple):
    """What a run found out.

    `metrics` maps "round", "train_loss", "pm_accuracy", "gm_loss", ... to arrays with an entry per
    evaluated round, "bytes_up" and "bytes_down" to what was sent until then; `clients` holds
    per-client figures of the last and the best round; `summary` is the content of summary.json.
    `models(i)` are the global and client i's personalized parameters after the last round. With
    `record.theory`, `theory` maps "round", "lagrangian", "residual_theta", ... to arrays with an
    entry per round, from round 0 on.
    """

    config: Config
    metrics: dict[str, np.ndarray]
    clients: dict[str, np.ndarray]
    summary: dict[str, Any]
    models: Callable[[int], tuple[Tree | None, Tree]]
    theory: dict[str, np.ndarray]

    def plot(self, against: str = "rounds") -> Any:
        """Accuracy and loss against rounds, or against bytes sent, as a Matplotlib figure."""
        import matplotlib.pyplot as plt

        from flamejax.report.curves import draw

        return draw(plt.figure(figsize=(9, 3.6), layout="constrained"), self, against)

    def plot_theory(self) -> Any:
        """The Lagrangian and the residuals of stationarity against rounds, with `record.theory`."""
        import matplotlib.pyplot as plt

        from flamejax.report.theory_figures import draw

        return draw(plt.figure(figsize=(9, 3.6), layout="constrained"), self)


class Lane:
    def __init__(
        self,
        config: Config,
        federation: Federation,
        facts: Facts,
        out: Path | None,
        own: Mapping[str, Any],
        model: str,
        earlier: Earlier | None = None,
        smoothness: float | None = None,
    ) -> None:
        """own: data and model that were passed from Python; model: the name of the other;
        earlier: what is there of the run already; smoothness: where the theory is recorded."""
        self.config, self.facts = config, facts
        self.history = History(config, facts)
        self.failure: DivergedError | None = None
        self._federation, self._smoothness = federation, smoothness
        self._names = {"data": "own" if "data" in own else config.data.name, "model": model}
        self._counts = federation.counts[facts.evaluated]
        self._loss = np.nan  # of the last round
        self._timings: list[Mapping[str, Any]] = []
        text = earlier.text if earlier else config_text(config, own)
        if earlier and earlier.checkpoint:
            self._timings = earlier.restore(self.history)
        self.writer = (
            None if out is None else Writer(out / CHECKPOINTS, text, config.checkpoint.keep)
        )
        self.folder = None  # only one process keeps records
        if out is not None and hosts.rank() == 0:
            self.folder = Folder.reopen(out) if earlier else Folder(out, text)
            self.folder.write_json("environment.json", environment())
        if earlier and self.folder is not None:  # they may hold rounds after the checkpoint
            self.folder.write_lines("metrics.jsonl", self.history.rows)
            self.folder.write_lines("timings.jsonl", self._timings)
            if self.history.theory:
                self.folder.write_lines("theory.jsonl", self.history.theory)
        place = self.folder.path if self.folder is not None else None
        self._loggers = loggers.open_all(config, self._names, place, self.history.rows)

    def measured(self, found: Measured) -> None:
        """Take note of the theory's quantities before the first round."""
        self._note_theory([findings.row(self.config, 0, found)])

    def _note_theory(self, rows: list[dict[str, Any]]) -> None:
        self.history.theory += rows
        if self.folder is not None:
            self.folder.append("theory.jsonl", *rows)

    def trained(self, log: RoundInfo, rounds: int, seconds: float) -> None:
        """Take note of some rounds, or of a failure in one."""
        if self.failure:
            return
        first = self.history.rounds + 1
        self.history.trained(log, rounds, seconds)
        if self.config.engine.on_nonfinite == "stop" and log.nonfinite.any():
            self.failure = _not_finite(log, first, self._federation.clients)
            return
        lost = ~np.isfinite(log.loss) | (log.nonfinite == self.facts.selected)  # nothing finite
        if lost.any():
            bad = first + int(np.argmax(lost))
            self._diverged(f"the training loss is not finite in round {bad}")
            return
        if log.theory is not None:
            self._note_theory(list(findings.rows(self.config, first, log.theory)))
        with np.errstate(invalid="ignore"):  # a round may have selected no benign client
            self._loss = float(log.loss[-1] / log.samples[-1])

    def evaluated(self, sums: Sums) -> dict[str, Any] | None:
        """Take note of an evaluation after these rounds: its row in metrics.jsonl."""
        if self.failure:
            return None
        found = figures(sums, self._counts, self.config.selection.on)
        if not np.isfinite(found.test.loss["pm"]).any():
            self._diverged(f"test losses are not finite after round {self.history.rounds}")
            return None
        row = self.history.evaluated(self._loss, found)
        if self.folder is not None:
            self.folder.append("metrics.jsonl", row)
        self._loggers.row(row)
        return row

    def timed(self, timing: Mapping[str, Any]) -> None:
        if self.failure:
            return
        self._timings.append(timing)
        if self.folder is not None:
            self.folder.append("timings.jsonl", timing)

    def save(self, trees: Mapping[str, Tree], states: States) -> None:
        """A checkpoint, if the run is recorded."""
        if self.writer is None or self.failure:
            return
        plain, arrays = self.history.export()
        history = {**plain, "timings": list(self._timings)}
        self.writer.save(Snapshot(self.history.rounds, trees, states, history, arrays))

    def saved(self) -> int | None:
        """The round of the newest checkpoint, once it is written."""
        return self.writer.newest() if self.writer and not self.failure else None

    def settle(self) -> None:
        """Wait for a checkpoint that is being written."""
        if self.writer:
            self.writer.finish()

    def close(
        self,
        status: str,
        seconds: float,
        models: Callable[[int], tuple[Tree | None, Tree]],
    ) -> Result:
        """The result, recorded."""
        self.settle()
        result = Result(
            config=self.config,
            metrics=self.history.columns(),
            clients=self.history.client_arrays(self._federation, self.facts.evaluated),
            summary={
                "status": "diverged" if self.failure else status,
                **self._names,
                **self.history.summary(self.facts, self._federation, seconds),
                **self._theory(),
            },
            models=models,
            theory=findings.columns(self.history.theory),
        )
        if self.folder is not None:
            from flamejax.report import theory_figures
            from flamejax.report.curves import png

            self.folder.write_arrays("clients.npz", result.clients)
            curves = self.folder.path / "curves.png" if self.history.rows else None
            if curves:
                self.folder.write(curves.name, png(result))
            if len(self.history.theory) > 1:
                self.folder.write("theory.png", theory_figures.png(result))
            self.folder.write_json("summary.json", result.summary)
            self._loggers.close(result.summary, curves)  # at last: it may wait for a network
        return result

    def _theory(self) -> dict[str, Any]:
        if self._smoothness is None or len(self.history.theory) < 2:
            return {}
        samples = self._federation.counts[:, TRAIN]
        uniform = getattr(self.config.method, "alpha", "uniform") == "uniform"
        alphas = np.full(len(samples), 1 / len(samples)) if uniform else samples / samples.sum()
        rows = self.history.theory
        return {"theory": findings.summarize(self.config, rows, self._smoothness, alphas)}

    def _diverged(self, what: str) -> None:
        self.failure = DivergedError(f"diverged: {what}; {likely(self.config.method)}")


def likely(method: Named) -> str:
    """Which setting may be to blame. Steps towards another model overshoot it if lr lam > 2."""
    rate, pull = getattr(method, "lr", None), getattr(method, "lam", None)
    if rate and pull and pull > 1 and rate * pull > 2:
        return f"try a smaller method.lam (now {pull}) or method.lr (now {rate}): lr * lam is large"
    return f"try a smaller method.lr (now {rate})"


def config_text(config: Config, own: Mapping[str, Any]) -> str:
    """The content of config.toml."""
    passed = "".join(f"# {name}: passed from Python, not as named below\n" for name in own)
    return passed + config.to_toml()


def _not_finite(log: RoundInfo, first: int, clients: int) -> DivergedError:
    """The first round with numbers that are not finite, and whose they are."""
    row = int(np.argmax(log.nonfinite > 0))
    who = ", ".join(str(client) for client in log.culprits[row] if client < clients)
    more = ", ..." if log.nonfinite[row] > len(log.culprits[row]) else ""
    return DivergedError(
        f"round {first + row}: numbers that are not finite from client(s) {who}{more}; "
        "engine.on_nonfinite = 'drop' would go on without them"
    )
