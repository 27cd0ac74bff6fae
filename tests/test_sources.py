"""Data sources: the same samples whatever they are packed in, and decoded only once."""

import io
import json
import os
import signal
import socket
import sys
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

import flamejax as fj
from flamejax import datasets
from flamejax.config import Data, make
from flamejax.datasets import cifar, images, importing, store, tfds
from flamejax.errors import InputError

from .conftest import SHARED
from .faults import full_disk, when_written
from .made import encoded, found_by_tfds, needs_tfds, pack, picture, prepared


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """A cache folder of the test's own."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("FLAMEJAX_CACHE", str(folder))
    return folder / "data"


def load(name, place="", **settings):
    return datasets.load(Data(name=name, dir=str(place), **settings), np.random.default_rng(0))


def refusal(work, *arguments) -> str:
    with pytest.raises(InputError) as caught:
        work(*arguments)
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    return text


def assert_same(one, other):
    np.testing.assert_array_equal(one.images, other.images)
    np.testing.assert_array_equal(one.labels, other.labels)
    assert one.images.dtype == other.images.dtype
    assert one._replace(images=0, labels=0, writers=0) == other._replace(
        images=0, labels=0, writers=0
    )
    if one.writers is None:
        assert other.writers is None
    else:
        np.testing.assert_array_equal(one.writers, other.writers)


def assert_decoded_once(path, data, again):
    """What loading again gives is what lies in the store, so nothing is decoded for it."""
    whole = path.read_bytes()
    other = data._replace(labels=data.labels[::-1])
    assert other.labels.tolist() != data.labels.tolist()
    store.write(path, other, {})
    assert_same(again(), other)
    path.write_bytes(whole)
    assert_same(again(), data)


# class folders

FRUIT = {"pear": (0, 1), "apple": (2,), "fig": (3, 4, 5)}  # class -> numbers of its pictures
JUNK = {
    ".hidden.png": b"x", "pear/.DS_Store": b"x", "__MACOSX/pear/._0.png": b"x",
    "readme.txt": b"x", "pear/Thumbs.db": b"x", "pear/notes.csv": b"x",
}  # fmt: skip


def fruit(around="", channels=1):
    names = {f"{around}{c}/{n}.png": n for c, numbers in FRUIT.items() for n in numbers}
    return {name: encoded(picture(n, channels=channels)) for name, n in names.items()}


@pytest.mark.parametrize("around", ["", "set/", "a/b/"])
@pytest.mark.parametrize("place", ["folder", "fruit.zip"])
def test_class_folders(tmp_path, place, around):
    data = load("images", pack(tmp_path / place, {**fruit(around), **JUNK}))
    assert data.class_names == ("apple", "fig", "pear")
    assert data.labels.tolist() == [0, 1, 1, 1, 2, 2]
    expected = np.stack([picture(n) for n in (2, 3, 4, 5, 0, 1)])[..., None]
    np.testing.assert_array_equal(data.images, expected)
    assert (data.images.dtype, data.classes, data.mean, data.std) == (np.uint8, 3, 0.5, 0.5)


@pytest.mark.parametrize("place", ["folder", "photos.zip"])
@pytest.mark.parametrize("around", ["", "photos/"])
def test_training_files_come_before_test_files(tmp_path, place, around):
    names = ["test/b/0.png", "train/b/1.png", "test/a/2.png", "train/a/3.png"]
    files = {around + name: encoded(picture(i)) for i, name in enumerate(names)}
    data = load("images", pack(tmp_path / place, files))
    expected = np.stack([picture(n) for n in (3, 1, 2, 0)])[..., None]
    np.testing.assert_array_equal(data.images, expected)
    assert data.labels.tolist() == [0, 1, 0, 1]
    assert data.class_names == ("a", "b")


def test_one_channel_only_when_all_images_are_gray(tmp_path):
    gray, colour = picture(0), picture(1, channels=3)
    rgb_of_gray = np.repeat(gray[..., None], 3, axis=-1)
    both_gray = {"a/0.png": encoded(gray), "a/1.png": encoded(rgb_of_gray)}
    data = load("images", pack(tmp_path / "gray", both_gray))
    np.testing.assert_array_equal(data.images, np.stack([gray, gray])[..., None])
    mixed = {**both_gray, "b/2.png": encoded(colour)}  # colour turns up late
    data = load("images", pack(tmp_path / "mixed", mixed))
    np.testing.assert_array_equal(data.images, np.stack([rgb_of_gray, rgb_of_gray, colour]))


def test_kinds_of_pixels(tmp_path):
    """Bitmaps, palettes and alpha become plain gray or colour; 16 bits would lose their meaning."""
    colour = Image.fromarray(picture(0, channels=3))
    for mode in ("P", "RGBA", "1", "LA"):
        file = io.BytesIO()
        colour.convert(mode).save(file, "PNG")
        place = pack(tmp_path / mode, {"a/x.png": file.getvalue()})
        expected = np.asarray(colour.convert(mode).convert("L" if mode in ("1", "LA") else "RGB"))
        data = load("images", place)
        np.testing.assert_array_equal(data.images[0], expected.reshape(data.images.shape[1:]))
    file = io.BytesIO()
    Image.fromarray(np.full((4, 4), 3000, np.uint16)).save(file, "PNG")
    text = refusal(load, "images", pack(tmp_path / "deep", {"a/x.png": file.getvalue()}))
    assert "a/x.png: pixels of kind I;16" in text


def test_many_images_keep_their_places(tmp_path):
    """More than one portion for each thread."""
    files = {f"{n % 3}/{n:04}.png": encoded(picture(n)) for n in range(700)}
    data = load("images", pack(tmp_path / "many.zip", files))
    order = sorted(range(700), key=lambda n: (n % 3, n))
    np.testing.assert_array_equal(data.images[..., 0], np.stack([picture(n) for n in order]))


def test_medical_mnist_and_cifar10_as_images(tmp_path):
    medical = {f"{c}/0.jpeg": encoded(picture(i), "JPEG") for i, c in enumerate(images.MEDICAL)}
    data = load("medical_mnist", pack(tmp_path / "medical.zip", medical))
    assert (data.images.shape, data.mean, data.std) == ((6, 5, 4, 1), 0.3, 0.3)
    assert data.class_names == images.MEDICAL
    photos = {
        f"cifar/{s}/{c}/0.jpg": encoded(picture(i, channels=3), "JPEG")
        for i, c in enumerate(images.CIFAR)
        for s in ("test", "train")
    }
    data = load("cifar10", pack(tmp_path / "photos", photos))
    assert (data.images.shape, data.mean, data.std) == ((20, 5, 4, 3), 0.5, 0.5)
    assert data.labels.tolist() == [*range(10), *range(10)]
    some = load("cifar10", pack(tmp_path / "some", dict(list(photos.items())[-2:])))
    assert (some.labels.tolist(), some.classes) == ([9, 9], 10)  # numbers as in the whole
    text = refusal(load, "medical_mnist", tmp_path / "photos")
    assert "has the classes airplane, automobile" in text
    assert "data.name = 'images'" in text


def real(name: str) -> Path:
    if not (SHARED / name).exists():
        pytest.skip(f"needs {name}")
    return SHARED / name


def excerpt(path: Path, place: Path, each: int) -> Path:
    """Every so many-th member of a zip, as a zip of its own."""
    with zipfile.ZipFile(path) as archive:
        infos = archive.infolist()[::each]
        return pack(place, {info.filename: archive.read(info) for info in infos})


@pytest.mark.parametrize(
    ("file", "name", "shape", "mean"),
    [
        ("medical_mnist.zip", "medical_mnist", (590, 64, 64, 1), 91.4),
        ("cifar10_jpeg.zip", "cifar10", (600, 32, 32, 3), 120.7),
    ],
)
def test_real_images(tmp_path, file, name, shape, mean):
    data = load(name, excerpt(real(file), tmp_path / file, 100))
    assert data.images.shape == shape
    assert set(np.bincount(data.labels)) <= {60, 89, 90, 100}
    assert abs(data.images.mean() - mean) < 2


@pytest.mark.full
def test_import_of_all_of_medical_mnist():
    kept = importing.import_path(real("medical_mnist.zip"))
    assert (kept.name, kept.samples, kept.shape, kept.classes) == (
        "medical_mnist", 58_954, (64, 64, 1), 6,
    )  # fmt: skip
    assert np.bincount(load("medical_mnist").labels).tolist() == [
        10_000, 8954, 10_000, 10_000, 10_000, 10_000,
    ]  # fmt: skip


def test_a_link_to_the_folder_itself_is_followed(tmp_path):
    (tmp_path / "link").symlink_to(pack(tmp_path / "fruit", fruit()))
    assert len(load("images", tmp_path / "link").labels) == 6


# the store


def test_decoded_once(tmp_path, cache):
    place = pack(tmp_path / "fruit.zip", fruit())
    first = load("images", place)
    (path,) = cache.iterdir()
    assert path.suffix == ".npz"
    assert_decoded_once(path, first, lambda: load("images", place))
    place.rename(tmp_path / "renamed.zip")  # the content is the key, not the name
    assert_decoded_once(path, first, lambda: load("images", tmp_path / "renamed.zip"))


@pytest.mark.parametrize("change", ["content", "name"])
def test_changed_folders_are_decoded_again(tmp_path, cache, change):
    place = pack(tmp_path / "fruit", fruit())
    before = load("images", place)
    if change == "content":
        (place / "pear" / "0.png").write_bytes(encoded(picture(99)))
    else:
        (place / "pear").rename(place / "avocado")
    after = load("images", place)
    assert not np.array_equal(before.images, after.images)
    assert len(list(cache.iterdir())) == 2


DAMAGE = {
    "cut": lambda b: b[: len(b) // 2],
    "empty": lambda b: b"",
    "flipped": lambda b: b[: len(b) // 2] + bytes([b[len(b) // 2] ^ 1]) + b[len(b) // 2 + 1 :],
    "text": lambda b: b"hello" * 99,
}


@pytest.mark.parametrize("how", DAMAGE)
def test_damaged_files_are_decoded_again(tmp_path, cache, capsys, how):
    place = pack(tmp_path / "fruit.zip", fruit())
    first = load("images", place)
    (path,) = cache.iterdir()
    whole = path.read_bytes()
    path.write_bytes(DAMAGE[how](whole))
    assert_same(load("images", place), first)
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert str(path) in said
    assert path.read_bytes() == whole
    load("images", place)
    assert not capsys.readouterr().err


def test_stored_arrays_are_checked(cache):
    """A file that is whole but holds something else."""
    good = fj.Dataset(np.zeros((3, 2, 2, 1), np.uint8), np.arange(3), 3)
    wrong = {
        "labels": good._replace(labels=np.array([0, 1, 9])),
        "float labels": good._replace(labels=np.zeros(3)),
        "fewer labels": good._replace(labels=np.arange(2)),
        "writers": good._replace(writers=np.arange(2)),
        "names": good._replace(class_names=("a",)),
        "std": good._replace(std=0.0),
        "mean": good._replace(mean=float("nan")),
        "classes": good._replace(classes=2),
        "no images": good._replace(images=good.images[:0], labels=good.labels[:0]),
        "complex": good._replace(images=good.images.astype(complex)),
    }
    path = cache / "x.npz"
    store.write(path, good, {})
    assert_same(store.read(path), good._replace(labels=good.labels.astype(np.int32)))
    for data in wrong.values():
        store.write(path, data, {})
        assert str(path) in refusal(store.read, path)


@pytest.mark.parametrize("kind", ["not a folder", "full"])
def test_a_cache_that_cannot_be_written_does_not_stop_a_run(
    tmp_path, cache, capsys, kind, monkeypatch
):
    if kind == "full":
        full_disk(monkeypatch, "*.part")
    else:
        cache.parent.write_text("in the way")
    data = load("images", pack(tmp_path / "fruit", fruit()))
    assert len(data.labels) == 6
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert "not stored" in said
    assert kind != "full" or list(cache.iterdir()) == []  # nothing half-written is left
    assert "cannot be written" in refusal(importing.import_path, tmp_path / "fruit")


def test_interrupted_writing_leaves_nothing(tmp_path, cache, monkeypatch):
    def interrupt(file, _):
        file.write(b"half")
        signal.raise_signal(signal.SIGINT)

    when_written(monkeypatch, "*.part", interrupt)
    with pytest.raises(KeyboardInterrupt):
        load("images", pack(tmp_path / "fruit", fruit()))
    assert list(cache.iterdir()) == []


def test_cache_folder(monkeypatch, tmp_path):
    assert store.folder() == tmp_path / "cache" / "data"
    monkeypatch.delenv("FLAMEJAX_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert store.folder() == tmp_path / "xdg" / "flamejax" / "data"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert store.folder() == tmp_path / ".cache" / "flamejax" / "data"


# imports


def test_imports_are_found_without_their_files(tmp_path, cache):
    medical = {f"{c}/0.jpeg": encoded(picture(i), "JPEG") for i, c in enumerate(images.MEDICAL)}
    place = pack(tmp_path / "x.zip", medical)
    text = refusal(load, "medical_mnist")
    assert "set data.dir" in text
    assert "flamejax data import PATH" in text
    assert "prepare" not in text  # TFDS does not have it
    assert "flamejax data prepare mnist" in refusal(load, "mnist")
    expected = load("medical_mnist", place)
    kept = importing.import_path(place)
    assert kept._replace(path=None, digest="") == store.Kept(
        "medical_mnist", None, str(place), "", 6, (5, 4, 1), 6, kept.path.stat().st_size
    )
    assert store.find("medical_mnist") == kept
    assert len(list(cache.glob("*.npz"))) == 1  # the same file as a run with data.dir made
    place.unlink()
    assert_same(load("medical_mnist"), expected)


def test_own_images_have_a_name_of_their_own(tmp_path, cache):
    place = pack(tmp_path / "My fruit!.zip", fruit())
    kept = importing.import_path(place)
    assert kept.name == "My-fruit"
    again = importing.import_path(place, "fruit")
    assert [one.name for one in store.kept()] == ["My-fruit", "fruit"]
    assert_same(load("kept:fruit"), load("images", place))
    assert make({"data": {"name": "kept:fruit"}}).data.name == "kept:fruit"
    store.forget("My-fruit")
    assert again.path.exists()  # both are one file
    store.forget("fruit")
    store.forget("never")
    assert list(cache.iterdir()) == []
    assert "imports: none" in refusal(load, "kept:fruit")
    for name in ("../x", "a/b", "", ".x", "x" * 99, "mnist_mini", "mnist", "npz:PATH"):
        refusal(importing.import_path, place, name)
        assert store.find(name) is None
    assert not list(cache.glob("*.json"))


def test_pointers_are_checked(tmp_path, cache, capsys):
    importing.import_path(pack(tmp_path / "fruit", fruit()))
    (pointer,) = cache.glob("*.json")
    good = json.loads(pointer.read_text())
    changes = [{"file": "../../x.npz"}, {"name": "other"}, {"samples": "6"}, {"shape": 5}, {"x": 1}]
    for bad in (*changes, [], 5, None):
        pointer.write_text(json.dumps({**good, **bad} if isinstance(bad, dict) else bad))
        assert refusal(load, "kept:fruit").startswith(f"{pointer}: damaged")
        assert store.kept() == []
        assert len(capsys.readouterr().err.splitlines()) == 1
    pointer.write_text("[" * 100_000)
    assert "damaged" in refusal(load, "kept:fruit")


def test_damaged_imports_are_imported_again_from_what_they_came_from(tmp_path, capsys):
    place = pack(tmp_path / "fruit", fruit())
    kept = importing.import_path(place)
    first = load("kept:fruit")
    kept.path.write_bytes(b"damaged")
    assert_same(load("kept:fruit"), first)
    assert str(kept.path) in capsys.readouterr().err
    assert_same(load("kept:fruit"), first)
    assert not capsys.readouterr().err
    kept.path.write_bytes(b"damaged")
    place.rename(tmp_path / "gone")
    assert "import fruit again" in refusal(load, "kept:fruit")
    pack(place, {"a/0.png": encoded(picture(5))})  # other files in its place
    assert "no longer what fruit was imported from" in refusal(load, "kept:fruit")


def test_idx_files_are_told_apart_by_content(tmp_path):
    assert importing.recognise(real("mnist")) == "mnist"
    assert importing.recognise(real("fashion_mnist")) == "fashion_mnist"
    kept = importing.import_path(real("mnist"))
    assert (kept.samples, kept.writers) == (70_000, 836)
    assert_same(load("mnist"), load("mnist", real("mnist")))
    assert "this is mnist" in refusal(importing.import_path, real("mnist"), "fashion_mnist")


def test_other_idx_files_need_a_name(tmp_path):
    for split, count in (("train", 4), ("t10k", 2)):
        header = bytes([0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, 2, 0, 0, 0, 2])
        (tmp_path / f"{split}-images-idx3-ubyte").write_bytes(header + bytes(4 * count))
        labels = bytes([0, 0, 8, 1, 0, 0, 0, count]) + bytes(range(count))
        (tmp_path / f"{split}-labels-idx1-ubyte").write_bytes(labels)
    assert "--name" in refusal(importing.import_path, tmp_path)
    assert importing.import_path(tmp_path, "fashion_mnist").samples == 6
    assert importing.import_path(tmp_path, "letters").samples == 6
    assert len(load("fashion_mnist").labels) == len(load("kept:letters").labels) == 6


def test_what_is_not_recognised(tmp_path):
    (tmp_path / "x.txt").write_text("hello")
    assert "not recognised" in refusal(importing.import_path, tmp_path / "x.txt")
    assert "no such file" in refusal(importing.import_path, tmp_path / "nowhere")
    assert "holds no images" in refusal(importing.import_path, tmp_path)


# CIFAR10's binary batches


@pytest.fixture
def batches():
    """Six small batches by name, and what they hold."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (120, 32, 32, 3), np.uint8)
    labels = rng.integers(0, 10, 120)
    rows = np.concatenate([labels[:, None], pixels.transpose(0, 3, 1, 2).reshape(120, -1)], axis=1)
    parts = np.split(rows.astype(np.uint8), 6)
    return {name: part.tobytes() for name, part in zip(cifar.NAMES, parts, strict=True)}, (
        pixels,
        labels,
    )


