"""Damaged, absurd and malicious files: one line that names them, and nothing is left behind."""

import gzip
import io
import json
import os
import struct
import tarfile
import time
import warnings
import zipfile
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from flamejax import cli, datasets
from flamejax.config import Data
from flamejax.datasets import archive, cifar, images, importing, store
from flamejax.errors import InputError
from flamejax.types import Dataset

from .made import encoded


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """A cache folder that already holds an import."""
    monkeypatch.setenv("FLAMEJAX_CACHE", str(tmp_path / "cache"))
    data = Dataset(np.zeros((2, 2, 2, 1), np.uint8), np.zeros(2, int), 1)
    store.keep("earlier", data, "somewhere", "0" * 64)
    return tmp_path / "cache"


def content(folder: Path) -> dict[str, bytes | None]:
    return {str(p): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


def load(name, place=""):
    return datasets.load(Data(name=name, dir=str(place)), np.random.default_rng(0))


def refusal(cache, name, place="") -> str:
    """What is said of the data, by the loader and by the import, which leave the cache alone."""
    before = content(cache)
    with pytest.raises(InputError) as caught:
        load(name, place)
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    assert len(text) < 1000
    with pytest.raises(InputError):
        importing.import_path(place or name.partition(":")[2], None if place else "own")
    assert content(cache) == before
    return text


def png(size=(4, 4), value=7) -> bytes:
    return encoded(np.full(size[::-1], value))


def jpeg(size=(4, 4)) -> bytes:
    file = io.BytesIO()
    Image.effect_noise(size, 50).save(file, "JPEG")
    return file.getvalue()


def zipped(path: Path, *files: tuple[str | zipfile.ZipInfo, bytes]) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile warns of names that are there twice
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("a/good.png", png())
            for name, data in files:
                file.writestr(name, data)
    return path


def member(name: str, **attributes) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.compress_type = zipfile.ZIP_DEFLATED
    for key, value in attributes.items():
        setattr(info, key, value)
    return info


# zips of images

NAMES = {
    "out": ("../a/x.png", "leads out"),
    "out later": ("a/../../x.png", "leads out"),
    "absolute": ("/etc/x.png", "absolute name"),
    "drive": ("C:/x.png", "drive letter"),
    "backslash": ("a\\x.png", "backslash"),
    "link": (member("a/x.png", external_attr=0o120777 << 16), "a link or a device"),
    "pipe": (member("a/x.png", external_attr=0o010666 << 16), "a link or a device"),
    "link that is no image": (member("x", external_attr=0o120777 << 16), "a link or a device"),
    "twice": ("a/good.png", "there twice"),
    "not an image": ("a/x.png", "cannot be decoded"),
    "odd format": ("a/x.gif", "convert it"),
    "no class": ("x.png", "does not lie in CLASS/"),
    "too deep": ("a/b/x.png", "does not lie in CLASS/"),
    "newline": ("a/x\ny.png", "cannot be decoded"),
}  # fmt: skip


@pytest.mark.parametrize("what", NAMES)
def test_zip_names(tmp_path, cache, what):
    name, said = NAMES[what]
    path = zipped(tmp_path / "x.zip", (name, b"../../../etc/passwd"))
    text = refusal(cache, "images", path)
    assert text.startswith(f"{path}: ")
    assert said in text
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cache", "x.zip"]  # nothing unpacked


def test_name_with_a_zero_byte(tmp_path, cache):
    path = zipped(tmp_path / "x.zip", ("a/x.png_.txt", png()))
    path.write_bytes(path.read_bytes().replace(b"a/x.png_.txt", b"a/x.png\0.txt"))
    assert "zero byte" in refusal(cache, "images", path)


IMAGES = {
    "wrong size": (jpeg((5, 4)), "5x4 pixels where others have 4x4"),
    "cut": (jpeg()[:-40], "cannot be decoded"),
    "header only": (jpeg()[:20], "cannot be decoded"),
    "empty": (b"", "cannot be decoded"),
    "text": (b"<html>not found</html>", "cannot be decoded"),
    "another format": (b"GIF89a" + bytes(50), "cannot be decoded"),
    "nested zip": (b"PK\x03\x04" + bytes(50), "cannot be decoded"),
}


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("what", IMAGES)
def test_broken_images(tmp_path, cache, what, packed):
    broken, said = IMAGES[what]
    path = tmp_path / "set"
    if packed:
        path = zipped(tmp_path / "set.zip", ("b/bad.jpg", broken))
    else:
        for name, data in (("a/good.png", png()), ("b/bad.jpg", broken)):
            (path / name).parent.mkdir(parents=True)
            (path / name).write_bytes(data)
    text = refusal(cache, "images", path)
    assert text.startswith(f"{path}: b/bad.jpg: ")
    assert said in text


def test_the_first_of_several_bad_files_is_named(tmp_path, cache):
    files = [(f"b/{i:04}.png", png((4, 4 + (i in (300, 400, 900))))) for i in range(1000)]
    assert "b/0300.png: 4x5 pixels" in refusal(cache, "images", zipped(tmp_path / "x.zip", *files))


def bomb_png(side: int) -> bytes:
    """A small PNG that claims a very large picture, and is one: all black."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + head + body + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [5000, 12_000, 60_000])  # Pillow: silent, warns, raises
@pytest.mark.parametrize("first", [True, False])
def test_pixel_bombs(tmp_path, cache, side, first, recwarn):
    name = "a/0.png" if first else "b/0.png"
    path = zipped(tmp_path / "x.zip", (name, bomb_png(side)))
    started = time.monotonic()
    text = refusal(cache, "images", path)
    assert name in text
    assert time.monotonic() - started < 5
    assert not list(recwarn)


def test_jpeg_that_claims_a_large_picture(tmp_path, cache):
    plain = jpeg()
    at = plain.index(b"\xff\xc0") + 5
    path = zipped(
        tmp_path / "x.zip", ("a/0.jpg", plain[:at] + b"\xff\xff\xff\xff" + plain[at + 4 :])
    )
    assert "a/0.jpg: " in refusal(cache, "images", path)


def central(data: bytes, offset: int, value: bytes) -> bytes:
    """A zip with some bytes of the central entry of its last member replaced."""
    at = data.rindex(b"PK\x01\x02") + offset
    return data[:at] + value + data[at + len(value) :]


def test_zip_bombs(tmp_path, cache):
    path = zipped(tmp_path / "x.zip", ("a/x.png", bytes(archive.MAX_FILE_BYTES + 1)))
    assert path.stat().st_size < 100_000
    assert "a/x.png: claims 67108865 bytes" in refusal(cache, "images", path)


def test_a_zip_that_claims_more_than_a_machine_has(tmp_path, cache):
    path = zipped(tmp_path / "x.zip", *[(f"a/{i}.png", png()) for i in range(5)])
    entries = path.read_bytes().split(b"PK\x01\x02")
    most = struct.pack("<I", 2**32 - 2)  # bytes of one file; the next number means something else
    path.write_bytes(
        b"PK\x01\x02".join([entries[0], *(e[:20] + most + e[24:] for e in entries[1:])])
    )
    assert "unpack to more than 16 GB" in refusal(cache, "images", path)


@pytest.mark.parametrize("packed", [True, False])
def test_more_files_than_are_looked_at(tmp_path, packed):
    place = zipped(tmp_path / "x.zip", *[(f"a/{i}.png", b"x") for i in range(4)])
    if not packed:
        with zipfile.ZipFile(place) as file:
            file.extractall(tmp_path / "x")
        place = tmp_path / "x"
    with archive.files(place, most=5) as found:
        assert len(found.names) == 5
    said = "5 members, more than 3" if packed else "more than 3 files"
    with pytest.raises(InputError, match=said), archive.files(place, most=3):
        pass


def test_small_images_that_are_too_much_together(tmp_path, cache):
    """The first one is decoded, and all others would have to be of its size."""
    side = int(images.MAX_PIXELS**0.5)
    count = archive.MAX_BYTES // side**2
    names = [(f"b/{i}.png", b"") for i in range(count)]
    path = zipped(tmp_path / "x.zip", ("A/0.png", png((side, side))), *names)
    assert f"({count + 2}, {side}, {side}, 1) pixels are more than 16 GB" in refusal(
        cache, "images", path
    )


def test_zips_that_lie(tmp_path, cache):
    path = zipped(tmp_path / "x.zip", ("a/x.png", png() + bytes(5000)))
    whole = path.read_bytes()
    lies = {
        "smaller than it is": central(whole, 24, struct.pack("<I", 50)),
        "larger than it is": central(whole, 24, struct.pack("<I", 60_000)),
        "packed larger than the file": central(whole, 20, struct.pack("<I", 2**30)),
        "checksum": central(whole, 16, b"oops"),
        "encrypted": central(whole, 8, b"\x01\x00"),
        "odd packing": central(whole, 10, b"\x63\x00"),
        "somewhere else": central(whole, 42, struct.pack("<I", 3)),
        "no directory": whole[:-30],
        "first half": whole[: len(whole) // 2],
        "not a zip": b"x" * 100,
        "empty": b"",
    }
    for what, data in lies.items():
        path.write_bytes(data)
        assert refusal(cache, "images", path).startswith(f"{path}: "), what


def test_overlapping_members(tmp_path, cache):
    """Many entries of the directory for one and the same packed member."""
    path = zipped(tmp_path / "x.zip", ("b/x.png", jpeg((64, 64)) * 4))
    whole = path.read_bytes()
    start, end = whole.rindex(b"PK\x01\x02"), whole.rindex(b"PK\x05\x06")
    entry = whole[start:end]
    copies = [entry.replace(b"b/x.png", b"b/%d.png" % i) for i in range(3)]
    directory = whole[whole.index(b"PK\x01\x02") : start] + b"".join(copies)
    tail = struct.pack("<HHII", 4, 4, len(directory), whole.index(b"PK\x01\x02")) + b"\0\0"
    path.write_bytes(
        whole[: whole.index(b"PK\x01\x02")] + directory + b"PK\x05\x06" + bytes(4) + tail
    )
    assert "overlap" in refusal(cache, "images", path)


def test_folders(tmp_path, cache):
    place = tmp_path / "set"
    (place / "a").mkdir(parents=True)
    assert "holds no images" in refusal(cache, "images", place)
    (place / "a" / "0.png").write_bytes(png())
    os.mkfifo(place / "a" / "pipe.png")  # would wait for ever if it were opened
    assert len(load("images", place).labels) == 1


@pytest.mark.parametrize("target", ["/etc/hostname", "../../outside.png", "0.png", "/etc", "."])
def test_links_in_folders(tmp_path, cache, target):
    place = tmp_path / "set"
    (place / "a").mkdir(parents=True)
    (place / "a" / "0.png").write_bytes(png())
    (tmp_path / "outside.png").write_bytes(png())
    (place / "a" / "link.png").symlink_to(target)
    assert "a/link.png is a link" in refusal(cache, "images", place)


# idx, CIFAR10


def test_idx(tmp_path, cache):
    def idx(array) -> bytes:
        array = np.asarray(array, np.uint8)
        return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()

    def write(**changed) -> None:
        for split in ("train", "t10k"):
            for kind, array in (("images-idx3", np.zeros((5, 2, 2))), ("labels-idx1", range(5))):
                data = changed.get(kind[:6], gzip.compress(idx(array)))
                (tmp_path / f"{split}-{kind}-ubyte.gz").write_bytes(data)

    write()
    assert len(load("mnist", tmp_path).labels) == 10
    for wrong in (
        {"images": gzip.compress(idx(np.zeros((5, 2, 2))))[:-12]},  # truncated
        {"images": gzip.compress(b"\x01" + idx(np.zeros((5, 2, 2)))[1:])},  # magic
        {"labels": gzip.compress(idx([0, 1, 2, 3, 10]))},  # no such class
        {"images": gzip.compress(struct.pack(">HBBIII", 0, 8, 3, *[2**32 - 1] * 3))},
    ):
        write(**wrong)
        assert "ubyte.gz: " in refusal(cache, "mnist", tmp_path)


@pytest.fixture
def batches(tmp_path) -> Path:
    for name in cifar.NAMES:
        (tmp_path / name).write_bytes(bytes(4 * cifar.ROW))
    return tmp_path


def tarred(path: Path, files: dict[str, bytes], **attributes) -> Path:
    with tarfile.open(path, "w:gz") as file:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for key, value in attributes.items():
                setattr(info, key, value)
            file.addfile(info, io.BytesIO(data))
    return path


def test_cifar10_batches(batches, cache):
    assert len(load("cifar10", batches).labels) == 24
    path = batches / "data_batch_3.bin"
    for data, said in (
        (bytes(4 * cifar.ROW - 1), "bytes"),
        (b"", "bytes"),
        (b"\x0a" + bytes(4 * cifar.ROW - 1), "label 10"),
    ):
        path.write_bytes(data)
        text = refusal(cache, "cifar10", batches)
        assert text.startswith(f"{path}: ")
        assert said in text


def test_cifar10_archives(batches, cache):
    files = {f"cifar-10-batches-bin/{n}": (batches / n).read_bytes() for n in cifar.NAMES}
    path = batches / "cifar-10-binary.tar.gz"
    assert len(load("cifar10", tarred(path, files)).labels) == 24
    whole = path.read_bytes()
    for wrong in (
        whole[: len(whole) // 2],
        whole[:-8] + bytes(8),
        b"",
        b"x" * 99,
        gzip.compress(b""),
    ):
        path.write_bytes(wrong)
        assert refusal(cache, "cifar10", path).startswith(f"{path}: ")
    tarred(path, {**files, "test_batch.bin": b"short"})
    assert "test_batch.bin: 5 bytes" in refusal(cache, "cifar10", path)
    tarred(path, files, type=tarfile.SYMTYPE, linkname="/etc/passwd", size=0)
    assert "holds none of data_batch_1.bin" in refusal(cache, "cifar10", path)


@pytest.mark.parametrize("form", [".tar", pytest.param(".tar.gz", marks=pytest.mark.full)])
def test_a_tar_bomb(tmp_path, cache, form):
    path = tmp_path / f"cifar-10-binary{form}"
    with path.open("wb") as file:
        if form == ".tar":
            file.truncate(cifar.MAX_TAR + 1)
        else:
            file.write(gzip.compress(bytes(2**20)) * (cifar.MAX_TAR // 2**20 + 1))
    assert path.stat().st_blocks * 512 < 10**6
    assert f"unpacks to more than {cifar.MAX_TAR} bytes" in refusal(cache, "cifar10", path)


def test_pickles_of_cifar10_are_not_loaded(tmp_path, cache):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    (folder / "data_batch_1").write_bytes(b"\x80\x04cos\nsystem\n")
    text = refusal(cache, "cifar10", tmp_path)
    assert "cifar-10-binary.tar.gz" in text
    path = tarred(tmp_path / "cifar-10-python.tar.gz", {"cifar-10-batches-py/data_batch_1": b"x"})
    assert "cifar-10-binary.tar.gz" in refusal(cache, "cifar10", path)


# FEMNIST


@pytest.fixture
def tff(tmp_path) -> Path:
    for split in ("train", "test"):
        with h5py.File(tmp_path / f"fed_emnist_digitsonly_{split}.h5", "w") as file:
            for writer in ("a", "b"):
                file[f"examples/{writer}/pixels"] = np.ones((3, 28, 28), np.float32)
                file[f"examples/{writer}/label"] = np.arange(3)
    return tmp_path


def replaced(file, name, value) -> None:
    del file[name]
    if value is not None:
        file[name] = value


def huge(file) -> None:
    del file["examples/b/pixels"]
    file.create_dataset("examples/b/pixels", (10**9, 28, 28), "f4")


def huge_chunk(file) -> None:
    del file["examples/b/pixels"]
    chunks = (10**5, 28, 28)
    file.create_dataset(
        "examples/b/pixels", (3, 28, 28), "f4", chunks=chunks, maxshape=(None, 28, 28)
    )


def elsewhere(file) -> None:
    del file["examples/b/label"]
    file.create_dataset("examples/b/label", (3,), "u1", external="/etc/passwd")


def virtual(file) -> None:
    del file["examples/b/label"]
    layout = h5py.VirtualLayout((3,), "i8")
    layout[:] = h5py.VirtualSource("/etc/other.h5", "x", (3,))
    file.create_virtual_dataset("examples/b/label", layout)


ONE = np.ones((3, 28, 28), np.float32)
HDF5 = {
    "no examples": (lambda f: replaced(f, "examples", None), "/examples is missing"),
    "examples is an array": (lambda f: replaced(f, "examples", [1]), "not a group"),
    "no pixels": (lambda f: replaced(f, "examples/b/pixels", None), "/b/pixels is missing"),
    "no label": (lambda f: replaced(f, "examples/b/label", None), "/b/label is missing"),
    "label is a group": (
        lambda f: (replaced(f, "examples/b/label", None), f.create_group("examples/b/label")),
        "not a dataset",
    ),
    "wrong shape": (lambda f: replaced(f, "examples/b/pixels", ONE[:, :27]), "(3, 27, 28)"),
    "flat": (lambda f: replaced(f, "examples/b/pixels", ONE.reshape(3, -1)), "(3, 784)"),
    "fewer labels": (lambda f: replaced(f, "examples/b/label", [1, 2]), "(2,)"),
    "scalar label": (lambda f: replaced(f, "examples/b/label", 3), "writer b"),
    "float labels": (lambda f: replaced(f, "examples/b/label", [0.0, 1, 2]), "float64 labels"),
    "text": (lambda f: replaced(f, "examples/b/label", ["x", "y", "z"]), "expected numbers"),
    "empty": (lambda f: replaced(f, "examples/b/label", h5py.Empty("f")), "expected numbers"),
    "nan": (lambda f: replaced(f, "examples/b/pixels", ONE * np.nan), "within 0..1"),
    "infinite": (lambda f: replaced(f, "examples/b/pixels", ONE * np.inf), "within 0..1"),
    "bytes": (lambda f: replaced(f, "examples/b/pixels", ONE * 255), "within 0..1"),
    "negative": (lambda f: replaced(f, "examples/b/pixels", -ONE), "within 0..1"),
    "letters": (lambda f: replaced(f, "examples/b/label", [0, 1, 10]), "0..10"),
    "negative label": (lambda f: replaced(f, "examples/b/label", [0, 1, -1]), "-1..1"),
    "huge": (huge, "too large"),
    "huge chunk": (huge_chunk, "too large"),
    "external link": (
        lambda f: replaced(f, "examples/b/label", h5py.ExternalLink("/etc/x.h5", "/y")),
        "is a link",
    ),
    "soft link": (lambda f: replaced(f, "examples/b", h5py.SoftLink("/examples/a")), "is a link"),
    "dangling": (lambda f: replaced(f, "examples/b", h5py.SoftLink("/nowhere")), "is a link"),
    "other file's bytes": (elsewhere, "another file"),
    "virtual": (virtual, "another file"),
}


@pytest.mark.parametrize("what", HDF5)
def test_hdf5(tff, cache, what):
    change, said = HDF5[what]
    path = tff / "fed_emnist_digitsonly_test.h5"
    with h5py.File(path, "a") as file:
        change(file)
    text = refusal(cache, "femnist", tff)
    assert text.startswith(f"{path}: ")
    assert said in text


def test_broken_hdf5(tff, cache):
    path = tff / "fed_emnist_digitsonly_train.h5"
    whole = path.read_bytes()
    for data in (whole[: len(whole) // 2], whole[:100], b"", b"x" * 5000, bytes(8) + whole[8:]):
        path.write_bytes(data)
        assert refusal(cache, "femnist", tff).startswith(f"{path}: ")


X = [[1.0] * 784] * 2
LEAF = {
    "not json": "hello",
    "cut": '{"users": ["a"], "user_data": {"a": ',
    "nested": "[" * 100_000,
    "nested objects": '{"users":' * 50_000,
    "a list": "[1, 2]",
    "a number": "7",
    "nothing": "",
    "no users": json.dumps({"user_data": {}}),
    "no data": json.dumps({"users": ["a"]}),
    "nobody's": json.dumps({"users": ["a"], "user_data": {}}),
    "no x": json.dumps({"users": ["a"], "user_data": {"a": {"y": [1]}}}),
    "empty": json.dumps({"users": [], "user_data": {}}),
    "no digits": json.dumps({"users": ["a"], "user_data": {"a": {"x": X, "y": [10, 11]}}}),
    "twice": json.dumps({"users": ["a", "a"], "user_data": {"a": {"x": X, "y": [1, 2]}}}),
    "ragged": json.dumps({"users": ["a"], "user_data": {"a": {"x": [[1], [1, 2]], "y": [1, 2]}}}),
    "short": json.dumps({"users": ["a"], "user_data": {"a": {"x": [[1.0]], "y": [1]}}}),
    "text": json.dumps({"users": ["a"], "user_data": {"a": {"x": [["1"] * 784], "y": [1]}}}),
    "nan": json.dumps(
        {"users": ["a"], "user_data": {"a": {"x": [[float("nan")] * 784], "y": [1]}}}
    ),
    "bytes": json.dumps({"users": ["a"], "user_data": {"a": {"x": [[255] * 784], "y": [1]}}}),
    "label": json.dumps({"users": ["a"], "user_data": {"a": {"x": X, "y": [1, 62]}}}),
    "huge": json.dumps({"users": ["a"], "user_data": {"a": {"x": X, "y": [1, 10**40]}}}),
    "objects": json.dumps({"users": [{}], "user_data": {"a": {"x": X, "y": [1, 2]}}}),
    "endless number": '{"users": ' + "1" * 10_000 + "}",
    "bad text": b"\xff\xfe{}".decode("latin-1"),
}


@pytest.mark.parametrize("what", LEAF)
def test_leaf(tmp_path, cache, what):
    folder = tmp_path / "leaf"
    folder.mkdir()
    (folder / "all_data.json").write_text(LEAF[what], "latin-1")
    assert refusal(cache, "femnist", folder).startswith(f"{folder / 'all_data.json'}: ")


def test_leaf_that_keeps_one_waiting(tmp_path, cache):
    os.mkfifo(tmp_path / "all_data.json")
    assert "all_data.json: cannot be read: not a plain file" in refusal(cache, "femnist", tmp_path)


# arrays

PIXELS = np.zeros((3, 2, 2), np.uint8)
ARRAYS = {
    "objects": ({"images": np.array([None, 1, 2])}, "Python objects"),
    "object labels": ({"labels": np.array([None, 1, 2])}, "Python objects"),
    "no images": ({"images": None}, "no array 'images'"),
    "no labels": ({"labels": None}, "no array 'labels'"),
    "both names": ({"x": PIXELS}, "both images and x"),
    "flat": ({"images": np.zeros(3, np.uint8)}, "shape (3,)"),
    "no pixels": ({"images": np.zeros((3, 0, 2), np.uint8)}, "shape (3, 0, 2)"),
    "five axes": ({"images": np.zeros((3, 1, 1, 1, 1), np.uint8)}, "expected [N, H, W"),
    "integers": ({"images": PIXELS.astype(int)}, "int64"),
    "text": ({"images": PIXELS.astype(str)}, "expected uint8"),
    "nan": ({"images": PIXELS + np.nan}, "not finite"),
    "too large for float32": ({"images": PIXELS + 1e300}, "not finite"),
    "fewer labels": ({"labels": [0, 1]}, "labels of shape (2,)"),
    "float labels": ({"labels": [0.0, 1, 2]}, "float64"),
    "negative": ({"labels": [0, -1, 2]}, "-1..2"),
    "huge label": ({"labels": [0, 1, 2**40]}, "expected 0, 1, 2"),
    "writers": ({"writers": [1, 2]}, "writers of shape (2,)"),
    "names": ({"class_names": np.array(["a", "b"])}, "2 class_names"),
    "names that are numbers": ({"class_names": [1, 2, 3]}, "list of words"),
    "std": ({"std": 0.0}, "above zero"),
    "mean": ({"mean": np.nan}, "one finite number"),
    "means": ({"mean": [0.1, 0.2]}, "one finite number"),
}


@pytest.mark.parametrize("what", ARRAYS)
def test_npz(tmp_path, cache, what):
    change, said = ARRAYS[what]
    arrays = {"images": PIXELS, "labels": np.arange(3), **change}
    path = tmp_path / "x.npz"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.savez(path, **{k: v for k, v in arrays.items() if v is not None})
    text = refusal(cache, f"npz:{path}")
    assert text.startswith(f"{path}: ")
    assert said in text


def raw_npz(path: Path, header: str, body: bytes, packing=zipfile.ZIP_DEFLATED) -> Path:
    """An .npz whose images have a header made by hand."""
    text = header.ljust(117).encode() + b"\n"
    magic = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text))
    labels = io.BytesIO()
    np.save(labels, np.arange(3))
    with zipfile.ZipFile(path, "w", packing) as file:
        file.writestr("labels.npy", labels.getvalue())
        file.writestr("images.npy", magic + text + body)
    return path


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '|u1', 'fortran_order': False, 'shape': (3000000000, 100, 100), }",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (3, 2, 3), }",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (-3, -2, 2), }",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (3, 2, True), }",
        "{'descr': '|O', 'fortran_order': False, 'shape': (3, 2, 2), }",
        "{'descr': [('x', '|O')], 'fortran_order': False, 'shape': (3, 2, 2), }",
        "{'descr': 'nonsense', 'fortran_order': False, 'shape': (3, 2, 2), }",
        "{'descr': '|V0', 'fortran_order': False, 'shape': (3, 2, 2), }",
        "__import__('os').system('true')",
        "{" * 100,
        "",
    ],
)
def test_npz_headers(tmp_path, cache, header):
    path = raw_npz(tmp_path / "x.npz", header, bytes(12))
    assert refusal(cache, f"npz:{path}").startswith(f"{path}: ")


HUNDREDS_OF_MB = "{'descr': '|u1', 'fortran_order': False, 'shape': (3, 10000, 10000), }"


@pytest.mark.full
def test_npz_bomb(tmp_path, cache):
    path = raw_npz(tmp_path / "x.npz", HUNDREDS_OF_MB, bytes(3 * 10**8))
    assert path.stat().st_size < 10**6
    assert "300 times its size" in refusal(cache, f"npz:{path}")


def test_npz_that_claims_to_be_a_bomb_and_pickle(tmp_path, cache):
    path = raw_npz(tmp_path / "x.npz", HUNDREDS_OF_MB, bytes(10**6))
    path.write_bytes(central(path.read_bytes(), 24, struct.pack("<I", 3 * 10**8)))
    assert "images.npy unpacks to 300000000 bytes, 300 times" in refusal(cache, f"npz:{path}")
    path.write_bytes(b"\x80\x04cos\nsystem\n(S'true'\ntR.")
    assert "not a readable zip" in refusal(cache, f"npz:{path}")
    assert "no such file" in refusal(cache, f"npz:{tmp_path / 'nowhere.npz'}")
    assert "no such file" in refusal(cache, f"npz:{tmp_path}")


# at the command line


def test_exit_code(tmp_path, cache, capsys):
    evil = zipped(tmp_path / "evil.zip", ("../x.png", png()))
    pickled = tmp_path / "objects.npz"
    np.savez(pickled, images=np.array([None]), labels=[0])
    leaf = tmp_path / "leaf"
    leaf.mkdir()
    (leaf / "x.json").write_text("[" * 10_000)
    before = content(cache)
    for settings in (
        [f"data.dir={evil}", "data.name=images"],
        [f"data.dir={evil}", "data.name=medical_mnist"],
        [f"data.dir={evil}", "data.name=cifar10"],
        [f"data.dir={leaf}", "data.name=femnist"],
        [f"data.name=npz:{pickled}"],
        ["data.name=kept:nothing"],
        ["data.name=medical_mnist"],
        ["data.name=kept:../earlier"],
        [f"data.dir={tmp_path / 'nowhere'}", "data.name=images"],
    ):
        arguments = [part for one in settings for part in ("--set", one)]
        assert cli.main(["run", "--out", str(tmp_path / "out"), *arguments]) == 2
        said = capsys.readouterr().err
        assert len(said.splitlines()) == 1
        assert said.startswith("flamejax: ")
        assert not (tmp_path / "out").exists()
    assert content(cache) == before


# files with a few bytes changed: a data set or a refusal, and nothing else


def valid_zip(folder: Path) -> tuple[Path, str]:
    return zipped(folder / "x.zip", ("a/1.jpg", jpeg()), ("b/2.png", png(value=9))), "images"


def valid_idx(folder: Path) -> tuple[Path, str]:
    for split in ("train", "t10k"):
        images_ = struct.pack(">HBBIII", 0, 8, 3, 5, 2, 2) + bytes(range(20))
        (folder / f"{split}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images_, mtime=0))
        labels = struct.pack(">HBBI", 0, 8, 1, 5) + bytes(range(5))
        (folder / f"{split}-labels-idx1-ubyte").write_bytes(labels)
    return folder / "train-images-idx3-ubyte.gz", "mnist"


def valid_h5(folder: Path) -> tuple[Path, str]:
    for split in ("train", "test"):
        with h5py.File(folder / f"x_{split}.h5", "w") as file:
            file["examples/a/pixels"] = np.ones((1, 28, 28), np.float32)
            file["examples/a/label"] = np.arange(1)
    return folder / "x_train.h5", "femnist"


def valid_npz(folder: Path) -> tuple[Path, str]:
    np.savez_compressed(folder / "x.npz", images=PIXELS, labels=np.arange(3), writers=[1, 1, 2])
    return folder / "x.npz", f"npz:{folder / 'x.npz'}"


def valid_bin(folder: Path) -> tuple[Path, str]:
    for name in cifar.NAMES:
        (folder / name).write_bytes(bytes(4 * cifar.ROW))
    return folder / cifar.NAMES[0], "cifar10"


def valid_tar(folder: Path) -> tuple[Path, str]:
    batch = bytes(4 * cifar.ROW)
    return tarred(folder / "x.tar.gz", dict.fromkeys(cifar.NAMES, batch)), "cifar10"


def valid_json(folder: Path) -> tuple[Path, str]:
    data = {"users": ["a"], "user_data": {"a": {"x": [[0.5] * 784], "y": [3]}}}
    (folder / "x.json").write_text(json.dumps(data))
    return folder / "x.json", "femnist"


def valid_store(folder: Path) -> tuple[Path, str]:
    """A stored set whose source is gone."""
    (folder / "x.npz").write_bytes(valid_npz(folder)[0].read_bytes())
    kept = importing.import_path(folder / "x.npz", "mine")
    (folder / "x.npz").unlink()
    return kept.path, "kept:mine"


MAKERS = (
    valid_zip, valid_idx, valid_h5, valid_npz, valid_bin, valid_tar, valid_json, valid_store,
)  # fmt: skip


@pytest.mark.parametrize("trials", [30, pytest.param(150, marks=pytest.mark.full)])
@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__[6:])
def test_changed_bytes(tmp_path, make, trials):
    folder = tmp_path / "set"
    folder.mkdir()
    path, name = make(folder)
    place = "" if ":" in name else path if path.suffix in (".zip", ".gz") else folder
    place = folder if name == "mnist" else place
    assert isinstance(load(name, place), Dataset)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for trial in range(trials):
        data = bytearray(whole)
        for at in rng.integers(0, len(data), rng.integers(1, 4)):
            data[at] = rng.integers(0, 256)
        if trial % 5 == 0:
            data = data[: rng.integers(0, len(data))]
        path.write_bytes(data)
        started = time.monotonic()
        try:
            assert isinstance(load(name, place), Dataset)
        except InputError as error:
            refused += 1
            said = str(error)
            assert len(said.splitlines()) == 1
        assert time.monotonic() - started < 5
    assert refused > trials // 7
