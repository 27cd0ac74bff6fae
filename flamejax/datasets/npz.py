"""A user's own arrays, `data.name = "npz:PATH"`.

The file holds `images` (or `x`), uint8 or floating point, [N, H, W] or [N, H, W, channels] or
[N, features], and `labels` (or `y`), [N] classes; and it may hold `writers` [N], `class_names`, and
for uint8 images the scalars `mean` and `std` (of pixels in 0..1; 0.5 and 0.5 if absent).
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Collection
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from flamejax.config import Data
from flamejax.datasets import empty, finite
from flamejax.datasets.archive import BROKEN, MAX_BYTES, check_members, refusal, shown, zip_file
from flamejax.errors import InputError
from flamejax.types import Dataset

BROKEN_ARRAY = BROKEN + (SyntaxError, TypeError, KeyError, TokenError)  # noqa: RUF005 (mypy)
SYNONYMS = {"x": "images", "y": "labels"}
KEYS = ("images", "labels", "writers", "class_names", "mean", "std", *SYNONYMS)


def load(settings: Data, quiet: bool = True) -> Dataset:
    return load_file(Path(settings.name.removeprefix("npz:")))


def load_file(path: Path) -> Dataset:
    arrays = read(path, KEYS)
    for short, name in SYNONYMS.items():
        if short in arrays:
            if name in arrays:
                raise refusal(path, f"holds both {name} and {short}")
            arrays[name] = arrays.pop(short)
    return assemble(path, arrays)


def assemble(path: Path, arrays: dict[str, np.ndarray]) -> Dataset:
    """A data set from named arrays, each of which is looked at."""
    for name in ("images", "labels"):
        if name not in arrays:
            raise refusal(path, f"holds no array '{name}'")
    images, labels = arrays["images"], arrays["labels"]
    if images.ndim < 2 or images.ndim > 4 or 0 in images.shape:
        raise refusal(path, f"images of shape {images.shape}, expected [N, H, W, channels]")
    if images.dtype != np.uint8 and images.dtype.kind != "f":
        raise refusal(path, f"images are {images.dtype}, expected uint8 or floating point")
    if images.dtype.kind == "f":
        with np.errstate(over="ignore"):  # what float32 cannot hold is infinite, and refused next
            images = images.astype(np.float32, copy=False)
        if not finite(images):
            raise refusal(path, "images hold numbers that are not finite")
    for name in ("labels", "writers"):
        if name in arrays and arrays[name].shape != images.shape[:1]:
            got = f"shape {arrays[name].shape} for {len(images)} images"
            raise refusal(path, f"{name} of {got}, expected [N]")
        if name in arrays and arrays[name].dtype.kind not in "iu":
            raise refusal(path, f"{name} are {arrays[name].dtype}, expected integers")
    if labels.min() < 0 or labels.max() >= 2**20:
        raise refusal(path, f"labels span {labels.min()}..{labels.max()}, expected 0, 1, 2, ...")
    names = arrays.get("class_names", np.zeros(0, "U1"))
    if names.ndim != 1 or names.dtype.kind != "U":
        raise refusal(path, f"class_names are {names.dtype}, expected a list of words")
    classes = max(int(labels.max()) + 1, len(names))
    if len(names) not in (0, classes):
        raise refusal(path, f"{len(names)} class_names but labels up to {labels.max()}")
    scale = {"mean": 0.5, "std": 0.5}
    for key in scale:
        value = arrays.get(key, np.float64(0.5))
        if value.size != 1 or value.dtype.kind not in "fiu" or not np.isfinite(value).all():
            raise refusal(path, f"{key} should be one finite number")
        scale[key] = float(value.reshape(()))
    if scale["std"] <= 0:
        raise refusal(path, f"std = {scale['std']} should be above zero")
    writers = arrays.get("writers")
    return Dataset(
        images=images[..., None] if images.ndim == 3 else images,
        labels=labels.astype(np.int32),
        classes=classes,
        # any numbers will do for writers; from here on they are 0, 1, 2, ...
        writers=None if writers is None else numbered(writers),
        class_names=tuple(str(name) for name in names),
        **scale,
    )


def numbered(writers: np.ndarray) -> np.ndarray:
    """The same writers as 0, 1, 2, ... in the order of their numbers."""
    return np.unique(writers, return_inverse=True)[1].astype(np.int32)


def read(path: Path, keys: Collection[str]) -> dict[str, np.ndarray]:
    """Those of the named arrays that are in an .npz file; no objects, bounded."""
    if not path.is_file():
        raise refusal(path, 'no such file; data.name = "npz:FILE" names one')
    found = {}
    with zip_file(path) as archive:
        members = check_members(path, archive)
        for key in keys:
            info = members.get(f"{key}.npy")
            if info is not None:
                try:
                    found[key] = _read_member(path, archive, info)
                except InputError:
                    raise
                except MemoryError:
                    raise refusal(path, f"{key} does not fit in memory") from None
                except BROKEN_ARRAY as error:
                    raise refusal(path, f"{key} cannot be read: {error}") from None
    return found


def _read_member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    name = shown(info.filename)
    if info.file_size > 2**28 and info.file_size > 300 * info.compress_size:
        raise refusal(path, f"{name} unpacks to {info.file_size} bytes, 300 times its size")
    with archive.open(info) as file:
        version = np.lib.format.read_magic(file)
        headers: dict[Any, Any] = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }
        if version not in headers:
            raise refusal(path, f"{name}: an array of an unknown format {version}")
        shape, fortran, dtype = headers[version](file)
        if dtype.hasobject:
            raise refusal(path, f"{name} holds Python objects, which are never loaded")
        claimed = math.prod(shape) * dtype.itemsize
        if any(n < 0 for n in shape) or claimed > MAX_BYTES:
            raise refusal(path, f"{name} claims the shape {shape}, too large")
        if claimed != info.file_size - file.tell():
            raise refusal(path, f"{name} claims the shape {shape}, which its bytes do not fill")
        if not fortran and dtype.kind in "uif":  # straight to where it is used
            array = empty(shape, dtype)
            flat = array.reshape(-1).view(np.uint8)
            done = 0
            while part := file.read(2**22):
                flat[done : done + len(part)] = np.frombuffer(part, np.uint8)
                done += len(part)
            if done != claimed:
                raise refusal(path, f"{name} ends early")
            return array
    with archive.open(info) as file:
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))
