"""Checkpoints: all that the rest of a run needs, in plain files that are checked before use.

    checkpoints/round-000120/    appears whole or not at all
      manifest.json              the round, length and SHA-256 of every other file, and its own
      history.json               what was measured so far
      server-0.npy, ...          leaves of the server's state, and of other parts
      clients-0-ids.npy, ...     whose states follow, for each process that wrote some,
      clients-0-0.npy, ...       and their leaves, stacked

States are found by their clients, so that a run goes on with any number of devices and processes.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import stat
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from flamejax import hosts
from flamejax.errors import InputError, WriteError
from flamejax.types import States, Tree

FORMAT = 2
NAME = re.compile(r"round-(\d{6,10})")
FILE = re.compile(r"[a-z][\w-]*\.(npy|json)")


class Snapshot(NamedTuple):
    """What a checkpoint holds."""

    round: int
    trees: Mapping[str, Tree]  # by name; the same in every process
    states: States  # of the clients of this process
    history: Mapping[str, Any]  # for JSON
    arrays: Mapping[str, np.ndarray]  # more of it


def save(folder: Path, snapshot: Snapshot, config: str, keep: int) -> None:
    """Write a checkpoint below `folder`, and leave the `keep` newest there.

    config: the text of config.toml. In a run of several processes all call this at once. If it
    cannot be written, those that are there stay.
    """
    name, rank = f"round-{snapshot.round:06d}", hosts.rank()
    half = folder / f".{name}.part"
    try:
        if rank == 0:
            for left in folder.glob(".round-*.part"):  # by a process that was killed
                _remove(left)
            half.mkdir(parents=True)
        hosts.meet_again()
        files = _write_states(half, snapshot.states, rank)
        if rank == 0:
            files |= _write_rest(half, snapshot)
        _write_json(half / f"files-{rank}.json", files)
        hosts.meet_again()
        if rank == 0:
            parts = [json.loads(path.read_text()) for path in sorted(half.glob("files-*.json"))]
            manifest = {
                "format": FORMAT,
                "round": snapshot.round,
                "config": _digest(config.encode()),
                "files": {k: v for part in parts for k, v in part.items()},
            }
            for path in half.glob("files-*.json"):
                path.unlink()
            _write_json(half / "manifest.json", manifest | {"sha256": _digest_of_json(manifest)})
            _publish(half, folder / name)
            for old in rounds(folder)[keep:]:
                _remove(folder / f"round-{old:06d}")
    except OSError as error:
        shutil.rmtree(half, ignore_errors=True)
        reason = error.strerror or error
        raise WriteError(
            f"--out: cannot write the checkpoint {folder / name}: {reason}; {kept(folder)}"
        ) from None
    hosts.meet_again()


def kept(folder: Path) -> str:
    """What is there to go on from, in words."""
    there = rounds(folder)
    return f"the one of round {there[0]} is kept" if there else "there is no other"


def rounds(folder: Path) -> list[int]:
    """The rounds of the checkpoints that are there, the newest first."""
    names = (NAME.fullmatch(path.name) for path in folder.glob("round-*"))
    return sorted((int(name[1]) for name in names if name), reverse=True)


class Checkpoint(NamedTuple):
    """A checkpoint whose files are as they were written."""

    path: Path
    round: int
    files: frozenset[str]
    history: dict[str, Any]

    def tree(self, name: str, like: Tree) -> Tree:
        """A tree by its name; `like` has its shapes."""
        leaves, structure = jax.tree.flatten(like)
        found = [
            self._array(f"{name}-{i}.npy", leaf.shape, leaf.dtype) for i, leaf in enumerate(leaves)
        ]
        return jax.tree.unflatten(structure, found)

    def arrays(self) -> dict[str, np.ndarray]:
        names = [name for name in self.files if name.startswith("array-")]
        return {n.removeprefix("array-").removesuffix(".npy"): self._load(n) for n in names}

    def states(
        self,
        like: Tree,
        mine: Callable[[np.ndarray], np.ndarray],
        in_pieces: Callable[[np.ndarray, Tree], Iterable[np.ndarray]],
    ) -> Iterator[tuple[np.ndarray, Tree]]:
        """The states of clients for which `mine` ([n] -> bool [n]) is true, in pieces of them."""
        leaves, structure = jax.tree.flatten(like)
        for name in sorted(n for n in self.files if n.endswith("-ids.npy")):
            ids, stem = self._load(name), name.removesuffix("ids.npy")
            kept = [
                self._array(f"{stem}{i}.npy", (len(ids), *leaf.shape), leaf.dtype)
                for i, leaf in enumerate(leaves)
            ]
            for some in in_pieces(np.flatnonzero(mine(ids)), like):
                yield ids[some], jax.tree.unflatten(structure, [x[some] for x in kept])

    def _array(self, name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        array = self._load(name)
        if array.shape != shape or array.dtype != np.dtype(dtype):
            raise self.unfit(name)
        return array

    def _load(self, name: str) -> np.ndarray:
        if name not in self.files:
            raise self.unfit(name)
        path = self.path / name
        large = path.stat().st_size > 2**20  # read where it is needed
        try:
            return np.load(path, mmap_mode="r" if large else None, allow_pickle=False)
        except (OSError, ValueError, EOFError):
            raise self.unfit(name) from None

    def unfit(self, name: str) -> InputError:
        """Of files that are as they were written, but not by this run."""
        return InputError(f"{self.path}: {name} is not what this run needs; start it anew")


def newest(folder: Path, config: str) -> Checkpoint | None:
    """The newest checkpoint that is intact, or None if there is none at all."""
    there = rounds(folder)
    for number in there:
        path = folder / f"round-{number:06d}"
        try:
            return _verified(path, number, config)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            what = str(error) or type(error).__name__
            warnings.warn(f"{path} is damaged and left out: {what}", stacklevel=2)
    if there:
        raise InputError(f"{folder}: no checkpoint is intact; start the run anew in another --out")
    return None


def _verified(path: Path, number: int, config: str) -> Checkpoint:
    manifest = json.loads(_plain(path / "manifest.json").read_text("utf-8"))
    said, own = manifest.pop("sha256", None), _digest_of_json(manifest)
    if said != own and manifest["format"] != 1:  # the first one had no digest of its own
        raise ValueError("manifest.json is not as it was written")
    if manifest["round"] != number:
        raise ValueError(f"manifest.json is of round {manifest['round']}")
    if manifest["format"] != FORMAT:
        raise InputError(f"{path} was written by another version of flamejax; start the run anew")
    if manifest["config"] != _digest(config.encode()):
        raise InputError(f"{path} is of a run with another config.toml; start this one anew")
    files = manifest["files"]
    for name, (size, digest) in files.items():
        if not FILE.fullmatch(name):
            raise ValueError(f"manifest.json names {name[:40]!r}")
        if _plain(path / name).stat().st_size != size or _digest_of(path / name) != digest:
            raise ValueError(f"{name} is not as it was written")
    history = json.loads((path / "history.json").read_text("utf-8"))
    return Checkpoint(path, number, frozenset(files), history)


def _write_states(half: Path, states: States, rank: int) -> dict[str, Any]:
    """The states of this process's clients; of each file its length and digest."""
    leaves = jax.tree.leaves(states.shapes)
    named = {f"clients-{rank}-ids.npy": ((states.number,), np.dtype(np.int32))}
    for i, leaf in enumerate(leaves):
        named[f"clients-{rank}-{i}.npy"] = ((states.number, *leaf.shape), np.dtype(leaf.dtype))
    files = [_File(half / name, *of) for name, of in named.items()]
    for ids, part in states.parts:
        for file, values in zip(files, [ids, *jax.tree.leaves(part)], strict=True):
            file.write(values)
    return {name: file.close() for name, file in zip(named, files, strict=True)}


