"""Bad input, systematically: the bounded form of experiments/reliability/fuzz.py."""

import os
import pickle
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flamejax as fj
from flamejax import cli, registry

from .fuzzing import commands, configs, files, results
from .fuzzing.calling import Sandbox
from .fuzzing.cases import Case, Link

# kinds of cases, and how many of each; by default a third of them
KINDS = {
    configs.one_value: 30,
    configs.changed_text: 20,
    configs.nonsense: 10,
    configs.setting: 40,
    configs.generated: 20,
    configs.good: 20,
    configs.experiment_file: 15,
    commands.options: 40,
    commands.wild: 15,
    files.data: 40,
    results.report: 6,
}


@pytest.fixture(scope="module")
def box(tmp_path_factory):
    with Sandbox(tmp_path_factory.mktemp("box")).entered() as found:
        yield found


@pytest.mark.parametrize("part", [3, pytest.param(1, marks=pytest.mark.full)], ids="1/{}".format)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_accepted_or_refused_in_one_line(box, kind, part):
    @settings(
        max_examples=KINDS[kind] // part,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.randoms(use_true_random=False))
    def holds(random):
        case = kind(random)
        found = box.run(case)
        assert found.fine, (case.command, case.files, *found)

    holds()


# what such cases have found

FILE = configs.FILE
DEEP = ".".join(["a"] * 3000)
TOO_LONG = "x" * 300
LAMBDA = (configs.EXPERIMENTS / "lambda.toml").read_text()
NO_ROWS = LAMBDA.partition("[rows]")[0] + "[rows]"
MANY = [f"method.{key}={commands.LONG}" for key in ("lam", "rho")]
FOUND = {
    "a config without an end": (["run", "/dev/zero"], {}, "/dev/zero: more than"),
    "a baseline without an end": (["bench", "--baseline", "/dev/zero"], {}, "/dev/zero"),
    "an import without an end": (
        ["data", "import", "set/x.npz"],
        {"set/x.npz": Link("/dev/zero")},
        "neither a file nor a folder",
    ),
    "digits without an end": (
        ["data", "import", "set"],
        {"set/x.json": Link("/dev/zero")},
        "set/x.json: cannot be read: not a plain file",
    ),
    "a config's name": (["run", TOO_LONG], {}, "File name too long"),
    "a folder's name": (["report", TOO_LONG], {}, "File name too long"),
    "an import's name": (["data", "import", TOO_LONG], {}, "File name too long"),
    "a place's name": (["data", "info", "mnist", "--dir", TOO_LONG], {}, "File name too long"),
    "a picture's name": (["data", "partition", "--plot", "a\0.png"], {}, "cannot be written"),
    "deep tables": (["run", FILE], {FILE: f"seed.{DEEP} = 1".encode()}, "more than 20 deep"),
    "a deep setting": (["run", "--set", f"seed.{DEEP}=1"], {}, "is not a known key"),
    "a deep grid": (["sweep", "--grid", f"{DEEP}=1,2"], {}, "write it as KEY=V1,V2"),
    "a grid without an end": (["sweep", "--grid", *MANY], {}, "4000000 runs (2000 of method.lam"),
    "thousands of digits": (
        ["experiment", "lambda", "--partitions", "q" + "9" * 5000],
        {},
        "--partitions = 'q999",
    ),
    "no rows": (["experiment", "own.toml"], {"own.toml": NO_ROWS.encode()}, "rows = {} should"),
    "an experiment that does not fit": (
        ["experiment", "lambda", "--datasets", "mnist_mini", "--set", "partition.clients=100"],
        {},
        "partition.clients = 100 with partition.min_samples = 100",
    ),
    "billions of clients": (
        ["run", "--set", "data.name=synthetic", "--set", "partition.clients=2147483647"],
        {},
        "partition.clients = 2147483647 need at least 215 GB",
    ),
    "what a terminal obeys": (["run", "\x1b[31m.toml"], {}, "?[31m.toml"),
    "no letters": (["run", "--set", "\udcff=1"], {}, "is not a known key"),
    "a sweep of one, before it begins": (
        ["sweep", "--seeds", "0", "--set", "data.name=mnist"],
        {},
        "data.name = 'mnist'",
    ),
}


@pytest.mark.parametrize("what", FOUND)
def test_what_was_found(box, what):
    command, given_files, said = FOUND[what]
    found = box.run(Case(command, given_files))
    assert found.verdict == "refused", found.said
    assert said in found.said


def test_many_seeds_are_looked_at_quickly(box):
    found = box.run(Case(["compare", "--methods", "flame,local", "--seeds", commands.LONG]))
    assert found.verdict == "accepted"
    assert found.seconds < 20  # it took minutes to compare each run with each


@contextmanager
def data_that(act):
    """A data set of one's own called "own", which does something before it is there."""

    def load(settings, quiet=True):
        act()
        return fj.Dataset(np.eye(3), np.arange(3), 3)

    registry.register("datasets", "own", load)
    try:
        yield ["data", "info", "own"]
    finally:
        registry.unregister("datasets", "own")


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("RESOURCE_EXHAUSTED: out of memory")]
)
def test_too_little_memory_is_one_line(capsys, error):
    def fail():
        raise error

    with data_that(fail) as command:
        assert cli.main(command) == 3
    said = capsys.readouterr().err
    assert said.startswith("flamejax: this does not fit in memory")
    assert said.count("\n") == 1


class Evil:
    def __reduce__(self):
        return os.getcwd, ()


def leave(what):
    print(what, file=sys.stderr)
    raise SystemExit(2)


BAD = [  # what a command does, and what is said of it
    (lambda: None, "accepted"),
    (lambda: Path("../../../elsewhere").write_text("x"), "elsewhere"),
    (lambda: Path("left").write_text("x") and leave("flamejax: refused for no reason"), "elsewh"),
    (lambda: pickle.loads(pickle.dumps(Evil())), "elsewhere: pickle"),
    (lambda: 1 / 0, "traceback: ZeroDivisionError"),
    (lambda: bytearray(2**40), "failed"),
    (lambda: leave("flamejax: one line too\nflamejax: many of them here"), "unclear: more than"),
    (lambda: leave("flamejax: escaped \x1b[31m and so on and on"), "unclear: characters"),
]


@pytest.mark.parametrize(("act", "verdict"), BAD, ids=[verdict for _, verdict in BAD])
def test_the_sandbox_sees_what_it_should(box, act, verdict):
    """A command that writes elsewhere, fails or mumbles is not taken for a good one."""
    with data_that(act) as command:
        found = box.run(Case(command))
    (box.root / "elsewhere").unlink(missing_ok=True)
    assert found.verdict.startswith(verdict), found


def test_the_sandbox_does_not_wait_for_ever(box):
    with data_that(lambda: time.sleep(5)) as command:
        assert box.run(Case(command), limit=1).verdict == "hang"
