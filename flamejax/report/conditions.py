"""What `flamejax theory check` says at the terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table

from flamejax.theory import conditions
from flamejax.theory.conditions import PAPER, Point

if TYPE_CHECKING:  # it needs JAX, and conditions do not
    from flamejax.theory.smoothness import Estimate


def show(point: Point, weight: str, estimate: Estimate | None) -> None:
    """Both sides of each condition, and what to change; `weight` is the option that alpha is."""
    console = Console(highlight=False, soft_wrap=True)
    if estimate is not None:
        console.print(*_source(estimate), sep="\n")
    console.print(
        f"λ = {point.lam:g}, α = {point.alpha:g}, L = {point.smoothness:g}: "  # noqa: RUF001
        f"x = λα = {point.x:g}, ρ = {point.rho:g}, Lα = {point.la:g}"  # noqa: RUF001
    )
    console.print(_table(point))
    console.print("* the side that should be larger, divided by the other")
    console.print(*_meaning(point), *_remedy(point, weight), _paper(point), sep="\n")


def _source(estimate: Estimate) -> list[str]:
    found, exact = estimate.curvatures, estimate.model == "linear"
    who = f"{estimate.everyone:,} clients"
    if len(found) < estimate.everyone:
        who = f"{len(found):,} of {who}, drawn by the seed"
    return [
        f"L = {estimate.smoothness:g} is estimated: the largest curvature of the clients' training "
        "losses",
        f"with the model {estimate.model} at the initial point. Over {who}, it is",
        f"from {found.min():.4g} to {found.max():.4g} (client "
        f"{estimate.clients[found.argmax()]}); this took {estimate.seconds:.1f} s.",
        "These losses are quadratic, so it is the same everywhere."
        if exact
        else "Elsewhere the curvature may be larger, and so may L.",
    ]


def _table(point: Point) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("condition", no_wrap=True)
    for heading in ("left", "right", "margin*"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for found in conditions.check(point):
        sides = (f"{value:.6g}" for value in (found.left, found.right))
        verdict = "holds" if found.holds else "[bold]violated[/bold]"
        table.add_row(f"({found.name}) {found.text}", *sides, f"{found.margin:.4g}", verdict)
    return table


def _meaning(point: Point) -> list[str]:
    descent = conditions.descent_constant(point)
    if conditions.all_hold(point):
        return [
            "All hold: the convergence proof applies, to local solutions that meet (16), as with",
            "method.local_solver = 'until_epsilon'. A round lowers the Lyapunov function by at",
            f"least D_1 = {descent:.4g} times the squares of its steps.",
        ]
    return [
        "The convergence proof does not apply here; the algorithm may still converge.",
        f"D_1 of Lemma 1 is {descent:.4g}{'' if descent > 0 else ', and should be positive'}.",
    ]


def _remedy(point: Point, weight: str) -> list[str]:
    """Which lam and rho would do, with the command that says so."""
    found = conditions.nearest(point)
    if found == point:
        return []
    if found is None:
        needed = conditions.clients_needed(point.smoothness)
        return [
            f"No λ and ρ satisfy all three at Lα = {point.la:g}: it has to be "  # noqa: RUF001
            f"below {conditions.limit()[0]:.5f}.",
            f"With this L it takes at least {needed:,} clients of equal weight.",
        ]
    return [
        f"Nearest that satisfy all three: λ = {found.lam!r}, ρ = {found.rho!r} "  # noqa: RUF001
        f"(x = {found.x:.4g}, D_1 = {conditions.descent_constant(found):.4g})",
        f"  flamejax theory check --lam {found.lam!r} --rho {found.rho!r} {weight} "
        f"--smoothness {found.smoothness!r}",
    ]


def _paper(point: Point) -> str:
    setting = f"λ = {PAPER.lam:g}, m = {1 / PAPER.alpha:g}, ρ = {PAPER.rho:g}"  # noqa: RUF001
    if math.isclose(point.x, PAPER.x) and math.isclose(point.rho, PAPER.rho):
        return f"This is the setting of the paper's own experiments ({setting})."
    a = conditions.check(PAPER)[0]
    return (
        f"The paper's own experiments ({setting}: x = {PAPER.x:g}) do not satisfy (a): "
        f"{a.left:g} > {a.right:g}."
    )
