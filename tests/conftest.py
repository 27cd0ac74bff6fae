"""Strict JAX for all tests, and several host devices so that meshes can be tested."""

from pathlib import Path

import jax
import numpy as np
import pytest

jax.config.update("jax_num_cpu_devices", 4)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

SHARED = Path(__file__).parents[2] / "shared" / "data"


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
