"""Which runs can share one compiled program, and how many of them at a time."""

from __future__ import annotations

from flamejax import tree
from flamejax.config import Config
from flamejax.engine.devices import lay_out
from flamejax.engine.memory import free_memory
from flamejax.engine.prepare import arrange
from flamejax.federation import TRAIN, assemble
from flamejax.readying import model_of, precision
from flamejax.runner import run_together
from flamejax.types import Dataset, Model

__all__ = ["fit_together", "run_together", "structure"]

MOST = 256  # runs in a program: what one call computes should not take forever


def structure(config: Config) -> str:
    """Equal for runs that differ only in the seed and in traced settings of the method.

    A float that is zero may be left out of a program (momentum), so that is told apart.
    """
    method = config.method.model_dump()
    plain = {k: "zero" if v == 0 else "traced" for k, v in method.items() if isinstance(v, float)}
    values = config.model_dump(exclude={"seed", "method"})
    return repr((values, {**method, **plain}))


def fit_together(config: Config, data: Dataset | None = None, model: Model | None = None) -> int:
    """How many runs of this structure fit in a quarter of the memory at a time."""
    with precision(config):
        federation = assemble(config, data)[1]
        _, network = model_of(config, model, federation)
        plan = arrange(config, config.method.build(network), network, federation, 1)
        if not plan.dense:
            return 1
        layout = lay_out(federation.counts[:, TRAIN], plan.plan.devices, plan.guests)
        state = len(layout.client) * tree.nbytes(plan.shapes)
        # a state may be there twice when a call begins; data mostly are the same for all
        one = 2 * state + (federation.nbytes if config.data.limit != "all" else 0)
        return max(1, min(MOST, free_memory() // 4 // max(1, one)))
