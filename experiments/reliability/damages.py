"""What can happen to a checkpoint on a disk: each function does it to one, and says what it did."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Damage = Callable[[Path, random.Random], str]


def some(checkpoint: Path, rng: random.Random, pattern: str = "*") -> Path:
    """A file of a checkpoint; manifest.json and history.json are as likely as all arrays."""
    found = sorted(path for path in checkpoint.glob(pattern) if path.is_file())
    plain = [path for path in found if path.suffix == ".json"]
    return rng.choice(plain) if plain and rng.random() < 0.5 else rng.choice(found)


def truncate(checkpoint: Path, rng: random.Random) -> str:
    path = some(checkpoint, rng)
    length = rng.randrange(path.stat().st_size)
    os.truncate(path, length)
    return f"{path.name} ends after {length} bytes"


def empty(checkpoint: Path, rng: random.Random) -> str:
    path = some(checkpoint, rng)
    path.write_bytes(b"")
    return f"{path.name} is empty"


def flip(checkpoint: Path, rng: random.Random) -> str:
    path = some(checkpoint, rng)
    data = bytearray(path.read_bytes())
    at, bit = rng.randrange(len(data)), rng.randrange(8)
    data[at] ^= 1 << bit
    path.write_bytes(data)
    return f"{path.name}: bit {bit} of byte {at}"


def lengthen(checkpoint: Path, rng: random.Random) -> str:
    path = some(checkpoint, rng)
    with path.open("ab") as file:
        file.write(rng.randbytes(rng.randint(1, 100)))
    return f"{path.name} is longer"


def zeros(checkpoint: Path, rng: random.Random) -> str:
    """As a file system leaves a file whose blocks were not written before the power went."""
    path = some(checkpoint, rng)
    path.write_bytes(bytes(path.stat().st_size))
    return f"{path.name} is all zeros"


def delete(checkpoint: Path, rng: random.Random) -> str:
    path = some(checkpoint, rng)
    path.unlink()
    return f"{path.name} is gone"


def delete_all(checkpoint: Path, rng: random.Random) -> str:
    for path in checkpoint.iterdir():
        path.unlink()
    return "all files are gone"


def swap(checkpoint: Path, rng: random.Random) -> str:
    """Two files of different content take each other's place; of the same length if there are."""
    files = sorted(checkpoint.iterdir())
    pairs = [(a, b) for a in files for b in files if a < b and a.read_bytes() != b.read_bytes()]
    alike = [(a, b) for a, b in pairs if a.stat().st_size == b.stat().st_size]
    one, other = rng.choice(alike or pairs)
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(kept)
    return f"{one.name} and {other.name} are swapped"


def rename(checkpoint: Path, rng: random.Random) -> str:
    path = some(checkpoint, rng)
    path.rename(path.with_name(f"old-{path.name}"))
    return f"{path.name} has another name"


def symlink(checkpoint: Path, rng: random.Random) -> str:
    """A link to a file of other content, to nothing, or to itself."""
    path = some(checkpoint, rng)
    data = path.read_bytes()
    other = next((p for p in sorted(checkpoint.iterdir()) if p.read_bytes() != data), path)
    target = rng.choice([other.name, "nowhere", path.name, "/dev/null"])
    path.unlink()
    path.symlink_to(target)
    return f"{path.name} is a link to {target}"


def directory(checkpoint: Path, rng: random.Random) -> str:
    path = some(checkpoint, rng)
    path.unlink()
    path.mkdir()
    return f"{path.name} is a folder"


def no_folder(checkpoint: Path, rng: random.Random) -> str:
    shutil.rmtree(checkpoint)
    checkpoint.write_bytes(b"")
    return "the checkpoint is a file"


def pickled(checkpoint: Path, rng: random.Random) -> str:
    path = some(checkpoint, rng, "*.npy")
    np.save(path, np.array([{"a": 1}, None], dtype=object), allow_pickle=True)
    return f"{path.name} holds pickled objects"


def pickled_listed(checkpoint: Path, rng: random.Random) -> str:
    path = some(checkpoint, rng, "*.npy")
    np.save(path, np.array([{"a": 1}, None], dtype=object), allow_pickle=True)
    _list_again(checkpoint, path.name)
    return f"{path.name} holds pickled objects, and manifest.json says so"


