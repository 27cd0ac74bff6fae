"""Convolution and pooling for networks whose weights differ from client to client.

Activations are batch-last, [C, H, W, B]. On CPU a convolution is a product of matrices, forward and
backward: XLA's own convolutions, run inside loops or with a client axis on their weights, are more
than twenty times slower there. Elsewhere they are used as they are (`native`). Both give the same
results to rounding.
"""

from __future__ import annotations

from functools import partial, reduce

import jax
import jax.numpy as jnp
from jax import Array, lax


def convolve(x: Array, kernel: Array, padding: int, native: bool) -> Array:
    """Stride 1, `padding` zeros around: x [C, H, W, B], kernel [k, k, C, O] -> [O, h, w, B]."""
    if not native:
        return _matmul_convolve(x, kernel, padding)
    around = [(padding, padding)] * 2
    return lax.conv_general_dilated(
        x, kernel, (1, 1), around, dimension_numbers=("CHWN", "HWIO", "CHWN")
    )


def max_pool(x: Array, native: bool) -> Array:
    """The largest of every 2 x 2 square: [C, H, W, B] -> [C, H // 2, W // 2, B].

    Of equal entries the first, row by row, is the one that a gradient reaches.
    """
    if not native:
        return _chosen_pool(x)
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _matmul_convolve(x: Array, kernel: Array, padding: int) -> Array:
    size, _, _, features = kernel.shape
    _, height, width, batch = x.shape
    out = (features, height + 2 * padding - size + 1, width + 2 * padding - size + 1, batch)
    return (kernel.reshape(-1, features).T @ _patches(x, size, padding)).reshape(out)


def _patches(x: Array, size: int, padding: int) -> Array:
    """[size * size * C, h * w * B]: the input that each entry of a kernel meets, place by place.

    Columns and batch are one axis, so that every shifted copy moves long runs of memory.
    """
    channels, height, width, batch = x.shape
    x = x.reshape(channels, height, width * batch)
    x = jnp.pad(x, ((0, 0), (padding, padding), (padding * batch, padding * batch)))
    h, w = height + 2 * padding - size + 1, (width + 2 * padding - size + 1) * batch
    shifts = [(i, j * batch) for i in range(size) for j in range(size)]
    return jnp.stack([x[:, i : i + h, j : j + w] for i, j in shifts]).reshape(-1, h * w)


def _convolve_forward(x: Array, kernel: Array, padding: int) -> tuple[Array, tuple[Array, Array]]:
    return _matmul_convolve(x, kernel, padding), (x, kernel)


def _convolve_backward(padding: int, saved: tuple[Array, Array], g: Array) -> tuple[Array, Array]:
    x, kernel = saved
    size, _, channels, features = kernel.shape
    _, height, width, batch = x.shape
    h, w = g.shape[1], g.shape[2] * batch
    flat = g.reshape(features, h * w)
    to_kernel = (_patches(x, size, padding) @ flat.T).reshape(kernel.shape)
    # what each entry of the kernel sends back, added up where it came from
    back = (kernel.reshape(-1, features) @ flat).reshape(size, size, channels, h, w)
    last = size - 1
    shifted = (
        jnp.pad(back[i, j], ((0, 0), (i, last - i), (j * batch, (last - j) * batch)))
        for i in range(size)
        for j in range(size)
    )
    around = (channels, height + 2 * padding, width + 2 * padding, batch)
    inside = slice(padding, -padding or None)
    return reduce(jnp.add, shifted).reshape(around)[:, inside, inside], to_kernel


_matmul_convolve.defvjp(_convolve_forward, _convolve_backward)


@jax.custom_vjp
def _chosen_pool(x: Array) -> Array:
    return _pool_forward(x)[0]


def _pool_forward(x: Array) -> tuple[Array, tuple[Array, Array]]:
    channels, height, width, batch = x.shape
    h, w = height // 2, width // 2
    x_even = x[:, : 2 * h, : 2 * w].reshape(channels, h, 2, w, 2, batch)
    a, b, c, d = (x_even[:, :, i, :, j] for i in range(2) for j in range(2))
    top, bottom = jnp.maximum(a, b), jnp.maximum(c, d)
    in_top = jnp.where(a >= b, jnp.int8(0), jnp.int8(1))
    in_bottom = jnp.where(c >= d, jnp.int8(2), jnp.int8(3))
    chosen = jnp.where(top >= bottom, in_top, in_bottom)
    return jnp.maximum(top, bottom), (chosen, jnp.empty((0, height, width, 0), x.dtype))


def _pool_backward(saved: tuple[Array, Array], g: Array) -> tuple[Array]:
    chosen, shape = saved
    channels, h, w, batch = g.shape
    _, height, width, _ = shape.shape
    square = jnp.arange(4, dtype=jnp.int8).reshape(1, 1, 2, 1, 2, 1)
    wide = jnp.where(chosen[:, :, None, :, None] == square, g[:, :, None, :, None], 0)
    wide = wide.reshape(channels, 2 * h, 2 * w, batch)
    return (jnp.pad(wide, ((0, 0), (0, height - 2 * h), (0, width - 2 * w), (0, 0))),)


_chosen_pool.defvjp(_pool_forward, _pool_backward)
