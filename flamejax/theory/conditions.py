"""When the paper's convergence proof applies: the conditions of Lemma 1, and its constants.

With x = lam alpha they are (a) x²(1+ρ)/ρ² < (x+ρ)/2, (b) ρ ≥ x, (c) (1−ρ²)x²/ρ² > (Lα+ρ)/2.
Only a thin band satisfies them. At ρ = 0.1, and without any curvature:

>>> low, high = band(0.1, 0.0)
>>> f"{low:.4f} < x < {high:.4f}"
'0.0225 < x < 0.0237'

(b) follows from (a), which is false at x = ρ and so for all larger x. Plain Python: no JAX.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

TEXTS = {
    "a": "x²(1+ρ)/ρ² < (x+ρ)/2",  # noqa: RUF001
    "b": "x ≤ ρ",  # noqa: RUF001
    "c": "(1−ρ²)x²/ρ² > (Lα+ρ)/2",  # noqa: RUF001
}
INSET = 0.05  # of the band's width: how far inside it `nearest` stays
THINNEST = 1e-20  # rho; below, the band is about as thin as rounding


class Point(NamedTuple):
    """A choice of parameters for one client."""

    lam: float
    rho: float
    alpha: float  # the client's weight in the objective
    smoothness: float  # L, the Lipschitz constant of its gradient

    @property
    def x(self) -> float:
        return self.lam * self.alpha

    @property
    def la(self) -> float:
        return self.smoothness * self.alpha


PAPER = Point(lam=1.0, rho=0.1, alpha=0.1, smoothness=0.0)  # of its experiments; L is not stated


class Condition(NamedTuple):
    """One of the three, at a point."""

    name: str  # a | b | c
    text: str
    left: float
    right: float
    holds: bool

    @property
    def margin(self) -> float:
        """How many times larger the side is that should be larger: above 1 it holds."""
        small, large = (self.right, self.left) if self.name == "c" else (self.left, self.right)
        return large / small if small else math.inf


def check(point: Point) -> tuple[Condition, Condition, Condition]:
    """All three, in order."""
    x, rho, ratio = point.x, point.rho, point.x / point.rho
    a = ratio * ratio * (1 + rho), (x + rho) / 2
    b = x, rho
    c = (1 - rho * rho) * (ratio * ratio), (point.la + rho) / 2
    return (
        Condition("a", TEXTS["a"], *a, holds=a[0] < a[1]),
        Condition("b", TEXTS["b"], *b, holds=b[0] <= b[1]),
        Condition("c", TEXTS["c"], *c, holds=c[0] > c[1]),
    )


def all_hold(point: Point) -> bool:
    return all(condition.holds for condition in check(point))


def descent_constant(point: Point) -> float:
    """D_1 of Lemma 1: a round lowers the Lyapunov function by D_1 times the squared steps."""
    a = check(point)[0]
    return min(point.rho / 2, a.right - a.left)


def slack(point: Point) -> float:
    """k = (1−ρ²)x²/ρ² − (Lα+ρ)/2, which (c) wants positive."""
    c = check(point)[2]
    return c.left - c.right


def iota(point: Point, upsilon: float) -> float:
    """The weight of epsilon_i in the Lyapunov function; NaN where (c) does not hold.

    (16) bounds |g|² by epsilon_i for g = alpha_i (grad f_i + lam (theta_i − w_i)), and Young's
    inequality <g, d> <= k|d|² + |g|²/(4k) then asks for 1/(4k(1−υ)).
    """
    k = slack(point)
    return 1 / (4 * k * (1 - upsilon)) if k > 0 else math.nan


def iota_printed(point: Point, upsilon: float) -> float:
    """As the paper has it: alpha² takes the place of 1/4, too little for alpha < 1/2."""
    return 4 * point.alpha**2 * iota(point, upsilon)


def relative_error_constant(point: Point) -> float:
    """D_2 of Lemma 2, the largest coefficient of its proof: |grad|² <= D_2 (squared steps + eps).

    The last step of the proof prints 2 alpha² L² where the line before has 4 alpha² L².
    """
    ratio = point.x / point.rho
    both = 4 * (point.x * point.x + ratio * ratio)  # 4x²(1 + 1/ρ²)
    theta = both + 4 * (point.la * point.la + point.x * point.x)
    w = both + 2 * point.rho * point.rho + 2
    return max(theta, w, 2.0)


def relative_error_printed(point: Point) -> float:
    """As the paper has it: a sum where the proof has a maximum, so larger than needed, unless
    L alpha is above 1: then it may be too small."""
    ratio = point.x / point.rho
    both = 4 * (point.x * point.x + ratio * ratio)
    theta = 2 * point.la * point.la + 4 * point.x * point.x
    return both + theta + 2 * point.rho * point.rho + 2


def band(rho: float, la: float) -> tuple[float, float]:
    """Between which x all three hold at this rho and L alpha; empty unless the first is lower."""
    low = rho * math.sqrt((la + rho) / (2 * (1 - rho * rho))) if rho < 1 else math.inf  # (c)
    return low, rho * _steepest(rho)


def _steepest(rho: float) -> float:
    """The x/ρ at which (a) is an equality."""
    return (rho / 2 + math.sqrt(rho * rho / 4 + 2 * rho * (1 + rho))) / (2 * (1 + rho))


def room(rho: float) -> float:
    """Below which L alpha some x satisfies all three at this rho: (c) with the x of (a)."""
    return 2 * (1 - rho * rho) * _steepest(rho) ** 2 - rho


@cache
def limit() -> tuple[float, float]:
    """The L alpha that no (rho, x) reaches, though all below it do, and the rho where it is."""
    rho = _lowest(lambda rho: -room(rho), 0.0, 1.0)
    return room(rho), rho


def feasible_rho(la: float) -> tuple[float, float]:
    """Between which rho some x satisfies all three; NaN if there is none."""
    most, at = limit()
    if not la < most:
        return math.nan, math.nan
    low = 0.0 if la == 0 else _crossing(lambda rho: room(rho) < la, 0.0, at)
    return low, _crossing(lambda rho: room(rho) > la, at, 1.0)


def clients_needed(smoothness: float) -> int:
    """The fewest equal clients, alpha = 1/m, with which some lam and rho satisfy all three."""
    clients = int(smoothness / limit()[0]) + 1
    return clients if smoothness / clients < limit()[0] else clients + 1


def nearest(point: Point) -> Point | None:
    """The same alpha and L with the closest lam and rho that satisfy all three, or None.

    Distance is in (log lam, log rho). A little inside the band, so that there are numbers of few
    digits; a point that satisfies them is its own answer.
    """
    if all_hold(point):
        return point
    most = limit()[0]
    if not point.la < most:
        return None
    # inside the ends of rho, too: those of a slightly larger L alpha
    left = most - point.la
    low = max(feasible_rho(point.la * (1 + INSET * left / most))[0], THINNEST)
    high = feasible_rho(point.la + INSET * left)[1]
    asked_x, asked_rho = math.log(point.x), math.log(point.rho)

    def closest_x(log_rho: float) -> float:
        bottom, top = map(math.log, band(math.exp(log_rho), point.la))
        inset = INSET * (top - bottom)
        return min(max(asked_x, bottom + inset), top - inset)

    def distance(log_rho: float) -> float:
        return (log_rho - asked_rho) ** 2 + (closest_x(log_rho) - asked_x) ** 2

    log_rho = _lowest(distance, math.log(low), math.log(high))
    lam, rho = math.exp(closest_x(log_rho)) / point.alpha, math.exp(log_rho)
    shorter = (
        point._replace(lam=float(f"{lam:.{digits}g}"), rho=float(f"{rho:.{digits}g}"))
        for digits in range(3, 18)
    )
    return next(filter(all_hold, shorter), None)


def _lowest(f: Callable[[float], float], low: float, high: float) -> float:
    """Where f is lowest between two numbers: a grid, and finer ones around its lowest point."""
    steps = 200
    while True:
        grid = [low + (high - low) * i / steps for i in range(steps + 1)]
        best = min(range(steps + 1), key=lambda i: f(grid[i]))
        if high - low <= 1e-12 * max(abs(low), abs(high), 1e-300):
            return grid[best]
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, steps)]


def _crossing(before: Callable[[float], bool], low: float, high: float) -> float:
    """Where `before`, true at low and false at high, ends."""
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if before(middle) else (low, middle)
    return middle
