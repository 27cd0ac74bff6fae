"""The command line: exit codes, one line per refusal, and the folder a run leaves behind."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from flamejax import registry
from flamejax.cli import main
from flamejax.config import make
from flamejax.lane import likely
from flamejax.stopping import stop_requests

from .faults import full_disk, when_written

FILES = {"config.toml", "metrics.jsonl", "timings.jsonl", "clients.npz", "environment.json"}
FILES |= {"curves.png", "summary.json"}
SUMMARY = {"rounds", "seconds", "compile_seconds", "round_seconds", "clients", "parameters"}
SUMMARY |= {"padding_overhead", "bytes_up", "bytes_down", "last", "best", "benign_clients"}
MODELS = ("pm", "gm", "hm")
FIGURES = {"accuracy", "accuracy_var", "loss", "loss_var", "worst10", "best10", "jain", "entropy"}


full = pytest.mark.full
ENTER = "from flamejax.cli import entry; entry()"
# signal -> what SIGINT does at the start: shells make background jobs ignore it
SIGNALS = {signal.SIGINT: "default_int_handler", signal.SIGTERM: "SIG_IGN"}


@pytest.fixture(scope="module", autouse=True)
def _state_of_the_process():
    """What a run changes is put back."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    jax.devices()  # so that engine.devices=1 does not settle how many all other tests have
    yield
    for number, action in before.items():
        signal.signal(number, action)


def sets(*assignments: str) -> list[str]:
    return [word for assignment in assignments for word in ("--set", assignment)]


TINY = "rounds=3 eval_every=1 data.limit=400 partition.name=iid partition.clients=4 model.name=mlr"
TINY_RUN = ["run", *sets(*TINY.split(), "engine.devices=1"), "--quiet", "--out"]


def run(out, *more: str) -> int:
    return main([*TINY_RUN, str(out), *more])


