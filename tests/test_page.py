"""The page of a report: what it shows, that it stands alone, and how it looks in a browser."""

import html
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from flamejax.experiment.claims import claims, judge
from flamejax.experiment.paper import cells
from flamejax.readback import read
from flamejax.report.html import element
from flamejax.report.page import in_markdown, page, table
from flamejax.report.sheet import Sheet
from flamejax.reporter import write_report

from . import browser, kept
from .standins import pretended_runs

full = pytest.mark.full


@pytest.fixture(scope="module", params=["pretended", pytest.param("real", marks=full)])
def results(request, tmp_path_factory) -> Path:
    """A folder with a comparison, a sweep, a run and an experiment."""
    folder = tmp_path_factory.mktemp("results") / "results0"
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "pretended":
            pretended_runs(patch)
        kept.train(folder, theory=request.param == "real")
    kept.experiment(folder / "experiments" / "table2", folder / "compare")
    return folder


@pytest.fixture(scope="module")
def made(results, tmp_path_factory) -> Path:
    return write_report(results, out=tmp_path_factory.mktemp("made") / "out", title="All of it")


class Reader(HTMLParser):
    """The elements of a page, and whether they are closed as they should be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, *tags):
        return [attrs for tag, attrs in self.found if tag in tags]


def test_everything_that_was_found_is_on_the_page(made):
    text = made.read_text("utf-8")
    assert "<h1>All of it</h1>" in text
    assert "1 comparison, 1 experiment, 1 sweep, 1 run; 15 runs in all." in text
    for heading in (
        "3 methods on mnist_mini, iid",
        "Accuracy by partition",
        "flame (paper) on mnist_mini, iid, seed 0",
        "Sweep over method.lam",
    ):
        assert len(re.findall(rf"<h2 [^>]*>{re.escape(heading)}</h2>", text)) == 1
    assert "1 of 7 runs is missing: mnist_mini, iid: ditto, seed 0." in text
    assert "flamejax experiment table2" in text
    for fact in ("10 clients", "diverged"):
        assert fact not in text
    for fact in ("4 clients", "3 rounds", "seeds 0, 1", "versions.jax", "limit = 400"):
        assert fact in text
    assert "<strong>" in text
    # what runs share is shown once, and what differs in columns
    assert re.search(r"<th scope=\"col\"[^>]*>method.lam</th>", text)


def test_page_stands_alone(made):
    text = made.read_text("utf-8")
    reader = Reader(text)
    assert not reader.all("script", "link", "iframe", "object", "embed", "base")
    assert all(image["src"].startswith("data:image/svg+xml;base64,") for image in reader.all("img"))
    assert len(reader.all("img")) >= 5
    links = [attrs["href"] for attrs in reader.all("a")]
    assert links
    for link in links:
        assert link.startswith("#") or (made.parent / link).is_file()
    anchors = {attrs["id"] for _, attrs in reader.found if "id" in attrs}
    assert {link[1:] for link in links if link.startswith("#")} <= anchors
    assert not re.search(r"url\(|@import|https?://", text)
    assert "default-src &#x27;none&#x27;" in text


def test_tables_and_figures_are_files_as_well(made):
    root = made.parent
    assert {path.name for path in root.iterdir()} == {
        "report.html",
        "report.md",
        "tables",
        "figures",
    }
    tables = sorted(path.name for path in (root / "tables").iterdir())
    shown = [name for name in tables if not name.endswith("-rows.csv")]  # the others, unrounded
    assert [Path(name).suffix for name in shown] == [".csv", ".tex"] * (len(shown) // 2)
    figures = sorted(path.name for path in (root / "figures").iterdir())
    assert [Path(name).suffix for name in figures] == [".pdf", ".png", ".svg"] * (len(figures) // 3)
    csv = (root / "tables" / "results0-compare-comparison.csv").read_text()
    tex = (root / "tables" / "results0-compare-comparison.tex").read_text()
    first = re.search(r"flame \(paper\),(\.\d{4})", csv)[1]
    assert first in tex
    assert r"\toprule" in tex
    assert r"\textbf{" in tex
    in_words = (root / "report.md").read_text()
    assert first in in_words
    assert first in made.read_text()
    linked = re.findall(r"\]\((.*?)\)", in_words)
    assert len(linked) == len(figures) // 3
    assert all((root / link).is_file() for link in linked)


@full
def test_equal_results_give_equal_reports(results, made, tmp_path):
    again = write_report(results, out=tmp_path / "again", title="All of it")
    for path in made.parent.rglob("*.*"):
        assert (again.parent / path.relative_to(made.parent)).read_bytes() == path.read_bytes()


def test_a_page_of_one_thing_does_not_name_it_twice(results, tmp_path):
    text = write_report(results / "compare", out=tmp_path / "one.html").read_text()
    assert "<h1>3 methods on mnist_mini, iid</h1>" in text
    assert "What was run</h2>" in text
    assert (tmp_path / "one" / "report.md").is_file()
    links = [attrs["href"] for attrs in Reader(text).all("a")]
    assert all(link.startswith("#") or (tmp_path / link).is_file() for link in links)
    assert any(link.startswith("one/figures/") for link in links)


def test_paper_and_claims(results, tmp_path):
    """Of the paper's experiment on convergence, on data and a partition that the paper has."""
    changes = {"name": "convergence", "kind": "curves"}
    folder = kept.experiment(tmp_path / "x", results / "compare", **changes)
    path = folder / "experiment.json"
    whole = json.loads(path.read_text())
    whole["groups"][0] |= {"data": "mnist", "partition": "hybrid"}
    path.write_text(json.dumps(whole))
    text = write_report(folder).read_text()
    (experiment,) = (found.what for found in read(folder))
    beside, verdicts = cells(experiment), judge(experiment)
    known = [cell for cell in beside if cell.form == "standard" and cell.within is not None]
    assert len(known) >= 2
    assert len(verdicts) > 10
    paper = (folder / "report" / "tables" / "convergence-paper.csv").read_text()
    assert paper.count("\n") == 1 + len(known)
    in_words = (folder / "report" / "report.md").read_text()
    for verdict in verdicts:
        says = claims()[verdict.claim].says
        assert html.escape(says, quote=False) in text
        assert re.search(rf'<td class="words[^"]*">{verdict.verdict}</td>', text)
        assert f"| {html.escape(says, quote=False)} | {verdict.verdict} | " in in_words
    assert "Methods in their published form" in text
    assert "Methods in their standard form" in text


