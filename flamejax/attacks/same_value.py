"""Same-value attack: u = p 1 with p ~ N(0, gamma2), one p for the whole message."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from flamejax.config import AttackSettings
from flamejax.types import Attack, Tree


class SameValue(AttackSettings):
    name: str = "same_value"
    presets: ClassVar = {"paper": {}, "published": {"gamma2": 0.01**2}}

    def build(self) -> Attack:
        def craft(hyper: Any, key: Array, message: Tree) -> Tree:
            p = jnp.sqrt(hyper.gamma2) * jax.random.normal(key)
            return jax.tree.map(lambda x: jnp.full_like(x, p), message)

        return Attack(craft=craft)
