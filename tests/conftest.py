"""Strict JAX for all tests, and several host devices so that meshes can be tested."""

from pathlib import Path

import jax
import numpy as np
import pytest

jax.config.update("jax_num_cpu_devices", 4)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

SHARED = Path(__file__).parents[2] / "shared" / "data"


# files whose runs are long enough to be worth optimised code; elsewhere the time is in compiling
LONG = {"test_cli", "test_readme", "test_reproduction", "test_shuffle"}


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
