"""Per-client figures of the personalized, global and hybrid models (PM, GM, HM).

On the device a client's figures are sums (`score`); means, variances and the hybrid choice are
made of them on the host (`figures`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from flamejax import tree
from flamejax.federation import TRAIN, VALIDATION, Federation
from flamejax.local import piece
from flamejax.types import Model, Tree

BATCH = 250  # samples scored at a time


class Sums(NamedTuple):
    """Sums over a client's samples, validation then test, for the models present (pm, then gm)."""

    loss: Array  # [models, 2]
    correct: Array  # [models, 2]


def score(model: Model, federation: Federation) -> Callable[..., Sums]:
    """(arrays, counts [3], client, models) -> Sums of one client."""
    held_out = federation.counts[:, VALIDATION:].sum(1)
    size = piece(model, min(BATCH, int(held_out.max())))

    def one(arrays: Tree, counts: Array, client: Array, models: tuple[Tree, ...]) -> Sums:
        total = counts[VALIDATION] + counts[VALIDATION + 1]

        def batch(j: Array, sums: Sums) -> Sums:
            place = j * size + jnp.arange(size, dtype=jnp.int32)
            with jax.named_scope("read"):
                position = counts[TRAIN] + jnp.minimum(place, total - 1)
                x, y = federation.read(arrays, client, position)
            in_validation = place < counts[VALIDATION]
            weight = jnp.stack([in_validation, ~in_validation & (place < total)]).astype(float)
            with jax.named_scope("forward"):
                outputs = [model.apply(params, x) for params in models]
                losses = jnp.stack([model.loss(o, y) for o in outputs])
                hits = jnp.stack([correct(o, y) for o in outputs])
                return tree.add(sums, Sums(losses @ weight.T, hits @ weight.T))

        zero = jnp.zeros((len(models), 2))
        return lax.fori_loop(0, (total + size - 1) // size, batch, Sums(zero, zero))

    return one


def correct(outputs: Array, labels: Array) -> Array:
    """1 where the label is on top, [B]; 0 for outputs that are not finite. Undefined (NaN) for
    regression targets."""
    if not jnp.issubdtype(labels.dtype, jnp.integer):
        return jnp.full(labels.shape[:1], jnp.nan)
    hits = jnp.argmax(outputs, axis=-1).astype(labels.dtype) == labels
    return (hits & jnp.all(jnp.isfinite(outputs), axis=-1)).astype(float)


class Figures(NamedTuple):
    """Per-client accuracy and loss on one split; a model that does not exist is absent."""

    accuracy: dict[str, np.ndarray]  # "pm" | "gm" | "hm" -> [C]
    loss: dict[str, np.ndarray]


class Evaluation(NamedTuple):
    test: Figures
    selection: Figures  # on the split that chooses: validation, or test for the oracle
    picks_global: np.ndarray  # [C] bool: the hybrid model is the global one


def figures(sums: Sums, counts: np.ndarray, on: str) -> Evaluation:
    """sums [C, models, 2] and counts [C, 3] -> per-client figures; HM is chosen on split `on`."""
    names = ("pm", "gm")[: sums.loss.shape[1]]
    held_out = counts[:, None, VALIDATION:]
    with np.errstate(invalid="ignore"):
        accuracy, loss = np.asarray(sums.correct) / held_out, np.asarray(sums.loss) / held_out
    chooser = 0 if on == "validation" else 1
    picks = np.zeros(len(counts), bool)
    if len(names) == 2:  # higher accuracy; on a tie, or without accuracies, lower loss; then PM
        (a_pm, a_gm), (l_pm, l_gm) = accuracy[..., chooser].T, loss[..., chooser].T
        picks = (a_gm > a_pm) | (~(a_gm < a_pm) & (l_gm < l_pm))

    def of(split: int) -> Figures:
        result = []
        for values in (accuracy[..., split], loss[..., split]):
            models = {name: values[:, i] for i, name in enumerate(names)}
            if len(names) == 2:
                models["hm"] = np.where(picks, models["gm"], models["pm"])
            result.append(models)
        return Figures(*result)

    return Evaluation(test=of(1), selection=of(chooser), picks_global=picks)


def summarize(figures: Figures) -> dict[str, dict[str, float | None] | None]:
    """Means, variances and tails over clients, for pm, gm and hm; absent models are None."""
    return {
        name: _statistics(figures.accuracy[name], figures.loss[name])
        if name in figures.accuracy
        else None
        for name in ("pm", "gm", "hm")
    }


def _statistics(accuracy: np.ndarray, loss: np.ndarray) -> dict[str, Any]:
    tail = max(1, round(0.1 * len(accuracy)))
    ranked = np.sort(accuracy)
    values = {
        "accuracy": accuracy.mean(),
        "accuracy_var": accuracy.var(),
        "loss": loss.mean(),
        "loss_var": loss.var(),
        "worst10": ranked[:tail].mean(),
        "best10": ranked[-tail:].mean(),
        **evenness(accuracy),
    }
    return {key: finite(value) for key, value in values.items()}


def gap(figures: Figures) -> float | None:
    """How much more accurate the personalized models are than the global one, on average."""
    models = figures.accuracy
    return finite((models["pm"] - models["gm"]).mean()) if "gm" in models else None


def oracle(figures: Figures) -> float | None:
    """The accuracy of a hybrid that knows which model is better on the test split itself, as the
    paper's does: no choice on other samples can be better."""
    models = figures.accuracy
    return finite(np.maximum(models["pm"], models["gm"]).mean()) if "gm" in models else None


def evenness(accuracy: np.ndarray) -> dict[str, float]:
    """How evenly accuracies [C] are spread over clients.

    jain: (sum a)^2 / (C sum a^2), from 1/C (one client has it all) to 1 (all the same).
    entropy: of the shares a / sum a, from 0 to log C.
    """
    total = accuracy.sum()
    if not total > 0:  # all wrong, or no accuracies: nothing to share
        return {"jain": np.nan, "entropy": np.nan}
    shares = accuracy[accuracy > 0] / total
    return {
        "jain": total**2 / (len(accuracy) * (accuracy**2).sum()),
        "entropy": -(shares * np.log(shares)).sum(),
    }


def finite(value: Any) -> float | None:
    """A JSON number, or None for NaN and infinities, which JSON does not have."""
    return float(value) if np.isfinite(value) else None
