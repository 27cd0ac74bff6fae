"""The scripts of experiments/theory, on little."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

SCRIPTS = Path(__file__).parents[1] / "experiments" / "theory"
pytestmark = pytest.mark.skipif(not SCRIPTS.exists(), reason="needs the source tree")


def script(name):
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.full
def test_rates(tmp_path):
    rates = script("rates")
    small = {**rates.problems(smoke=True)["least squares"], "rounds": 60}
    rates.write(rates.study({"least squares": small}), tmp_path)
    inside, outside = json.loads((tmp_path / "rates.json").read_text())
    assert all(inside["conditions"].values())
    assert not outside["conditions"]["a"]
    assert inside["descent"]["rises"] == inside["descent"]["lemma1_shortfalls"] == 0
    assert inside["rates"]["lagrangian"]["kind"] == "linear"
    assert (tmp_path / "rates.png").stat().st_size > 10_000
    assert "all hold" in (tmp_path / "rates.md").read_text()


@pytest.mark.full
def test_descent_map(tmp_path):
    xs, rhos = np.array([0.003, 0.3]), np.array([0.01, 1.0])
    script("descent_map").main(tmp_path, xs, rhos, rounds=60)
    found = json.loads((tmp_path / "descent_map.json").read_text())["share_of_rounds_with_a_rise"]
    assert found[0] == [0, 0]  # rho above 2.56 lam alpha
    assert found[1][0] > 0  # and far below
    assert (tmp_path / "descent_map.png").exists()


@pytest.mark.full
def test_fedadmm_limit(tmp_path):
    script("fedadmm_limit").main(tmp_path, lams=(1.0, 10.0))
    near, nearer = json.loads((tmp_path / "fedadmm_limit.json").read_text())["points"]
    for point in (near, nearer):
        assert point["engine"] == pytest.approx(point["exact"], rel=1e-3)
    assert nearer["exact"] < near["exact"] / 3
    assert (tmp_path / "fedadmm_limit.png").exists()


def test_the_report_on_regression_sets_is_of_its_figures():
    found = json.loads((SCRIPTS / "regression.json").read_text())
    assert len(found["sets"]) >= 20
    assert found["draws"] >= 200_000
    assert script("regression_sets").report(found) == (SCRIPTS / "regression.md").read_text()
