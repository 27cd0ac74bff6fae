"""Random permutations that are evaluated, not stored.

`permute(key, positions, n)` answers "which element stands at this position of a random permutation
of 0..n-1?" in O(positions), for any n, traced or not. Mini-batches and client selection are both
read off such permutations: no sort, no array of size n, any position at any time.

The construction is the swap-or-not shuffle (Hoang, Morris, Rogaway 2012): in every round each
element x meets its partner K - x (mod n), and one hash bit of the pair decides whether they swap.
An element that swapped once sits at a uniform place, so after R rounds a position's distribution is
within 2^-R of uniform.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array, lax

ROUNDS = 24


def _mix(x: Array) -> Array:
    """A bijective integer hash (the 32-bit finaliser of MurmurHash3)."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


def permute(key: Array, positions: Array, n: Array | int) -> Array:
    """Elements at `positions` (any shape, each in 0..n-1) of a permutation of 0..n-1, as int32.

    >>> import jax, jax.numpy as jnp
    >>> sorted(permute(jax.random.key(0), jnp.arange(5), 5).tolist())
    [0, 1, 2, 3, 4]
    """
    n = jnp.maximum(jnp.asarray(n), 1).astype(jnp.uint32)
    pivots, salts = jax.random.bits(key, (2, ROUNDS), jnp.uint32)

    def meet(x: Array, this_round: tuple[Array, Array]) -> tuple[Array, None]:
        pivot, salt = this_round
        partner = jnp.where(x <= pivot, pivot - x, pivot + n - x)
        swap = _mix(jnp.maximum(x, partner) ^ salt) & 1
        return jnp.where(swap == 1, partner, x), None

    return lax.scan(meet, positions.astype(jnp.uint32), (pivots % n, salts))[0].astype(jnp.int32)