def tarred(files: dict[str, bytes], packed=True) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz" if packed else "w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def test_some_batches_of_cifar10_are_taken_with_a_word_about_it(tmp_path, batches, capsys):
    files, (pixels, _) = batches
    place = pack(tmp_path / "some", {name: files[name] for name in cifar.NAMES[1:]})
    np.testing.assert_array_equal(load("cifar10", place).images, pixels[20:])
    assert "100 images, not the 60,000 of CIFAR10" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["folder", "folder above", ".tar.gz", ".tar"])
def test_cifar10_batches(tmp_path, batches, form):
    files, (pixels, labels) = batches
    if form.startswith("folder"):
        below = cifar.FOLDER + "/" if form == "folder above" else ""
        place = pack(tmp_path / "cifar", {below + name: content for name, content in files.items()})
    else:
        place = tmp_path / f"cifar-10-binary{form}"
        inside = {f"{cifar.FOLDER}/{name}": content for name, content in reversed(files.items())}
        place.write_bytes(tarred({**inside, "readme.html": b"hello"}, form == ".tar.gz"))
    data = load("cifar10", place)
    np.testing.assert_array_equal(data.images, pixels)
    np.testing.assert_array_equal(data.labels, labels)
    assert (data.class_names, data.mean, data.std) == (images.CIFAR, 0.5, 0.5)
    assert importing.import_path(place).name == "cifar10"
    assert_same(load("cifar10"), data)