def only_line(capsys) -> str:
    """The one line on stderr of a command that said nothing on stdout."""
    out, err = capsys.readouterr()
    assert out == ""
    assert [line[:10] for line in err.split("\n")] == ["flamejax: ", ""]
    return err


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def summary(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


# command line -> a piece of the refusal
BAD = [
    ([], "COMMAND"),
    (["rnu"], "'rnu'"),
    (["list", "method"], "'method'"),
    (["run", "--frobnicate"], "--frobnicate"),
    (["run", "--against", "time"], "--against: invalid choice: 'time'"),
    (["run", "--against", "bytes", *sets("method.name=local")], "'local' sends nothing"),
    (["run", "missing.toml"], "missing.toml: cannot read"),
    (["run", ""], "cannot read"),
    (["run", "syntax.toml"], "syntax.toml: not valid TOML"),
    (["run", "binary.toml"], "binary.toml: not valid TOML"),
    (["run", "typo.toml"], "did you mean 'method.rho'?"),
    (["run", *sets("rounds")], "key.path=value"),
    (["run", *sets("rounds=0x" + "f" * 5000)], "rounds = "),
    (["run", *sets("model.name=a\nb")], "model.name = "),
    (["run", *sets("data.dir=\udcff")], "data.dir = "),
    (["run", *sets("data.name=mnist", "data.dir=nowhere")], "nowhere' is not a folder"),
    (["run", *sets("data.limit=1000000")], "data.limit = 1000000"),
    (["run", *sets("data.limit=400", "engine.devices=4000")], "engine.devices = 4000"),
    (["run", "--out", "file"], "file already exists"),
    (["run", "--out", "file/below/that"], "file is not a folder"),
    (["run", "--out", "."], "not an empty folder"),
    (["run", "--out", "x" * 300], "File name too long"),
]


@pytest.mark.parametrize(("words", "said"), BAD, ids=[" ".join(w)[:40] or "-" for w, _ in BAD])
def test_bad_command_line(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("syntax.toml").write_text("rounds = = 3")
    Path("binary.toml").write_bytes(b"\xff\xfe\x00")
    Path("typo.toml").write_text("[method]\nrh = 1\n")
    before = sorted(tmp_path.rglob("*"))
    assert main(words) == 2
    assert said in only_line(capsys)
    assert sorted(tmp_path.rglob("*")) == before


def test_list_shows_every_name_or_those_of_one_kind(capsys):
    assert main(["list"]) == 0
    said = capsys.readouterr().out
    for kind in registry.KINDS:
        assert f"{kind}:" in said
        assert all(f"  {name} " in said for name in registry.names(kind))
    assert main(["list", "methods"]) == 0
    said = capsys.readouterr().out
    assert [line.split()[0] for line in said.splitlines()] == registry.names("methods")


@pytest.mark.parametrize("words", [None, ["--help"], ["list"]], ids=["import", "help", "list"])
def test_light_commands_start_fast_and_without_jax(words):
    command = f"from flamejax.cli import main; main({words})" if words else "import flamejax"
    heavy = "{'flamejax', 'jax', 'flax', 'tensorflow'} & set(sys.modules)"
    end = f"print({heavy}, time.process_time())"
    code = f"import sys, time\ntry:\n  {command}\nexcept SystemExit: pass\n{end}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found, seconds = done.stdout.splitlines()[-1].split()
    assert found == "{'flamejax'}"
    assert float(seconds) < 1  # of the processor, whatever else runs on the machine
    assert done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_nowhere_to_print_to(unbuffered):
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    command = [sys.executable, "-m", "flamejax", "list"]
    reader, writer = os.pipe()
    os.close(reader)
    for out, said in ((writer, 0), (os.open("/dev/full", os.O_WRONLY), 1)):
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, env=environment)
        os.close(out)
        assert (done.returncode, done.stderr.count(b"\n")) == (3, said)


@pytest.fixture(scope="module")
def first(tmp_path_factory) -> Path:
    """The folder of a tiny run."""
    folder = tmp_path_factory.mktemp("first") / "new" / "run"
    assert run(folder) == 0
    return folder


@pytest.fixture(scope="module")
def _compile_once(first, tmp_path_factory):
    """All runs after the first compile together once more; none takes over what the first did."""
    compilation_cache.set_cache_dir(str(tmp_path_factory.mktemp("cache")))
    compilation_cache.reset_cache()  # or JAX goes on without, as it started
    yield
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()


def test_results_folder_keeps_the_contract(first):
    assert {path.name for path in first.iterdir()} >= FILES
    assert not list(first.glob(".*"))
    found = summary(first)
    assert set(found) >= SUMMARY
    assert (found["status"], found["rounds"], found["clients"]) == ("finished", 3, 4)
    assert found["parameters"] == 784 * 10 + 10
    for when in ("last", "best"):
        assert set(found[when]) >= {"pm", "gm", "hm", "train_loss", "round"}
        assert all(set(found[when][model]) == FIGURES for model in MODELS)
    assert found["last"]["round"] == 3
    assert (first / "curves.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert "jax" in json.loads((first / "environment.json").read_text())["versions"]
    with np.load(first / "clients.npz", allow_pickle=False) as clients:
        assert clients["last_pm_accuracy"].shape == (4,)
        assert clients["train_samples"].sum() == 320


def test_metrics_hold_a_line_per_round_and_no_clock(first):
    rows = lines(first / "metrics.jsonl")
    assert [row["round"] for row in rows] == [1, 2, 3]
    for row in rows:
        names = {"round", "bytes", "train_loss", "nonfinite", "gap", "oracle", "selection"}
        assert set(row) == {*names, *MODELS}
        assert set(row["pm"]) == FIGURES
        assert 0 <= row["pm"]["accuracy"] <= 1
    assert all(row["seconds"] > 0 for row in lines(first / "timings.jsonl"))


@pytest.mark.usefixtures("_compile_once")
def test_same_command_gives_the_same_bytes_quietly(first, tmp_path, capsys):
    assert run(tmp_path / "b") == 0
    assert (tmp_path / "b/metrics.jsonl").read_bytes() == (first / "metrics.jsonl").read_bytes()
    assert run(tmp_path / "c", *sets("seed=1")) == 0
    assert (tmp_path / "c/metrics.jsonl").read_bytes() != (first / "metrics.jsonl").read_bytes()
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("_compile_once")
def test_written_config_repeats_the_run(first, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["run", str(first / "config.toml"), "--against", "bytes"]) == 0
    folder = tmp_path / "runs" / "flame-mnist_mini-iid-seed0"
    for name in ("config.toml", "metrics.jsonl"):
        assert (folder / name).read_bytes() == (first / name).read_bytes()
    said = capsys.readouterr().out
    assert f"{summary(folder)['last']['pm']['accuracy']:.4f}" in said
    assert "Results: runs/flame-mnist_mini-iid-seed0" in said
    assert "Traffic: 377 kB up, 377 kB down" in said  # 3 rounds, 4 clients, 7,850 parameters
    assert (folder / "curves.png").read_bytes() != (first / "curves.png").read_bytes()


def test_used_folder_is_left_alone(first, capsys):
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in first.iterdir()}
    assert run(first) == 2
    assert f"{first} already exists and is not an empty folder" in only_line(capsys)
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in first.iterdir()} == before


