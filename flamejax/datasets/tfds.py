"""Image classification sets of TensorFlow Datasets: `data.name = "tfds:NAME"`.

NAME is as TFDS writes it: mnist, emnist/digits, cifar10:3.0.2. A run only reads what was prepared
earlier, in data.dir or else in TFDS's own folder, and never downloads. What was prepared as
array_record files, as `prepare` does, is read without TensorFlow; other forms need it, and so does
preparing. All splits are taken, train first and test last. EMNIST's images lie on their side in
TFDS; here they stand upright like MNIST's.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import sys
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.request import getproxies

import numpy as np

from flamejax.config import Data
from flamejax.datasets import store
from flamejax.datasets.archive import MAX_BYTES, digest_files, refusal, shown
from flamejax.datasets.idx import MNIST_MEAN, MNIST_STD
from flamejax.datasets.progress import progress
from flamejax.errors import InputError
from flamejax.types import Dataset

OURS = ("mnist", "fashion_mnist", "cifar10")  # known to flamejax by the same name
NAME = re.compile(
    r"(\w+)(/[\w.-]+)?(:\d[\d.]*)?", re.ASCII
)  # no `owner:name`, whose code is fetched
EXTRA = "pip install 'flamejax[tfds]'"


def load(settings: Data, quiet: bool = True) -> Dataset:
    name = _checked(settings.name)
    with _library() as tfds:
        builder = _prepared(tfds, name, settings.dir)
        if builder is None:
            where = f"in data.dir = '{shown(settings.dir)}'" if settings.dir else "on this machine"
            raise InputError(
                f"data.name = 'tfds:{name}': not prepared {where}; use flamejax data prepare "
                f"tfds:{name}"
            )
        kind, folder = f"tfds-{_plain(name)}", _folder(builder)
        digest = _digest(folder)
        return store.cached(kind, folder, digest, lambda: _decode(tfds, name, builder, quiet))


def prepare(name: str, quiet: bool = True) -> store.Kept:
    """Download a set through TFDS, unless that was done, and keep it like an import.

    Those that flamejax knows are kept under their own names, others as NAME-CONFIG.
    """
    name = _checked(name)
    with _library() as tfds:
        builder = _prepared(tfds, name, "")
        if builder is None:
            if find_spec("tensorflow") is None:
                raise InputError(f"tfds:{name}: preparing it needs TensorFlow: {EXTRA}")
            if _offline():
                raise InputError(f"tfds:{name}: cannot be prepared: there is no network")
            builder = _download(tfds, name, quiet)
        data = _decode(tfds, name, builder, quiet)
        return store.keep(_plain(name), data, f"tfds:{name}", _digest(_folder(builder)))


def _checked(name: str) -> str:
    name = name.removeprefix("tfds:")
    if not NAME.fullmatch(name):
        raise InputError(f"data.name = 'tfds:{shown(name)}' should be like tfds:emnist/digits")
    return name


def _plain(name: str) -> str:
    """A name for files; the version is no part of it."""
    return name.partition(":")[0].replace("/", "-")


@contextlib.contextmanager
def _library() -> Iterator[Any]:
    """TFDS, without its advice to install other things."""
    log = logging.getLogger("absl")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        import tensorflow_datasets

        yield tensorflow_datasets
    except ImportError as error:
        missing = "TensorFlow" if "tensorflow'" in str(error) else "TensorFlow Datasets"
        raise InputError(f"data.name = 'tfds:...' needs {missing}: {EXTRA} ({error})") from None
    finally:
        log.setLevel(level)


def _prepared(tfds: Any, name: str, folder: str) -> Any:
    """A builder that reads what was prepared, or None; nothing is fetched to find out."""
    from tensorflow_datasets.core.read_only_builder import builder_from_files

    try:
        return builder_from_files(name, **({"data_dir": folder} if folder else {}))
    except tfds.core.DatasetNotFoundError:
        return None
    except ImportError:
        raise
    except Exception as error:  # whatever lies there was written by others
        raise InputError(f"tfds:{name}: cannot be looked up: {_first_line(error)}") from None


def _download(tfds: Any, name: str, quiet: bool) -> Any:
    if quiet:
        tfds.disable_progress_bar()
    try:
        # what TFDS prints is not the output of a command
        with (
            open(os.devnull, "w") as nowhere,
            contextlib.redirect_stdout(nowhere if quiet else sys.stderr),
        ):
            form = "array_record" if find_spec("array_record") else "tfrecord"
            builder = tfds.builder(name, file_format=form, try_gcs=False)
            builder.download_and_prepare()
            return builder
    except Exception as error:  # network, disk, checksums, unknown names: each has its own kind
        raise InputError(f"tfds:{name}: cannot be prepared: {_first_line(error)}") from None
    finally:
        tfds.enable_progress_bar()


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:200]


def _offline() -> bool:
    """Whether names of hosts cannot be resolved; TFDS would try for minutes."""
    try:
        return not getproxies() and not socket.getaddrinfo("storage.googleapis.com", 443)
    except OSError:
        return True


def _folder(builder: Any) -> Path:
    return Path(os.fspath(builder.data_path))


def _digest(folder: Path) -> str:
    names = [path.name for path in folder.iterdir() if path.is_file()]
    return digest_files(folder, names)


def _decode(tfds: Any, name: str, builder: Any, quiet: bool) -> Dataset:
    folder = _folder(builder)
    try:
        features, splits = builder.info.features, builder.info.splits
        shape, classes = _image_and_label(folder, features)
        order = sorted(splits, key=lambda s: (s != "train", s == "test", s))
        samples = sum(splits[split].num_examples for split in order)
        if samples == 0 or samples * int(np.prod(shape)) > MAX_BYTES:
            raise refusal(folder, f"{samples} images of {shape}: nothing, or too much")
        images = np.empty((samples, *shape), np.uint8)
        labels = np.empty(samples, np.int32)
        done = 0
        with progress(f"reading {name}", samples, quiet) as advance:
            for split in order:
                for example in _examples(tfds, builder, split):
                    images[done], labels[done] = example["image"], example["label"]
                    done += 1
                    if done % 256 == 0:
                        advance(256)
        if done != samples:
            raise refusal(folder, f"{done} images where {samples} were prepared")
        if labels.min() < 0 or labels.max() >= classes:
            raise refusal(folder, f"labels span {labels.min()}..{labels.max()} of {classes}")
    except (InputError, ImportError):
        raise
    except Exception as error:  # files that others wrote, read by code that others wrote
        raise refusal(folder, f"cannot be read: {_first_line(error)}") from None
    base = re.split("[/:]", name)[0]
    if base == "emnist":
        images = np.ascontiguousarray(images.swapaxes(1, 2))
    digits = base in ("mnist", "fashion_mnist")
    return Dataset(
        images=images,
        labels=labels,
        classes=classes,
        mean=MNIST_MEAN if digits else 0.5,
        std=MNIST_STD if digits else 0.5,
        class_names=tuple(features["label"].names),
    )


def _image_and_label(folder: Path, features: Any) -> tuple[tuple[int, ...], int]:
    """The shape of all images, and the number of classes."""
    known = set(features) if hasattr(features, "keys") else set()
    if not {"image", "label"} <= known:
        raise refusal(folder, f"has {', '.join(sorted(known)) or 'other things'}, not image, label")
    shape, classes = features["image"].shape, getattr(features["label"], "num_classes", None)
    if features["image"].np_dtype != np.uint8 or len(shape) != 3 or None in shape:
        raise refusal(folder, f"images of shape {shape}; all must be bytes and of one size")
    if not classes:
        raise refusal(folder, "labels that are not classes")
    return tuple(shape), classes


def _examples(tfds: Any, builder: Any, split: str) -> Iterable[Any]:
    """The examples of a split, always in the same order."""
    if builder.info.file_format.value == "array_record":
        source = builder.as_data_source(split=split)
        return (source[i] for i in range(len(source)))
    one_by_one = tfds.ReadConfig(interleave_cycle_length=1)
    return tfds.as_numpy(builder.as_dataset(split=split, read_config=one_by_one))
