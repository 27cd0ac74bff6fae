"""Convolution and pooling for networks whose weights differ from client to client.

Activations are batch-last, [C, H, W, B]. On CPU a convolution is a product of matrices, forward and
backward: XLA's own convolutions, run inside loops or with a client axis on their weights, are many
times slower there. Elsewhere they are used as they are (`native`). Both give the same results to
rounding.

The products yield their results in planes, as a pool wants them: of 2 x 2 planes, plane (r, s)
holds rows r, r + 2, ... and columns s, s + 2, ..., so that a square of the pool is the same place
of every plane, and all copies and comparisons run along memory. One plane is the plain convolution.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

Planes = dict[tuple[int, int], Array]  # (r, s) -> [C, rows, columns * B]


def convolve(x: Array, kernel: Array, padding: int, native: bool) -> Array:
    """Stride 1, `padding` zeros around: x [C, H, W, B], kernel [k, k, C, O] -> [O, h, w, B]."""
    if native:
        around = [(padding, padding)] * 2
        return lax.conv_general_dilated(
            x, kernel, (1, 1), around, dimension_numbers=("CHWN", "HWIO", "CHWN")
        )
    return _whole(_convolve(x, kernel, padding, 1)[0], x)


def max_pool(x: Array, native: bool) -> Array:
    """The largest of every 2 x 2 square: [C, H, W, B] -> [C, H // 2, W // 2, B].

    Of equal entries the first, row by row, is the one that a gradient reaches.
    """
    if native:
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    even = x[:, : x.shape[1] // 2 * 2, : x.shape[2] // 2 * 2]
    return _whole(_largest(*_split(even, 2).values()), x)


def convolve_and_pool(x: Array, kernel: Array, padding: int, native: bool) -> Array:
    """`max_pool` of `convolve`, without putting the planes together in between."""
    if native:
        return max_pool(convolve(x, kernel, padding, native), native)
    return _whole(_largest(*_convolve(x, kernel, padding, 2)), x)


def _split(x: Array, n: int) -> Planes:
    """n x n planes of [C, H, W, B], whose height and width n divides."""
    channels, height, width, batch = x.shape
    x = x.reshape(channels, height // n, n, width // n, n, batch)
    return {
        (r, s): x[:, :, r, :, s].reshape(channels, height // n, -1)
        for r in range(n)
        for s in range(n)
    }


def _whole(plane: Array, like: Array) -> Array:
    """[O, h, w * B] -> [O, h, w, B]"""
    return plane.reshape(*plane.shape[:2], -1, like.shape[-1])


class _Shifts(NamedTuple):
    """Which part of a plane of the input meets which entry of the kernel."""

    kernel: int  # k
    planes: int  # n
    height: int  # of the results, one plane
    width: int  # times the batch
    batch: int

    def part(self, i: int, j: int, r: int, s: int) -> tuple[tuple[int, int], tuple[slice, ...]]:
        """Where entry (i, j) finds its input for plane (r, s) of the result: plane and place."""
        (down, row), (right, column) = divmod(i + r, self.planes), divmod(j + s, self.planes)
        right *= self.batch
        rows, columns = slice(down, down + self.height), slice(right, right + self.width)
        return (row, column), (slice(None), rows, columns)

    def parts(self, r: int, s: int) -> list[tuple[tuple[int, int], tuple[slice, ...]]]:
        return [self.part(i, j, r, s) for i in range(self.kernel) for j in range(self.kernel)]


def _shifts(x: Array, kernel: Array, padding: int, n: int) -> _Shifts:
    height, width = ((size + 2 * padding - len(kernel) + 1) // n for size in x.shape[1:3])
    return _Shifts(len(kernel), n, height, width * x.shape[-1], x.shape[-1])


def _padded(x: Array, padding: int, n: int) -> Planes:
    """Planes of x with zeros around it, and as many after it as n needs."""
    after = [padding + -(size + 2 * padding) % n for size in x.shape[1:3]]
    around = ((0, 0), (padding, after[0]), (padding, after[1]), (0, 0))
    return _split(jnp.pad(x, around), n)


def _patches(planes: Planes, shifts: _Shifts, r: int, s: int) -> Array:
    """[k * k * C, h * w * B]: the input that each entry of the kernel meets, place by place."""
    found = [planes[plane][place] for plane, place in shifts.parts(r, s)]
    return jnp.stack(found).reshape(-1, shifts.height * shifts.width)


def _products(x: Array, kernel: Array, padding: int, n: int) -> tuple[Array, ...]:
    """n * n planes [O, h, w * B] of the convolution, row by row."""
    shifts, planes = _shifts(x, kernel, padding, n), _padded(x, padding, n)
    matrix = kernel.reshape(-1, kernel.shape[-1]).T
    return tuple(
        (matrix @ _patches(planes, shifts, r, s)).reshape(-1, shifts.height, shifts.width)
        for r, s in planes
    )


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _convolve(x: Array, kernel: Array, padding: int, n: int) -> tuple[Array, ...]:
    return _products(x, kernel, padding, n)


def _forward(
    x: Array, kernel: Array, padding: int, n: int
) -> tuple[tuple[Array, ...], tuple[Array, Array]]:
    # not by `_convolve`: so the gradient has a derivative of its own, for products with Hessians
    return _products(x, kernel, padding, n), (x, kernel)


def _backward(
    padding: int, n: int, saved: tuple[Array, Array], gradients: tuple[Array, ...]
) -> tuple[Array, Array]:
    x, kernel = saved
    channels, height, width, batch = x.shape
    shifts, planes = _shifts(x, kernel, padding, n), _padded(x, padding, n)
    matrix = kernel.reshape(-1, kernel.shape[-1])
    to_matrix = jnp.zeros_like(matrix)
    to_planes = {place: jnp.zeros_like(plane) for place, plane in planes.items()}
    for (r, s), g in zip(planes, gradients, strict=True):
        g = g.reshape(len(g), -1)
        to_matrix += _patches(planes, shifts, r, s) @ g.T
        # what each entry of the kernel sends back, added up where it came from
        back = (matrix @ g).reshape(-1, channels, shifts.height, shifts.width)
        for sent, (plane, place) in zip(back, shifts.parts(r, s), strict=True):
            to_planes[plane] = to_planes[plane].at[place].add(sent)
    rows = len(to_planes[0, 0][0])
    stacked = jnp.stack([p.reshape(channels, rows, -1, batch) for p in to_planes.values()])
    to_x = stacked.reshape(n, n, channels, rows, -1, batch).transpose(2, 3, 0, 4, 1, 5)
    to_x = to_x.reshape(channels, rows * n, -1, batch)
    inside = (slice(padding, padding + height), slice(padding, padding + width))
    return to_x[:, *inside], to_matrix.reshape(kernel.shape)


_convolve.defvjp(_forward, _backward)


@jax.custom_vjp
def _largest(a: Array, b: Array, c: Array, d: Array) -> Array:
    """The largest of four planes, place by place."""
    return jnp.maximum(jnp.maximum(a, b), jnp.maximum(c, d))


def _largest_forward(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, Array]:
    top, bottom = jnp.maximum(a, b), jnp.maximum(c, d)
    in_top = jnp.where(a >= b, jnp.int8(0), jnp.int8(1))
    in_bottom = jnp.where(c >= d, jnp.int8(2), jnp.int8(3))
    return jnp.maximum(top, bottom), jnp.where(top >= bottom, in_top, in_bottom)


def _largest_backward(chosen: Array, g: Array) -> tuple[Array, ...]:
    return tuple(jnp.where(chosen == plane, g, 0) for plane in range(4))


_largest.defvjp(_largest_forward, _largest_backward)