def reshaped_listed(checkpoint: Path, rng: random.Random) -> str:
    path = some(checkpoint, rng, "*.npy")
    kind = rng.choice(["float64", "int8", "complex64"])
    np.save(path, np.zeros((rng.randint(1, 3), 2), kind))
    _list_again(checkpoint, path.name)
    return f"{path.name} has another shape and type, and manifest.json says so"


def history_listed(checkpoint: Path, rng: random.Random) -> str:
    text = rng.choice(["[]", "{}", "null", "7", '{"rounds": "many"}', "[" * 100_000, "\xff"])
    (checkpoint / "history.json").write_bytes(text.encode("latin-1"))
    _list_again(checkpoint, "history.json")
    return f"history.json is {text[:20]!r}, and manifest.json says so"


def unlisted(checkpoint: Path, rng: random.Random) -> str:
    """A line of the manifest goes, and the file it was about changes or goes as well."""
    path = rng.choice(sorted(p for p in checkpoint.iterdir() if p.name != "manifest.json"))
    _edit(checkpoint, lambda m: m["files"].pop(path.name))
    gone = path.suffix == ".npy" and rng.random() < 0.5
    if gone:
        path.unlink()
    return f"manifest.json does not name {path.name}" + ", which is gone" * gone


def manifest_value(checkpoint: Path, rng: random.Random) -> str:
    key = rng.choice(["round", "format", "config", "files"])
    value = rng.choice(
        [None, -1, 3.5, "x", [], {}, [[]], {"a": 1}, {"../../x.npy": [1, "a"]}, True]
    )
    _edit(checkpoint, lambda m: m.update({key: value}))
    return f"manifest.json: {key} = {value!r}"


def manifest_key(checkpoint: Path, rng: random.Random) -> str:
    key = rng.choice(["round", "format", "config", "files"])
    _edit(checkpoint, lambda m: m.pop(key))
    return f"manifest.json: no {key}"


def manifest_other(checkpoint: Path, rng: random.Random) -> str:
    text = rng.choice(["[]", "null", "7", '"x"', "{", "[" * 100_000, '{"round": NaN}', "\xff"])
    (checkpoint / "manifest.json").write_bytes(text.encode("latin-1"))
    return f"manifest.json is {text[:20]!r}"


def relabelled(checkpoint: Path, rng: random.Random) -> str:
    """The name and the manifest say another round."""
    later = int(checkpoint.name.removeprefix("round-")) + rng.randint(1, 5)
    _edit(checkpoint, lambda m: m.update(round=later))
    checkpoint.rename(checkpoint.with_name(f"round-{later:06d}"))
    return f"called and labelled round {later}"


def renamed(checkpoint: Path, rng: random.Random) -> str:
    later = int(checkpoint.name.removeprefix("round-")) + rng.randint(1, 5)
    checkpoint.rename(checkpoint.with_name(f"round-{later:06d}"))
    return f"called round {later}"


def other_format(checkpoint: Path, rng: random.Random) -> str:
    now = json.loads((checkpoint / "manifest.json").read_text())["format"]
    number = rng.choice([n for n in (0, 1, 2, 3, 99) if n != now])
    _edit(checkpoint, lambda m: m.update(format=number))
    return f"of format {number}"


def _edit(checkpoint: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = checkpoint / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def _list_again(checkpoint: Path, name: str) -> None:
    data = (checkpoint / name).read_bytes()
    entry = [len(data), hashlib.sha256(data).hexdigest()]
    _edit(checkpoint, lambda m: m["files"].update({name: entry}))


def replaced_by(other: Path) -> Damage:
    """The checkpoint of another run takes its place."""

    def replace(checkpoint: Path, rng: random.Random) -> str:
        shutil.rmtree(checkpoint)
        shutil.copytree(other, checkpoint)
        return f"that of another run ({other.parents[1].name})"

    return replace


ALL = (
    *(truncate, empty, flip, lengthen, zeros, delete, delete_all, swap, rename, symlink),
    *(directory, no_folder, pickled, pickled_listed, reshaped_listed, history_listed, unlisted),
    *(manifest_value, manifest_key, manifest_other, relabelled, renamed, other_format),
)
KINDS: Mapping[str, Damage] = {f.__name__.replace("_", " "): f for f in ALL}
