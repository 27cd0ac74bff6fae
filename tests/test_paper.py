"""The paper's accuracy table, and figures of ours beside it."""

import re
import sysconfig
from pathlib import Path

import pytest

from flamejax.comparison import Comparison
from flamejax.errors import InputError
from flamejax.experiment import claims, paper, shelf
from flamejax.experiment.results import Experiment, Group

from .conftest import SHARED

TEX = SHARED.parent / "paper" / "flame.tex"
COLUMNS = [
    ("flame", "oracle"),
    ("flame", "pm"),
    ("flame", "gm"),
    ("pfedme", "pm"),
    ("pfedme", "gm"),
    ("ditto", "pm"),
    ("ditto", "gm"),
]


def figure(data, partition, method, model):
    row = paper.table()[data, partition][method]
    return row[f"{model}_accuracy_mean"], row[f"{model}_accuracy_std"]


def test_every_row_of_the_table_is_there():
    partitions = ["hybrid", "dirichlet", "q2", "q3", "q4", "q5", "q6", "quality", "quantity"]
    four = ["mnist", "fashion_mnist", "medical_mnist", "cifar10"]
    expected = {(data, partition) for data in four for partition in partitions}
    assert set(paper.table()) == expected | {("femnist", "writer")}
    assert len(paper.table()) == 37
    for data, partition in paper.table():
        figures = [figure(data, partition, *column) for column in COLUMNS]
        assert all(0.2 < mean < 1 and 0 < std < 0.2 for mean, std in figures)
        hm, pm, gm = (mean for mean, _ in figures[:3])
        assert hm >= max(pm, gm)
        assert len(paper.table()[data, partition]) == 3
        assert "oracle_accuracy_mean" not in paper.table()[data, partition]["ditto"]


@pytest.mark.parametrize(
    ("place", "mean", "std"),
    [
        (("mnist", "hybrid", "flame", "oracle"), 0.9494, 0.0129),
        (("mnist", "q2", "flame", "gm"), 0.7984, 0.0202),
        (("mnist", "q2", "ditto", "gm"), 0.4782, 0.0585),
        (("fashion_mnist", "dirichlet", "pfedme", "pm"), 0.8672, 0.0079),
        (("medical_mnist", "quality", "flame", "gm"), 0.9376, 0.0158),
        (("medical_mnist", "q6", "ditto", "pm"), 0.9795, 0.0037),
        (("cifar10", "quantity", "flame", "pm"), 0.4114, 0.0392),
        (("femnist", "writer", "ditto", "gm"), 0.9805, 0.0044),
    ],
)
def test_some_values(place, mean, std):
    assert figure(*place) == (mean, std)


@pytest.mark.skipif(not TEX.is_file(), reason="needs the paper's source")
def test_every_value_is_the_papers():
    text = TEX.read_text(encoding="utf-8")
    start = text.index(r"\label{table: hightest acc}")
    printed = re.findall(
        r"(\d\.\d{4})\$\\pm\$(\d\.\d{4})", text[start : text.index(r"\end{table*}", start)]
    )
    ours = [figure(*place, *column) for place in paper.table() for column in COLUMNS]
    assert ours == [(float(mean), float(std)) for mean, std in printed]


def row(label, seeds=2, status="finished", **accuracies):
    found = {"label": label, "method": label.partition("+")[0].partition(":")[0]}
    found |= {"seeds": list(range(seeds)), "status": status}
    for model in ("pm", "gm", "hm", "oracle"):
        found[f"{model}_accuracy_mean"] = accuracies.get(model)
        found[f"{model}_accuracy_std"] = 0.01 if seeds > 1 and model in accuracies else None
    return found


def experiment(*rows, data="mnist", partition="q2", point=None, kind="table", forms=None):
    about = {"rounds": 100}
    comparison = Comparison(list(rows), [], [{} for _ in rows], [], about)
    forms = forms or {"published": [row["label"] for row in rows]}
    groups = [Group(data, partition, point or {}, comparison)]
    return Experiment("table2", "", kind, forms, groups, [], {})


def test_cells_set_ours_beside_the_papers():
    flame = row("flame:published", pm=0.98, gm=0.83, hm=0.97, oracle=0.99)
    pm, gm, hm, oracle = paper.cells(experiment(flame))
    assert pm == paper.Cell(
        *("mnist", "q2", "published", "flame:published", "flame", "pm", 0.98, 0.01, 2, 100),
        *(0.9835, 0.0034, pytest.approx(-0.0035), True, True),
    )
    assert (gm.paper, gm.within_2sigma, gm.within) == (0.7984, True, True)
    assert (hm.ours, hm.paper, hm.difference, hm.within) == (0.97, None, None, None)
    assert (oracle.ours, oracle.paper) == (0.99, 0.9835)
    assert (oracle.within_2sigma, oracle.within) == (True, True)


