"""Class folders of images, in a folder or a zip: Medical MNIST, CIFAR10 as images, a user's own.

``CLASS/FILE`` or ``train|test/CLASS/FILE``, with or without folders around all of it. Files are
taken in the order of split, class and name, so a zip and its unpacked folder give the same arrays.
Hidden files, __MACOSX and files that are no images by their ending are passed over; an image that
cannot be decoded is refused. Decoded sets are stored (`flamejax.datasets.store`), keyed by content.
"""

from __future__ import annotations

import io
import math
import os
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from flamejax.config import Data
from flamejax.datasets import store
from flamejax.datasets.archive import (
    MAX_BYTES,
    Files,
    digest_file,
    digest_files,
    files,
    refusal,
    shown,
)
from flamejax.datasets.progress import progress
from flamejax.errors import InputError
from flamejax.types import Dataset

MEDICAL = ("AbdomenCT", "BreastMRI", "CXR", "ChestCT", "Hand", "HeadCT")
CIFAR: tuple[str, ...] = ("airplane", "automobile", "bird", "cat", "deer")
CIFAR += ("dog", "frog", "horse", "ship", "truck")

FORMATS = ("JPEG", "PNG", "BMP", "PPM")  # all that Pillow is allowed to try
ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".pgm")
OTHER_IMAGES = (".gif", ".tif", ".tiff", ".webp", ".avif", ".heic", ".dcm")
SPLITS = ("train", "training", "val", "valid", "validation", "test", "testing")
MAX_PIXELS = 2**24  # of one image
GRAY = ("L", "LA", "1")
COLOUR = ("RGB", "RGBA", "P", "PA", "CMYK", "YCbCr")


class Item(NamedTuple):
    name: str  # of the file, below data.dir
    label: int


class ColourError(Exception):
    """A coloured image among those thought to be gray."""


def medical_mnist(settings: Data, quiet: bool = True) -> Dataset:
    return load("medical_mnist", _place(settings), quiet, MEDICAL, 0.3)


def images(settings: Data, quiet: bool = True) -> Dataset:
    return load("images", _place(settings), quiet)


def load(
    name: str, place: Path, quiet: bool = True, classes: Sequence[str] = (), scale: float = 0.5
) -> Dataset:
    """The images at a place, stored or decoded; `scale` is the mean and deviation of pixels."""
    return store.cached(name, place, digest(place), lambda: decode(place, quiet, classes, scale))


def digest(place: Path) -> str:
    """Of the content of an archive, or of all images in a folder."""
    if not place.is_dir():
        return digest_file(place)
    with files(place) as found:
        return digest_files(place, _images(found))


def class_names(place: Path) -> tuple[str, ...]:
    """The classes at a place, sorted."""
    with files(place) as found:
        return _sorted_items(found, ())[1]


def decode(place: Path, quiet: bool, classes: Sequence[str], scale: float) -> Dataset:
    # what is too large is refused here; Pillow need not warn of it as well
    with files(place) as found, warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        items, names = _sorted_items(found, classes)
        try:
            pixels = _decode_all(found, items, None, quiet)
        except ColourError:
            pixels = _decode_all(found, items, 3, quiet)
    labels = np.array([item.label for item in items], np.int32)
    return Dataset(pixels, labels, len(names), mean=scale, std=scale, class_names=names)


def _place(settings: Data) -> Path:
    place = Path(settings.dir)
    if not settings.dir or not (place.is_dir() or place.is_file()):
        raise InputError(
            f"data.dir = '{shown(settings.dir)}' is neither a folder nor a zip; {settings.name} "
            "needs one with a folder of images for each class"
        )
    return place


def _images(found: Files) -> list[str]:
    """Names of the files that should be images."""
    names = []
    for name in found.names:
        parts = name.split("/")
        if any(part.startswith(".") or part == "__MACOSX" for part in parts):
            continue
        ending = os.path.splitext(name)[1].lower()
        if ending in OTHER_IMAGES:
            raise refusal(found.place, f"{shown(name)}: convert it to one of {', '.join(FORMATS)}")
        if ending in ENDINGS:
            names.append(name)
    if not names:
        raise refusal(found.place, f"holds no images ({', '.join(ENDINGS)})")
    return names


