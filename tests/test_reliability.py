"""The scripts of experiments/reliability, on little; README.md there has their figures."""

import collections
import json
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "experiments" / "reliability"
NAMES = [path.stem for path in SCRIPTS.glob("*.py")]
pytestmark = pytest.mark.skipif(not SCRIPTS.exists(), reason="needs the source tree")


@pytest.fixture(autouse=True)
def _scripts_can_be_imported(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    yield
    for name in NAMES:
        sys.modules.pop(name, None)


@pytest.mark.full
def test_killed_runs_go_on_to_the_same_result(tmp_path):
    import kills

    rows = kills.measure(2, 1, tmp_path, ["flame"])
    assert [row["wrong"] for row in rows] == [[], []]
    assert all(row["kills"] for row in rows)
    assert "2 bit-identical, 0 lost" in kills.report(rows)


@pytest.mark.full
def test_damaged_checkpoints_are_not_used_in_silence(tmp_path):
    import damage

    kinds = ["truncate", "empty", "flip", "zeros", "delete", "swap", "rename", "symlink"]
    kinds += ["directory", "pickled", "other format", "other config", "no folder", "unlisted"]
    kinds += ["pickled listed", "reshaped listed", "history listed", "manifest value", "relabelled"]
    rows = damage.measure(len(kinds), 1, tmp_path, ["inside"], kinds)
    found = collections.Counter(row["verdict"] for row in rows)
    assert not [row for row in rows if row["verdict"] in damage.FAULTS]
    assert found["used an older one"] > 3
    assert "| **all** |" in damage.report(rows)


@pytest.mark.full
def test_a_bad_machine_costs_no_result(tmp_path, monkeypatch):
    import soak

    monkeypatch.setenv("FLAMEJAX_CACHE", str(tmp_path / "cache"))
    names = ["kill -9", "SIGTERM", "Ctrl-C", "damaged checkpoint", "clock jumps"]
    rows = soak.soak(10, 1, tmp_path, names, ["flame"])
    assert "LOST" not in soak.report(rows), soak.report(rows)


@pytest.mark.full
def test_a_full_disk_costs_no_checkpoint(tmp_path, monkeypatch):
    import full_disk

    monkeypatch.setenv("PATH", str(tmp_path))  # there is no `mount`
    (row,) = full_disk.measure([0.9], tmp_path)
    assert row["wrong"] == []
    assert row["kept"] == "round-000012"
    assert "No space left on device" in row["said"]


@pytest.mark.full
def test_half_a_config_is_not_taken_for_a_whole_one(tmp_path):
    import processes

    folder, limit = tmp_path / "run", ["--disk", "400", "--folder", str(tmp_path)]
    options = processes.settings("ditto")
    outcome = processes.Process(processes.beginning(folder, options), limit).ended()
    assert outcome.code == processes.BAD_INPUT
    assert "No space left on device" in outcome.last_line
    assert not (folder / "config.toml").exists()


@pytest.mark.full
def test_checkpoints_cost_little(tmp_path):
    import checkpoint_cost

    (settings, *_) = checkpoint_cost.WORKLOADS.values()
    small = {**settings, "rounds": 6, "checkpoint": {"every": 2}}
    (row,) = checkpoint_cost.measure({"small": small}, 1, tmp_path)
    assert row["checkpoints"] == 3
    assert row["megabytes"] > 1
    assert 0 < row["waited"] < row["with"] / 3
    assert 0 < row["written"] < 0.05 * checkpoint_cost.Checkpoint().seconds
    assert "| small |" in checkpoint_cost.report([row])


@pytest.mark.full
def test_a_flipped_bit_is_noticed_here_and_not_by_orbax():
    pytest.importorskip("orbax.checkpoint")
    import orbax_flips

    found = orbax_flips.measure(4, 1, {"zarr": {"use_ocdbt": False}})
    assert found["flamejax"] == {"reported": 4}
    assert found["orbax, zarr"].total() == 4


def test_what_differs_is_seen(tmp_path):
    import compared

    lines = [{"round": 1}, {"round": 2}]
    for folder, rows in (("one", lines), ("other", [*lines, lines[-1]])):
        (tmp_path / folder).mkdir()
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / folder / "metrics.jsonl").write_text(text)
        (tmp_path / folder / "summary.json").write_text(json.dumps({"seconds": len(rows)}))
    wrong = compared.differences(tmp_path / "other", tmp_path / "one")
    assert "metrics.jsonl differs" in wrong
    assert "summary.json differs" not in wrong
