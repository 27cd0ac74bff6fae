"""What the paper prints where it is wrong, to be held against simulation.

The functions have the names and arguments of those in `flamejax.theory.regression`, which are
right. They return None where the paper's formula agrees with these, or where there is none.
"""

from __future__ import annotations

import numpy as np

from flamejax.theory import regression
from flamejax.theory.regression import Problem

# what each of them has wrong: (function, attack, model)
ERRORS = {
    ("average_loss", "none", "pm"): "the last factor has b + lam^2 for (b + lam)^2",
    ("average_loss", "sign_flip", "gm"): "variances sigma^2/(bm) for sigma^2/(bN), and distances "
    "summed over malicious clients",
    ("average_loss", "sign_flip", "pm"): "V_i has sigma^2/(bm) for sigma^2/(bN)",
    ("threshold", "same_value", "gm"): "the denominator lacks the squared norm of mean theta_b",
    ("threshold", "gaussian", "gm"): "the denominator lacks the squared norm of mean theta_b",
    ("threshold", "sign_flip", "gm"): "sigma^2/(bm), and sums over malicious clients",
    ("threshold", "sign_flip", "pm"): "sigma^2/(bm) in V_i, and sums over malicious clients",
    ("loss_variance", "none", "pm"): "variance of the fourth power for that of the square",
    ("variance_curvature", "none", "gm"): "the sign: printed <= 0",
    ("variance_curvature", "none", "pm"): "the sign: printed <= 0",
}


def average_loss(problem: Problem, attack: str, q: float, model: str) -> float | None:
    if (attack, model) == ("none", "pm") and q == 1:  # printed for the exact solution only
        return _pm_loss(problem)
    if attack == "sign_flip":
        return (_pm_loss_flipped if model == "pm" else _gm_loss_flipped)(problem, q)
    return None


def _pm_loss(problem: Problem) -> float:
    """sigma^2/2 + (m b^2 + 2 b lam + lam^2) / (m (b + lam)^2) sigma^2 d / (2N)
    + b lam^2 / (2m (b + lam^2)) sum_i |mean theta - theta_i|^2."""
    b, lam, theta = problem.scale, problem.lam, problem.theta
    m, d = theta.shape
    share = (m * b**2 + 2 * b * lam + lam**2) / (m * (b + lam) ** 2)
    noise = problem.noise**2
    away = ((theta.mean(0) - theta) ** 2).sum()
    return float(
        noise / 2
        + share * noise * d / (2 * problem.samples)
        + b * lam**2 / (2 * m * (b + lam**2)) * away
    )


def _gm_loss_flipped(problem: Problem, q: float) -> float:
    """sigma^2/2 + bd/(2m^2) (m_b q^2 sigma^2/(bm) + q^2 sum_a tr V_i / d)
    + b/(2 m_b) sum_a |q mean theta_m - theta_i|^2."""
    b, bad = problem.scale, problem.malicious
    m, d = problem.theta.shape
    m_b = m - bad.sum()
    center = regression.moments(problem, "sign_flip").center
    spread = q**2 * (m_b * problem.noise**2 / (b * m) + _traces(problem) / d)
    away = ((q * center - problem.theta[bad]) ** 2).sum()
    return float(problem.noise**2 / 2 + b * d / (2 * m**2) * spread + b / (2 * m_b) * away)


def _pm_loss_flipped(problem: Problem, q: float) -> float:
    """sigma^2/2 + bd/2 ((b^2 + 2bq lam/m + m_b q^2 lam^2/m^2) sigma^2/(bN)
    + q^2 lam^2/m^2 sum_a tr V_i / d) / (b + lam)^2
    + b lam^2 / (2 (b + lam)^2 m_b) sum_b |q mean theta_m - theta_i|^2."""
    b, lam = problem.scale, problem.lam
    m, d = problem.theta.shape
    benign = problem.benign("sign_flip")
    center = regression.moments(problem, "sign_flip").center
    own = b**2 + 2 * b * q * lam / m + len(benign) * q**2 * lam**2 / m**2
    spread = own * problem.variance + q**2 * lam**2 / m**2 * _traces(problem) / d
    away = ((q * center - benign) ** 2).sum(1).mean()
    return float(
        problem.noise**2 / 2
        + b * d / 2 * spread / (b + lam) ** 2
        + b * lam**2 / (2 * (b + lam) ** 2) * away
    )


