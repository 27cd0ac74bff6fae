"""Small data sets made up for tests, in the files that others would have."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

needs_tfds = pytest.mark.skipif(
    not all(map(find_spec, ("tensorflow_datasets", "array_record", "importlib_resources"))),
    reason="needs tensorflow-datasets and array_record",
)


def encoded(pixels, form="PNG") -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.asarray(pixels, np.uint8)).save(file, form)
    return file.getvalue()


def picture(number: int, size=(5, 4), channels=1):
    """Some image [H, W] or [H, W, 3], another for each number."""
    rng = np.random.default_rng(number)
    return rng.integers(0, 256, size if channels == 1 else (*size, 3)).astype(np.uint8)


def pack(place: Path, files: dict[str, bytes]) -> Path:
    """Files below a folder, or in a zip if the place is called so."""
    if place.suffix == ".zip":
        with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return place
    for name, content in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return place


def prepared(folder: Path, title: str, **features) -> Path:
    """A small set prepared by TFDS itself, from encoded images so that TensorFlow is not needed."""
    import tensorflow_datasets as tf_datasets

    class Tiny(tf_datasets.core.GeneratorBasedBuilder, skip_registration=True):
        name, _, config = title.partition("/")
        BUILDER_CONFIGS = [tf_datasets.core.BuilderConfig(name=config)] if config else []
        VERSION = tf_datasets.core.Version("1.0.0")

        def _info(self):
            known = {
                "image": tf_datasets.features.Image(shape=(5, 4, 1)),
                "label": tf_datasets.features.ClassLabel(names=["a", "b", "c"]),
            }
            known = {key: features.get(key, known[key]) for key in known}
            return tf_datasets.core.DatasetInfo(
                builder=self, features=tf_datasets.features.FeaturesDict(known)
            )

        def _split_generators(self, manager):
            return {"test": self._generate_examples(6, 9), "train": self._generate_examples(0, 6)}

        def _generate_examples(self, start, stop):
            for n in range(start, stop):
                yield n, {"image": io.BytesIO(encoded(picture(n))), "label": n % 3}

    tf_datasets.disable_progress_bar()
    Tiny(data_dir=folder, file_format="array_record").download_and_prepare()
    return folder


@contextmanager
def found_by_tfds(folder: Path) -> Iterator[None]:
    """TFDS looks into this folder too where none is named."""
    from tensorflow_datasets.core.utils import file_utils

    file_utils.add_data_dir(folder)
    try:
        yield
    finally:
        file_utils.clear_registered_data_dirs()
