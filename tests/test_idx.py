"""Idx files: read exactly, or refused in one line that names the file."""

import gzip
import struct

import numpy as np
import pytest

from flamejax import datasets
from flamejax.config import Data
from flamejax.datasets import idx
from flamejax.errors import InputError

UBYTE, INT = 0x08, 0x0C
TRAIN_IMAGES, TRAIN_LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
TEST_IMAGES, TEST_LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"


def encode(array, code=UBYTE, shape=None) -> bytes:
    """The bytes of an idx file; `shape` is what the header claims, the truth if not given."""
    array = np.asarray(array)
    shape = array.shape if shape is None else shape
    header = struct.pack(f">HBB{len(shape)}I", 0, code, len(shape), *shape)
    return header + array.astype(np.uint8 if code == UBYTE else ">i4").tobytes()


def write(folder, name: str, content: bytes) -> None:
    """A file as it is, or compressed when its name ends in .gz."""
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)


def digits(count: int, size: int = 4):
    rng = np.random.default_rng(count)
    return rng.integers(0, 256, (count, size, size)), rng.integers(0, 10, count)


@pytest.fixture
def folder(tmp_path):
    """Six training and three test images, compressed."""
    for (images, labels), names in (
        (digits(6), (TRAIN_IMAGES, TRAIN_LABELS)),
        (digits(3), (TEST_IMAGES, TEST_LABELS)),
    ):
        write(tmp_path, f"{names[0]}.gz", encode(images))
        write(tmp_path, f"{names[1]}.gz", encode(labels))
    return tmp_path


def load(folder, name="mnist", **settings):
    return datasets.load(Data(name=name, dir=str(folder), **settings), np.random.default_rng(0))


def refusal(folder, name="mnist") -> str:
    with pytest.raises(InputError) as caught:
        load(folder, name)
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    return text


def assert_is_the_digits(data):
    (train, train_labels), (test, test_labels) = digits(6), digits(3)
    np.testing.assert_array_equal(data.images, np.concatenate([train, test])[..., None])
    np.testing.assert_array_equal(data.labels, np.concatenate([train_labels, test_labels]))
    assert (data.images.dtype, data.labels.dtype, data.classes) == (np.uint8, np.int32, 10)


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_train_and_test_are_read_together(folder, name):
    data = load(folder, name)
    assert_is_the_digits(data)
    assert data.writers is None


@pytest.mark.parametrize("spelling", ["{}", "{}.gz", "dotted", "dotted.gz"])
def test_every_spelling_of_the_file_names(folder, spelling):
    for path in list(folder.iterdir()):
        content = gzip.decompress(path.read_bytes())
        path.unlink()
        stem = path.name.removesuffix(".gz")
        dotted = spelling.replace("dotted", stem.replace("-idx", ".idx"))
        write(folder, dotted.format(stem), content)
    assert_is_the_digits(load(folder))


def test_limit_draws_samples_that_belong_together(folder):
    everything, some = load(folder), load(folder, limit=5)
    assert some.images.shape == (5, 4, 4, 1)
    for image, label in zip(some.images, some.labels, strict=True):
        where = [i for i, other in enumerate(everything.images) if np.array_equal(image, other)]
        assert [everything.labels[i] for i in where] == [label]


def test_numbers_are_big_endian(tmp_path):
    numbers = np.array([[1, -2, 300], [70_000, 5, 2**31 - 1]])
    write(tmp_path, "x.gz", encode(numbers, INT))
    np.testing.assert_array_equal(idx.read(tmp_path / "x.gz", 2, INT), numbers)


GOOD = encode(digits(6)[0])
PACKED = gzip.compress(GOOD)

# what lies in the file -> what the refusal says beside the file's name
BROKEN = {
    "empty": (b"", "not an idx file"),
    "shorter than a header": (GOOD[:10], "not an idx file"),
    "text": (b"<html>404 not found</html>" * 9, "not an idx file"),
    "wrong magic": (b"\x01" + GOOD[1:], "not an idx file"),
    "unknown type": (encode(digits(6)[0], 0x09), "not an idx file"),
    "integers for bytes": (encode(digits(6)[0], INT), "not an idx file"),
    "one dimension": (encode(np.zeros(96)), "1 dimensions where 3 are expected"),
    "four dimensions": (encode(np.zeros((6, 4, 4, 1))), "4 dimensions where 3 are expected"),
    "a byte short": (GOOD[:-1], "fewer bytes than the 96"),
    "a byte over": (GOOD + b"\0", "more bytes than the 96"),
    "header claims more": (encode(digits(6)[0], shape=(7, 4, 4)), "fewer bytes than the 112"),
    "header claims less": (encode(digits(6)[0], shape=(5, 4, 4)), "more bytes than the 80"),
    "absurd size": (encode([], shape=(2**32 - 1,) * 3), "more than any known idx file"),
    "just too large": (encode([], shape=(2**31 + 1, 1, 1)), "more than any known idx file"),
    "no images": (encode([], shape=(0, 4, 4)), "holds nothing"),
    "images of no size": (encode([], shape=(6, 0, 4)), "holds nothing"),
}


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("what", BROKEN)
def test_broken_content_is_refused(folder, what, packed):
    content, said = BROKEN[what]
    (folder / f"{TRAIN_IMAGES}.gz").unlink()
    name = f"{TRAIN_IMAGES}.gz" if packed else TRAIN_IMAGES
    write(folder, name, content)
    text = refusal(folder)
    assert text.startswith(f"{folder / name}: ")
    assert said in text