def _traces(problem: Problem) -> float:
    """sum_a tr V_i with V_i = (pi-2)/pi gamma2 theta_i theta_i' + gamma2 sigma^2/(bm) I."""
    m, d = problem.theta.shape
    theta_a = problem.theta[problem.malicious]
    along = (np.pi - 2) / np.pi * problem.gamma2 * (theta_a**2).sum()
    each = problem.gamma2 * problem.noise**2 / (problem.scale * m)
    return float(along + len(theta_a) * d * each)


def threshold(problem: Problem, attack: str, model: str) -> float | None:
    if model == "gm" and attack in ("same_value", "gaussian"):
        return _gm_threshold(problem)
    if attack == "sign_flip":
        return (_pm_threshold_flipped if model == "pm" else _gm_threshold_flipped)(problem)
    return None


def _gm_threshold(problem: Problem) -> float:
    """m N b |mean theta_b|^2 / (d sigma^2 + m_b N b)."""
    m, d = problem.theta.shape
    benign, per_b = problem.theta[~problem.malicious], problem.samples * problem.scale
    mean = benign.mean(0)
    return float(m * per_b * mean @ mean / (d * problem.noise**2 + len(benign) * per_b))


def _gm_threshold_flipped(problem: Problem) -> float:
    """1/m_b sum_a theta_i'mean theta_m
    / (d/m^2 (m_b sigma^2/(bm) + sum_a tr V_i / d) + m_a/m_b |mean theta_m|^2)."""
    m, d = problem.theta.shape
    m_a = problem.malicious.sum()
    m_b = m - m_a
    center = regression.moments(problem, "sign_flip").center
    spread = m_b * problem.noise**2 / (problem.scale * m) + _traces(problem) / d
    gain = problem.theta[problem.malicious].sum(0) @ center / m_b
    return float(gain / (d / m**2 * spread + m_a / m_b * center @ center))


def _pm_threshold_flipped(problem: Problem) -> float:
    """(b lam/m_b sum_a theta_i'mean theta_m - b d sigma^2/(mN))
    / (d sigma^2 m_b lam/(m^2 N) + b lam d/m^2 sum_a tr V_i / d + b lam m_a/m_b |mean theta_m|^2)"""
    b, lam, noise, n = problem.scale, problem.lam, problem.noise**2, problem.samples
    m, d = problem.theta.shape
    m_a = problem.malicious.sum()
    m_b = m - m_a
    center = regression.moments(problem, "sign_flip").center
    gain = b * lam / m_b * problem.theta[problem.malicious].sum(0) @ center - b * d * noise / m / n
    loss = d * noise * m_b * lam / (m**2 * n) + b * lam / m**2 * _traces(problem)
    return float(gain / (loss + b * lam * m_a / m_b * center @ center))


def loss_variance(problem: Problem, attack: str, q: float, model: str) -> float | None:
    """For pm, without attack: b^2 lam^4 / (4 (b + lam)^4) Var_i |q mean theta - theta_i|^4."""
    if (attack, model) != ("none", "pm"):
        return None
    b, lam = problem.scale, problem.lam
    away = ((q * problem.theta.mean(0) - problem.theta) ** 2).sum(1)
    return float(b**2 * lam**4 / (4 * (b + lam) ** 4) * (away**2).var())


def variance_curvature(problem: Problem, attack: str, model: str) -> float | None:
    """Without attack: -4/m^2 sum_(i != j) (mean theta'(theta_i - theta_j))^2 <= 0, in units of
    the variance of losses."""
    if attack != "none":
        return None
    along = problem.theta @ problem.theta.mean(0)
    pairs = ((along[:, None] - along) ** 2).sum()
    b, lam = problem.scale, problem.lam
    unit = b**2 / 4 * ((lam / (b + lam)) ** 4 if model == "pm" else 1.0)
    return float(-unit * 4 / len(along) ** 2 * pairs)
