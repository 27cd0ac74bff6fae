"""The bench: its arithmetic, its guards, and a small race for real."""

import json

import numpy as np
import pytest

from flamejax.bench import events, race, whole, workloads
from flamejax.bench.race import Entrant, Outcome, Worker
from flamejax.bench.workers import protocol
from flamejax.cli import main
from flamejax.errors import InputError, RunError
from flamejax.report import bench as report


def test_flops_count_the_products_of_matrices():
    batch = 2 * (2 * 784 * 128) + 3 * 2 * (128 * 64 + 64 * 10)
    assert workloads.flops(workloads.WORKLOADS["W2"], "train") == batch * 56_000
    forward = 2 * (784 * 128 + 128 * 64 + 64 * 10)
    assert workloads.flops(workloads.WORKLOADS["W2"], "evaluate") == 2 * forward * 14_000
    few = workloads.WORKLOADS["few"]
    assert workloads.flops(few, "train") == batch * 10 * 500


@pytest.mark.parametrize(
    "name", [pytest.param("W1", marks=pytest.mark.full), "W4", "ragged", "small"]
)
def test_a_job_is_what_its_workload_says(name, tmp_path):
    workload, job = workloads.WORKLOADS[name], workloads.make_job(name)
    assert job.training.sum() == workload.clients * workload.samples
    assert len(job.images) == len(job.labels) == job.samples.sum()
    assert (job.training >= 1).all()
    assert (np.ptp(job.training) > 100) == workload.ragged
    protocol.save(job, tmp_path)
    again = protocol.load(tmp_path)
    assert again.name == name
    np.testing.assert_array_equal(again.images, job.images)
    np.testing.assert_array_equal(again.first[-1] + again.samples[-1], len(job.images))
    assert [w.shape for w in again.weights] == [w.shape for w in job.weights]


def test_jobs_of_one_seed_are_equal():
    one, two = (workloads.make_job("small") for _ in range(2))
    np.testing.assert_array_equal(one.images, two.images)
    np.testing.assert_array_equal(one.weights[0], two.weights[0])


def outcome(label, seconds, workload="W2", **more):
    fields = {
        "label": label, "workload": workload, "command": "train", "seconds": seconds,
        "median": seconds, "turns": 3, "disturbed": 0, "clean": True, "found": {"loss": 1.0},
        "rss": 10**8, "ready": {"version": "1", "flops": 10**10},
    }  # fmt: skip
    return Outcome(**fields | more)


def test_ratios_are_to_the_faster_layout_of_the_plain_loop():
    rows = events.figures(
        events.EVENTS["W2"],
        [
            outcome(events.PEAK, 0.05, ""),
            outcome("flamejax", 0.2),
            outcome("PyTorch", 0.8),
            outcome("PyTorch, channels last", 0.6),
            outcome("PyTorch, process per core", 0.3),
        ],
    )
    assert [round(row["ratio"], 3) for row in rows] == [3.0, 0.75, 1.0, 2.0]
    expected = workloads.flops(workloads.WORKLOADS["W2"], "train") / 0.2 / (10**10 / 0.05)
    assert rows[0]["share"] == pytest.approx(expected)
    table = report.markdown({"W2": rows})
    assert table.splitlines()[2].startswith("| W2 | flamejax | 200.0 | 3.00 |")
    assert report.picture({"W2": rows}).startswith(b"\x89PNG")


def test_disturbed_turns_do_not_count_unless_there_are_no_others():
    worker = type("W", (), {"entrant": Entrant("a", "W2", "x.py"), "ready": {}})()
    worker.peak_rss = lambda: None
    found = race.outcome(worker, [(0.1, 0.5), (0.3, 0.0), (0.2, 0.01)], {})
    assert (found.seconds, found.disturbed, found.clean) == (0.2, 1, True)
    found = race.outcome(worker, [(0.1, 0.5), (0.3, 0.9)], {})
    assert (found.seconds, found.disturbed, found.clean) == (0.1, 2, False)


def test_a_worker_that_ends_is_reported_in_one_line(tmp_path):
    script = tmp_path / "bad.py"
    script.write_text("raise SystemExit('no such thing')")
    with pytest.raises(RunError, match=r"a ended: no such thing"):
        Worker(Entrant("a", "W2", str(script)), "job")


def test_peers_that_are_not_there_are_named():
    with pytest.raises(InputError, match="not one of torch"):
        events.pythons(["tortch"])
    assert events.pythons(["torch=/some/python"]) == {"torch": "/some/python"}
    labels = [e.label for e in events.entrants(events.EVENTS["W4"], {"torch": "p"})]
    assert labels[2:] == list(events.PEERS["torch"])
    labels = [e.label for e in events.entrants(events.EVENTS["W2"], {"torch": "p"})]
    assert labels[2:] == ["PyTorch", "PyTorch, process per core"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "not one of W1"),
        (["--repeats", "0"], "at least 1"),
        (["--patience", "-1"], "from 0 to 3600"),
        (["--patience", "nan"], "from 0 to 3600"),
        (["--baseline", "missing.json"], "not a bench.json"),
    ],
)
def test_bad_input_is_one_line(arguments, message, capsys):
    assert main(["bench", *arguments]) == 2
    said = capsys.readouterr().err.strip()
    assert message in said
    assert "\n" not in said


@pytest.mark.full
def test_a_race_and_its_baseline(tmp_path, capsys):
    """For real, on the smallest workload; then against a baseline that cannot be met."""
    out = tmp_path / "out"
    command = ["bench", "small", "--alone", "--repeats", "1", "--patience", "0.2", "--memory"]
    assert main([*command, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "temporary" in printed
    kept = json.loads((out / "bench.json").read_text())
    row = kept["results"]["small"][0]
    assert row["seconds"] > 0
    assert 0 < row["share"] < 1.5
    assert row["memory"]["rounds"]["donated"] >= 4 * 109_386
    assert main([*command, "--baseline", str(out / "bench.json")]) in (0, 3)
    row["share"] *= 1e6
    (tmp_path / "high.json").write_text(json.dumps(kept))
    capsys.readouterr()
    assert main([*command, "--baseline", str(tmp_path / "high.json")]) == 3
    said = capsys.readouterr()
    assert said.out.count("in the baseline") == 3
    assert "less than half of the baseline's speed: small" in said.err


@pytest.mark.full
def test_a_whole_run_is_timed():
    rows = whole.whole(None, None, 1, patience=0.2, workload="small", rounds=2)
    assert workloads.WORKLOADS["small"].clients == whole.CLIENTS
    assert [row["contestant"] for row in rows] == [
        "flamejax, first start", "flamejax, later starts",
    ]  # fmt: skip
    assert all(row["seconds"] > 0 and row["found"]["pm"] > 0 for row in rows)