@pytest.mark.parametrize(
    "content",
    [b"", PACKED[:-20], PACKED[:40], PACKED[:5], b"garbage" * 50, GOOD,
     PACKED[:-8] + b"\0" * 8, PACKED + b"trailing", PACKED[:10] + b"\xff" + PACKED[11:]],
    ids=["empty", "cut", "cut early", "cut in its header", "garbage", "not compressed",
         "wrong checksum", "trailing bytes", "damaged inside"],
)  # fmt: skip
def test_broken_compression_is_refused(folder, content):
    path = folder / f"{TRAIN_IMAGES}.gz"
    path.write_bytes(content)
    assert refusal(folder).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (TRAIN_LABELS, encode(digits(5)[1]), "6 images but 5 labels"),
        (TEST_LABELS, encode(digits(6)[1]), "3 images but 6 labels"),
        (TEST_IMAGES, encode(digits(3, size=5)[0]), "another size"),
    ],
)
def test_files_that_do_not_fit_together_are_refused(folder, name, content, said):
    write(folder, f"{name}.gz", content)
    text = refusal(folder)
    assert text.startswith(f"{folder / name.replace('labels-idx1', 'images-idx3')}.gz: ")
    assert said in text


@pytest.mark.parametrize(("name", "count"), [(TRAIN_LABELS, 6), (TEST_LABELS, 3)])
@pytest.mark.parametrize("label", [10, 255])
def test_label_out_of_range_is_refused(folder, name, count, label):
    write(folder, f"{name}.gz", encode([0] * (count - 1) + [label]))
    text = refusal(folder)
    assert text.startswith(f"{folder / name}.gz: ")
    assert f"label {label} " in text


@pytest.mark.parametrize("name", [TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS])
def test_missing_file_is_named(folder, name):
    (folder / f"{name}.gz").unlink()
    assert refusal(folder) == f"data.dir: {folder / name}.gz is missing"


def test_data_dir_must_be_a_folder(tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "nowhere", tmp_path / "nul\0byte"):
        for name in ("mnist", "fashion_mnist"):
            text = refusal(place, name)
            assert text.startswith(f"data.dir = '{place}' is not a folder; {name} needs")
    assert "is missing" in refusal(tmp_path)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """70,000 images of one pixel, each by one of three writers; the folder and its writers."""
    folder = tmp_path_factory.mktemp("qmnist")
    for split, count in (("train", 60_000), ("t10k", 10_000)):
        write(folder, f"{split}-images-idx3-ubyte", encode(np.zeros((count, 1, 1))))
        write(folder, f"{split}-labels-idx1-ubyte", encode(np.zeros(count)))
    numbers = np.random.default_rng(0).choice([17, 300, 4000], 120_000)
    rows = np.zeros((120_000, 8), int)
    rows[:, 2] = numbers
    write(folder, "qmnist-train-labels-idx2-int", encode(rows[:60_000], INT))
    write(folder, "qmnist-test-labels-idx2-int", encode(rows[60_000:], INT))
    return folder, numbers[:70_000]


def test_writers_come_from_qmnist(written):
    folder, numbers = written
    np.testing.assert_array_equal(load(folder).writers, np.searchsorted([17, 300, 4000], numbers))
    assert load(folder, "fashion_mnist").writers is None
    some = load(folder, limit=100)
    assert some.writers.shape == (100,)


@pytest.mark.parametrize(
    ("split", "rows"), [("train", (59_999, 8)), ("test", (9_999, 8)), ("test", (10_000, 2))]
)
def test_other_qmnist_files_are_refused(written, tmp_path, split, rows):
    for path in written[0].iterdir():
        (tmp_path / path.name).symlink_to(path)
    name = f"qmnist-{split}-labels-idx2-int"
    (tmp_path / name).unlink()
    write(tmp_path, name, encode(np.zeros(rows), INT))
    text = refusal(tmp_path)
    assert "qmnist" in text
    assert str(rows) in text


def test_qmnist_beside_other_images_is_refused(folder, written):
    for path in written[0].glob("qmnist*"):
        (folder / path.name).symlink_to(path)
    assert "QMNIST labels (60000, 8) and" in refusal(folder)


def test_one_qmnist_file_alone_gives_no_writers(folder, written):
    name = "qmnist-train-labels-idx2-int"
    (folder / name).symlink_to(written[0] / name)
    assert load(folder).writers is None


@pytest.mark.full
def test_real_mnist(mnist_dir):
    data = load(mnist_dir)
    assert data.images.shape == (70_000, 28, 28, 1)
    assert data.labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert len(np.unique(data.writers)) == 836
    # the constants by which images are normalised are those of the training images
    pixels = data.images[:60_000] / np.float32(255)
    assert abs(pixels.mean() - data.mean) < 1e-4
    assert abs(pixels.std() - data.std) < 1e-4