@pytest.mark.usefixtures("_compile_once")
@pytest.mark.parametrize("name", ["metrics.jsonl", "curves.png", "summary.json"])
def test_full_disk(name, tmp_path, monkeypatch, capsys):
    full_disk(monkeypatch, f"*{name}*")
    assert run(tmp_path / "out") == 3
    line = only_line(capsys)
    assert os.strerror(errno.ENOSPC) in line
    assert str(tmp_path / "out" / name) in line
    assert not (tmp_path / "out" / "summary.json").exists()
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.usefixtures("_compile_once")
@pytest.mark.parametrize(  # seen in the messages, in an evaluation
    ("rate", "rounds", "check", "said"),
    [
        ("1e+17", 3, "drop", "training loss is not finite in round 2"),
        ("1e+30", 2, "keep", "test losses are not finite after round 2"),
    ],
)
def test_divergence(rate, rounds, check, said, tmp_path, capsys):
    settings = sets(f"method.lr={rate}", f"rounds={rounds}", f"engine.on_nonfinite={check}")
    assert run(tmp_path / "out", *settings) == 3
    line = only_line(capsys)
    assert f"method.lr (now {rate})" in line
    assert said in line
    assert summary(tmp_path / "out")["status"] == "diverged"
    for row in lines(tmp_path / "out" / "metrics.jsonl"):
        assert row["pm"]["loss"] is not None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"lr": 5.0}, "try a smaller method.lr (now 5.0)"),
        ({"lr": 0.1, "lam": 50.0}, "try a smaller method.lam (now 50.0) or method.lr (now 0.1)"),
        ({"name": "pfedme"}, "try a smaller method.lr (now 0.09)"),
        ({"name": "fedavg", "lr": 9.0}, "try a smaller method.lr (now 9.0)"),
    ],
)
def test_divergence_names_the_likely_setting(settings, said):
    assert likely(make({"method": settings}).method).startswith(said)


def in_order(folder: Path, said: str) -> None:
    """What an interrupted run has said and left."""
    assert "Traceback" not in said
    last = said.splitlines()[-1]
    assert last.startswith("flamejax: interrupted after round ")
    assert last.endswith(f"; flamejax run --resume --out {folder} continues")
    assert {path.name for path in folder.iterdir()} >= FILES | {"checkpoints"}
    assert summary(folder)["status"] == "interrupted"
    measured = [row["round"] for row in lines(folder / "metrics.jsonl")]
    assert measured == list(range(1, len(measured) + 1))
    assert len(measured) <= summary(folder)["rounds"]


@pytest.mark.usefixtures("_compile_once")
@pytest.mark.parametrize("number", SIGNALS)
def test_interrupted_run_leaves_its_folder_in_order(number, tmp_path, monkeypatch, capsys):
    when_written(monkeypatch, "timings.jsonl", lambda *_: signal.raise_signal(number))
    assert run(tmp_path / "out", *sets("engine.rounds_per_call=1")) == 130
    in_order(tmp_path / "out", capsys.readouterr().err)
    assert summary(tmp_path / "out")["rounds"] == 1


@full
@pytest.mark.parametrize("number", SIGNALS)
def test_interrupted_process_leaves_its_folder_in_order(number, tmp_path):
    folder, action = tmp_path / "out", SIGNALS[number]
    code = f"import signal; signal.signal(signal.SIGINT, signal.{action}); {ENTER}"
    command = [sys.executable, "-c", code, *TINY_RUN, str(folder), *sets("rounds=10000000")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            deadline = time.monotonic() + 120
            while not (folder / "timings.jsonl").exists():  # after the first line of metrics
                assert process.poll() is None, process.stderr.read()
                assert time.monotonic() < deadline
                time.sleep(0.05)
            process.send_signal(number)
            said = process.communicate(timeout=60)[1]
        finally:
            process.kill()
    assert process.returncode == 130
    in_order(folder, said)
    assert summary(folder)["rounds"] < 10_000_000


def test_a_request_that_comes_too_late_to_stop_a_run_is_passed_on():
    ran = []

    def finished_run():
        with stop_requests() as stop:
            signal.raise_signal(signal.SIGINT)
            ran.append(len(stop))

    with pytest.raises(KeyboardInterrupt):
        finished_run()
    assert ran == [1]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_request_inside_a_callback_is_not_lost(number):
    """As those of JAX's garbage collection, where Python prints an exception and goes on."""
    code = f"""
import builtins, gc, os, signal, time
from flamejax import cli

def once(*_):
    gc.callbacks.remove(once)
    os.kill(os.getpid(), {int(number)})

plain = print

def slow(*_, **__):
    builtins.print = plain
    gc.callbacks.append(once)
    gc.collect()
    time.sleep(60)

signal.signal(signal.SIGINT, signal.{SIGNALS[number]})
builtins.print = slow
cli.entry()
"""
    done = subprocess.run([sys.executable, "-c", code, "list"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (3, "flamejax: interrupted\n")
