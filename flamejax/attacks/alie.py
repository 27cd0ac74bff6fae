"""A little is enough (Baruch et al. 2019): all attackers send mean - z std of the benign messages.

With n senders, a of them malicious, z is the largest deviation at which enough benign messages lie
farther out for the lie to sit among a majority: Phi(z) = (n - a - s) / (n - a), s = [n/2 + 1] - a.
"""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri

from flamejax.config import AttackSettings
from flamejax.types import Attack, Overheard, Tree
from flamejax.values import Positive

LARGEST = 0.999  # of Phi(z): a majority of attackers could go as far as it likes


class Alie(AttackSettings):
    name: str = "alie"
    z: Literal["auto"] | Positive = "auto"

    def build(self) -> Attack:
        def collude(hyper: Any, overheard: Overheard) -> Tree:
            if self.z == "auto":
                n, a = overheard.senders, overheard.malicious
                supporters = jnp.floor(n / 2 + 1) - a
                z = ndtri(jnp.minimum((n - a - supporters) / jnp.maximum(n - a, 1), LARGEST))
            else:
                z = hyper.z
            return jax.tree.map(lambda mean, std: mean - z * std, overheard.mean, overheard.std)

        return Attack(collude=collude)
