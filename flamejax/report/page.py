"""A report as one HTML page that needs nothing but itself, and the same tables in Markdown.

Whatever comes from results is escaped, and the page forbids itself scripts and requests.
"""

from __future__ import annotations

import base64
import html
import re
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, NamedTuple
from urllib.parse import quote

import tomli_w

from flamejax.readback import Kept
from flamejax.report.html import Html, element, joined
from flamejax.report.section import Section
from flamejax.report.shared import common, flat
from flamejax.report.sheet import MISSING, Sheet, markdown

GENERATOR = "flamejax report"
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
VERDICTS = ("reproduced", "partly", "not reproduced")
LONG = 32  # letters; longer cells of a table are broken into lines
MOST_LINES = 20  # of the table of contents
CAPTIONS = {
    "curves": "Test accuracy and test loss against communication rounds.",
    "fairness": "Accuracy against the variance of test losses over clients: the fairest are on the "
    "left, the most accurate on top.",
    "heatmap": "The last round's figures over the grid.",
    "theory": "Distance of the Lagrangian and its relatives to the limit, and residuals of "
    "stationarity.",
}


class Drawn(NamedTuple):
    name: str
    stem: str  # of its files
    svg: bytes


class Block(NamedTuple):
    """A part of a section with the files of its tables and figures."""

    title: str
    tables: list[tuple[Sheet, str]]  # with the stem of their files
    figures: list[Drawn]


class Chapter(NamedTuple):
    section: Section
    blocks: list[Block]


