"""What loggers write, read back by other code and compared with metrics.jsonl."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.metadata import parse_session_start_info_plugin_data

import flamejax as fj
from flamejax import loggers, registry
from flamejax.cli import main
from flamejax.config import make
from flamejax.records import CHECKPOINTS

from .faults import InterruptAfter
from .logged import BASE, OWN, SHOWN, log, rows, scalars, single

SMALL = ["--set", "rounds=2", "--set", "data.limit=400", "--set", "model.name=mlr", "--quiet"]


# --- TensorBoard


SETTINGS = {"method": {"lam": 3.0}, "checkpoint": {"every": 6}}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The folder of a run with logs, and its result."""
    out = tmp_path_factory.mktemp("logged") / "run"
    return out, fj.run(**log("tensorboard"), **SETTINGS, out=out)


def test_tensorboard_has_every_number(done):
    out, result = done
    assert scalars(out) == single(rows(out))
    assert list(scalars(out)) == SHOWN
    seen = EventAccumulator(str(out / "tensorboard"))
    seen.Reload()
    assert [(e.step, e.value) for e in seen.Scalars("pm/accuracy")] == [
        (step, row["pm/accuracy"]) for step, row in scalars(out).items()
    ]
    (image,) = seen.Images("curves")
    assert image.encoded_image_string == (out / "curves.png").read_bytes()
    size = struct.unpack(">II", image.encoded_image_string[16:24])
    assert (image.step, image.width, image.height) == (SHOWN[-1], *size)
    (text,) = seen.Tensors("config")[0].tensor_proto.string_val
    assert (out / "config.toml").read_text() in text.decode()
    (text,) = seen.Tensors("summary")[0].tensor_proto.string_val
    assert json.loads(text.decode().strip("`")) == result.summary
    about = seen.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    settings = parse_session_start_info_plugin_data(about).hparams
    assert settings["method.lam"].number_value == 3
    assert settings["partition.overlap"].bool_value is False
    assert settings["data.name"].string_value == "own"  # as it is, not as the config has it


@pytest.mark.parametrize("killed", [False, True])
def test_tensorboard_has_each_round_once_after_a_stop(killed, done, tmp_path):
    out = tmp_path / "run"
    if killed:  # after the last round, with the checkpoint of round 6
        shutil.copytree(done[0], out)
        (out / "summary.json").unlink()
        shutil.rmtree(out / CHECKPOINTS / "round-000012")
    else:
        with pytest.raises(KeyboardInterrupt, match="round 9"):
            fj.run(**log("tensorboard"), **SETTINGS, out=out, callbacks=[InterruptAfter(3)])
        assert list(scalars(out)) == SHOWN[:3]
    fj.run(**OWN, out=out, resume=True, quiet=True)
    assert scalars(out) == single(rows(out))
    assert list(scalars(out)) == SHOWN


@pytest.mark.full
def test_runs_of_a_sweep_log_apart(tmp_path):
    out = tmp_path / "sweep"
    fj.sweep(**log("tensorboard"), seeds=[0, 1], out=out)
    first, second = (out / "runs" / f"seed{seed}" for seed in (0, 1))
    assert scalars(first) == single(rows(first))
    assert scalars(second) == single(rows(second))
    assert scalars(first) != scalars(second)


MANY = {  # compiled once, with test_compare.py's
    "rounds": 2,
    "eval_every": 1,
    "data": {"limit": 400},
    "partition": {"name": "iid", "clients": 4},
    "model": {"name": "mlr"},
    "engine": {"devices": 1},
    "methods": "ditto",
    "quiet": True,
}


def test_folders_of_many_runs_know_the_logs(tmp_path):
    """An unfinished run with logs is begun again, and finished ones are not repeated."""
    values = {**MANY, "record": {"log": "tensorboard"}, "out": tmp_path / "all", "seeds": [0, 1]}
    fj.compare(**values)
    folders = [tmp_path / "all" / "runs" / "ditto" / f"seed{seed}" for seed in (0, 1)]
    (folders[0] / "summary.json").unlink()
    before = [(folder / "timings.jsonl").read_bytes() for folder in folders]
    fj.compare(**values)
    after = [(folder / "timings.jsonl").read_bytes() for folder in folders]
    assert [a == b for a, b in zip(before, after, strict=True)] == [False, True]
    assert scalars(folders[0]) == single(rows(folders[0]))


