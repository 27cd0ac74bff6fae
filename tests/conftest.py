"""Strict JAX and no network for all tests, and several devices so that meshes can be tested."""

import atexit
import mmap
import os
import runpy
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import jax
import jaxlib
import numpy as np
import pytest

from .cost import pytest_addoption, pytest_collection_modifyitems, pytest_configure  # noqa: F401

OFFLINE = Path(__file__).parent / "offline"
QUICK = "--xla_cpu_use_fusion_emitters=false"  # halves the time to compile


def known_to_xla(flag: str) -> bool:
    """It ends the process at a flag that it does not know."""
    name = flag.strip("-").partition("=")[0].encode()
    for library in Path(jaxlib.__file__).parent.glob("*.so"):
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as code:
            if code.find(name) >= 0:
                return True
    return False


if "PYTEST_XDIST_WORKER" not in os.environ:  # one cache for all workers, and never the user's own
    os.environ["FLAMEJAX_CACHE"] = tempfile.mkdtemp(prefix="flamejax-tests-")
    atexit.register(shutil.rmtree, os.environ["FLAMEJAX_CACHE"], ignore_errors=True)
    # no network either, for tests and for every Python that they start
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(OFFLINE), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    if known_to_xla(QUICK):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICK}".strip()
if not hasattr(sys.modules.get("sitecustomize"), "OFFLINE"):  # this one started before
    runpy.run_path(str(OFFLINE / "sitecustomize.py"))
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background by a shell
    signal.signal(signal.SIGINT, signal.default_int_handler)
jax.config.update("jax_num_cpu_devices", 4)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

SHARED = Path(__file__).parents[2] / "shared" / "data"


# files whose runs are long enough to be worth optimised code; elsewhere the time is in compiling
LONG = {"test_readme", "test_regression_theory", "test_reproduction", "test_shuffle"}


@pytest.fixture(scope="module", autouse=True)
def _quick_compiles(request):
    quick = request.module.__name__.rpartition(".")[2] not in LONG
    jax.config.update("jax_disable_most_optimizations", quick)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.fixture(scope="session")
def mnist_dir() -> Path:
    """The real MNIST files, where they are at hand."""
    folder = SHARED / "mnist"
    if not folder.is_dir():
        pytest.skip("needs the MNIST files")
    return folder
