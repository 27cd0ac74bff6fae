"""7,936 real MNIST digits by 70 writers, inside the package."""

from __future__ import annotations

from importlib.resources import files

import numpy as np

from flamejax.config import Data
from flamejax.datasets.idx import MNIST_MEAN, MNIST_STD
from flamejax.types import Dataset


def load(settings: Data, quiet: bool = True) -> Dataset:
    with (files("flamejax.datasets") / "mnist_mini.npz").open("rb") as file:
        arrays = np.load(file, allow_pickle=False)
        return Dataset(
            images=arrays["images"][..., None],
            labels=arrays["labels"].astype(np.int32),
            writers=arrays["writers"].astype(np.int32),
            classes=10,
            mean=MNIST_MEAN,
            std=MNIST_STD,
        )
