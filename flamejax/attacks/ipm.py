"""Inner-product manipulation (Xie et al. 2020): the benign clients' mean step, reversed.

All attackers send center - epsilon (mean - center): with epsilon small it hides from distances.
"""

from __future__ import annotations

from typing import Any

import jax

from flamejax.config import AttackSettings
from flamejax.types import Attack, Overheard, Tree
from flamejax.values import Positive


class Ipm(AttackSettings):
    name: str = "ipm"
    epsilon: Positive = 0.5

    def build(self) -> Attack:
        def collude(hyper: Any, overheard: Overheard) -> Tree:
            return jax.tree.map(
                lambda mean, center: center - hyper.epsilon * (mean - center),
                overheard.mean,
                overheard.center,
            )

        return Attack(collude=collude)
