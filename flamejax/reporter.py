"""A report on results folders: one page, and its tables and figures as files."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from flamejax import records
from flamejax.errors import InputError
from flamejax.experiment.results import Experiment
from flamejax.folders import REPORT, claim, only
from flamejax.readback import Found, read, sound
from flamejax.report.experiment import rows_csv
from flamejax.report.latex import latex
from flamejax.report.page import GENERATOR, Block, Chapter, Drawn, in_markdown, page
from flamejax.report.palette import save
from flamejax.report.section import section
from flamejax.report.sheet import sheet_csv

PAGE = "report.html"
FORMS = {"tables": (".csv", ".tex"), "figures": (".png", ".svg", ".pdf")}
FILES = [*FORMS, "report.md", PAGE]


def write_report(
    folders: str | Path | Sequence[str | Path],
    *,
    out: str | Path | None = None,
    title: str | None = None,
) -> Path:
    """Write a report on results folders, and return the path of its page.

    folders: of runs, comparisons, sweeps or experiments, or folders that hold several of them.
    out: a folder for the page, the tables and the figures, by default `report` in the folder if
    there is one, else here; or FILE.html for the page, and the rest in a folder FILE beside it.
    An old report is replaced, anything else is not. title: the page's, by default what was found.
    """
    given = [folders] if isinstance(folders, str | Path) else list(folders)
    found = [one for folder in given for one in read(folder)]
    target = Path(given[0], REPORT) if out is None and len(given) == 1 else Path(out or REPORT)
    own_file = target.suffix == ".html"
    root = target.with_suffix("") if own_file else target
    target = target if own_file else target / PAGE
    _check_old(target, root)
    with claim(root, FILES, reusable=True):
        _clear(root)
        _write(found, target, root, title)
    return target


def _write(found: Sequence[Found], target: Path, root: Path, title: str | None) -> None:
    ended = [one for one in found if one.what is not None]
    names, beside = _Names(root), "" if root == target.parent else f"{root.name}/"
    chapters = [_chapter(one, names, len(ended)) for one in ended]
    unfinished = [one.name for one in found if one.what is None]
    if title is None:
        title = chapters[0].section.title if len(chapters) == 1 else "Results"
    told = title, chapters, unfinished
    records.write(root / "report.md", _encoded(in_markdown(*told)))
    records.write(target, _encoded(page(*told, beside)))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")  # JSON may hold halves of letters


class _Names:
    """Names of files, none of them twice."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._taken: set[str] = set()
        for folder in FORMS:
            (root / folder).mkdir(exist_ok=True)

    def stem(self, folder: str, *words: str) -> str:
        plain = re.sub(r"[^A-Za-z0-9]+", "-", "-".join(words))[:80].strip("-") or "results"
        name, number = f"{folder}/{plain}", 1
        while name.lower() in self._taken:
            number += 1
            name = f"{folder}/{plain}-{number}"
        self._taken.add(name.lower())
        return name


def _chapter(found: Found, names: _Names, chapters: int) -> Chapter:
    """What is said of one thing; its tables and figures are written."""
    with sound(found.folder):
        told = section(found)
        blocks = []
        for part in told.parts:
            words = [told.folder] if chapters > 1 else []
            tables = []
            for sheet in part.sheets:
                stem = names.stem("tables", *words, part.name)
                records.write(names.root / f"{stem}.csv", _encoded(sheet_csv(sheet)))
                records.write(names.root / f"{stem}.tex", _encoded(latex(sheet)))
                tables.append((sheet, stem))
            figures = []
            for name, draw in part.figures:
                stem = names.stem("figures", *words, name)
                save(draw, names.root / stem)
                svg = (names.root / f"{stem}.svg").read_bytes()
                figures.append(Drawn(name, stem, svg))
            blocks.append(Block(part.title, tables, figures))
        if isinstance(found.what, Experiment):  # as it was measured, not as it is shown
            rows = names.stem("tables", found.what.name, "rows")
            records.write(names.root / f"{rows}.csv", _encoded(rows_csv(found.what)))
    return Chapter(told, blocks)


def _check_old(target: Path, root: Path) -> None:
    """Refuse to replace what is not a report."""
    taken = os.path.lexists(target) and not _is_report(target)
    if taken or (os.path.lexists(root) and not _is_folder_of_report(root)):
        raise InputError(f"--out {target}: there is something that is not a report; name another")


def _is_report(path: Path) -> bool:
    try:
        if path.is_symlink() or not path.is_file():
            return False
        with path.open("rb") as file:
            return f'content="{GENERATOR}"'.encode() in file.read(1000)
    except OSError:
        return False


def _is_folder_of_report(root: Path) -> bool:
    """Whether nothing is in it but what a report has, perhaps one that was cut short."""
    if not root.is_dir() or not only(os.listdir(root), FILES):
        return False
    for name, forms in FORMS.items():
        folder = root / name
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            return False
        if any(p.is_dir() or p.suffix not in (*forms, ".part") for p in _held(folder)):
            return False
    return True


def _held(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _clear(root: Path) -> None:
    for name in FORMS:
        for path in _held(root / name):
            path.unlink()
