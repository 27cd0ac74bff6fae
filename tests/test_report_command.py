"""The command `flamejax report`, and what it refuses."""

import json
import os
import shutil
from pathlib import Path

import pytest

import flamejax as fj
from flamejax import comparison
from flamejax.cli import main
from flamejax.readback import read

from . import kept


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    return kept.pretended(tmp_path_factory.mktemp("kept") / "compared")


@pytest.fixture
def folder(original, tmp_path) -> Path:
    """A comparison of one's own."""
    return Path(shutil.copytree(original, tmp_path / "compared"))


def refused(capsys, *words: object) -> str:
    """The one line with which a command is refused."""
    assert main(["report", *map(str, words)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert [line[:10] for line in err.split("\n")] == ["flamejax: ", ""]
    return err


def test_report_lies_in_the_folder_and_an_old_one_is_replaced(folder, capsys):
    assert main(["report", str(folder), "--title", "First"]) == 0
    made = folder / "report" / "report.html"
    assert capsys.readouterr().out == f"Report: {made}\n"
    (made.parent / "tables" / "stale.csv").write_text("")
    (made.parent / "figures" / ".half.png.part").write_text("")
    assert main(["report", str(folder)]) == 0
    assert "2 methods" in made.read_text()
    assert "First" not in made.read_text()
    assert not (made.parent / "tables" / "stale.csv").exists()
    assert len(read(folder)) == 1


@pytest.mark.full
@pytest.mark.parametrize("below", [False, True])
def test_several_folders_are_reported_here(below, folder, tmp_path, monkeypatch):
    other = kept.pretended(tmp_path / "other", "flame,local")
    monkeypatch.chdir(tmp_path)
    if below:
        made = fj.write_report(tmp_path, out="all")  # all that is below
        assert made == Path("all/report.html")
    else:
        assert main(["report", str(folder), str(other)]) == 0
        made = tmp_path / "report" / "report.html"
    assert "2 comparisons; 8 runs in all." in made.read_text()


@pytest.mark.parametrize("inner", ["notes.txt", "tables/notes.txt", "figures/deep/x.png"])
def test_what_is_not_a_report_is_not_replaced(folder, tmp_path, capsys, inner):
    out = tmp_path / "out"
    (out / inner).parent.mkdir(parents=True)
    (out / inner).write_text("mine")
    assert "is not a report" in refused(capsys, folder, "--out", out)
    assert (out / inner).read_text() == "mine"


def test_other_pages_folders_and_links_are_not_replaced(folder, tmp_path, capsys):
    page = tmp_path / "mine.html"
    page.write_text("<p>mine")
    assert "is not a report" in refused(capsys, folder, "--out", page)
    assert "is not a report" in refused(capsys, folder, "--out", folder)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "tables").symlink_to(folder)
    assert "is not a report" in refused(capsys, folder, "--out", tmp_path / "out")
    assert page.read_text() == "<p>mine"


def test_comparison_is_rebuilt_from_its_runs(folder):
    (found,) = read(folder)
    assert isinstance(found.what, comparison.Comparison)
    assert [row["label"] for row in found.what.rows] == ["flame", "ditto"]
    assert [run.name for run in found.runs][:2] == ["flame, seed 0", "flame, seed 1"]
    assert found.what.rows[0]["pm_accuracy_mean"] == 0.5


def test_diverged_and_unfinished_runs_are_named(tmp_path):
    folder = kept.pretended(tmp_path / "some", status="diverged")
    shutil.copytree(folder / "runs" / "flame", tmp_path / "apart")
    (tmp_path / "apart" / "seed1" / "summary.json").unlink()
    shutil.rmtree(tmp_path / "apart" / "seed0")
    text = fj.write_report(tmp_path, out=tmp_path / "out").read_text()
    assert "4 of 4 runs diverged: flame, seed 0; " in text.replace("seed 0, ", "seed 0; ")
    assert f"Not ended, and so not shown: {tmp_path.name}/apart/seed1." in text


SUMMARY, METRICS = "runs/flame/seed1/summary.json", "runs/flame/seed1/metrics.jsonl"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (SUMMARY, "{", "cannot read"),
        (SUMMARY, "[]", "summary.json: should hold a table"),
        (SUMMARY, "[" * 100_000, "cannot read"),
        (SUMMARY, '{"status": "finished"}', "summary.json: data"),
        (SUMMARY, None, "summary.json: is missing"),
        (METRICS, '{"round": 1}', "metrics.jsonl: "),
        (METRICS, '{"round": 1' + "0" * 5000 + "}", "cannot read"),
        (METRICS, "", "no figures"),
        ("runs/flame/seed1/config.toml", "rounds = 'many'", "config.toml: rounds = 'many'"),
        ("runs/flame/seed1/config.toml", "rounds = ", "config.toml: not valid TOML"),
        ("runs/flame/seed1/config.toml", None, "config.toml: is missing"),
        ("runs/flame/seed1/environment.json", "3", "environment.json: should hold a table"),
        ("comparison.json", "\udcff", "comparison.json: cannot be read"),
        ("comparison.json", '{"runs": []}', "comparison.json: runs = []"),
        ("comparison.json", '{"runs": [{"label": 3}]}', "comparison.json: runs"),
    ],
)
def test_broken_files_are_refused_in_one_line(folder, capsys, name, content, said):
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content, "utf-8", "surrogateescape")
    assert said in refused(capsys, folder)
    assert not (folder / "report").exists()


