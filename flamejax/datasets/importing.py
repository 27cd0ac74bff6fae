"""Files of a data set, recognised by what they are, decoded and remembered under a name."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path

from flamejax import registry
from flamejax.config import Data
from flamejax.datasets import cifar, femnist, idx, images, npz, store
from flamejax.datasets.archive import digest_file, refusal, shown
from flamejax.errors import InputError
from flamejax.types import Dataset

# MNIST and Fashion-MNIST have files of the same names: sha256 of the 10,000 test labels
TEST_LABELS = {
    "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5": "mnist",
    "3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9": "fashion_mnist",
}

# what files were recognised as -> a digest of their content
DIGESTS: dict[str, Callable[[Path], str]] = {
    **dict.fromkeys(("mnist", "fashion_mnist", "idx"), idx.digest),
    **dict.fromkeys(("medical_mnist", "images"), images.digest),
    "cifar10": cifar.digest,
    "femnist": femnist.digest,
    "npz": digest_file,
}


def recognise(path: Path) -> str:
    """One of `FROM_FILES`, or the form of other files: `idx`, `images` or `npz`."""
    if not path.exists():
        raise refusal(path, "no such file or folder")
    if not (path.is_dir() or path.is_file()):
        raise refusal(path, "neither a file nor a folder")  # some devices never end
    if path.is_dir() and idx.holds(path):
        labels = idx.t10k_labels(path)
        return TEST_LABELS.get(hashlib.sha256(labels.tobytes()).hexdigest(), "idx")
    if femnist.holds(path):
        return "femnist"
    if cifar.batches(path) is not None or cifar.is_tar(path):
        return "cifar10"
    if path.suffix == ".npz":
        return "npz"
    if path.is_dir() or path.suffix == ".zip":
        classes = images.class_names(path)
        known = {images.MEDICAL: "medical_mnist", images.CIFAR: "cifar10"}
        return known.get(classes, "images")
    raise refusal(
        path,
        "not recognised; it should be a folder or a zip of class folders, a folder of idx files, "
        "of CIFAR10's binary batches or of FEMNIST's .h5 or JSON files, or an .npz file",
    )


def import_path(path: Path | str, name: str | None = None, quiet: bool = True) -> store.Kept:
    """Decode the files at a path and keep them; without a name, under what they are."""
    path = Path(os.path.abspath(path))
    kind = recognise(path)
    if name is None:
        if kind == "idx":
            raise refusal(path, "neither MNIST nor Fashion-MNIST; choose with --name NAME")
        name = _stem(path) if kind in ("images", "npz") else kind
    ours = name in registry.names("datasets")
    if ours and name != kind and not (kind == "idx" and name in TEST_LABELS.values()):
        what = "your own" if kind in ("images", "npz", "idx") else kind
        raise refusal(path, f"'{shown(name)}' is the name of other data; this is {what}")
    digest = DIGESTS[kind](path)
    return store.keep(name, _decode(kind, path, quiet), path, digest, kind)


def imported(name: str, quiet: bool = True) -> Dataset | None:
    """The import of that name; one whose file is damaged is decoded again from its source."""
    kept = store.find(name)
    if kept is None:
        return None
    try:
        return store.read(kept.path)
    except InputError as error:
        source = Path(kept.source)
        if not source.exists():
            raise InputError(f"{error}; import {name} again") from None
        store.say(f"{error}; importing {source} again")
    again = import_path(source, name, quiet)
    if again.digest != kept.digest:
        raise refusal(source, f"no longer what {name} was imported from; now it is imported anew")
    return store.read(again.path)


def load_kept(settings: Data, quiet: bool = True) -> Dataset:
    """`data.name = "kept:NAME"`: an import under any name."""
    name = settings.name.removeprefix("kept:")
    data = imported(name, quiet)
    if data is None:
        known = ", ".join(kept.name for kept in store.kept()) or "none"
        raise InputError(f"data.name = 'kept:{shown(name)}' is not imported; imports: {known}")
    return data


def load_known(settings: Data, quiet: bool = True) -> Dataset:
    """One of `FROM_FILES` without data.dir."""
    data = imported(settings.name, quiet)
    if data is None:
        ways = ["set data.dir to its files", "use flamejax data import PATH"]
        if settings.name in ("mnist", "fashion_mnist", "cifar10"):
            ways.append(f"flamejax data prepare {settings.name}")
        raise InputError(f"data.name = '{settings.name}': not imported; {', or '.join(ways)}")
    return data


def _decode(kind: str, path: Path, quiet: bool) -> Dataset:
    if kind == "npz":
        return npz.load_file(path)
    name = "mnist" if kind == "idx" else kind
    data: Dataset = registry.get("datasets", name)(Data(name=name, dir=str(path)), quiet)
    return data


def _stem(path: Path) -> str:
    """A file's name as the name of a data set."""
    stem = path.name if path.is_dir() else path.stem
    return re.sub(r"[^\w.-]+", "-", stem, flags=re.ASCII).strip("-._") or "images"
