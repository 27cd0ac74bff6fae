"""What a comparison runs and what it makes of the results, without running anything."""

import pytest
from matplotlib.figure import Figure

from flamejax.plan import plan
from flamejax.report.comparison_figures import draw_curves, draw_fairness, png

from .imagined import imagine


@pytest.mark.parametrize(
    ("on", "word"), [("validation", "validation accuracy"), ("test", "oracle")]
)
def test_rate_and_hybrid_are_chosen_on_the_selection_split(on, word):
    def figures(label, rate, seed):
        return {"test": rate, "chosen": 1 - rate} if rate and seed else {}

    found = imagine("pfedme,local", figures, rates=[0.9, 0.2, 0.6], selection={"on": on})
    assert found.rows[0]["rate"] == 0.2
    assert [row["rate"] for row in found.rates[:3]] == [0.9, 0.2, 0.6]
    assert word in found.table()
    assert ("oracle" in found.table()) == (on == "test")


def test_a_rate_that_diverges_is_not_chosen_and_a_method_without_others_says_so():
    def figures(label, rate, seed):
        bad = seed == 1 and (label == "ditto" or rate == 0.1)
        return {"status": "diverged" if bad else "finished", "chosen": rate}

    found = imagine("pfedme,ditto", figures, rates=[0.01, 0.1])
    assert [row["rate"] for row in found.rows] == [0.01, 0.01]
    assert [row["status"] for row in found.rows] == ["finished", "diverged"]
    lines = found.table().splitlines()
    assert "every global_lr) |" + " diverged |" * 5 in found.table()
    assert "pfedme with global_lr 0.1, seed 1; ditto with global_lr 0.01, seed 1" in lines[-1]
    assert png(draw_curves, found)
    assert png(draw_fairness, found)


def test_best_is_bold_by_what_is_shown():
    accuracy = {"flame": 0.9, "pfedme": 0.90001, "ditto": 0.8, "local": 0.5}

    def figures(label, rate, seed):
        return {"test": accuracy[label] + (0.01 if seed else -0.01)}

    found = imagine(list(accuracy), figures)
    cells = [line.split(" | ") for line in found.table().splitlines() if " | " in line][1:]
    bold = {row[0].split()[1]: [i for i, cell in enumerate(row) if "**" in cell] for row in cells}
    assert bold == {
        "flame": [1, 2, 3, 4, 5],
        "pfedme": [1, 2, 3, 4, 5],
        "ditto": [4, 5],
        "local": [4, 5],
    }
    assert cells[0][1] == "**.9000 ± .0141**"
    assert cells[3][2:4] == ["\u2013", "\u2013"]
    assert "no usable global model" in found.table()
    assert " ± " not in imagine("flame", figures, seeds=[0]).table()


def test_against_bytes():
    found = imagine("flame,lp_proj,local", lambda *_: {}, rounds=50)
    figure = draw_curves(Figure(), found, against="bytes")
    sent = {50 * 10 * 2 * numbers * 4 / 1e6 for numbers in (10, 7850)}  # lp_proj, flame
    for axes in figure.axes:
        assert axes.get_xscale() == "log"
        assert axes.get_xlabel().endswith("MB")
        drawn = [line for line in axes.lines if line.get_transform() == axes.transData]
        assert {line.get_xdata()[-1] for line in drawn} == sent
        assert len(axes.lines) == len(drawn) + 1  # of local, all along
    cells = [line.split(" | ") for line in found.table().splitlines() if " | " in line]
    assert [row[-1] for row in cells] == ["traffic |", "31 MB |", "40 kB |", "0 bytes |"]
    assert [row["bytes_up_mean"] for row in found.rows] == [15_700_000, 20_000, 0]
    similar = imagine("flame,fedavg", lambda *_: {})
    assert draw_curves(Figure(), similar, "bytes").axes[0].get_xscale() == "linear"


def test_attack_is_named_and_its_clients_left_out():
    attack = {"name": "sign_flip", "fraction": 0.3}
    said = imagine("flame,fedavg+median", lambda *_: {}, attack=attack).table()
    assert "sign_flip attack by 3" in said
    assert "the 7 benign of 10 clients" in said
    assert "| fedavg + median |" in said


def test_method_settings_reach_those_they_are_for():
    config = {"method": {"name": "ditto", "lam": 7.0, "lr": 0.3}}
    base, runs = plan(config, {"method": {"rho": 5.0, "lr": 0.2}}, "flame,ditto,fedavg", "3,4")
    methods = {run.label: run.config.method for run in runs}
    assert {method.lr for method in methods.values()} == {0.2}
    assert (methods["flame"].rho, methods["flame"].lam, methods["ditto"].lam) == (5.0, 1.0, 7.0)
    assert [run.config.seed for run in runs] == [3, 4] * 3
    assert base.method.lr == 0.3


def test_labels_name_presets_and_aggregators():
    config = {"method": {"preset": "published", "momentum": 0.7}}
    _, runs = plan(config, {}, ["flame", "flame:paper", "fedavg+median"])
    assert [run.config.method.preset for run in runs] == ["published", "paper", "standard"]
    assert [run.config.method.momentum for run in runs] == [0.7, 0.0, 0.0]
    assert [run.config.aggregator.name for run in runs] == ["mean", "mean", "median"]
    assert [str(run.path) for run in runs][1:] == [
        "runs/flame-paper/seed0",
        "runs/fedavg+median/seed0",
    ]
