"""The scripts of experiments/theory, on little."""

import importlib.util
import json
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "experiments" / "theory"
pytestmark = pytest.mark.skipif(not SCRIPTS.exists(), reason="needs the source tree")


@pytest.fixture
def script(monkeypatch, tmp_path):
    """Loads one, with its results going elsewhere."""

    def load(name, *arguments):
        spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        monkeypatch.setattr(module, "HERE", tmp_path)
        monkeypatch.setattr("sys.argv", [name, *arguments])
        return module

    return load


def test_rates(script, tmp_path, monkeypatch, capsys):
    rates = script("rates")
    small = {**rates.problems(smoke=True)["least squares"], "rounds": 60}
    monkeypatch.setattr(rates, "problems", lambda smoke: {"least squares": small})
    rates.main()
    inside, outside = json.loads((tmp_path / "rates.json").read_text())
    assert all(inside["conditions"].values())
    assert not outside["conditions"]["a"]
    assert inside["descent"]["rises"] == inside["descent"]["lemma1_shortfalls"] == 0
    assert inside["rates"]["lagrangian"]["kind"] == "linear"
    assert (tmp_path / "rates.png").stat().st_size > 10_000
    assert "all hold" in (tmp_path / "rates.md").read_text()


def test_descent_map(script, tmp_path, monkeypatch):
    script = script("descent_map")
    for name, values in {"XS": [0.003, 0.3], "RHOS": [0.01, 1.0], "ROUNDS": 60}.items():
        given = script.np.array(values) if isinstance(values, list) else values
        monkeypatch.setattr(script, name, given)
    script.main()
    found = json.loads((tmp_path / "descent_map.json").read_text())["share_of_rounds_with_a_rise"]
    assert found[0] == [0, 0]  # rho above 2.56 lam alpha
    assert found[1][0] > 0  # and far below
    assert (tmp_path / "descent_map.png").exists()


def test_fedadmm_limit(script, tmp_path, monkeypatch):
    limit = script("fedadmm_limit")
    monkeypatch.setattr(limit, "LAMS", (1.0, 10.0))
    limit.main()
    near, nearer = json.loads((tmp_path / "fedadmm_limit.json").read_text())["points"]
    for point in (near, nearer):
        assert point["engine"] == pytest.approx(point["exact"], rel=1e-3)
    assert nearer["exact"] < near["exact"] / 3
    assert (tmp_path / "fedadmm_limit.png").exists()


def test_the_report_on_regression_sets_is_of_its_figures(script):
    found = json.loads((SCRIPTS / "regression.json").read_text())
    assert len(found["sets"]) >= 20
    assert found["draws"] >= 200_000
    assert script("regression_sets").report(found) == (SCRIPTS / "regression.md").read_text()
