"""Least squares in closed form: what FLAME does, and where it stops, for any inputs X_i.

f_i(theta) = |X_i theta − y_i|²/(2 N_i), the loss of `model.name = "linear"`. All in NumPy, float64.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from flamejax.federation import TRAIN, Federation
from flamejax.types import Tree


class Problem(NamedTuple):
    """What the clients' losses depend on: grad f_i = A_i theta − c_i."""

    gram: np.ndarray  # [C, d, d] A_i = X_i'X_i / N_i
    moment: np.ndarray  # [C, d] c_i = X_i'y_i / N_i
    alpha: np.ndarray  # [C] weights of the clients, summing to 1


def problem(federation: Federation, alpha: Literal["uniform", "samples"] = "uniform") -> Problem:
    """The training samples of all clients, as a run with engine.precision = "float64" has them."""
    counts = federation.counts[:, TRAIN]
    positions = np.arange(counts.max(), dtype=np.int32)

    @jax.jit
    def sums(arrays: Tree, counts: Array) -> tuple[Array, Array]:
        def of_client(one: tuple[Array, Array]) -> tuple[Array, Array]:
            client, samples = one
            there = positions < samples
            x, y = federation.read(arrays, client, jnp.where(there, positions, 0))
            weight = there.astype(float) / samples.astype(float)
            x = x.reshape(len(x), -1)
            weighted = (x * weight[:, None]).T
            return weighted @ x, weighted @ y.astype(float)

        return lax.map(of_client, (jnp.arange(len(counts), dtype=counts.dtype), counts))

    with jax.enable_x64(True):
        gram, moment = map(np.asarray, sums(federation.arrays, counts.astype(np.int32)))
    weights = counts if alpha == "samples" else np.ones(len(counts))
    return Problem(gram, moment, weights / weights.sum())


def personal(problem: Problem, lam: float, w: np.ndarray) -> np.ndarray:
    """(12) theta_i = argmin f_i + lam/2 |theta − w_i|² = (A_i + lam)^-1 (c_i + lam w_i): [C, d].

    w: [d], or each client's own, [C, d]."""
    return _solve(_shifted(problem, lam), problem.moment + lam * w)


def stationary(problem: Problem, lam: float) -> tuple[np.ndarray, np.ndarray]:
    """Where FLAME stops: w [d] and theta [C, d], theta_i = `personal`, w = sum_i alpha_i theta_i.

    With S_i = (A_i + lam)^-1, w = (I − sum alpha_i lam S_i)^-1 sum alpha_i S_i c_i. The paper has a
    factor lam too many in the second sum: for A_i = b I it would make w lam times the mean of the
    clients' own solutions, and not the mean.
    """
    shifted, alpha = _shifted(problem, lam), problem.alpha
    # I − lam S_i = S_i A_i, which keeps its digits when lam is large
    left = np.einsum("i,ijk->jk", alpha, np.linalg.solve(shifted, problem.gram))
    w = np.linalg.solve(left, alpha @ _solve(shifted, problem.moment))
    return w, personal(problem, lam, w)


def consensus(problem: Problem) -> np.ndarray:
    """The one model for all, argmin sum alpha_i f_i: [d]. FedADMM's, and FLAME's as lam grows."""
    gram = np.einsum("i,ijk->jk", problem.alpha, problem.gram)
    return np.linalg.solve(gram, problem.alpha @ problem.moment)


def one_round(
    problem: Problem, lam: float, rho: float, w0: np.ndarray | float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """w [d] and theta [C, d] after FLAME's first round from w0 with exact theta-steps."""
    return rounds(problem, lam, rho, 1, w0)


def rounds(
    problem: Problem, lam: float, rho: float, count: int, w0: np.ndarray | float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """w [d] and theta [C, d] after `count` rounds of Algorithm 1 with exact theta-steps, all
    clients taking part; w, w_i and theta_i start at w0 [d]."""
    x = lam * problem.alpha[:, None]
    w = np.zeros(problem.moment.shape[1]) + w0
    theta = w_i = np.zeros_like(problem.moment) + w
    pi = np.zeros_like(w_i)
    for _ in range(count):
        theta = personal(problem, lam, w_i)  # (12)
        w_i = (x * theta + rho * w - pi) / (x + rho)  # (13)
        pi = pi + rho * (w_i - w)  # (14)
        w = np.mean(w_i + pi / rho, axis=0)  # (15)
    return w, theta


def _shifted(problem: Problem, lam: float) -> np.ndarray:
    """A_i + lam I [C, d, d]"""
    return problem.gram + lam * np.eye(problem.gram.shape[-1])


def _solve(matrices: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """[C, d, d], [C, d] -> [C, d]"""
    return np.linalg.solve(matrices, vectors[..., None])[..., 0]
