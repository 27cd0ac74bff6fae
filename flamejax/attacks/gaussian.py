"""Gaussian attack: u ~ N(0, gamma2 I)."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from flamejax.config import AttackSettings
from flamejax.types import Attack, Tree


class Gaussian(AttackSettings):
    name: str = "gaussian"
    presets: ClassVar = {"paper": {}, "published": {"gamma2": 1.0}}

    def build(self) -> Attack:
        def craft(hyper: Any, key: Array, message: Tree) -> Tree:
            leaves, shape = jax.tree.flatten(message)
            std = jnp.sqrt(hyper.gamma2)
            noise = [
                std * jax.random.normal(jax.random.fold_in(key, i), x.shape, x.dtype)
                for i, x in enumerate(leaves)
            ]
            return jax.tree.unflatten(shape, noise)

        return Attack(craft=craft)
