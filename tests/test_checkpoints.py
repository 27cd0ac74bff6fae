"""Runs that stop and go on: equal to the bit to runs that did not."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from threading import Event

import jax
import numpy as np
import pytest

import flamejax as fj
from flamejax import checkpoints, locks
from flamejax.cli import main
from flamejax.config import make
from flamejax.errors import InputError, WriteError
from flamejax.records import CHECKPOINTS
from flamejax.runner import run_together

from .faults import InterruptAfter, Seen, full_disk, when_written
from .problems import blobs, small_net

full = pytest.mark.full
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


@pytest.fixture(scope="module")
def own():
    return {"data": blobs(), "model": small_net()}


def files(folder):
    return {name: (folder / name).read_bytes() for name in ("metrics.jsonl", "config.toml")}


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=[] if c == "dense" else full) for c in CASES]
)
def test_a_stopped_run_goes_on_as_if_it_had_not_been(case, own, tmp_path):
    values = {**BASE, **CASES[case], **own}
    whole = fj.run(**values, out=tmp_path / "whole")
    there = tmp_path / "stopped"
    for attempt in range(2):  # it is stopped twice
        given = own | {"resume": True} if attempt else values
        with pytest.raises(KeyboardInterrupt, match="round"):
            fj.run(**given, out=there, callbacks=[InterruptAfter(1 + attempt)])
        assert json.loads((there / "summary.json").read_text())["status"] == "interrupted"
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


@full
def test_any_number_of_devices_goes_on(own, tmp_path):
    values = {**BASE, **own, "participation": {"clients_per_round": 4}}
    whole = fj.run(**values, engine={"devices": 1})
    four = {**values, "engine": {"devices": 4}, "callbacks": [InterruptAfter(2)]}
    with pytest.raises(KeyboardInterrupt):
        fj.run(**four, out=tmp_path / "run")
    config = tmp_path / "run" / "config.toml"
    text = config.read_text()
    changed = text.replace("devices = 4", "devices = 3")
    for path in (tmp_path / "run" / CHECKPOINTS).glob("*/manifest.json"):  # of the changed config
        assert digest(text.encode()) in path.read_text()
        path.write_text(path.read_text().replace(digest(text.encode()), digest(changed.encode())))
        reseal(path.parent)
    config.write_text(changed)
    result = fj.run(**own, out=tmp_path / "run", resume=True, quiet=True)
    for key, expected in whole.metrics.items():
        np.testing.assert_allclose(result.metrics[key], expected, rtol=1e-5, err_msg=key)


def test_packs_go_on_together(own, tmp_path):
    values = {key: value for key, value in BASE.items() if key != "quiet"}
    configs = [make({**values, "seed": seed}) for seed in (0, 1)]
    whole, stopped = ([tmp_path / f"{name}{i}" for i in range(2)] for name in "ab")
    run_together(configs, whole, True, **own)
    with pytest.raises(KeyboardInterrupt):
        run_together(configs, stopped, True, **own, callbacks=[InterruptAfter(3)])
    assert run_together(configs, stopped, True, **own) == [None, None]
    for one, other in zip(whole, stopped, strict=True):
        assert files(one) == files(other)


@pytest.mark.parametrize(
    ("asked", "there"),
    [
        ({"every": 4, "keep": 1}, [8]),
        ({"every": "0.000001min"}, [9, 6]),
        pytest.param({"every": 1, "keep": 3}, [11, 10, 9], marks=full),
        pytest.param({"every": "never"}, None, marks=full),
    ],
    ids=["rounds", "minutes", "every round", "never"],
)
def test_checkpoints_are_written_as_often_as_asked(asked, there, own, tmp_path):
    fj.run(**BASE, **own, checkpoint=asked, out=tmp_path / "run")
    if there is None:
        assert not (tmp_path / "run" / CHECKPOINTS).exists()
    else:
        assert checkpoints.rounds(tmp_path / "run" / CHECKPOINTS) == there


@pytest.mark.parametrize("bad", ["often", "0min", 0, -3, 1.5])
def test_other_intervals_are_refused(bad):
    with pytest.raises(InputError, match=r"checkpoint\.every"):
        make({"checkpoint": {"every": bad}})


EVERY3 = {**BASE, "checkpoint": {"every": 3}}


@pytest.fixture(scope="module")
def whole(own, tmp_path_factory):
    """A run with two checkpoints."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    fj.run(**EVERY3, **own, out=folder)
    return folder


