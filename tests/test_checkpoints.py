"""Runs that stop and go on: equal to the bit to runs that did not."""

from __future__ import annotations

import errno
import json
import os
import signal
from pathlib import Path
from threading import Event

import jax
import numpy as np
import pytest

import flamejax as fj
from flamejax import checkpoints, lane, locks
from flamejax.cli import main
from flamejax.config import make
from flamejax.errors import InputError, WriteError
from flamejax.records import CHECKPOINTS
from flamejax.runner import run_together

from .problems import blobs, small_net

BASE = {
    "partition": {"name": "quantity", "clients": 9, "beta": 1.0, "min_samples": 6},
    "rounds": 11,
    "eval_every": 3,
    "quiet": True,
}
CASES = {
    "dense": {},
    "momentum": {"method": {"momentum": 0.5}, "participation": {"clients_per_round": 4}},
    "ditto": {"method": {"name": "ditto"}, "participation": {"clients_per_round": 4}},
    "without state": {"method": {"name": "fedavg"}, "participation": {"clients_per_round": 4}},
    "touched": {
        "participation": {"clients_per_round": 4},
        "engine": {"store": "touched", "rounds_per_call": 2, "state_budget": "20kB"},
    },
}


@pytest.fixture
def own():
    return {"data": blobs(), "model": small_net()}


@pytest.fixture
def stop_after(monkeypatch):
    """Ask a run to stop after so many calls."""
    plain = lane.Lane.trained

    def arrange(calls):
        made = []

        def trained(self, *log):
            plain(self, *log)
            made.append(1)
            if len(made) == calls:
                os.kill(os.getpid(), signal.SIGINT)

        monkeypatch.setattr(lane.Lane, "trained", trained)

    return arrange


def files(folder):
    return {name: (folder / name).read_bytes() for name in ("metrics.jsonl", "config.toml")}


@pytest.mark.parametrize("case", CASES)
def test_a_stopped_run_goes_on_as_if_it_had_not_been(case, own, stop_after, tmp_path):
    values = {**BASE, **CASES[case], **own}
    whole = fj.run(**values, out=tmp_path / "whole")
    there = tmp_path / "stopped"
    for attempt in range(2):  # it is stopped twice
        stop_after(1 + attempt)
        with pytest.raises(KeyboardInterrupt, match="round"):
            fj.run(**(own | {"resume": True} if attempt else values), out=there)
        assert json.loads((there / "summary.json").read_text())["status"] == "interrupted"
    stop_after(0)
    result = fj.run(**own, out=there, resume=True, quiet=True)
    assert files(there) == files(tmp_path / "whole")
    for client in range(9):
        jax.tree.map(np.testing.assert_array_equal, result.models(client), whole.models(client))
    for name, values in whole.clients.items():
        np.testing.assert_array_equal(result.clients[name], values)
    timings = (there / "timings.jsonl").read_text().splitlines()
    rounds = [json.loads(line)["rounds"] for line in timings]
    assert sum(rounds) == 11
    same = ("rounds", "last", "best", "bytes_up", "padding_overhead", "nonfinite", "status")
    assert [result.summary[key] for key in same] == [whole.summary[key] for key in same]


def test_any_number_of_devices_goes_on(own, stop_after, tmp_path):
    values = {**BASE, **own, "participation": {"clients_per_round": 4}}
    whole = fj.run(**values, engine={"devices": 1})
    stop_after(2)
    with pytest.raises(KeyboardInterrupt):
        fj.run(**values, engine={"devices": 4}, out=tmp_path / "run")
    stop_after(0)
    config = tmp_path / "run" / "config.toml"
    text = config.read_text()
    for path in (tmp_path / "run" / CHECKPOINTS).glob("*/manifest.json"):  # of the changed config
        changed = text.replace("devices = 4", "devices = 3")
        manifest = path.read_text().replace(
            checkpoints._digest(text.encode()), checkpoints._digest(changed.encode())
        )
        path.write_text(manifest)
        reseal(path.parent)
    config.write_text(changed)
    result = fj.run(**own, out=tmp_path / "run", resume=True, quiet=True)
    for key, expected in whole.metrics.items():
        np.testing.assert_allclose(result.metrics[key], expected, rtol=1e-5, err_msg=key)


def test_packs_go_on_together(own, stop_after, tmp_path):
    values = {key: value for key, value in BASE.items() if key != "quiet"}
    configs = [make({**values, "seed": seed}) for seed in (0, 1)]
    whole, stopped = ([tmp_path / f"{name}{i}" for i in range(2)] for name in "ab")
    run_together(configs, whole, True, **own)
    stop_after(3)
    with pytest.raises(KeyboardInterrupt):
        run_together(configs, stopped, True, **own)
    stop_after(0)
    assert run_together(configs, stopped, True, **own) == [None, None]
    for one, other in zip(whole, stopped, strict=True):
        assert files(one) == files(other)


