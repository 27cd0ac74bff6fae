"""Convolution and pooling for networks whose weights differ from client to client.

Activations are batch-last, [C, H, W, B]. On CPU a convolution is a product of matrices, forward and
backward: XLA's own convolutions, run inside loops or with a client axis on their weights, are many
times slower there. Elsewhere they are used as they are (`native`). Both give the same results to
rounding.
"""

from __future__ import annotations

from functools import partial, reduce
from typing import NamedTuple

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
    cut = _cut(kernel)
    wide = _matrix(kernel).T @ _patches(x, cut, padding)
    height, width = (n + 2 * padding - cut.size + 1 for n in x.shape[1:3])
    features, batch = kernel.shape[-1], x.shape[-1]
    wide = wide.reshape(cut.after, features, height, -1)
    shifted = (wide[j, ..., j * batch : (j + width) * batch] for j in range(cut.after))
    return reduce(jnp.add, shifted).reshape(features, height, width, batch)


class _Cut(NamedTuple):
    """A kernel [k, k, C, O] as a matrix, its columns dealt with before and after the product.

    With all before, the product takes k * k * C shifted copies of the input; with all after, it
    takes k * C, and its k * O results are shifted and added. The less there is to copy the faster.
    """

    size: int  # k
    before: int  # columns of the kernel: k and 1,
    after: int  # or 1 and k


def _cut(kernel: Array) -> _Cut:
    size, _, channels, features = kernel.shape
    return _Cut(size, 1, size) if channels > features else _Cut(size, size, 1)


def _matrix(kernel: Array) -> Array:
    """[k * before * C, after * O]"""
    cut, (_, _, channels, features) = _cut(kernel), kernel.shape
    parts = kernel.reshape(cut.size, cut.before, cut.after, channels, features)
    return parts.swapaxes(2, 3).reshape(-1, cut.after * features)


def _patches(x: Array, cut: _Cut, padding: int) -> Array:
    """[k * before * C, h * w * B]: the input that each row of the matrix meets, place by place.

    Columns and batch are one axis, so that every shifted copy moves long runs of memory.
    """
    channels, height, width, batch = x.shape
    x = x.reshape(channels, height, width * batch)
    x = jnp.pad(x, ((0, 0), (padding, padding), (padding * batch, padding * batch)))
    h, w = height + 2 * padding - cut.size + 1, (width + 2 * padding - cut.before + 1) * batch
    shifts = [(i, j * batch) for i in range(cut.size) for j in range(cut.before)]
    return jnp.stack([x[:, i : i + h, j : j + w] for i, j in shifts]).reshape(-1, h * w)


def _convolve_forward(x: Array, kernel: Array, padding: int) -> tuple[Array, tuple[Array, Array]]:
    return _matmul_convolve(x, kernel, padding), (x, kernel)


def _convolve_backward(padding: int, saved: tuple[Array, Array], g: Array) -> tuple[Array, Array]:
    x, kernel = saved
    cut = _cut(kernel)
    _, _, channels, features = kernel.shape
    _, height, width, batch = x.shape
    h = g.shape[1]
    flat = g.reshape(features, h, -1)
    wide = jnp.stack([_shift(flat, 0, 1, j, cut.after, batch) for j in range(cut.after)])
    wide = wide.reshape(cut.after * features, -1)
    to_matrix = _patches(x, cut, padding) @ wide.T
    to_kernel = to_matrix.reshape(cut.size, cut.before, channels, cut.after, features)
    # what each row of the matrix sends back, added up where it came from
    back = (_matrix(kernel) @ wide).reshape(cut.size, cut.before, channels, h, -1)
    places = [(i, j) for i in range(cut.size) for j in range(cut.before)]
    to_x = reduce(
        jnp.add, (_shift(back[i, j], i, cut.size, j, cut.before, batch) for i, j in places)
    ).reshape(channels, height + 2 * padding, width + 2 * padding, batch)
    inside = slice(padding, -padding or None)
    return to_x[:, inside, inside], to_kernel.swapaxes(2, 3).reshape(kernel.shape)


def _shift(x: Array, row: int, rows: int, column: int, columns: int, batch: int) -> Array:
    """[C, h, w * B] at a place in zeros that leave room for `rows` x `columns` of them."""
    across = (column * batch, (columns - 1 - column) * batch)
    return jnp.pad(x, ((0, 0), (row, rows - 1 - row), across))


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
