"""What is known of each data set that has a name: its size, where it comes from, on what terms."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from flamejax import registry

if TYPE_CHECKING:
    from flamejax.datasets.store import Kept
    from flamejax.types import Dataset, Generator

BUNDLED = Path(__file__).parent / "datasets" / "mnist_mini.npz"


class Known(NamedTuple):
    samples: int
    classes: int
    shape: tuple[int, ...]  # of one sample
    about: str  # what it shows, who made it, its licence
    get: str  # in a few words how to get it
    files: str  # what can be imported, and where it is found
    tfds: bool = False  # whether TensorFlow Datasets has it under the same name


IDX = "a folder with its idx files (train-images-idx3-ubyte.gz and three more)"
KNOWN = {
    "mnist_mini": Known(
        7_936, 10, (28, 28, 1),
        "digits by 70 writers, a part of mnist, same licence; writers: QMNIST (BSD)",
        "bundled",
        "nothing",
    ),
    "mnist": Known(
        70_000, 10, (28, 28, 1),
        "handwritten digits; LeCun, Cortes, Burges; CC BY-SA 3.0",
        "prepare or import idx files",
        f"{IDX}, with the two qmnist-*-labels-idx2-int.gz of QMNIST for its writers",
        tfds=True,
    ),
    "fashion_mnist": Known(
        70_000, 10, (28, 28, 1),
        "clothes and shoes; Zalando; MIT",
        "prepare or import idx files",
        f"{IDX} from github.com/zalandoresearch/fashion-mnist",
        tfds=True,
    ),
    "cifar10": Known(
        60_000, 10, (32, 32, 3),
        "photographs of animals and vehicles; Krizhevsky; no explicit licence",
        "prepare or import files",
        "the binary version (data_batch_*.bin) from www.cs.toronto.edu/~kriz/cifar.html, or a "
        "folder or zip of class folders",
        tfds=True,
    ),
    "medical_mnist": Known(
        58_954, 6, (64, 64, 1),
        "X-ray, CT and MRI scans (MedNIST); Erickson, Mayo Clinic; CC BY-SA 4.0",
        "import its zip",
        "the zip of class folders from kaggle.com/datasets/andrewmvd/medical-mnist",
    ),
    "femnist": Known(
        382_705, 10, (28, 28, 1),
        "digits by 3,383 writers; NIST SD 19, files of TFF (Apache-2.0), LEAF (BSD-2)",
        "import .h5 or JSON",
        "fed_emnist_digitsonly_train.h5 and _test.h5 of TensorFlow Federated, or the JSON files "
        "of LEAF",
    ),
}  # fmt: skip

# what files are that belong to no set above
FORMS = {"idx": "idx files", "images": "class folders of images", "npz": "arrays"}


def listing(imports: list[Kept]) -> Iterator[str]:
    """Lines for people, at most 80 wide but for paths: what there is, and where."""
    kept = {one.name: one for one in imports}
    yield _line("name", "samples", "classes", "shape", "where")
    for name, known in KNOWN.items():
        found = kept.pop(name, None)
        where = f"imported, {size(found.bytes)}" if found else f"not here: {known.get}"
        if name == "mnist_mini":
            where = f"bundled, {size(BUNDLED.stat().st_size)}"
        yield _entry(name, found or known, where)
        yield f"  {known.about}"
        if found:
            yield f"  {found.path}"
    for found in kept.values():
        yield _entry(data_name(found), found, f"imported, {size(found.bytes)}")
        yield f"  {found.path}"
    yield ""
    for name, text in registry.describe("datasets").items():
        if name not in KNOWN:
            yield f"{name:<13}  {text}"
    yield ""
    yield "prepare: flamejax data prepare NAME downloads it (needs the extra 'tfds')"
    yield "import: flamejax data import PATH keeps files you have; its --help says which"


def data_name(kept: Kept) -> str:
    """What to write for `data.name` to use an import."""
    return kept.name if kept.name in registry.names("datasets") else f"kept:{kept.name}"


def stem(name: str) -> str:
    """A data set's name as the name of a file: npz:/a/b.npz is b, tfds:a/b is a-b."""
    kind, _, rest = name.rpartition(":")
    return re.sub(r"[^\w.-]+", "-", Path(rest).stem if kind == "npz" else rest)


def load_data(name: str, dir: str | Path = "", quiet: bool = True) -> Dataset | Generator:
    """The data set that a run with this `data.name` and `data.dir` would use.

    >>> import flamejax as fj
    >>> data = fj.load_data("mnist_mini")
    >>> data.images.shape, data.classes, data.labels[:4].tolist()
    ((7936, 28, 28, 1), 10, [7, 0, 2, 9])
    """
    import numpy as np

    from flamejax import config, datasets

    chosen = config.make({"data": {"name": name, "dir": str(dir)}}).data
    return datasets.load(chosen, np.random.default_rng(0), quiet)


def recognised() -> str:
    """Which files can be imported, and where they are found."""
    files = {name: known.files for name, known in KNOWN.items() if name != "mnist_mini"}
    files["your own"] = "a folder or zip of class folders with images, or an .npz of arrays"
    lines = [textwrap.fill(f"{n}: {f}", 78, subsequent_indent="  ") for n, f in files.items()]
    return "\n".join(["what can be imported:", *lines])


def _entry(name: str, facts: Known | Kept, where: str) -> str:
    shape = "x".join(map(str, facts.shape))
    return _line(name, f"{facts.samples:,}", str(facts.classes), shape, where)


def _line(name: str, samples: str, classes: str, shape: str, where: str) -> str:
    return f"{name:<13} {samples:>8} {classes:>8}  {shape:<8}  {where}"


def size(count: float) -> str:
    """Bytes as people say them."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if count >= 10 or unit == "bytes" else f"{count:.1f} {unit}"
