"""Sign-flipping attack: u = -|p| u with p ~ N(0, gamma2)."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from flamejax import tree
from flamejax.config import AttackSettings
from flamejax.types import Attack, Tree


class SignFlip(AttackSettings):
    name: str = "sign_flip"
    presets: ClassVar = {"paper": {}, "published": {"gamma2": 1.0}}

    def build(self) -> Attack:
        def craft(hyper: Any, key: Array, message: Tree) -> Tree:
            p = jnp.sqrt(hyper.gamma2) * jax.random.normal(key)
            return tree.scale(-jnp.abs(p), message)

        return Attack(craft=craft)