@pytest.mark.parametrize("verdict", ["reproduced", "partly", "not reproduced"])
def test_verdicts_have_looks_of_their_own(verdict):
    sheet = Sheet("claims", ["claim"], ["verdict"], [[("a", False), (verdict, False)]], [])
    look = verdict.replace(" ", "-")
    assert f'<td class="words {look}">{verdict}</td>' in table(sheet)


HOSTILE = "</style><script>alert(1)</script> | <img src=x onerror=alert(1)> \"'&"


def test_all_texts_are_escaped():
    sheet = Sheet(HOSTILE, [HOSTILE], [HOSTILE], [[(HOSTILE, False), (HOSTILE, True)]], [HOSTILE])
    for text in (table(sheet), element("p", HOSTILE, title=HOSTILE), page(HOSTILE, [], [HOSTILE])):
        tags = {tag for tag, _ in Reader(text).found}
        assert not tags & {"script", "img"}
        assert HOSTILE not in text
    assert "<" not in in_markdown(HOSTILE, [], [HOSTILE])


needs_chromium = pytest.mark.skipif(
    browser.find() is None, reason="needs Chromium: apt-get install chromium"
)
SIDEWAYS = """[...document.querySelectorAll('body *')].filter(e => e.scrollWidth > e.clientWidth + 1
  && getComputedStyle(e).overflowX != 'visible').map(e => e.className)"""
LEVELS = "[...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map(h => +h.tagName[1])"
CONTRASTS = """(() => {
  const light = c => { const v = c.match(/[\\d.]+/g).slice(0, 3).map(x => x / 255).map(
    x => x <= .04045 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4);
    return .2126 * v[0] + .7152 * v[1] + .0722 * v[2] };
  const ground = e => { for (; e; e = e.parentElement) {
    const c = getComputedStyle(e).backgroundColor;
    if (!/, 0\\)$/.test(c)) return c } };
  return [...document.querySelectorAll('body *')].filter(
    e => [...e.childNodes].some(n => n.nodeType == 3 && n.data.trim())).map(e => {
    const [a, b] = [light(getComputedStyle(e).color), light(ground(e))];
    return (Math.max(a, b) + .05) / (Math.min(a, b) + .05) }).reduce((a, b) => Math.min(a, b))
})()"""


@full
@needs_chromium
def test_in_chromium_narrow_and_wide_light_and_dark(made):
    brightness = {}
    with browser.Browser(browser.find()) as chromium:
        for width in (360, 1280):
            for scheme in ("light", "dark"):
                chromium.open(made, width, scheme)
                folded = "document.querySelectorAll('details').forEach(one => one.open = true)"
                chromium.value(folded)
                assert chromium.value("document.documentElement.scrollWidth <= innerWidth")
                assert {*chromium.value(SIDEWAYS)} <= {"scroll"}
                assert chromium.value("[...document.images].every(one => one.naturalWidth > 100)")
                assert chromium.value(CONTRASTS) >= 4.5  # AA
                shown = np.array(Image.open(io.BytesIO(chromium.picture())).convert("L"))
                assert shown.std() > 10  # not blank
                brightness[width, scheme] = shown[:200].mean()
                asked = [url.partition(":")[0] for url in chromium.requests()]
                assert asked[0] == "file"
                assert {*asked[1:]} <= {"data"}
        levels = chromium.value(LEVELS)
        assert levels[0] == 1
        assert max(np.diff(levels)) == 1
        assert chromium.value("document.images.length && [...document.images].every(i => i.alt)")
        assert chromium.value("[...document.querySelectorAll('th')].every(one => one.scope)")
        printed = chromium.do("Page.printToPDF")["data"]
        assert len(printed) > 10_000
    assert all(brightness[width, "dark"] < 80 < 200 < brightness[width, "light"]
               for width in (360, 1280))  # fmt: skip


@full
@needs_chromium
def test_in_chromium_a_hostile_page_does_nothing(tmp_path):
    path = tmp_path / "hostile.html"
    inside = "<script>document.title = 'ran'</script>"
    inside += "<img src=http://127.0.0.1:9/x onerror='document.title = 1'>"
    path.write_text(page("title", [], []).replace("<main", f"{inside}<main"))
    with browser.Browser(browser.find()) as chromium:
        chromium.open(path, 360, "light")
        assert chromium.value("document.title") == "title"
