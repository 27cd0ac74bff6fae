"""What a report says of one thing that was found: tables, figures, and what went wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from flamejax.comparison import Comparison
from flamejax.experiment.claims import Verdict, claims, judge
from flamejax.experiment.paper import cells
from flamejax.experiment.results import Experiment
from flamejax.grid import assignment
from flamejax.lane import Result
from flamejax.readback import Found, Kept
from flamejax.report import comparison as compared
from flamejax.report import comparison_figures, curves, run, sweep_figures, theory_figures
from flamejax.report import sweep as sweeps
from flamejax.report.experiment import Part, parts
from flamejax.report.experiment_sheets import beside_paper
from flamejax.report.sheet import Sheet, title
from flamejax.swept import Sweep

NAMED = 8  # of runs with a trouble, and of values in a line; all runs are in a table


class Section(NamedTuple):
    kind: str
    title: str
    folder: str
    facts: list[str]  # what was run
    troubles: list[str]  # what diverged, what is missing
    parts: list[Part]
    runs: list[Kept]
    commands: list[str]


def section(found: Found) -> Section:
    what, runs = found.what, found.runs
    if isinstance(what, Experiment):
        kind, heading, facts, made = "experiment", what.title, _span(what), _judged(what)
    elif isinstance(what, Comparison):
        place = f"{what.about['data']}, {what.about['partition']['name']}"
        kind, heading = "comparison", f"{len(what.rows)} methods on {place}"
        facts, made = _pieces(title(what.about)), _compared(what)
    elif isinstance(what, Sweep):
        keys = sweep_figures.varying(what)
        kind, heading = "sweep", f"Sweep over {_listed(keys or ['seed'])}"
        facts, made = _pieces(sweeps.headline(what)), _swept(what)
    else:
        assert isinstance(what, Result)
        kind, (heading, facts), made = "run", _named(what), _one(what)
    commands = [one.environment.get("command") for one in runs]
    spent = sum(one.record.summary.get("seconds", 0) for one in runs)
    facts += [*[f"{len(runs)} runs"] * (kind != "run"), f"computed in {duration(spent)}"]
    missing: list[str] = []
    if isinstance(what, Experiment):
        missing, commands = what.missing, [what.about.get("command"), *commands]
    said = [f"flamejax {command}" for command in dict.fromkeys(map(str, filter(None, commands)))]
    return Section(kind, heading, found.name, facts, _troubles(runs, missing), made, runs, said)


def duration(seconds: float) -> str:
    """
    >>> [duration(s) for s in (3.14159, 75, 4000)]
    ['3.1 s', '1 min 15 s', '1 h 6 min']
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _pieces(line: str) -> list[str]:
    return line.split(" · ")


def _listed(words: Iterable[Any]) -> str:
    """A few words in a line; the rest is counted."""
    all_words = list(dict.fromkeys(map(str, words)))
    more = len(all_words) - NAMED
    return ", ".join(all_words[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _troubles(runs: Sequence[Kept], missing: Sequence[str]) -> list[str]:
    gone: dict[str, list[str]] = {}
    for one in runs:
        gone.setdefault(one.record.summary["status"], []).append(one.name)
    gone = {status: names for status, names in gone.items() if status != "finished"}
    gone |= {"missing": list(missing)} if missing else {}
    return [
        f"{len(names)} of {len(runs) + len(missing)} runs {_verb(status, len(names))}: "
        f"{_listed(names)}."
        if names != [""]
        else f"This run {_verb(status, 1)}."
        for status, names in gone.items()
    ]


def _verb(status: str, count: int) -> str:
    were = "was" if count == 1 else "were"
    verbs = {"diverged": "diverged", "interrupted": f"{were} interrupted"}
    return verbs.get(status, f"{were.replace('was', 'is').replace('were', 'are')} missing")


def _named(result: Result) -> tuple[str, list[str]]:
    """A run's heading, and what was run."""
    config, summary = result.config, result.summary
    method, summed = config.method, {**summary, "seeds": [config.seed], "rounds": config.rounds}
    about = {name: getattr(config, name).model_dump() for name in ("partition", "attack")}
    place = f"{summary['data']}, {config.partition.name}"
    heading = f"{method.name} ({method.preset}) on {place}, seed {config.seed}"
    aggregator = config.aggregator.name
    more = [aggregator] if aggregator != "mean" else []
    return heading, [*_pieces(title({**summed, **about})), *more]


def _one(result: Result) -> list[Part]:
    figures: list[Any] = []
    if len(result.metrics["round"]):
        figures.append(("curves", partial(_sized, curves.draw, result)))
    if "theory" in result.summary:
        figures.append(("theory", partial(_sized, theory_figures.draw, result)))
    sheets = [run.sheet(result.summary)] if result.summary["last"] else []
    return [Part("Figures of the last round", sheets, figures, "run")]


def _sized(draw: Any, result: Result, figure: Any) -> Any:
    figure.set_size_inches(9, 3.8)
    return draw(figure, result)


def _compared(found: Comparison) -> list[Part]:
    pictures: list[Any] = [
        ("curves", partial(comparison_figures.draw_curves, comparison=found)),
        ("fairness", partial(comparison_figures.draw_fairness, comparison=found)),
    ]
    return [Part("Methods side by side", [compared.sheet(found)], pictures, "comparison")]


def _swept(found: Sweep) -> list[Part]:
    pictures: list[Any] = []
    if sweep_figures.varying(found):
        pictures = [("heatmap", partial(sweep_figures.draw, sweep=found))]
    return [Part("Points of the grid", [sweeps.sheet(found)], pictures, "sweep")]


def _span(found: Experiment) -> list[str]:
    """What an experiment is made of."""
    groups = found.groups
    abouts = [group.comparison.about for group in groups]
    points = [", ".join(map(assignment, group.point.items())) for group in groups]
    spans = {
        "data": [group.data for group in groups],
        "partition": [group.partition for group in groups],
        "at": [point for point in points if point],
        "clients": [about["clients"] for about in abouts],
        "rounds": [about["rounds"] for about in abouts],
        "methods": [row["label"] for group in groups for row in group.comparison.rows],
        "seeds": [seed for about in abouts for seed in about["seeds"]],
    }
    return [f"{name}: {_listed(values)}" for name, values in spans.items() if values]


def _judged(found: Experiment) -> list[Part]:
    """Tables and figures by kind, then the paper's figures and its claims."""
    beside, verdicts = cells(found), judge(found)
    made = parts(found, beside)
    papers: list[Sheet] = []
    judged: list[Sheet] = []
    for form in found.forms:
        if found.kind != "table":  # which has it among its own
            ours = [cell for cell in beside if cell.form == form]
            papers += beside_paper(ours, {}, f"Accuracy, {form} form")
        judged += _verdicts([one for one in verdicts if one.form == form], form)
    if papers:
        made.append(Part("Beside the paper", papers, [], f"{found.name}-paper"))
    if judged:
        made.append(Part("The paper's claims", judged, [], f"{found.name}-claims"))
    return made


def _verdicts(found: Sequence[Verdict], form: str) -> list[Sheet]:
    """What became of the claims in one form; no sheet without any."""
    known, counts = claims(), Counter(one.verdict for one in found)
    rows = []
    for one in found:
        says = known[one.claim].says if one.claim in known else one.claim
        rows.append([(text, False) for text in (says, one.verdict, one.numbers)])
    notes = [", ".join(f"{count} {verdict}" for verdict, count in counts.items()) + "."]
    name, headings = f"Methods in their {form} form", ["verdict", "measured"]
    return [Sheet(name, ["claim"], headings, rows, notes)] if found else []
