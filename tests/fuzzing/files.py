"""Cases of data files: small valid ones of every form that is read, and then something is wrong."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from flamejax.catalog import BUNDLED
from tests import test_hostile_data as hostile

from .cases import Case, Files, Link, any_string, some
from .configs import change_text

SHARED = Path(__file__).parents[3] / "shared" / "data"
CACHE = "../../../cache/data"  # from where commands are run
INTS = (0, 1, 2**8 - 1, 2**15, 2**16 - 1, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1)


class Sample(NamedTuple):
    """A valid data set."""

    files: Files
    place: str  # what is imported, or data.dir
    name: str  # data.name


def gathered(folder: Path, below: str) -> dict[str, bytes]:
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {f"{below}/{path.relative_to(folder)}": path.read_bytes() for path in paths}


@cache
def samples() -> list[Sample]:
    """One of every form; of real data where they are at hand."""
    found = []
    for make in hostile.MAKERS:
        with tempfile.TemporaryDirectory() as root:
            folder, cache = Path(root, "set"), Path(root, "cache")
            folder.mkdir()
            with mock.patch.dict(os.environ, {"FLAMEJAX_CACHE": str(cache)}):
                path, name = make(folder)
            files = gathered(folder, "set")
            if name.startswith("kept:"):
                files = gathered(cache / "data", CACHE)
                found.append(Sample(files, "", name))
                continue
            alone = path.suffix in (".zip", ".npz") or path.name.endswith(".tar.gz")
            name = "npz:set/x.npz" if name.startswith("npz:") else name
            found.append(Sample(files, f"set/{path.name}" if alone else "set", name))
    images = {f"set/{k}/{i}.png": hostile.png(value=9 * i + 1) for k in "ab" for i in range(6)}
    found.append(Sample(images, "set", "images"))
    with np.load(BUNDLED) as arrays:
        some = {key: arrays[key][:60] for key in ("images", "labels", "writers")}
    floats = {**some, "images": some["images"].reshape(60, -1)[:, :9].astype(np.float32)}
    found += [Sample({"set/x.npz": npz(arrays)}, "set/x.npz", "npz:set/x.npz")
              for arrays in (some, floats)]  # fmt: skip
    return found + shared()


def shared() -> list[Sample]:
    """Slices of real archives."""
    found = []
    for path in sorted(SHARED.glob("*.zip")):
        with zipfile.ZipFile(path) as archive:
            members = [i for i in archive.infolist() if not i.is_dir()]
            chosen = members[:3] + members[-3:]
            content = {info.filename: archive.read(info) for info in chosen}
        found.append(Sample({"set/x.zip": zipped(content)}, "set/x.zip", "images"))
    return found


def npz(arrays: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.savez(file, **arrays)
    return file.getvalue()


def zipped(content: dict[Any, bytes]) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore")
        for name, data in content.items():
            archive.writestr(name, data)
    return file.getvalue()


# bytes


def damage(random: Random, content: bytes) -> bytes:
    """A few bytes changed, moved, doubled or lost."""
    data = bytearray(content)
    for _ in some(random, 5):
        at, size = random.randint(0, len(data)), random.choice([1, 4, 64, 1000])
        how = random.randrange(9)
        if how == 0 and data:
            data[at % len(data)] ^= 1 << random.randrange(8)
        elif how == 1 and data:
            data[at % len(data)] = random.randrange(256)
        elif how == 2:
            del data[at:]
        elif how == 3:
            data[at : at + size] = bytes(len(data[at : at + size]))
        elif how == 4:
            data[at:at] = data[at : at + size]
        elif how == 5:
            other = random.choice(list(random.choice(samples()).files.values()))
            data[: size % 65] = other[: size % 65]
        elif how == 6:
            width, order = random.choice([1, 2, 4, 8]), random.choice(["big", "little"])
            number = random.choice(INTS) % 2 ** (8 * width)
            data[at : at + width] = number.to_bytes(width, order)
        elif how == 7:
            data += bytes(random.getrandbits(8) for _ in range(min(size, 64)))
        else:
            near = random.randrange(min(len(data), 128) or 1)  # most headers are at the beginning
            data[near : near + 1] = bytes([random.randrange(256)])
    return bytes(data)


# what is packed, changed and packed again, with checksums that hold


def in_zip(random: Random, content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members: dict[Any, bytes] = {
            info.filename: archive.read(info) for info in archive.infolist()
        }
    name = random.choice(list(members))
    how = random.randrange(8)
    if how < 3:
        members[name] = damage(random, members[name])
    elif how == 3:
        members[
            random.choice(["../x.png", "/x.png", "a/../../x.png", "C:\\x", any_string(random)])
        ] = members[name]
    elif how == 4:
        members[any_string(random)] = members.pop(name)
    elif how == 5:
        kind = random.choice([0o120777, 0o010666, 0o020666, 0o100644]) << 16
        members[hostile.member(f"a/{random.choice('xy')}.png", external_attr=kind)] = b"../../x"
    elif how == 6:
        members[name] = b"" if random.random() < 0.8 else zeros(2**26 + 1)
    else:
        members[f"{name}.pkl"] = pickled()
    try:
        return zipped(members)
    except (ValueError, IndexError):  # a name that cannot be written
        return content


def in_gzip(random: Random, content: bytes) -> bytes:
    if random.random() < 0.05:
        return gzip.compress(zeros(2**28 + 2), 1, mtime=0)
    return gzip.compress(damage(random, gzip.decompress(content)), 1, mtime=0)


def in_tar(random: Random, content: bytes) -> bytes:
    """Other members beside those that are there, or others in their places."""
    file = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(content)) as old,
        tarfile.open(fileobj=file, mode="w:gz") as new,
    ):
        for member in old.getmembers():
            data = old.extractfile(member).read()  # type: ignore[union-attr]
            how = random.randrange(12)
            if how == 0:
                member.name = random.choice(
                    ["../../x", "/x", "data_batch_1", any_string(random) or "x"]
                )
            elif how == 1:
                member.type = random.choice([tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE])
                member.linkname, member.size, data = "../../sentinel", 0, b""
            elif how == 2:
                data = data[: random.randrange(len(data))]
                member.size = len(data)
            elif how == 3:
                data = damage(random, data)
                member.size = len(data)
            new.addfile(member, io.BytesIO(data))
    return file.getvalue()


def in_arrays(random: Random, content: bytes) -> bytes:
    """Another array in an .npz file."""
    with np.load(io.BytesIO(content), allow_pickle=False) as there:
        arrays = {key: there[key] for key in there}
    key = random.choice(list(arrays))
    old = arrays[key]
    new: Any = random.choice([
        lambda: old.astype(object), lambda: old[:-1], lambda: old[..., None],
        lambda: old.reshape(-1),
        lambda: old[:0], lambda: old.astype(str), lambda: old.astype(complex), lambda: old.T,
        lambda: np.asfortranarray(old), lambda: old.astype(">i8"), lambda: np.float32(old) + np.nan,
        lambda: np.where(np.arange(old.size).reshape(old.shape) == 3, np.inf, old),
        lambda: -old.astype(int), lambda: old.astype(np.float64) * 1e300, lambda: np.array(None),
        lambda: old.astype(np.int64) + 2**40, lambda: np.array({"a": 1}), lambda: np.zeros((0, 0)),
        lambda: np.zeros(3, [("a", "i4"), ("b", "O")]), lambda: np.array("x" * 1000),
        lambda: old[:1],
        lambda: np.array([np.datetime64("2020")] * 3), lambda: np.zeros((1,) * 30),
    ])  # fmt: skip
    name = random.choice([key, key, key, "writers", "mean", "std", "class_names", "x", "meta"])
    with np.errstate(all="ignore"):
        try:
            arrays[name] = new()
        except (ValueError, TypeError, IndexError):
            arrays.pop(key)
    return npz(arrays)


def in_json(random: Random, content: bytes) -> bytes:
    """Other values in JSON, or in the lines of several."""
    lines = content.decode().strip().split("\n") if content[:1] == b"{" else []
    try:
        values = [json.loads(line) for line in lines]
    except ValueError:
        lines, values = [content.decode()], [json.loads(content)]
    if not values:
        return content
    at = random.randrange(len(values))
    values[at] = other_json(random, values[at])
    return "\n".join(json.dumps(value) for value in values).encode()


def other_json(random: Random, value: Any, depth: int = 0) -> Any:
    deeper = isinstance(value, dict | list) and value and random.random() < 0.85
    if not deeper:
        nested: Any = []
        for _ in range(random.choice([1, 50, 400])):
            nested = [nested]
        return random.choice([
            None, True, 0, -1, 1, 2**31, 2**63, 10**400, 0.5, float("nan"), float("inf"),
            -float("inf"),
            1e308, "", "x", any_string(random), "../../x", "/etc/passwd", [], {}, [1], {"a": 1},
            nested,
        ])  # fmt: skip
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = random.choice(keys)
    value = value.copy()
    if random.random() < 0.15:
        del value[key]
    else:
        value[key] = other_json(random, value[key], depth + 1)
    return value


@cache
def zeros(size: int) -> bytes:
    return bytes(size)


@cache
def pickled() -> bytes:
    """A pickle that would leave a folder behind."""
    return b"\x80\x04cos\nmkdir\n(S'unpickled'\ntR."


def changes(path: str, content: bytes) -> list[Callable[[Random, bytes], bytes]]:
    """Ways to change a file."""
    if path.endswith(".npz"):
        return [damage, in_zip, in_arrays, in_arrays]
    if path.endswith((".tar.gz", ".tgz")):
        return [damage, in_gzip, in_tar, in_tar]
    if path.endswith(".zip"):
        return [damage, in_zip, in_zip]
    if path.endswith(".gz"):
        return [damage, in_gzip, in_gzip]
    if path.endswith((".json", ".jsonl")):
        return [damage, in_json, in_json, in_text]
    return [damage, in_text] if path.endswith(".toml") else [damage]


def in_text(random: Random, content: bytes) -> bytes:
    text = content.decode("utf-8", "replace")
    return change_text(random, text).encode("utf-8", "surrogatepass")


def spoiled(random: Random, files: Files) -> dict[str, bytes | Link]:
    """The files with something wrong in one of them."""
    found = dict(files)
    path = random.choice(list(found))
    content = found[path]
    assert isinstance(content, bytes)
    how = random.random()
    if how < 0.86:
        try:
            found[path] = random.choice(changes(path, content))(random, content)
        except RecursionError:
            found[path] = damage(random, content)
    elif how < 0.9:
        del found[path]
    elif how < 0.94:
        target = random.choice(["/dev/zero", "/etc/passwd", "../../../sentinel", path, "."])
        found[path] = Link(target)
    elif how < 0.97:
        found[path] = random.choice(
            [b"", pickled(), b"PK\x05\x06" + bytes(18), b"\x1f\x8b", b"\0" * 5000]
        )
    else:
        found[f"{path}/x"] = found.pop(path)
    return found


def data(random: Random) -> Case:
    """A data set with something wrong in one of its files; sometimes with nothing wrong."""
    sample = random.choice(samples())
    whole = random.random() < 0.05
    files = dict(sample.files) if whole else spoiled(random, sample.files)
    chosen = ["--set", f"data.name={sample.name}"]
    if sample.place and ":" not in sample.name:
        chosen += ["--set", f"data.dir={sample.place}"]
    small = ["partition.clients=2", "partition.min_samples=3", "partition.name=iid"]
    run = ["run", *chosen, *(w for word in small for w in ("--set", word))]
    info = [
        "data",
        "info",
        sample.name,
        *(["--dir", sample.place] if ":" not in sample.name else []),
    ]
    take = [
        "data",
        "import",
        sample.place or "set",
        "--name",
        "mine" if ":" in sample.name else sample.name,
    ]
    command = random.choice([run, info, *([take] * 2 if sample.place else [["data", "list"]])])
    names = ["set", "cache/data", "partition.", "mine", "data.dir"]
    return Case(
        command, files, names, valid=whole and command is not run and sample.name != "images"
    )