def _sorted_items(found: Files, classes: Sequence[str]) -> tuple[list[Item], tuple[str, ...]]:
    """Every image with its class, and the classes: those expected, or else all, sorted."""
    names = _images(found)
    paths = [tuple(name.split("/")) for name in names]
    around = 0  # folders that hold all of it
    while len({path[around] for path in paths}) == 1 and all(len(p) > around + 2 for p in paths):
        around += 1
    split = all(len(path) == around + 3 and path[around].lower() in SPLITS for path in paths)
    depth = around + split  # where the name of the class stands
    for path in paths:
        if len(path) != depth + 2:
            name = shown("/".join(path))
            raise refusal(
                found.place, f"{name} does not lie in CLASS/ or train|test/CLASS/ like an image"
            )
    seen = sorted({path[depth] for path in paths})
    if not set(seen) <= set(classes or seen):
        got = shown(", ".join(seen[:12]))
        raise refusal(
            found.place,
            f"has the classes {got}, not {', '.join(classes)}; try data.name = 'images'",
        )
    order = tuple(classes) or tuple(seen)
    if any(not name.isprintable() for name in order):
        raise refusal(found.place, f"a class named {shown(order[0])} cannot be printed")
    numbers = {name: label for label, name in enumerate(order)}

    def key(i: int) -> tuple[int, int, str]:
        part = SPLITS.index(paths[i][around].lower()) if split else 0
        return part, numbers[paths[i][depth]], names[i]

    ranked = sorted(range(len(names)), key=key)
    return [Item(names[i], numbers[paths[i][depth]]) for i in ranked], order


def _decode_all(
    found: Files, items: Sequence[Item], channels: int | None, quiet: bool
) -> np.ndarray:
    """Pixels [N, H, W, 1 or 3]; without `channels` the first image decides.

    In threads: Pillow releases the interpreter while it decodes, and starting processes costs more
    than they gain on small images.
    """
    first = _decode(found, items[0].name, None)
    size = first.shape[:2]
    shape = (len(items), *size, channels or first.shape[-1])
    if math.prod(shape) > MAX_BYTES:
        raise refusal(found.place, f"{shape} pixels are more than {MAX_BYTES >> 30} GB")
    try:
        pixels = np.empty(shape, np.uint8)
    except MemoryError:
        raise refusal(found.place, f"{shape} pixels do not fit in memory") from None

    def part(start: int) -> int:
        some = range(start, min(start + 256, len(items)))
        for i in some:
            image = _decode(found, items[i].name, size)
            if image.shape[-1] > shape[-1]:
                raise ColourError
            pixels[i] = image
        return len(some)

    with progress("decoding", len(items), quiet) as advance:
        pool = ThreadPoolExecutor(os.cpu_count())
        try:
            for done in pool.map(part, range(0, len(items), 256)):  # in order: the first bad file
                advance(done)
        finally:  # after it, or after Ctrl-C, the rest is not worth waiting for
            pool.shutdown(cancel_futures=True)
    return pixels


def _decode(found: Files, name: str, size: tuple[int, ...] | None) -> np.ndarray:
    """One image [H, W, 3], or [H, W, 1] if it is gray."""
    content = found.read(name)

    def refused(reason: str) -> InputError:
        return refusal(found.place, f"{shown(name)}: {reason}")

    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            width, height = image.size
            if size is not None and (height, width) != size:
                raise refused(f"{width}x{height} pixels where others have {size[1]}x{size[0]}")
            if width * height > MAX_PIXELS:
                raise refused(f"claims {width}x{height} pixels, too many")
            if image.mode not in GRAY + COLOUR:
                raise refused(f"pixels of kind {image.mode}; convert it to 8 bits a channel")
            pixels = np.asarray(image.convert("L" if image.mode in GRAY else "RGB"))
    except InputError:
        raise
    except Exception as error:  # decoders that meet damaged bytes raise nearly anything
        raise refused(f"cannot be decoded: {error}") from None
    if pixels.ndim == 2:
        return pixels[..., None]
    gray = (pixels[..., :1] == pixels).all()
    return pixels[..., :1] if gray else pixels
