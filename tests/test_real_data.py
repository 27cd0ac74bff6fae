"""The real data sets, where they are at hand: every partition that applies, one round each.

All of it under the mark `full`: every partition on a few hundred samples (for archives, on a small
archive made of theirs), and one of each data set on all samples with the paper's networks.
"""

import functools
import json
import resource
import subprocess
import sys
import zipfile
from pathlib import Path

import jax
import numpy as np
import pytest

import flamejax as fj
from flamejax import cache, registry
from flamejax.models import choose

from .conftest import SHARED

pytestmark = pytest.mark.full
SOURCES = {
    "mnist": "mnist",
    "fashion_mnist": "fashion_mnist",
    "medical_mnist": "medical_mnist.zip",
    "cifar10": "cifar10_jpeg.zip",
}
CASES = [
    (data, partition)
    for data in SOURCES
    for partition in registry.names("partitions")
    if partition != "natural" and (partition != "writer" or data == "mnist")
]
PARAMETERS = {"mlp": 109_386, "cnn_medical": 206_678, "cnn_cifar": 268_650}
FEW = 24  # images of each folder of an archive


def source(name: str) -> Path:
    path = SHARED / SOURCES[name]
    if not path.exists():
        pytest.skip(f"needs the files of {name}")
    return path


@pytest.fixture(scope="module", autouse=True)
def _store(tmp_path_factory):
    """Decoded data in a folder of this file's own; compiled programs are shared."""
    compiled, folder = cache.folder() / "compiled", tmp_path_factory.mktemp("cache")
    compiled.mkdir(exist_ok=True)
    (folder / "compiled").symlink_to(compiled)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLAMEJAX_CACHE", str(folder))
        yield


@pytest.fixture(scope="module")
def reduced(tmp_path_factory):
    """The path of a data set, an archive cut to a few images of each folder."""
    folder = tmp_path_factory.mktemp("reduced")

    @functools.cache
    def cut(name: str) -> Path:
        path = source(name)
        if path.suffix != ".zip":
            return path
        taken: dict[str, int] = {}
        with zipfile.ZipFile(path) as whole, zipfile.ZipFile(folder / path.name, "w") as few:
            for member in whole.namelist():
                place = member.rpartition("/")[0]
                taken[place] = taken.get(place, 0) + 1
                if taken[place] <= FEW:
                    few.writestr(member, whole.read(member))
        return folder / path.name

    return cut


def one_round(name, path, partition, **settings):
    return fj.run(
        rounds=1,
        data={"name": name, "dir": str(path), **settings.pop("data", {})},
        partition={"name": partition, "clients": 10, "min_samples": 5},
        method={"preset": "published"},
        quiet=True,
        **settings,
    ).summary


@pytest.mark.parametrize(("name", "partition"), CASES)
def test_every_partition_of_a_few_samples(name, partition, reduced):
    limit = {} if SOURCES[name].endswith(".zip") or partition == "writer" else {"limit": 700}
    model = "mlr" if partition != "dirichlet" else "auto"  # compiling a network takes seconds
    found = one_round(name, reduced(name), partition, data=limit, model={"name": model})
    assert found["clients"] == 10
    assert found["data"] == name
    assert np.isfinite(found["last"]["pm"]["loss"])
    if model == "auto":
        assert found["model"] == choose("auto", name)
        assert found["parameters"] == PARAMETERS[found["model"]]


@pytest.fixture
def optimised():
    """As a user's runs are; for a few samples it would only take longer to compile."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


ALL_SAMPLES = [
    *(("mnist", partition) for partition in ("hybrid", "writer")),
    ("fashion_mnist", "quality"),
    ("cifar10", "dirichlet"),
]


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize(("name", "partition"), ALL_SAMPLES)
def test_all_samples(name, partition):
    check(one_round(name, source(name), partition), name)


def check(found, name):
    """After a round of a run with all samples."""
    assert found["parameters"] == PARAMETERS[choose("auto", name)]
    assert np.isfinite(found["last"]["gm"]["loss"])
    assert found["last"]["pm"]["accuracy"] > 0.12  # better than chance after one round


def test_writers_are_the_836_of_mnist():
    data = fj.load_data("mnist", str(source("mnist")))
    assert len(np.unique(data.writers)) == 836
    assert len(data.labels) == 70_000


def test_medical_mnist_is_imported_within_a_minute_and_opened_in_two_seconds(tmp_path):
    """And a whole round of it learns, and takes less than 2 GB of memory."""
    path = source("medical_mnist")
    environment = {"FLAMEJAX_CACHE": str(tmp_path / "cache"), "PATH": "/usr/bin:/bin"}

    def seconds(*arguments: str) -> float:
        """Of work: other tests may be at work as well."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], env=environment, check=True, cwd=tmp_path)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert seconds("-m", "flamejax", "data", "import", str(path)) < 60
    load = f"import flamejax; flamejax.load_data('medical_mnist', {str(path)!r})"
    assert min(seconds("-c", load) for _ in range(2)) < 2
    run = ["rounds=1", "data.name=medical_mnist", "partition.name=qlabel", "partition.clients=10"]
    run += ["partition.min_samples=5", "method.preset=published"]
    options = [word for setting in run for word in ("--set", setting)]
    seconds("-m", "flamejax", "run", *options, "--out", str(tmp_path / "out"))
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    assert peak < 2e9
    check(json.loads((tmp_path / "out" / "summary.json").read_text()), "medical_mnist")
