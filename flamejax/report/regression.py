"""Tables of federated linear regression: closed forms, simulation, and what the paper prints."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from flamejax.report.sheet import MISSING, Cell, Sheet, markdown
from flamejax.theory import regression
from flamejax.theory.study import Row, Study

NAMES = {"flame": "FLAME", "pfedme": "pFedMe", "ditto": "Ditto"}
HEADINGS = ["closed form", "simulated", "z", "as printed", "its z"]
BEYOND = 3  # standard errors
FLAGS = {True: "yes", False: "no"}


@contextmanager
def progress_bar(total: int, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Told how many simulations are done, where someone looks."""
    console = Console(stderr=True)
    quiet = quiet or not (console.is_terminal or console.is_jupyter)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=quiet) as progress:
        task = progress.add_task("compiling", total=total)
        yield lambda done: progress.update(task, completed=done, description="simulating")


def sheets(study: Study) -> list[Sheet]:
    """Losses, their variances over clients, where FLAME is better, and how variances bend."""
    return [
        _sheet(study, "average_loss", "Average test loss of benign clients"),
        _sheet(study, "loss_variance", "Variance of test losses over benign clients"),
        _thresholds(study),
        _sheet(study, "variance_curvature", "Second derivative of FLAME's variance in q"),
    ]


def _sheet(study: Study, figure: str, title: str) -> Sheet:
    rows = [row for row in study.rows if row["figure"] == figure]
    shown = [[*_names(row), *_figures(row)] for row in _in_order(rows)]
    return Sheet(title, ["attack", "model", "method"], HEADINGS, shown, [])


def _in_order(rows: Sequence[Row]) -> list[Row]:
    """By attack and model, so that methods stand below each other."""
    attacks, models = regression.ATTACKS, regression.MODELS
    return sorted(rows, key=lambda r: (attacks.index(r["attack"]), models.index(r["model"])))


def _names(row: Row) -> list[Cell]:
    names = (row["attack"], row["model"].upper(), NAMES[row["method"]])
    return [(name, False) for name in names]


def _figures(row: Row) -> list[Cell]:
    """Closed form, estimate, z, and the same of the printed formula; bold: beyond 3 errors."""
    wrong = row["printed"] is not None
    return [
        (f"{row['closed']:.5g}", False),
        (_measured(row), False),
        _z(row["z"]),
        (f"{row['printed']:.5g}" if wrong else MISSING, False),
        _z(row["printed_z"]) if wrong else (MISSING, False),
    ]


def _measured(row: Row) -> str:
    """The estimate with two digits of its error."""
    value, error = row["measured"], row["error"]
    if not error > 0:
        return f"{value:.5g}"
    digits = max(0, 1 - math.floor(math.log10(error)))
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def _z(z: float) -> Cell:
    return f"{z:+.2f}" if abs(z) < 100 else f"{z:+,.0f}", abs(z) > BEYOND


def _thresholds(study: Study) -> Sheet:
    """q* and break-even, and whether FLAME's q is beyond them."""
    lab, shown = study.lab, []
    for row in _in_order([row for row in study.rows if row["figure"] == "threshold"]):
        even = 2 * row["closed"] - 1
        better = even <= lab.q <= 1 or 1 <= lab.q <= even
        answer = [(f"{even:.4g}", False), (FLAGS[better], False)]
        shown.append([*_names(row)[:2], *_figures(row)[:3], *answer, *_figures(row)[3:]])
    headings = [*HEADINGS[:3], "break-even", "FLAME no worse", *HEADINGS[3:]]
    title = "q*: the q with the least average loss"
    return Sheet(title, ["attack", "model"], headings, shown, [])


def notes(study: Study) -> list[str]:
    lab = study.lab
    fair = {attack: regression.fairer(lab.problem, attack, lab.q) for attack in regression.ATTACKS}
    told = ", ".join(f"{attack} {FLAGS[fair[attack]]}" for attack in fair)
    fairness = f"FLAME's losses vary less than Ditto's, (1 + q) V > C: {told}."
    return [
        f"{describe(study)}. FLAME has q = {lab.q:.4g}, pFedMe and Ditto q = 1.",
        f"Simulated: {lab.size.draws:,} draws of the engine's round for every method and attack, ± "
        f"standard error; z: difference in standard errors, bold beyond {BEYOND}.",
        f"As printed: the paper's formula where it differs from the closed form; {MISSING}: it is "
        "right, or there is none.",
        "FLAME is at least as good as pFedMe and Ditto for q from break-even 2q* - 1 to 1; the "
        "paper's condition q >= q* is sufficient.",
        fairness if lab.q < 1 else f"FLAME's q = {lab.q:.4g} is not below 1.",
    ]


def describe(study: Study) -> str:
    """The problem in one line."""
    problem, rho = study.lab.problem, study.lab.config.method.hyper().rho
    m, d = problem.theta.shape
    return (
        f"{m} clients, {problem.malicious.sum()} malicious under attack; d = {d}, "
        f"N = {problem.samples}, b = {problem.scale:g}, sigma = {problem.noise:g}, "
        f"lam = {problem.lam:g}, rho = {rho:.4g}, gamma2 = {problem.gamma2:g}, "
        f"seed {study.lab.config.seed}"
    )


def table_markdown(study: Study) -> str:
    said = "\n".join(f"- {note}" for note in notes(study))
    return "\n".join([*(markdown(sheet) for sheet in sheets(study)), said]) + "\n"


def table_csv(study: Study) -> str:
    """A line for every comparison."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(study.rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(study.rows)
    return buffer.getvalue()