@pytest.fixture
def interrupted(whole, tmp_path):
    """The same as a kill would leave it."""
    shutil.copytree(whole, tmp_path / "run")
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
def test_damage_is_noticed(how, interrupted):
    (newest, older) = checkpoints.rounds(interrupted / CHECKPOINTS)
    folder = interrupted / CHECKPOINTS / f"round-{newest:06d}"
    text = (interrupted / "config.toml").read_text()
    for path in sorted(folder.iterdir()):
        good = path.read_bytes()
        damage(path, how)
        with pytest.warns(UserWarning, match="is damaged"):
            assert checkpoints.newest(interrupted / CHECKPOINTS, text).round == older
        path.write_bytes(good)


@pytest.mark.parametrize(
    "how", ["flip", pytest.param("cut", marks=full), pytest.param("gone", marks=full)]
)
def test_an_older_checkpoint_is_used_where_the_newest_is_damaged(how, own, interrupted):
    expected = files(interrupted)
    newest = checkpoints.rounds(interrupted / CHECKPOINTS)[0]
    folder = interrupted / CHECKPOINTS / f"round-{newest:06d}"
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


def test_rounds_go_on_while_a_checkpoint_is_written(own, tmp_path, monkeypatch):
    written, seen = Event(), []

    def wait(*_):
        assert written.wait(60)  # forever, if rounds waited for it

    def look(config, done):
        seen.append((done, checkpoints.rounds(tmp_path / "run" / CHECKPOINTS)))
        if len(seen) == 2:
            written.set()

    when_written(monkeypatch, "server-0.npy", wait)
    values = {**BASE, **own, "checkpoint": {"every": 3, "keep": 9}}
    fj.run(**values, out=tmp_path / "run", callbacks=[Seen(look)])
    assert seen[:2] == [(3, []), (6, [])]
    assert checkpoints.rounds(tmp_path / "run" / CHECKPOINTS) == [9, 6, 3]


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(
    own, whole, tmp_path, monkeypatch
):
    full_disk(monkeypatch, "server-0.npy", after=1)
    values = {**EVERY3, **own, "checkpoint": {"every": 3, "keep": 1}}
    with pytest.warns(UserWarning, match=r"No space left on device; the one of round 3 is kept"):
        fj.run(**values, out=tmp_path / "run")
    assert checkpoints.rounds(tmp_path / "run" / CHECKPOINTS) == [3]
    assert not list((tmp_path / "run" / CHECKPOINTS).glob(".*"))
    lines = [folder / "metrics.jsonl" for folder in (tmp_path / "run", whole)]
    assert lines[0].read_bytes() == lines[1].read_bytes()


def test_a_full_disk_ends_a_run_that_can_go_on(own, whole, tmp_path, monkeypatch):
    values = {**EVERY3, **own}
    with monkeypatch.context() as patch:
        full_disk(patch, "metrics.jsonl", after=2)
        with pytest.raises(WriteError, match=r"of round 6 is kept; flamejax run --resume goes on"):
            fj.run(**values, out=tmp_path / "run")
    fj.run(**own, out=tmp_path / "run", resume=True, quiet=True)
    assert files(tmp_path / "run") == files(whole)


def test_a_full_disk_before_the_first_checkpoint(own, tmp_path, monkeypatch):
    full_disk(monkeypatch, "metrics.jsonl")
    with pytest.raises(WriteError, match="there is no checkpoint, so start anew"):
        fj.run(**EVERY3, **own, out=tmp_path / "never")


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


def digest(content):
    return hashlib.sha256(content).hexdigest()


def reseal(folder, **contents):
    """Change files of a checkpoint as someone would who knows how it is checked: manifest.json has
    the length and the SHA-256 of every other file, and its own, of its other keys in order."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for name, content in contents.items():
        path = next(folder.glob(f"{name}.*"))
        path.write_bytes(content)
        manifest["files"][path.name] = [len(content), digest(content)]
    del manifest["sha256"]
    manifest["sha256"] = digest(json.dumps(manifest, sort_keys=True).encode())
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("history", b"[1]"),
        pytest.param("history", b"{}", marks=full),
        pytest.param("mean-0", b"\x93NUMPY\x01\x00 and nothing more", marks=full),
        ("mean-0", b"\x80\x04K\x01."),  # a pickle
        ("clients-0-ids", b""),
    ],
)
def test_files_that_were_made_up_are_refused_in_a_line(name, content, own, interrupted):
    newest = checkpoints.rounds(interrupted / CHECKPOINTS)[0]
    reseal(interrupted / CHECKPOINTS / f"round-{newest:06d}", **{name: content})
    with pytest.raises(InputError, match=rf"{name}\.\w+ is not what this run needs; start it anew"):
        fj.run(**own, out=interrupted, resume=True, quiet=True)