@pytest.mark.parametrize(
    ("pm", "in_two_sigma", "near"),
    [(0.9770, True, True), (0.9766, False, True), (0.9636, False, True), (0.9634, False, False)],
)
def test_near_is_two_deviations_or_two_points(pm, in_two_sigma, near):
    (cell,) = paper.cells(experiment(row("flame", pm=pm)))[:1]
    assert (cell.within_2sigma, cell.within) == (in_two_sigma, near)


def test_cells_without_a_counterpart():
    mini = paper.cells(experiment(row("flame", pm=0.9), data="mnist_mini"))
    assert [(cell.model, cell.ours, cell.paper) for cell in mini] == [("pm", 0.9, None)]
    other = [row("fedavg", gm=0.8), row("ditto+median", pm=0.9)]
    assert [cell.paper for cell in paper.cells(experiment(*other))] == [None, None]
    assert paper.cells(experiment(row("flame", pm=0.9), point={"method.lam": 1.0})) == []
    assert paper.cells(experiment(row("flame", pm=0.9), kind="robustness")) == []


def test_cells_of_one_seed_and_of_runs_that_diverged():
    alone, *_ = paper.cells(experiment(row("ditto", seeds=1, pm=0.9)))
    assert (alone.std, alone.seeds, alone.within) == (None, 1, False)
    gone = paper.cells(experiment(row("pfedme", status="diverged")))
    assert [(cell.model, cell.ours) for cell in gone] == [("pm", None), ("gm", None)]
    assert [cell.paper for cell in gone] == [0.9791, 0.7423]
    assert {(cell.difference, cell.within_2sigma, cell.within) for cell in gone} == {(None,) * 3}


def test_cells_of_each_form():
    forms = {"standard": ["flame", "fedavg"], "published": ["flame:published", "fedavg"]}
    rows = [row("flame", pm=0.9), row("flame:published", pm=0.98), row("fedavg", gm=0.8)]
    found = paper.cells(experiment(*rows, forms=forms))
    seen = [(c.form, c.label, c.paper) for c in found if c.ours is not None]
    assert seen == [
        ("standard", "flame", 0.9835),
        ("standard", "fedavg", None),
        ("published", "flame:published", 0.9835),
        ("published", "fedavg", None),
    ]


def test_experiments_are_found_where_they_are_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path / name))
    _, installed = shelf.places()
    assert installed == tmp_path / "data" / "share" / "flamejax" / "experiments"
    nowhere = tmp_path / "nowhere"
    with pytest.raises(InputError, match=f"no experiments in {nowhere} or .*: install flamejax ag"):
        shelf.shelf((nowhere, installed))
    (installed / "paper").mkdir(parents=True)
    assert shelf.shelf((nowhere, installed)) == installed


def test_experiments_of_a_checkout_come_first():
    checkout = Path(__file__).parents[1] / "experiments"
    assert shelf.shelf() == shelf.places()[0] == checkout


@pytest.mark.parametrize(
    "text",
    [
        "data,partition,flame_pm_mean\nmnist,q2,high\n",
        "data,partition,flame_pm_mean\nmnist,q2,0.9,0.8\n",
        "data,partition,flame_pm_mean,flame_pm_std\nmnist,q2,0.9\n",
        "data,partition,flame_xm_mean\nmnist,q2,0.9\n",
        "data,flame_pm_mean\nmnist,0.9\n",
        "\udcff",
    ],
)
def test_a_broken_table_is_refused(tmp_path, text):
    path = tmp_path / "accuracy.csv"
    with pytest.raises(InputError, match=r"accuracy\.csv: cannot be read .*: install"):
        paper.read_table(path)
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InputError, match=r"accuracy\.csv: cannot be read .*: install"):
        paper.read_table(path)


@pytest.mark.parametrize("text", ["[a\n", "[a]\nsays = 'x'\n", "a = 1\n", "[a]\nmore = 1\n"])
def test_broken_claims_are_refused(tmp_path, text):
    path = tmp_path / "claims.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"claims\.toml: cannot be read .*: install"):
        claims.read_claims(path)
