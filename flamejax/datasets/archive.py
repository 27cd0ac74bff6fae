"""Files below one place, be it a folder or a zip, read without trust.

Nothing is ever extracted: members are read into memory one at a time. A name that points outside
the archive, a link, an encrypted member or a size beyond the bounds below refuses the whole of it.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from flamejax.errors import InputError

MAX_FILES = 2_000_000
MAX_FILE_BYTES = 2**26  # of one image, packed or unpacked
MAX_BYTES = 2**34  # of one data set in memory

# what reading a damaged zip may raise
BROKEN: tuple[type[Exception], ...] = (zipfile.BadZipFile, zlib.error, OSError, EOFError)
BROKEN += (ValueError, OverflowError, NotImplementedError, RuntimeError)


class Files(NamedTuple):
    place: Path  # the folder or the archive
    names: list[str]  # relative to the place, parts separated by /, sorted
    read: Callable[[str], bytes]  # name -> content; may be called from several threads


@contextmanager
def files(place: Path, most: int = MAX_FILES) -> Iterator[Files]:
    """The files of a folder or a zip, at most so many."""
    if place.is_dir():
        yield Files(place, _walk(place, most), lambda name: _read(place, name))
        return
    with zip_file(place) as archive:
        members = check_members(place, archive, most)
        read = _member_reader(place, archive, members)
        yield Files(place, sorted(members), read)


@contextmanager
def zip_file(path: Path) -> Iterator[zipfile.ZipFile]:
    """An opened zip."""
    try:
        archive = zipfile.ZipFile(path)
    except BROKEN as error:
        raise refusal(path, f"not a readable zip: {error}") from None
    with archive:
        yield archive


def check_members(
    path: Path, archive: zipfile.ZipFile, most: int = MAX_FILES
) -> dict[str, zipfile.ZipInfo]:
    """The files in a zip by name, after looking at what is claimed of them."""
    infos = archive.infolist()
    if len(infos) > most:
        raise refusal(path, f"{len(infos)} members, more than {most}")
    found: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        name = info.orig_filename  # zipfile cuts `filename` at a zero byte
        unsafe = _unsafe(name)
        kind = stat.S_IFMT(info.external_attr >> 16)
        if unsafe:
            raise refusal(path, f"member {shown(name)}: {unsafe}")
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise refusal(path, f"member {shown(name)}: a link or a device, not a file")
        if info.flag_bits & 0x1:
            raise refusal(path, f"member {shown(name)}: encrypted")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise refusal(path, f"member {shown(name)}: packed in an unknown way")
        if name in found:
            raise refusal(path, f"member {shown(name)}: there twice")
        if not info.is_dir():
            found[name] = info
    # members that share their packed bytes are the trick of the largest bombs
    if sum(info.compress_size for info in infos) > os.path.getsize(path):
        raise refusal(path, "its members overlap")
    if sum(info.file_size for info in infos) > MAX_BYTES:
        raise refusal(path, f"its members unpack to more than {MAX_BYTES >> 30} GB")
    return found


def _unsafe(name: str) -> str:
    """What is wrong with a member's name, if anything."""
    if re.search(r"[\0\\]|^[A-Za-z]:", name):
        return "a name with a backslash, a drive letter or a zero byte"
    if name.startswith("/"):
        return "an absolute name"
    return "a name that leads out of the archive" if ".." in name.split("/") else ""


def _member_reader(
    path: Path, archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo]
) -> Callable[[str], bytes]:
    def read(name: str) -> bytes:
        info = members[name]
        if info.file_size > MAX_FILE_BYTES:
            raise refusal(path, f"member {shown(name)}: claims {info.file_size} bytes, too many")
        try:
            data = archive.read(info)  # never more than claimed, and its checksum is compared
        except BROKEN as error:
            raise refusal(path, f"member {shown(name)}: cannot be unpacked: {error}") from None
        if len(data) != info.file_size:
            raise refusal(path, f"member {shown(name)}: {len(data)} bytes, not {info.file_size}")
        return data

    return read


def _walk(folder: Path, most: int) -> list[str]:
    names: list[str] = []
    pending = [""]
    try:
        while pending:
            prefix = pending.pop()
            with os.scandir(folder / prefix) as entries:
                for entry in entries:
                    name = prefix + entry.name
                    if entry.is_symlink():
                        raise refusal(folder, f"{shown(name)} is a link; the file itself is needed")
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(name + "/")
                    elif entry.is_file(follow_symlinks=False):  # no pipes, no devices
                        names.append(name)
            if len(names) + len(pending) > most:
                raise refusal(folder, f"more than {most} files")
    except (OSError, ValueError) as error:
        raise refusal(folder, f"cannot be read: {error}") from None
    return sorted(names)


def _read(folder: Path, name: str) -> bytes:
    return read_file(folder / name, MAX_FILE_BYTES)


def read_file(path: Path, limit: int) -> bytes:
    """A whole file of at most `limit` bytes."""
    try:
        with os.fdopen(_open(path), "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if size > limit:
                raise refusal(path, f"{size} bytes, more than the {limit} such a file may have")
            return file.read()
    except (OSError, ValueError) as error:
        raise refusal(path, f"cannot be read: {error}") from None


def _open(path: Path | str) -> int:
    """A descriptor of a plain file; devices may never end, and pipes keep one waiting."""
    flags = sum(getattr(os, name, 0) for name in ("O_BINARY", "O_NONBLOCK"))
    file = os.open(path, os.O_RDONLY | flags)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError("not a plain file")
    return file


def digest_file(path: Path) -> str:
    """sha256 of a file's content: a tenth of a second for 100 MB."""
    return _digest(os.fspath(path)).hex()


def digest_files(folder: Path, names: Sequence[str]) -> str:
    """sha256 over names and contents of files in a folder: half a second for 59,000 small ones."""
    total, base = hashlib.sha256(), os.fspath(folder)
    for name in sorted(names):
        total.update(os.fsencode(name) + b"\0" + _digest(os.path.join(base, name)))
    return total.hexdigest()


def _digest(path: str) -> bytes:
    total = hashlib.sha256()
    try:
        file = _open(path)
        try:
            while part := os.read(file, 2**17):
                total.update(part)
        finally:
            os.close(file)
    except (OSError, ValueError) as error:
        raise refusal(path, f"cannot be read: {error}") from None
    return total.digest()


def refusal(path: Path | str, reason: str) -> InputError:
    """One line that names the file; what libraries say may be longer."""
    return InputError(f"{shown(path)}: {' '.join(reason.split())[:300]}")


def shown(name: Path | str) -> str:
    """A name as it is quoted in a message, in one line whatever its characters."""
    return "".join(c if c.isprintable() else "?" for c in str(name))