def _write_rest(half: Path, snapshot: Snapshot) -> dict[str, Any]:
    arrays = {f"array-{name}.npy": array for name, array in snapshot.arrays.items()}
    for name, tree in snapshot.trees.items():
        arrays |= {
            f"{name}-{i}.npy": x for i, x in enumerate(map(np.asarray, jax.tree.leaves(tree)))
        }
    files = {}
    for name, array in arrays.items():
        file = _File(half / name, array.shape, array.dtype)
        file.write(array)
        files[name] = file.close()
    text = _write_json(half / "history.json", snapshot.history)
    files["history.json"] = [len(text), _digest(text)]
    return files


class _File:
    """A .npy file, written in parts."""

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: np.dtype) -> None:
        header = io.BytesIO()
        described = {"descr": dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(header, described)
        self._hash, self._length, self._dtype = hashlib.sha256(), 0, dtype
        self._file = path.open("wb")
        self._put(header.getvalue())

    def write(self, values: np.ndarray) -> None:
        self._put(np.ascontiguousarray(values, self._dtype).reshape(-1).view(np.uint8).data)

    def _put(self, data: Any) -> None:
        self._file.write(data)
        self._hash.update(data)
        self._length += len(data)

    def close(self) -> list[Any]:
        """Its length and digest."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return [self._length, self._hash.hexdigest()]


def _write_json(path: Path, content: Mapping[str, Any]) -> bytes:
    text = json.dumps(content).encode()
    with path.open("wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return text


def _publish(half: Path, path: Path) -> None:
    """Give a checkpoint its name; what has it already goes, but only then."""
    old = path.with_name(f".{path.name}.old.part")
    if os.path.lexists(path):
        os.replace(path, old)
    os.replace(half, path)
    _remove(old)
    if os.name == "posix":  # the name, too, is on the disk before an older checkpoint goes
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)


def _remove(path: Path) -> None:
    """A folder, or whatever has its name."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _plain(path: Path) -> Path:
    """A file, not a link out of the folder, a pipe or a device that never ends."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise ValueError(f"{path.name} is not a plain file")
    return path


def _digest_of_json(content: Mapping[str, Any]) -> str:
    return _digest(json.dumps(content, sort_keys=True).encode())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