@pytest.mark.parametrize("changed", [
    {"label": "<script>"}, {"label": "ditto"}, {"label": "flame:published"}, {"seed": 5},
    {"label": "flame+median"}, {"folder": "runs/none"},
])  # fmt: skip
def test_runs_that_are_not_what_they_are_called_are_refused(folder, capsys, changed):
    path = folder / "comparison.json"
    whole = json.loads(path.read_text())
    whole["runs"][0] |= changed
    path.write_text(json.dumps(whole))
    assert str(folder) in refused(capsys, folder)


def test_nothing_outside_of_the_folder_is_read(folder, tmp_path, capsys):
    path = folder / "comparison.json"
    whole = json.loads(path.read_text())
    shutil.copytree(folder / "runs" / "flame" / "seed0", tmp_path / "seed0")
    for outside in ("../seed0", str(tmp_path / "seed0")):
        whole["runs"][0]["folder"] = outside
        path.write_text(json.dumps(whole))
        assert "leads out of the folder" in refused(capsys, folder)
    whole["runs"][0]["folder"] = "runs/flame/seed0"
    path.write_text(json.dumps(whole))
    inner = folder / "runs" / "flame" / "seed0" / "environment.json"
    inner.unlink()
    inner.symlink_to(tmp_path / "seed0" / "environment.json")
    assert "leads out of the folder" in refused(capsys, folder)
    inner.unlink()
    os.mkfifo(inner)  # would be waited for
    assert main(["report", str(folder)]) == 0


def test_folders_without_results_are_refused(tmp_path, capsys):
    assert "no such folder" in refused(capsys, tmp_path / "none")
    assert "there are no results" in refused(capsys, tmp_path)


def test_experiments_share_runs_that_lie_beside_them(original, tmp_path, capsys):
    folder = kept.experiment(tmp_path / "all" / "x", original)
    shutil.copytree(folder, tmp_path / "all" / "y")
    (tmp_path / "all" / "runs" / "ditto" / "seed1" / "summary.json").unlink()
    found = read(tmp_path / "all")
    assert [(one.name, len(one.runs)) for one in found[:2]] == [("all/x", 3), ("all/y", 3)]
    assert [one.what for one in found[2:]] == [None]  # the run that is not done
    missing = found[0].what.missing
    assert missing == ["mnist_mini, iid: ditto, seed 0", "mnist_mini, iid: ditto, seed 1"]
    assert read(folder)[0].name == "x"
    path = folder / "experiment.json"
    path.write_text(path.read_text().replace("../runs", "../../all/runs"))
    assert len(read(folder)[0].runs) == 3
    shutil.copytree(tmp_path / "all" / "runs", tmp_path / "runs")
    path.write_text(path.read_text().replace("../../all/runs", "../../runs"))
    assert "leads out of the folder" in refused(capsys, folder)


@pytest.mark.parametrize("changes", [
    {"kind": "other"}, {"groups": 3}, {"forms": {"standard": 1}}, {"missing": [1]},
    {"groups": [{"data": "mnist", "partition": "iid", "point": {}, "runs": []}]},
    {"groups": [{"data": "a", "partition": "b", "point": {"x": []}, "runs": []}]},
])  # fmt: skip
def test_broken_experiments_are_refused(original, tmp_path, capsys, changes):
    folder = kept.experiment(tmp_path / "x", original, **changes)
    assert "experiment.json" in refused(capsys, folder)


def test_names_from_files_are_escaped(original, tmp_path):
    hostile = "<script>alert(1)</script>"
    folder = kept.experiment(tmp_path / "x", original, title=hostile, missing=[hostile])
    for path in tmp_path.rglob("environment.json"):
        path.write_text(json.dumps({hostile: f"{hostile}\ud800", "versions": {hostile: [hostile]}}))
    for path in tmp_path.rglob("config.toml"):
        path.write_text(f"# {hostile[:8]}\n{path.read_text()}")
    text = fj.write_report(folder).read_text()
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "<script" not in (folder / "report" / "report.md").read_text()


def test_an_interrupted_comparison_goes_on_beside_its_report(folder):
    from flamejax import comparer
    from flamejax.folders import claim

    (folder / "comparison.json").unlink()
    (folder / "report").mkdir()
    with claim(folder, comparer.FILES, reusable=True) as root:
        assert root == folder
