"""What W&B has of a run, read back from its own files, offline, and compared with metrics.jsonl."""

from __future__ import annotations

import json
import os
import signal
import struct

import pytest

import flamejax as fj

from .faults import InterruptAfter
from .logged import OWN, SHOWN, log, rows, scalars, single


@pytest.fixture
def wandb(monkeypatch, tmp_path):
    """W&B as someone has it who never logged in, and offline."""
    package = pytest.importorskip("wandb", reason="needs the extra wandb")
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NETRC", str(tmp_path / "home" / "netrc"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    yield package
    package.teardown()


def records_of(path):
    """The records of a .wandb file: LevelDB's log format after seven bytes of its own."""
    import wandb
    from wandb.proto.wandb_internal_pb2 import Record

    wandb.teardown()  # its service writes the last records a little after a run is finished
    data, at, parts = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(parts)
            parts = b""


def read(folder):
    """The one offline run in a folder: what it is, its config, round -> name -> number, its
    summary, and in which rounds there are pictures."""
    (path,) = (folder / "wandb").glob("offline-run-*/*.wandb")
    history, summary, runs = [], {}, []
    for record in records_of(path):
        if record.WhichOneof("record_type") == "run":
            runs.append(record.run)
        for item in record.history.item:
            name = item.key or "/".join(item.nested_key)
            history.append((record.history.step.num, name, json.loads(item.value_json)))
        for item in record.summary.update:
            summary[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
    assert len({(step, name) for step, name, _ in history}) == len(history)  # nothing twice
    config = {item.key: json.loads(item.value_json) for item in runs[0].config.update}
    shown = {
        step: {n: x for s, n, x in history if s == step and not n.startswith(("_", "curves/"))}
        for step, _, _ in history
    }
    pictures = [(step, x) for step, name, x in history if name == "curves/_type"]
    return runs[0], config, shown, summary, pictures


def test_wandb_has_every_number_of_every_run(wandb, tmp_path, capfd):
    out = tmp_path / "sweep"
    before = signal.getsignal(signal.SIGINT)
    fj.sweep(**log("wandb,tensorboard"), seeds=[0, 1], out=out)
    assert signal.getsignal(signal.SIGINT) is before
    folders = [out / "runs" / f"seed{seed}" for seed in (0, 1)]
    found = [read(folder) for folder in folders]
    for seed, (folder, parts) in enumerate(zip(folders, found, strict=True)):
        about, config, shown, summary, pictures = parts
        assert shown == rows(folder)
        assert list(shown) == SHOWN
        assert scalars(folder) == single(shown)
        assert pictures == [(SHOWN[-1], "image-file")]
        assert config["method"]["lam"] == 1
        assert config["data"]["name"] == "own"
        assert (about.project, about.run_group) == ("flamejax", "flame-own-quantity")
        assert about.display_name == f"flame-own-quantity-seed{seed}"
        assert summary["status"] == "finished"
        best = json.loads((folder / "summary.json").read_text())["best"]
        assert summary["best/pm/accuracy"] == best["pm"]["accuracy"]
    assert found[0][0].run_id != found[1][0].run_id
    assert capfd.readouterr() == ("", "")


def test_wandb_has_each_round_once_after_a_stop(wandb, tmp_path, monkeypatch):
    out = tmp_path / "run"
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    with pytest.raises(KeyboardInterrupt, match="round 9"):
        fj.run(**log("wandb"), out=out, callbacks=[InterruptAfter(3)])
    first = read(out)[0]
    assert list(read(out)[2]) == SHOWN[:3]
    fj.run(**OWN, out=out, resume=True, quiet=True)
    about, _, shown, summary, _ = read(out)
    assert (about.run_id, about.project) == (first.run_id, "mine")
    assert shown == rows(out)
    assert list(shown) == SHOWN
    assert summary["status"] == "finished"


def test_wandb_without_a_login_is_offline_and_does_not_ask(wandb, tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_MODE")
    with pytest.warns(UserWarning, match="not logged in to W&B, so this is logged offline"):
        fj.run(**log("wandb"), out=tmp_path / "run")
    assert read(tmp_path / "run")[2] == rows(tmp_path / "run")


def test_wandb_makes_another_name_where_the_file_holds_none(wandb, tmp_path):
    from flamejax.loggers.wandb import identity

    path = tmp_path / "id.txt"
    made = identity(path)
    assert identity(path) == made == path.read_text()
    path.write_bytes(b"../../\xff")
    assert identity(path) not in (made, "../../")
