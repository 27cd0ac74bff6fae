"""The augmented Lagrangian and what belongs to it, on the states that the engine keeps.

    L = sum_i alpha_i (f_i(theta_i) + lam/2 |theta_i - w_i|^2)
              + <pi_i, w_i - w> + rho/2 |w_i - w|^2

Everything is a sum over clients of what `terms` finds of one, over all its training samples.
f_i is its mean training loss, without dropout, plus weight_decay/2 |theta|^2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from flamejax import local, tree
from flamejax.evaluate import BATCH
from flamejax.methods.common import gradient
from flamejax.theory.moreau import Envelope, envelope
from flamejax.types import Admm, Model, Shard, Tree


class Terms(NamedTuple):
    """One client's part in each sum; the norms are squared."""

    lagrangian: Array
    f: Array  # alpha_i (f_i(theta_i) + lam/2 |theta_i - w|^2): f(Theta, w)
    f_tilde: Array  # the same with w_i in the place of w: f~(Theta, W)
    tolerance: Array  # iota_i epsilon_i: the Lyapunov function is the Lagrangian and this
    epsilon: Array  # epsilon_i of (17)
    # stationarity, Definition 4:
    theta: Array  # |grad f_i(theta_i) + lam (theta_i - w_i)|^2
    w: Array  # |alpha_i lam (w_i - theta_i) + pi_i|^2, pi_i by (14) from the round before
    consensus: Array  # |w_i - w|^2
    pi: Tree  # pi_i, to be summed
    # the gradient of L:
    gradient: Array  # squared, but for the part of w,
    pull: Tree  # which is minus the sum of pi_i + rho (w_i - w)
    dual: Array  # |pi_i|^2, the part of w_i in the gradient of f~
    moved: Array  # |theta_i - last one|^2 + |w_i - last one|^2
    inexactness: Array  # |alpha_i (grad f_i(theta_i) + lam (theta_i - last w_i))|^2, (16)
    envelope: Array  # alpha_i F_i(w), the Moreau envelope, and
    envelope_pull: Tree  # alpha_i lam (w - prox(w)), its gradient


class Measured(NamedTuple):
    """What is recorded of a round, summed over clients. Norms are not squared here."""

    lagrangian: Array
    lyapunov: Array  # L + sum_i iota_i epsilon_i; NaN where iota is not defined
    f: Array
    f_tilde: Array
    residual_theta: Array  # the four of Definition 4
    residual_w: Array
    residual_consensus: Array
    residual_dual: Array  # |sum_i pi_i|
    gradient: Array  # of L, in all variables
    gradient_w: Array  # of f~ in W: it does not vanish
    moved: Array  # Delta Gamma of Lemma 1, a sum of squares
    epsilon: Array  # sum_i epsilon_i
    inexactness: Array  # sum over the selected clients of the left side of (16),
    inexactness_ratio: Array  # and the largest ratio of it to epsilon_i: at most 1 if (16) is met
    envelope: Array  # sum_i alpha_i F_i(w),
    envelope_gradient: Array  # the length of its gradient,
    prox_residual: Array  # and of the longest gradient left when the steps to the prox were over


class Rule(NamedTuple):
    """How to measure."""

    model: Model
    prox_steps: int  # towards the prox at w; 0: no envelope
    scheduled: bool  # epsilon is a tolerance that the local solver keeps to


class Round(NamedTuple):
    """What is known of a round, beside one client's variables before and after it."""

    hyper: Any
    smoothness: Array  # L of the clients' losses
    last_w: Tree  # of the server, before the round,
    w: Tree  # and after it
    took_part: Array  # the client did
    shard: Shard  # its data


def loss_and_gradient(model: Model, hyper: Any, theta: Tree, shard: Shard) -> tuple[Array, Tree]:
    """f_i and its gradient over all training samples of a client."""
    plain = gradient(model._replace(train=None), hyper)
    grads, info = local.full_gradient(plain, theta, shard, BATCH)
    mean = info.loss / jnp.maximum(info.samples, 1)
    return mean + hyper.weight_decay / 2 * tree.squared_norm(theta), grads


