"""What the README shows is run as it stands."""

import re
from pathlib import Path

import matplotlib
import pytest

from flamejax import registry

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.skipif(not README.exists(), reason="needs the source tree")
def test_the_python_example(capsys):
    matplotlib.use("Agg")
    code = re.search(r"<!-- python -->\n```python\n(.*?)```", README.read_text(), re.S).group(1)
    assert len(code.strip().splitlines()) <= 12
    names: dict = {}
    exec(code, names)
    assert 0.9 < float(capsys.readouterr().out.split()[0]) <= 1
    assert names["result"].metrics["gm_accuracy"].shape == (12,)
    assert len(names["figure"].axes) == 2
    assert names["shared"].keys() == names["personal"].keys()


@pytest.mark.full
@pytest.mark.skipif(not README.exists(), reason="needs the source tree")
def test_the_method_example(capsys):
    code = re.search(r"<!-- method -->\n```python\n(.*?)```", README.read_text(), re.S).group(1)
    assert "rounds=10" in code
    try:
        exec(code.replace("rounds=10", "rounds=2"), {})
    finally:
        registry.unregister("methods", "fedavgm")
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| f")]
    assert [line.split()[1] for line in lines] == ["fedavgm", "fedavg", "flame"]