def test_folders_from_before_there_were_logs_go_on(tmp_path, capsys):
    values = {**MANY, "out": tmp_path / "all"}
    fj.compare(**values)
    folder = tmp_path / "all" / "runs" / "ditto" / "seed0"
    config = (folder / "config.toml").read_text()
    assert 'log = "none"\n' in config
    (folder / "config.toml").write_text(config.replace('log = "none"\n', ""))
    before = (folder / "timings.jsonl").read_bytes()
    fj.compare(**values)
    assert (folder / "timings.jsonl").read_bytes() == before
    with pytest.raises(fj.InputError, match=r"method\.batch"):
        fj.compare(**values, method={"batch": 7})
    assert main(["run", "--resume", "--out", str(folder)]) == 0
    assert "nothing to resume" in capsys.readouterr().err


def test_a_run_is_the_same_with_and_without(done, tmp_path):
    fj.run(**BASE, **OWN, **SETTINGS, out=tmp_path / "without")
    assert not (tmp_path / "without" / "tensorboard").exists()
    same = [(folder / "metrics.jsonl").read_bytes() for folder in (done[0], tmp_path / "without")]
    assert same[0] == same[1]


def test_a_run_that_diverged_says_so(tmp_path):
    out = tmp_path / "run"
    with pytest.raises(fj.RunError, match="diverged"):
        fj.run(**log("tensorboard"), method={"lr": 1e30}, out=out)
    seen = EventAccumulator(str(out / "tensorboard"))
    seen.Reload()
    (text,) = seen.Tensors("summary")[0].tensor_proto.string_val
    assert '"status": "diverged"' in text.decode()


# --- what is asked for, and what goes wrong


@pytest.mark.full
def test_nothing_is_imported_without_a_logger(tmp_path):
    code = f"""
import sys, flamejax as fj
fj.run(rounds=1, data={{"limit": 400}}, model={{"name": "mlr"}}, out={str(tmp_path / "run")!r})
assert not {{"tensorboard", "wandb"}} & set(sys.modules), "imported"
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_missing_package_is_said_before_the_first_round(name, monkeypatch, tmp_path, capsys):
    monkeypatch.delitem(sys.modules, f"flamejax.loggers.{name}", raising=False)
    for module in [m for m in sys.modules if m.partition(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    out = tmp_path / "run"
    for command in (["run"], ["sweep", "--seeds", "0,1"], ["compare", "--methods", "local"]):
        arguments = [*SMALL, "--set", f"record.log={name}", "--out", str(out)]
        assert main([*command, *arguments]) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert "record.log" in line
        assert f"pip install 'flamejax[{name}]'" in line
        assert not out.exists()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("tensorbord", ["record.log", "did you mean 'tensorboard'"]),
        ("tensorboard,", ["record.log", "''"]),
        ('["wandb"]', ["record.log", "string"]),
        ("true", ["record.log", "string"]),
    ],
)
def test_unknown_loggers_are_refused_in_a_line(asked, words, tmp_path, capsys):
    assert main(["run", *SMALL, "--set", f"record.log={asked}", "--out", str(tmp_path / "o")]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert all(word in line for word in words), line


def test_logs_need_a_folder():
    with pytest.raises(fj.InputError, match=r"record\.log = 'tensorboard' needs out"):
        fj.run(**log("tensorboard"))


def test_several_loggers_in_a_line():
    assert make({"record": {"log": "tensorboard, wandb,wandb"}}).record.loggers == [
        "tensorboard",
        "wandb",
    ]


@pytest.fixture
def broken():
    """Loggers that fail in one of their functions, and the functions that were called so far."""
    called = []

    def make(where):
        def fail(self, *_):
            called.append(where)
            raise OSError(28, "No space left on device")

        return type("Broken", (loggers.Logger,), {where: fail})

    names = {"broken-0": "__init__", "broken-1": "row", "broken-2": "close"}
    for name, where in names.items():
        registry.register("loggers", name, make(where))
    yield names, called
    for name in names:
        registry.unregister("loggers", name)


def test_a_logger_that_fails_does_not_end_the_run(broken, tmp_path):
    (names, called), out = broken, tmp_path / "run"
    with pytest.warns(UserWarning, match="failed and is left out") as said:
        result = fj.run(**log(f"{','.join(names)},tensorboard"), **SETTINGS, out=out)
    said = [str(warning.message) for warning in said if "broken" in str(warning.message)]
    assert called == list(names.values())  # each once
    for name, line in zip(names, said, strict=True):
        assert f"{name} failed and is left out: " in line
        assert "No space" in line
    assert result.summary["status"] == "finished"
    assert scalars(out) == single(rows(out))