def terms(rule: Rule, round: Round, old: Admm, new: Admm) -> tuple[Terms, Array, Array]:
    """Of one client after a round. Also the ratio of its inexactness to epsilon_i, and the
    gradient left at its prox."""
    hyper, w, shard = round.hyper, round.w, round.shard
    lam, rho, alpha = hyper.lam, hyper.rho, new.alpha
    loss, grads = loss_and_gradient(rule.model, hyper, new.theta, shard)

    def pulled(center: Tree) -> Array:  # |grad f_i(theta_i) + lam (theta_i - center)|^2
        return tree.squared_norm(
            jax.tree.map(lambda g, theta, c: g + lam * (theta - c), grads, new.theta, center)
        )

    away = tree.subtract(new.w, w)
    pull = jax.tree.map(lambda pi, away: pi + rho * away, new.pi, away)
    to_w, to_w_i = tree.subtract(new.theta, w), tree.subtract(new.theta, new.w)
    f = alpha * (loss + lam / 2 * tree.squared_norm(to_w))
    f_tilde = alpha * (loss + lam / 2 * tree.squared_norm(to_w_i))
    penalty = tree.dot(new.pi, away) + rho / 2 * tree.squared_norm(away)
    # (14) pi_i = last pi_i + rho (w_i - last w)
    stepped = jax.tree.map(lambda pi, w_i, w: pi + rho * (w_i - w), old.pi, new.w, round.last_w)
    dual = tree.where(round.took_part, stepped, old.pi)
    inexactness = jnp.where(round.took_part, alpha**2 * pulled(old.w), 0)
    residual_w = jax.tree.map(lambda to, pi: pi - alpha * lam * to, to_w_i, dual)
    along_w = jax.tree.map(lambda pull, to: pull - alpha * lam * to, pull, to_w_i)
    moreau = _envelope(rule, round, new)
    found = Terms(
        lagrangian=f_tilde + penalty,
        f=f,
        f_tilde=f_tilde,
        tolerance=iota(rule, round, alpha) * new.epsilon,
        epsilon=new.epsilon,
        theta=pulled(new.w),
        w=tree.squared_norm(residual_w),
        consensus=tree.squared_norm(away),
        pi=new.pi,
        gradient=alpha**2 * pulled(new.w) + tree.squared_norm(along_w) + tree.squared_norm(away),
        pull=pull,
        dual=tree.squared_norm(new.pi),
        moved=tree.squared_norm(tree.subtract((new.theta, new.w), (old.theta, old.w))),
        inexactness=inexactness,
        envelope=alpha * moreau.value,
        envelope_pull=tree.scale(alpha, moreau.gradient),
    )
    return found, inexactness / new.epsilon, moreau.residual


def iota(rule: Rule, round: Round, alpha: Array) -> Array:
    """The weight of epsilon_i in the Lyapunov function, 1 / (4 k (1 - upsilon)) with k the slack
    of condition (c): see `conditions.iota`. NaN without slack, or without a schedule (17)."""
    if not rule.scheduled:
        return jnp.full_like(alpha, jnp.nan)
    x, rho = round.hyper.lam * alpha, round.hyper.rho
    slack = (1 - rho**2) * x**2 / rho**2 - (round.smoothness * alpha + rho) / 2
    return jnp.where(slack > 0, 1 / (4 * slack * (1 - round.hyper.upsilon)), jnp.nan)


def _envelope(rule: Rule, round: Round, of: Admm) -> Envelope:
    """F_i at w; steps start at theta_i."""
    if not rule.prox_steps:
        nothing = jnp.full_like(of.alpha, jnp.nan)
        return Envelope(nothing, tree.scale(nothing, round.w), nothing)

    def f(theta: Tree) -> tuple[Array, Tree]:
        return loss_and_gradient(rule.model, round.hyper, theta, round.shard)

    rate = 1 / (round.smoothness + round.hyper.lam)
    return envelope(f, round.w, round.hyper.lam, of.theta, rate, rule.prox_steps)


def finish(sums: Terms, w_moved: Array, clients: int, ratio: Array, left: Array) -> Measured:
    """Of the sums over all clients. w_moved: |w - last w|^2; ratio, left: the largest."""
    return Measured(
        lagrangian=sums.lagrangian,
        lyapunov=sums.lagrangian + sums.tolerance,
        f=sums.f,
        f_tilde=sums.f_tilde,
        residual_theta=jnp.sqrt(sums.theta),
        residual_w=jnp.sqrt(sums.w),
        residual_consensus=jnp.sqrt(sums.consensus),
        residual_dual=jnp.sqrt(tree.squared_norm(sums.pi)),
        gradient=jnp.sqrt(sums.gradient + tree.squared_norm(sums.pull)),
        gradient_w=jnp.sqrt(sums.dual),
        moved=sums.moved + clients * w_moved,
        epsilon=sums.epsilon,
        inexactness=sums.inexactness,
        inexactness_ratio=ratio,
        envelope=sums.envelope,
        envelope_gradient=jnp.sqrt(tree.squared_norm(sums.envelope_pull)),
        prox_residual=left,
    )