# FEMNIST


def writing(writers, seed=0):
    """writer -> pixels in 0..1 with a background of 1, and labels"""
    rng = np.random.default_rng(seed)
    return {
        w: (rng.integers(0, 256, (n, 28, 28)) / np.float32(255), rng.integers(0, 10, n))
        for w, n in writers.items()
    }


TRAIN, TEST = writing({"f1_b": 3, "f0_a": 2}), writing({"f1_b": 1, "f2_c": 4}, 1)


def write_h5(path: Path, content) -> None:
    with h5py.File(path, "w") as file:
        for writer, (pixels, labels) in content.items():
            file[f"examples/{writer}/pixels"] = pixels.astype(np.float32)
            file[f"examples/{writer}/label"] = labels


def write_json(path: Path, content) -> None:
    data = {
        w: {"x": pixels.reshape(len(labels), -1).tolist(), "y": labels.tolist()}
        for w, (pixels, labels) in content.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    users = {"users": list(content), "num_samples": [len(y) for _, y in content.values()]}
    path.write_text(json.dumps({**users, "user_data": data}))


@pytest.fixture
def tff(tmp_path) -> Path:
    for split, content in (("train", TRAIN), ("test", TEST)):
        write_h5(tmp_path / f"fed_emnist_digitsonly_{split}.h5", content)
    return tmp_path


def assert_is_the_writing(data, order):
    parts = [content[writer] for content, writer in order]
    pixels = np.concatenate([pixels for pixels, _ in parts])
    np.testing.assert_array_equal(data.images[..., 0], np.rint(255 - 255 * pixels))
    np.testing.assert_array_equal(data.labels, np.concatenate([labels for _, labels in parts]))
    numbers = {"f0_a": 0, "f1_b": 1, "f2_c": 2}
    expected = [numbers[w] for content, w in order for _ in content[w][1]]
    assert data.writers.tolist() == expected
    assert (data.classes, data.mean, data.std) == (10, 0.1307, 0.3081)


def test_femnist_of_tensorflow_federated(tff, cache):
    data = load("femnist", tff)
    order = [(TRAIN, "f0_a"), (TRAIN, "f1_b"), (TEST, "f1_b"), (TEST, "f2_c")]
    assert_is_the_writing(data, order)
    (path,) = cache.iterdir()
    test_file = tff / "fed_emnist_digitsonly_test.h5"
    assert_decoded_once(path, data, lambda: load("femnist", test_file))
    kept = importing.import_path(tff)
    assert (kept.name, kept.samples, kept.writers) == ("femnist", 10, 3)
    assert_same(load("femnist"), data)


def test_one_file_of_femnist_is_read_alone(tff, tmp_path, capsys):
    (tff / "fed_emnist_digitsonly_test.h5").unlink()
    data = load("femnist", tff)
    assert_is_the_writing(data, [(TRAIN, "f0_a"), (TRAIN, "f1_b")])
    assert "read alone" in capsys.readouterr().err
    other = tmp_path / "other"
    other.mkdir()
    (tff / "fed_emnist_digitsonly_train.h5").rename(other / "digits.h5")
    assert_same(load("femnist", other), data)
    assert_same(load("femnist", other / "digits.h5"), data)
    assert not capsys.readouterr().err


def test_background_is_zero_as_in_mnist(tmp_path):
    blank = {"w": (np.ones((1, 28, 28)), np.zeros(1, int))}
    for split in ("train", "test"):
        write_h5(tmp_path / f"x_{split}.h5", blank)
    assert not load("femnist", tmp_path).images.any()


@pytest.mark.parametrize("folders", [("train", "test"), ("data/train", "data/test")])
def test_femnist_of_leaf(tmp_path, folders):
    letters = {"f9_z": (np.zeros((2, 28, 28)), np.array([10, 61]))}  # not a digit among them
    mixed = {w: (p.copy(), y.copy()) for w, (p, y) in TRAIN.items()}
    pixels, labels = mixed["f0_a"]
    mixed["f0_a"] = np.concatenate([pixels, pixels[:1]]), np.append(labels, 35)
    write_json(tmp_path / folders[0] / "all_data_0.json", {**mixed, **letters})
    write_json(tmp_path / folders[1] / "all_data_0.json", TEST)
    assert importing.recognise(tmp_path) == "femnist"
    order = [(TRAIN, "f1_b"), (TRAIN, "f0_a"), (TEST, "f1_b"), (TEST, "f2_c")]
    assert_is_the_writing(load("femnist", tmp_path), order)


@pytest.mark.parametrize("folder", ["all_data", "."])
def test_femnist_of_leaf_unsplit(tmp_path, folder):
    write_json(tmp_path / folder / "all_data_0.json", TRAIN)
    write_json(tmp_path / folder / "all_data_1.json", {"f2_c": TEST["f2_c"]})
    order = [(TRAIN, "f1_b"), (TRAIN, "f0_a"), (TEST, "f2_c")]
    assert_is_the_writing(load("femnist", tmp_path), order)


# arrays


def test_npz(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    pixels, labels = rng.integers(0, 256, (6, 4, 3), np.uint8), np.array([0, 2, 1, 0, 1, 2])
    np.savez(tmp_path / "a.npz", images=pixels, labels=labels, other=np.array([None]))
    data = load(f"npz:{tmp_path / 'a.npz'}")
    np.testing.assert_array_equal(data.images, pixels[..., None])
    assert data.labels.tolist() == labels.tolist()
    assert data[2:] == (3, None, 0.5, 0.5, ())
    names = np.array(["x", "y", "z", "never seen"])
    np.savez_compressed(
        tmp_path / "b.npz", x=pixels / 255, y=labels.astype(np.uint8), class_names=names,
        writers=[7, 7, 3, 3, 9, 9], mean=0.2, std=0.1,
    )  # fmt: skip
    monkeypatch.chdir(tmp_path)
    config = make({"data": {"name": "npz:b.npz"}})
    assert config.data.name == f"npz:{tmp_path / 'b.npz'}"
    data = datasets.load(config.data, np.random.default_rng(0))
    np.testing.assert_array_equal(data.images, (pixels / 255).astype(np.float32)[..., None])
    assert (data.classes, data.mean, data.std) == (4, 0.2, 0.1)
    assert data.class_names == ("x", "y", "z", "never seen")
    assert data.writers.tolist() == [1, 1, 0, 0, 2, 2]
    assert importing.import_path("b.npz").name == "b"
    assert_same(load("kept:b"), data)


def test_arrays_from_python_are_checked():
    images_, labels = np.zeros((30, 4), np.float32), np.arange(30) % 3
    good = fj.Dataset(images_, labels, 3)
    assert_same(datasets.check(good), good)
    for bad, said in (
        (good._replace(images=images_.astype(str)), "expected numbers"),
        (good._replace(images=images_.astype(object)), "expected numbers"),
        (good._replace(images=[[1], [1, 2]]), "not arrays"),
        (good._replace(images=images_[:, 0]), "images of shape (30,)"),
        (good._replace(images=images_[:, :0]), "images of shape (30, 0)"),
        (good._replace(images=images_[:0], labels=labels[:0]), "0 images"),
        (good._replace(labels=labels[:29]), "30 images but labels of shape (29,)"),
        (good._replace(labels=labels[:, None]), "30 images but labels of shape (30, 1)"),
        (good._replace(labels=np.full(30, np.inf)), "labels hold numbers"),
        (good._replace(labels=labels - 1), "labels span -1..1"),
        (good._replace(classes=2), "labels span 0..2 but there are 2 classes"),
        (good._replace(writers=labels[:3]), "writers of shape (3,)"),
    ):
        assert said in refusal(datasets.check, bad)
        with pytest.raises(InputError):
            fj.run(rounds=1, data=bad, quiet=True)


# TensorFlow Datasets


@needs_tfds
def test_tfds_reads_what_was_prepared(tmp_path, cache):
    folder = prepared(tmp_path / "tfds", "tiny_digits")
    data = load("tfds:tiny_digits", folder)
    numbers = [n for n in range(9) for image in data.images if (image[..., 0] == picture(n)).all()]
    assert numbers == list(range(9))
    which = [next(n for n in range(9) if (i[..., 0] == picture(n)).all()) for i in data.images]
    assert set(which[:6]) == set(range(6))  # train before test
    assert data.labels.tolist() == [n % 3 for n in which]
    assert (data.classes, data.class_names, data.mean) == (3, ("a", "b", "c"), 0.5)
    (path,) = cache.iterdir()
    assert_decoded_once(path, data, lambda: load("tfds:tiny_digits:1.0.0", folder))
    assert "not prepared in data.dir" in refusal(load, "tfds:tiny_digits:2.0.0", folder)
    assert "flamejax data prepare tfds:mnist" in refusal(load, "tfds:mnist", folder)


@needs_tfds
def test_tfds_emnist_stands_upright(tmp_path):
    data = load("tfds:emnist/digits", prepared(tmp_path / "tfds", "emnist/digits"))
    assert data.images.shape == (9, 4, 5, 1)
    assert any((data.images[0, ..., 0] == picture(n).T).all() for n in range(9))


@needs_tfds
def test_tfds_prepare_keeps_our_sets_under_their_names(tmp_path):
    """What is prepared already needs no network."""
    folder = prepared(tmp_path / "tfds", "fashion_mnist")
    with found_by_tfds(folder):
        kept = tfds.prepare("fashion_mnist")
        found = load("tfds:fashion_mnist")
    assert (kept.name, kept.source, kept.samples) == ("fashion_mnist", "tfds:fashion_mnist", 9)
    data = load("fashion_mnist")
    assert (data.mean, data.std) == (0.1307, 0.3081)
    assert_same(load("tfds:fashion_mnist", folder), data)
    assert_same(found, data)


@needs_tfds
def test_tfds_refuses_what_it_cannot_use(tmp_path):
    import tensorflow_datasets as tf_datasets

    kinds = {
        "any_size": {"image": tf_datasets.features.Image(shape=(None, None, 1))},
        "numbers": {"label": tf_datasets.features.Scalar(np.int64)},
    }
    for name, features in kinds.items():
        folder = prepared(tmp_path / name, name, **features)
        text = refusal(load, f"tfds:{name}", folder)
        assert str(folder) in text
    assert "one size" in refusal(load, "tfds:any_size", tmp_path / "any_size")
    assert "not classes" in refusal(load, "tfds:numbers", tmp_path / "numbers")
    for name in ("owner:name", "../x", "a b", "kaggle:x/y", "x/y/z"):
        assert "should be like" in refusal(load, f"tfds:{name}")
    (damaged,) = (tmp_path / "numbers").glob("*/*/features.json")
    damaged.write_text("{")
    refusal(load, "tfds:numbers", tmp_path / "numbers")


def test_tfds_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    text = refusal(load, "tfds:mnist")
    assert "pip install 'flamejax[tfds]'" in text
    assert "pip install 'flamejax[tfds]'" in refusal(tfds.prepare, "mnist")


@needs_tfds
def test_tfds_prepare_without_a_network(monkeypatch, tmp_path):
    import tensorflow_datasets as tf_datasets

    def broken(name, **_):
        raise ConnectionError(f"no way to {name}\nand a long story")

    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    pack(tmp_path / "site", {"tensorflow.py": b"raise ImportError"})  # as if it were there
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert "there is no network" in refusal(tfds.prepare, "mnist")
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: ["an address"])
    monkeypatch.setattr(tf_datasets, "builder", broken)
    assert refusal(tfds.prepare, "mnist") == "tfds:mnist: cannot be prepared: no way to mnist"
    assert not store.kept()


@needs_tfds
@pytest.mark.skipif(find_spec("tensorflow") is not None, reason="TensorFlow is there")
def test_tfds_prepare_needs_tensorflow(monkeypatch, tmp_path):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    assert "needs TensorFlow: pip install" in refusal(tfds.prepare, "mnist")
