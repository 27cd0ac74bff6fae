"""Federated linear regression in closed form (the paper's appendix "Robustness and Fairness").

Client i has y = X_i theta_i + z, z ~ N(0, noise^2 I_N) and X_i'X_i = N b I, so that least squares
gives theta_hat_i ~ N(theta_i, s I) with s = noise^2 / (b N). There is one round from zero with
exact local solutions: client i sends u_i = q theta_hat_i, malicious clients send what their attack
makes of it, w is the mean of all messages, and a client's personalized model is
(b theta_hat_i + lam w) / (b + lam). FLAME has q = 2x / (x + rho) b / (b + lam), x = lam / m; pFedMe
and Ditto are the case q = 1.

Every attack leaves E w = q center and tr Var w = fixed + growing q^2 (`moments`), and all the rest
follows from these three. Losses are expected test losses on fresh noise; means and variances are
over benign clients, which without attack are all of them. Models are "pm" and "gm".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flamejax.errors import InputError

ATTACKS = ("none", "same_value", "sign_flip", "gaussian")
MODELS = ("pm", "gm")


class Problem(NamedTuple):
    """Everything that losses depend on, but for the attack and q."""

    theta: np.ndarray  # [C, d] the clients' true parameters
    malicious: np.ndarray  # [C] bool; without attack all are benign nevertheless
    samples: int  # N, of each client
    scale: float  # b in X'X = N b I
    noise: float  # sigma
    lam: float
    gamma2: float  # variance of p in the attacks

    @property
    def variance(self) -> float:
        """s, of every entry of theta_hat_i."""
        return self.noise**2 / (self.scale * self.samples)

    def benign(self, attack: str) -> np.ndarray:
        """[m_b, d] true parameters of the benign clients."""
        return self.theta if attack == "none" else self.theta[~self.malicious]


class Moments(NamedTuple):
    """Of the global model w: E w = q center, tr Var w = fixed + growing q^2."""

    center: np.ndarray  # [d]
    fixed: float
    growing: float


def q_of(lam: float, rho: float, clients: int, scale: float) -> float:
    """FLAME's q = 2x / (x + rho) b / (b + lam) with x = lam / m.

    >>> q_of(lam=1.0, rho=0.1, clients=10, scale=1.0)
    0.5
    """
    x = lam / clients
    return 2 * x / (x + rho) * scale / (scale + lam)


def rho_of(lam: float, q: float, clients: int, scale: float) -> float:
    """The rho with which FLAME has this q, which lies below 2b / (b + lam).

    >>> rho_of(lam=1.0, q=0.5, clients=10, scale=1.0)
    0.1
    """
    rho = lam / clients * (2 * scale / ((scale + lam) * q) - 1)
    if not rho > 0:
        raise InputError(f"q = {q}: FLAME stays below 2b / (b + lam) = {most_q(lam, scale)}")
    return rho


def most_q(lam: float, scale: float) -> float:
    """What q comes to as rho goes to zero."""
    return 2 * scale / (scale + lam)


def moments(problem: Problem, attack: str) -> Moments:
    """The global model after one round under an attack."""
    m, d = problem.theta.shape
    s, gamma2, benign = problem.variance, problem.gamma2, problem.benign(attack)
    sum_b, m_b = benign.sum(0), len(benign)
    if attack == "none":
        return Moments(sum_b / m, 0.0, d * s / m)
    if attack in ("same_value", "gaussian"):  # u = p 1, or N(0, gamma2 I): the traces are the same
        return Moments(sum_b / m, d * (m - m_b) * gamma2 / m**2, d * m_b * s / m**2)
    if attack != "sign_flip":
        raise InputError(f"attack = {attack!r} should be one of {', '.join(ATTACKS)}")
    # u = -|p| q theta_hat, where E|p| = sqrt(2 gamma2 / pi) and E p^2 = gamma2
    theta_a = problem.theta[problem.malicious]
    center = (sum_b - np.sqrt(2 / np.pi * gamma2) * theta_a.sum(0)) / m
    lies = (np.pi - 2) / np.pi * gamma2 * (theta_a**2).sum() + (m - m_b) * gamma2 * s * d
    return Moments(center, 0.0, (m_b * d * s + lies) / m**2)


def client_losses(problem: Problem, attack: str, q: float, model: str) -> np.ndarray:
    """Expected test losses of the benign clients [m_b]."""
    b, lam, s = problem.scale, problem.lam, problem.variance
    m, d = problem.theta.shape
    w, benign = moments(problem, attack), problem.benign(attack)
    spread = w.fixed + w.growing * q**2  # tr Var w
    away = ((q * w.center - benign) ** 2).sum(1)  # |E w - theta_i|^2
    if model == "pm":  # of (b theta_hat_i + lam w) / (b + lam); Cov(theta_hat_i, w) = q s / m I
        spread = (b**2 * d * s + 2 * b * lam * q / m * d * s + lam**2 * spread) / (b + lam) ** 2
        away = _pull(problem) * away
    return problem.noise**2 / 2 + b / 2 * (spread + away)


def _pull(problem: Problem) -> float:
    """(lam / (b + lam))^2: how much of a squared distance to w personalized models keep."""
    return (problem.lam / (problem.scale + problem.lam)) ** 2


def average_loss(problem: Problem, attack: str, q: float, model: str) -> float:
    """Mean test loss over the benign clients."""
    return float(client_losses(problem, attack, q, model).mean())


def threshold(problem: Problem, attack: str, model: str) -> float:
    """The q* with the least average loss, which is quadratic in q.

    From there on to q = 1 the loss rises: this is the paper's sufficient condition q >= q* for
    FLAME to be at least as good as pFedMe and Ditto.
    """
    m, d = problem.theta.shape
    w = moments(problem, attack)
    gain = w.center @ problem.benign(attack).mean(0)
    if model == "pm":
        gain = gain - d * problem.noise**2 / (problem.lam * m * problem.samples)
    return float(gain / (w.growing + w.center @ w.center))


def break_even(problem: Problem, attack: str, model: str) -> float:
    """The q below 1 with the same average loss as q = 1; if it is above 1, there is none.

    For q <= 1 FLAME is at least as good as pFedMe and Ditto exactly if q is at least this.
    """
    return 2 * threshold(problem, attack, model) - 1


def loss_variance(problem: Problem, attack: str, q: float, model: str) -> float:
    """Variance over the benign clients of their expected test losses: the smaller, the fairer.

    b^2/4 Var_i |q center - theta_i|^2, for personalized models times (lam / (b + lam))^4.
    """
    return float(client_losses(problem, attack, q, model).var())


class Fairness(NamedTuple):
    """Var_i |q center - theta_i|^2 = 4 q^2 V - 4 q C + rest."""

    V: float  # Var_i center'theta_i
    C: float  # Cov_i (center'theta_i, |theta_i|^2)
    rest: float  # Var_i |theta_i|^2


def fairness(problem: Problem, attack: str) -> Fairness:
    benign = problem.benign(attack)
    along, squares = benign @ moments(problem, attack).center, (benign**2).sum(1)
    both = np.mean((along - along.mean()) * (squares - squares.mean()))
    return Fairness(float(along.var()), float(both), float(squares.var()))


def variance_curvature(problem: Problem, attack: str, model: str) -> float:
    """Second derivative of `loss_variance` in q, b^2/4 8V >= 0: the variance is convex in q."""
    kept = _pull(problem) ** 2 if model == "pm" else 1.0
    return kept * problem.scale**2 / 4 * 8 * fairness(problem, attack).V


def fairer(problem: Problem, attack: str, q: float) -> bool:
    """Whether FLAME with this q < 1 has less varied losses than pFedMe and Ditto: (1 + q) V > C.

    So it is when all |theta_i| are the same, and V is not zero; in general it need not be.
    """
    found = fairness(problem, attack)
    return (1 + q) * found.V > found.C


def counterexample() -> Problem:
    """Clients to whom FLAME is less fair than pFedMe and Ditto, whatever q < 1 it has.

    All lie in one direction, one of them further out: V = 8 and C = 20, while fairness at q < 1
    needs (1 + q) V > C.

    >>> fairness(counterexample(), "none"), fairer(counterexample(), "none", q=0.5)
    (Fairness(V=8.0, C=20.0, rest=50.0), False)
    """
    theta = np.array([[1.0, 0.0], [1.0, 0.0], [4.0, 0.0]])
    honest = np.zeros(len(theta), bool)
    return Problem(theta, honest, samples=8, scale=1.0, noise=1.0, lam=0.5, gamma2=1.0)