def test_checkpoints_are_written_as_often_as_asked(own, tmp_path):
    settings = {**BASE, **own, "checkpoint": {"every": 4, "keep": 1}}
    fj.run(**settings, out=tmp_path / "run")
    assert checkpoints.rounds(tmp_path / "run" / CHECKPOINTS) == [8]
    fj.run(**{**settings, "checkpoint": {"every": 1, "keep": 3}}, out=tmp_path / "more")
    assert checkpoints.rounds(tmp_path / "more" / CHECKPOINTS) == [11, 10, 9]
    timed = {**settings, "checkpoint": {"every": "0.000001min"}}
    fj.run(**timed, out=tmp_path / "timed")
    assert checkpoints.rounds(tmp_path / "timed" / CHECKPOINTS) == [9, 6]
    fj.run(**{**settings, "checkpoint": {"every": "never"}}, out=tmp_path / "never")
    assert not (tmp_path / "never" / CHECKPOINTS).exists()
    for bad in ("often", "0min", 0, -3, 1.5):
        with pytest.raises(InputError, match=r"checkpoint\.every"):
            make({"checkpoint": {"every": bad}})


@pytest.fixture
def interrupted(own, tmp_path):
    """A run with two checkpoints, as a kill would leave it."""
    fj.run(**{**BASE, **own, "checkpoint": {"every": 3}}, out=tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    return tmp_path / "run"


def damage(path, how):
    data = bytearray(path.read_bytes())
    if how == "flip":
        data[len(data) // 2] ^= 16
    elif how == "cut":
        del data[len(data) // 2 :]
    path.unlink() if how == "gone" else path.write_bytes(data)


@pytest.mark.parametrize("how", ["flip", "cut", "gone"])
def test_damage_is_noticed_and_an_older_checkpoint_used(how, own, interrupted):
    expected = files(interrupted)
    (newest, older) = checkpoints.rounds(interrupted / CHECKPOINTS)
    folder = interrupted / CHECKPOINTS / f"round-{newest:06d}"
    text = (interrupted / "config.toml").read_text()
    for path in sorted(folder.iterdir()):
        good = path.read_bytes()
        damage(path, how)
        with pytest.warns(UserWarning, match="is damaged"):
            assert checkpoints.newest(interrupted / CHECKPOINTS, text).round == older
        path.write_bytes(good)
    damage(folder / "mean-0.npy", how)
    with pytest.warns(UserWarning, match=r"mean-0\.npy"):
        fj.run(**own, out=interrupted, resume=True, quiet=True)
    assert files(interrupted) == expected


def test_without_an_intact_checkpoint_nothing_goes_on(own, interrupted):
    for path in (interrupted / CHECKPOINTS).glob("*/server-0.npy"):
        damage(path, "flip")
    with (
        pytest.warns(UserWarning, match="damaged"),
        pytest.raises(InputError, match="no checkpoint is intact"),
    ):
        fj.run(**own, out=interrupted, resume=True)


def test_a_checkpoint_of_another_run_is_refused(own, interrupted):
    config = interrupted / "config.toml"
    config.write_text(config.read_text().replace("lam = 1.0", "lam = 2.0"))
    with pytest.raises(InputError, match=r"another config\.toml"):
        fj.run(**own, out=interrupted, resume=True)


def test_what_cannot_be_resumed_is_said_in_one_line(own, interrupted, tmp_path, capsys):
    def said(*arguments):
        assert main(["run", "--resume", *map(str, arguments)]) == 2
        return capsys.readouterr().err

    assert "--resume goes with --out DIR alone" in said()
    assert "--resume goes with --out DIR alone" in said("--out", interrupted, "--set", "rounds=3")
    assert "there is no run" in said("--out", tmp_path / "nothing")
    assert "was passed to it" in said("--out", interrupted)  # data from Python


def test_a_finished_run_is_left_alone(tmp_path, capsys):
    small = ["--set", "rounds=2", "--set", "data.limit=400", "--set", "model.name=mlr"]
    out = ["--out", str(tmp_path / "run"), "--quiet"]
    assert main(["run", *small, *out]) == 0
    assert main(["run", "--resume", *out]) == 0
    assert "nothing to resume" in capsys.readouterr().err


def test_rounds_go_on_while_a_checkpoint_is_written(own, tmp_path, monkeypatch):
    written, seen = Event(), []
    save, trained = checkpoints.save, lane.Lane.trained

    def slow(*arguments):
        assert written.wait(60)  # forever, if rounds waited for it
        save(*arguments)

    def noting(self, *log):
        trained(self, *log)
        seen.append(checkpoints.rounds(tmp_path / "run" / CHECKPOINTS))
        if len(seen) == 2:
            written.set()

    monkeypatch.setattr(checkpoints, "save", slow)
    monkeypatch.setattr(lane.Lane, "trained", noting)
    values = {**BASE, **own, "rounds": 4, "engine": {"rounds_per_call": 1}}
    fj.run(**values, checkpoint={"every": 1, "keep": 9}, out=tmp_path / "run")
    assert seen[:2] == [[], []]
    assert checkpoints.rounds(tmp_path / "run" / CHECKPOINTS) == [4, 3, 2, 1]


def fill_the_disk(monkeypatch, where, after):
    """No space for files named so, after so many of them."""
    plain, opened = Path.open, []

    def full(self, mode="r", *rest, **named):
        if self.match(where) and mode != "r":
            opened.append(self)
            if len(opened) > after:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return plain(self, mode, *rest, **named)

    monkeypatch.setattr(Path, "open", full)


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(own, tmp_path, monkeypatch):
    values = {**BASE, **own, "checkpoint": {"every": 3, "keep": 1}}
    whole = fj.run(**values)
    fill_the_disk(monkeypatch, "server-0.npy", after=1)
    with pytest.warns(UserWarning, match=r"No space left on device; the one of round 3 is kept"):
        result = fj.run(**values, out=tmp_path / "run")
    assert checkpoints.rounds(tmp_path / "run" / CHECKPOINTS) == [3]
    assert not list((tmp_path / "run" / CHECKPOINTS).glob(".*"))
    np.testing.assert_array_equal(result.metrics["pm_loss"], whole.metrics["pm_loss"])


def test_a_full_disk_ends_a_run_that_can_go_on(own, tmp_path, monkeypatch):
    values = {**BASE, **own, "checkpoint": {"every": 3}}
    fj.run(**values, out=tmp_path / "whole")
    with monkeypatch.context() as patch:
        fill_the_disk(patch, "metrics.jsonl", after=2)
        with pytest.raises(WriteError, match=r"of round 6 is kept; flamejax run --resume goes on"):
            fj.run(**values, out=tmp_path / "run")
    fj.run(**own, out=tmp_path / "run", resume=True, quiet=True)
    assert files(tmp_path / "run") == files(tmp_path / "whole")
    with monkeypatch.context() as patch:
        fill_the_disk(patch, "metrics.jsonl", after=0)
        with pytest.raises(WriteError, match="there is no checkpoint, so start anew"):
            fj.run(**values, out=tmp_path / "never")


def test_a_folder_is_for_one_process_at_a_time(own, interrupted, tmp_path):
    for folder, how in ((interrupted, {"resume": True}), (tmp_path / "new", BASE)):
        folder.mkdir(exist_ok=True)
        with locks.alone(folder), pytest.raises(InputError, match="in use by another process"):
            fj.run(**own, **how, out=folder)


@pytest.mark.parametrize("name", ["manifest.json", "server-0.npy"])
@pytest.mark.parametrize("how", ["pipe", "link"])
def test_only_plain_files_are_read(name, how, interrupted):
    newest, older = checkpoints.rounds(interrupted / CHECKPOINTS)
    path = interrupted / CHECKPOINTS / f"round-{newest:06d}" / name
    path.rename(interrupted / "elsewhere")
    os.mkfifo(path) if how == "pipe" else path.symlink_to(interrupted / "elsewhere")
    text = (interrupted / "config.toml").read_text()
    with pytest.warns(UserWarning, match=f"{name} is not a plain file"):
        assert checkpoints.newest(interrupted / CHECKPOINTS, text).round == older


def reseal(folder, **contents):
    """Change files of a checkpoint as someone would who knows how it is checked."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for name, content in contents.items():
        path = next(folder.glob(f"{name}.*"))
        path.write_bytes(content)
        manifest["files"][path.name] = [len(content), checkpoints._digest(content)]
    del manifest["sha256"]
    manifest["sha256"] = checkpoints._digest_of_json(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("history", b"{}"),
        ("history", b"[1]"),
        ("mean-0", b"\x93NUMPY\x01\x00 and nothing more"),
        ("mean-0", b"\x80\x04K\x01."),  # a pickle
        ("clients-0-ids", b""),
    ],
)
def test_files_that_were_made_up_are_refused_in_a_line(name, content, own, interrupted, capsys):
    newest = checkpoints.rounds(interrupted / CHECKPOINTS)[0]
    reseal(interrupted / CHECKPOINTS / f"round-{newest:06d}", **{name: content})
    with pytest.raises(InputError, match=rf"{name}\.\w+ is not what this run needs; start it anew"):
        fj.run(**own, out=interrupted, resume=True, quiet=True)