def page(
    title: str, chapters: Sequence[Chapter], unfinished: Sequence[str], beside: str = ""
) -> str:
    """The whole page.

    unfinished: folders of runs that have not ended. beside: where the files of tables and figures
    are, seen from the page; empty, or it ends with a slash.
    """
    style = files("flamejax.report").joinpath("page.css").read_text("utf-8")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="generator", content=GENERATOR),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Html(style)),
    )
    body = element(
        "body",
        element("a", "To the results", class_="skip", href="#results"),
        element(
            "header",
            element("h1", title),
            element("p", outline(chapters), class_="lead"),
            *_troubles(_pending(unfinished)),
        ),
        _contents(title, chapters),
        element(
            "main",
            *(_chapter(i, one, title, beside) for i, one in enumerate(chapters)),
            id="results",
        ),
        element("footer", "Made by flamejax report from the results folders named above."),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def outline(chapters: Sequence[Chapter]) -> str:
    """What the report is about, in one line."""
    kinds = Counter(chapter.section.kind for chapter in chapters)
    said = [f"{count} {kind}{'s' * (count > 1)}" for kind, count in kinds.items()]
    runs = sum(len(chapter.section.runs) for chapter in chapters)
    return ", ".join(said) + (f"; {runs} runs in all" if runs > kinds["run"] else "") + "."


def _pending(unfinished: Sequence[str]) -> list[str]:
    return [f"Not ended, and so not shown: {', '.join(unfinished)}."] if unfinished else []


def _troubles(said: Sequence[str]) -> list[Html]:
    return [element("p", text, class_="trouble") for text in said]


def _contents(title: str, chapters: Sequence[Chapter]) -> Html:
    """A line per section, and for its parts if there are not too many."""
    small = sum(1 + len(blocks) for _, blocks in chapters) <= MOST_LINES
    entries: list[Html] = []
    for i, (section, blocks) in enumerate(chapters):
        entries.append(element("li", element("a", _heading(section, title), href=f"#s{i}")))
        entries += [
            element("li", element("a", block.title, href=f"#s{i}-{j}"), class_="inner")
            for j, block in enumerate(blocks if small else [])
        ]
    return element("nav", element("ol", *entries), aria_label="Contents")


def _heading(section: Section, title: str) -> str:
    """Of a section; what the page is called need not be said twice."""
    return "What was run" if section.title == title else section.title


def _chapter(i: int, chapter: Chapter, title: str, beside: str) -> Html:
    section = chapter.section
    where = joined(element("b", section.kind), f" \u00b7 {section.folder}")
    return element(
        "section",
        element("p", where, class_="kind"),
        element("h2", _heading(section, title), id=f"s{i}-title"),
        element("ul", *(element("li", fact) for fact in section.facts), class_="facts"),
        *_troubles(section.troubles),
        *(_block(f"s{i}-{j}", block, beside) for j, block in enumerate(chapter.blocks)),
        element("div", *_behind(section), class_="behind"),
        id=f"s{i}",
        aria_labelledby=f"s{i}-title",
    )


def _block(anchor: str, block: Block, beside: str) -> Html:
    made: list[Html | None] = [element("h3", block.title, id=anchor)]
    for sheet, stem in block.tables:
        if sheet.title != block.title:
            made.append(element("p", sheet.title, class_="caption"))
        links = _links(beside + stem, ("csv", "tex"))
        made += [table(sheet), _notes(sheet.notes)]
        made.append(element("p", "This table as ", links, class_="files"))
    count = len(block.figures)
    for number, (name, stem, svg) in enumerate(block.figures, start=1):
        which = f", figure {number} of {count}" if count > 1 else ""
        caption = CAPTIONS.get(name, f"{block.title}{which}.")
        encoded = base64.b64encode(svg).decode()
        image = element("img", src=f"data:image/svg+xml;base64,{encoded}", alt=caption)
        forms = element("span", " ", _links(beside + stem, ("svg", "png", "pdf")), class_="files")
        made.append(element("figure", image, element("figcaption", caption, forms)))
    return joined(*made)


def _links(stem: str, forms: Sequence[str]) -> Html:
    found = [element("a", form.upper(), href=quote(f"{stem}.{form}")) for form in forms]
    return Html(" \u00b7 ".join(found))


def _notes(notes: Sequence[str]) -> Html | None:
    if not notes:
        return None
    return element("ul", *(element("li", note) for note in notes), class_="notes")


def table(sheet: Sheet) -> Html:
    """In a box of its own, in which it scrolls."""
    headings, first = [*sheet.names, *sheet.headings], len(sheet.names)
    columns = list(zip(*sheet.rows, strict=True)) or [()] * len(headings)
    looks = [_column([text for text, _ in column], i < first) for i, column in enumerate(columns)]
    head = [
        element("th", name, scope="col", class_=look or None)
        for name, look in zip(headings, looks, strict=True)
    ]
    rows = [
        element("tr", *(_cell(*cell, looks[i], i < first) for i, cell in enumerate(row)))
        for row in sheet.rows
    ]
    whole = element(
        "table",
        element("thead", element("tr", *head)),
        element("tbody", *rows),
        aria_label=sheet.title,
    )
    label = f"Table: {sheet.title}"
    return element("div", whole, class_="scroll", role="region", tabindex="0", aria_label=label)


def _column(texts: Sequence[str], name: bool) -> str:
    """How a column looks: numbers are on the right, words on the left, many of them in lines."""
    long = any(len(text) > LONG for text in texts)
    words = name or not any(re.search(r"\d", text) for text in texts)
    return " ".join(["words"] * (words or long) + ["long"] * long)


def _cell(text: str, best: bool, look: str, name: bool) -> Html:
    if name:
        return element("th", text, scope="row", class_=look or None)
    worn = [*look.split(), *["best"] * best, *["none"] * (text in (MISSING, "-", "diverged"))]
    worn += [text.replace(" ", "-")] if text in VERDICTS else []
    return element("td", element("strong", text) if best else text, class_=" ".join(worn) or None)


def _behind(section: Section) -> list[Html]:
    """How the figures came about: settings, runs, environment; closed until they are asked for."""
    runs = section.runs
    environments = [one.environment for one in runs]
    if len(runs) == 1:
        settings = [_folded("Settings, complete", element("pre", runs[0].record.config))]
    else:
        tables = [one.config.model_dump() for one in runs]
        same = common(tables)
        text = element("pre", tomli_w.dumps(same))
        settings = [
            _folded(f"Settings shared by all {len(runs)} runs", text),
            _folded("Runs, and the settings in which they differ", table(_differences(runs, same))),
        ]
    commands = [element("p", element("code", command)) for command in section.commands]
    computed = table(_environment(environments))
    return [*settings, _folded("Commands and environment", *commands, computed)]


def _folded(title: str, *inner: Html) -> Html:
    return element("details", element("summary", title), *inner)


def _differences(runs: Sequence[Kept], same: dict[str, Any]) -> Sheet:
    found = [flat(one.config.model_dump(), same) for one in runs]
    keys = list(dict.fromkeys(key for settings in found for key in settings))
    rows = []
    for one, settings in zip(runs, found, strict=True):
        summary = one.record.summary
        cells = [summary["status"], str(summary["rounds"]), f"{summary.get('seconds', 0):.1f}"]
        cells += [str(settings.get(key, MISSING)) for key in keys]
        rows.append([(text, False) for text in (one.name, *cells, one.folder)])
    headings = ["status", "rounds", "seconds", *keys, "folder"]
    return Sheet(f"{len(runs)} runs", ["run"], headings, rows, [])


def _environment(tables: Sequence[dict[str, Any]]) -> Sheet:
    """Every entry, and of those that are not the same for all runs how many have which."""
    found = [flat({k: v for k, v in table.items() if k != "command"}) for table in tables]
    rows = []
    for key in dict.fromkeys(key for entries in found for key in entries):
        values = Counter(_shown(entries.get(key)) for entries in found)
        several = len(values) > 1
        said = [f"{text} ({count} runs)" if several else text for text, count in values.items()]
        rows.append([(key, False), ("; ".join(said), False)])
    return Sheet("What computed it", ["entry"], ["value"], rows, [])


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(
            f"{count} \u00d7 {name}" for name, count in Counter(map(str, value)).items()
        )
    return MISSING if value is None else str(value)


def in_markdown(title: str, chapters: Sequence[Chapter], unfinished: Sequence[str]) -> str:
    """The same tables and figures; of what is behind them commands and environment only."""
    lines = [f"# {_plain(title)}", outline(chapters), *map(_plain, _pending(unfinished))]
    for section, blocks in chapters:
        lines += [f"## {_plain(section.title)}", _plain(f"{section.kind} {section.folder}")]
        lines += [_plain(" \u00b7 ".join(section.facts)), *map(_plain, section.troubles)]
        for block in blocks:
            lines.append(f"### {_plain(block.title)}")
            lines += [markdown(_plain_sheet(sheet)).rstrip() for sheet, _ in block.tables]
            lines += [f"![{_plain(name)}]({stem}.png)" for name, stem, _ in block.figures]
        lines += ["### How it was computed", *(f"    {line}" for line in section.commands)]
        computed = _environment([one.environment for one in section.runs])
        lines.append(markdown(_plain_sheet(computed)).rstrip())
    return "\n\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Text that means nothing in Markdown, in a table or elsewhere."""
    return html.escape(" ".join(text.split()), quote=False).replace("|", "\\|")


def _plain_sheet(sheet: Sheet) -> Sheet:
    rows = [[(_plain(text), best) for text, best in row] for row in sheet.rows]
    texts = ([_plain(text) for text in one] for one in (sheet.names, sheet.headings, sheet.notes))
    names, headings, notes = texts
    return Sheet(_plain(sheet.title), names, headings, rows, notes)
