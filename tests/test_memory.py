"""Memory is looked at before a run starts, and what has no room is refused in a line."""

import pytest

from flamejax.cli import main
from flamejax.config import make
from flamejax.engine import memory
from flamejax.readying import outlook

from .faults import memory_left

SMALL = ["--set", "data.limit=400", "--set", "model.name=mlr", "--set", "engine.devices=2"]


def said(capsys, *arguments, code=2):
    assert main(["run", "--dry-run", "--quiet", *SMALL, *arguments]) == code
    found = capsys.readouterr()
    return found.err if code else found.out


def test_a_dry_run_says_how_much_a_run_takes_and_leaves_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = dict(line.split("  ", 1) for line in said(capsys, code=0).splitlines())
    assert list(lines) == [
        "clients",
        "parameters",
        "samples",
        "states of clients",
        "to compute with",
        "in all",
    ]
    assert lines["parameters"].strip() == "7,850 of a model"
    assert lines["states of clients"].strip() == "628 kB"  # a model and a dual of ten clients
    assert not list(tmp_path.iterdir())


def test_the_devices_of_a_cpu_share_one_copy_of_the_samples():
    small = {"data": {"limit": 400}, "model": {"name": "mlr"}}
    facts, federation = outlook(make({**small, "engine": {"devices": 2}}), quiet=True)
    assert facts.need.data == federation.nbytes


@pytest.mark.parametrize(
    ("free", "words"),
    [
        (
            100,
            "memory: the states of 10 clients take 628 kB and their samples 317 kB, ",
        ),
        (1300, "memory: a round needs "),
    ],
)
def test_what_has_no_room_is_refused(free, words, monkeypatch, capsys):
    memory_left(monkeypatch, free, 10)  # kB, when it is asked first and then
    line = said(capsys)
    assert line.startswith(f"flamejax: {words}")
    assert "; lower " in line
    assert line.count("\n") == 1


def test_a_container_may_leave_less_than_the_machine_has(tmp_path, monkeypatch):
    memory_left(monkeypatch, 1000)
    assert memory.free_memory(tmp_path) == 1_024_000
    (tmp_path / "memory.current").write_text("300\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.free_memory(tmp_path) == 1_024_000
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.stat").write_text("anon 180\nactive_file 20\ninactive_file 100\n")
    assert memory.free_memory(tmp_path) == 800
    memory_left(monkeypatch, 1000, 0)
    assert [memory.free_memory(tmp_path) for _ in range(2)] == [800, 0]


def test_this_machine_has_some_memory():
    assert 0 < memory.free_memory() < 2**50


def test_a_dry_run_is_of_a_config(capsys, tmp_path):
    assert main(["run", "--dry-run", "--resume", "--out", str(tmp_path)]) == 2
    assert "--dry-run goes with a config" in capsys.readouterr().err
