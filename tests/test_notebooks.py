"""The notebooks: what is committed of them, and that they run."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

FOLDER = Path(__file__).parents[1] / "experiments" / "notebooks"
NAMES = [
    "01_quickstart",
    "02_compare_methods",
    "03_attacks_and_fairness",
    "04_your_own_data_and_method",
    "05_scaling_on_accelerators",
]
COLAB = "https://colab.research.google.com/github/flamejax/flamejax/blob/main"

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="needs the source tree")


def read(path):
    notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    nbformat.validate(notebook)
    return notebook


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook):
    return [output for cell in code(notebook) for output in cell.outputs]


def pictures(notebook):
    return [o for o in outputs(notebook) if "image/png" in o.get("data", {})]


def test_these_are_all():
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == NAMES
    assert sum(path.stat().st_size for path in FOLDER.iterdir() if path.is_file()) < 1.2e6


@pytest.mark.parametrize("name", NAMES)
def test_form(name):
    path = FOLDER / f"{name}.ipynb"
    notebook = read(path)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert notebook.metadata.kernelspec.name == "python3"
    assert path.stat().st_size < 300e3
    ids = [cell.id for cell in notebook.cells]
    assert ids == [f"{name[:2]}-{number:02d}" for number in range(1, len(ids) + 1)]
    title, install = notebook.cells[0].source, code(notebook)[0].source
    assert title.startswith("# ")
    assert f"({COLAB}/experiments/notebooks/{path.name})" in title
    assert install.startswith("try:\n    import flamejax as fj\nexcept ImportError:")
    assert "%pip install" in install
    assert "Exercises" in notebook.cells[-1].source
    for linked in re.findall(r"\]\((\w+\.ipynb)\)", str(notebook.cells)):
        assert (FOLDER / linked).exists()


@pytest.mark.parametrize("name", NAMES)
def test_outputs_that_are_kept(name):
    notebook = read(FOLDER / f"{name}.ipynb")
    counts = [cell.execution_count for cell in code(notebook)]
    assert counts == list(range(1, len(counts) + 1))  # from top to bottom, in a fresh kernel
    assert pictures(notebook)
    for output in outputs(notebook):
        assert output.output_type != "error"
        assert output.get("name") != "stderr"
        assert not any("widget" in kind for kind in output.get("data", {}))
    assert not re.search(r"/(home|tmp|root|work|Users|content)/", json.dumps(notebook))


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_running_it(name, tmp_path):
    """From top to bottom at small settings, by the script that made the outputs."""
    quick = {"FLAMEJAX_SMALL": "1", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    done = subprocess.run(
        [sys.executable, FOLDER / "run.py", name, "--out", tmp_path],
        env={**os.environ, **quick},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    kept, made = read(FOLDER / f"{name}.ipynb"), read(tmp_path / f"{name}.ipynb")
    assert len(pictures(made)) == len(pictures(kept))
    assert [cell.source for cell in made.cells] == [cell.source for cell in kept.cells]
