"""`flamejax data`: what it says is true, what it deals is what a run uses, pictures are written."""

import functools
import signal
import subprocess
import sys
from pathlib import Path

import jax
import matplotlib.image
import numpy as np
import pytest

import flamejax as fj
from flamejax import cache, catalog, registry
from flamejax import heterogeneity as het
from flamejax.cli import main
from flamejax.config import make
from flamejax.federation import assemble, federate
from flamejax.heterogeneity import clients_of
from flamejax.report import data_figures

from .made import found_by_tfds, needs_tfds, prepared
from .test_idx import digits, encode, write

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    """Nothing is read from or left in the user's own folders; compiled programs are shared."""
    compiled = cache.folder() / "compiled"
    compiled.mkdir(exist_ok=True)
    for name in ("cache", "here"):
        (tmp_path / name).mkdir()
    (tmp_path / "cache" / "compiled").symlink_to(compiled)
    monkeypatch.setenv("FLAMEJAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path / "here")


def run(*words: object) -> int:
    return main(["data", *map(str, words)])


def sets(text: str) -> list[str]:
    return [word for assignment in text.split() for word in ("--set", assignment)]


def dataset(labels, writers=None, classes=None, size=4):
    """Images whose pixels are their number in the set."""
    labels = np.asarray(labels)
    images = np.tile(np.arange(len(labels), dtype=np.uint8)[:, None, None, None], (size, size, 1))
    return fj.Dataset(images, labels, classes or int(labels.max()) + 1, writers)


# ---- figures of heterogeneity


def test_distances_of_a_known_table():
    held = np.array([[6, 2, 0], [0, 2, 6], [3, 2, 3]])  # together 9, 6, 9
    together = np.array([3, 2, 3]) / 8
    shares = held / 8
    by_hand = [sum(abs(p - together)) / 2 for p in shares]
    np.testing.assert_allclose(by_hand, [0.375, 0.375, 0.0])
    np.testing.assert_allclose(het.total_variation(held), by_hand)
    # distance to the middle, for the first client: (3/4, 1/4, 0) and (3/8, 1/4, 3/8)
    left = 0.75 * np.log2(0.75 / 0.5625)
    right = 0.375 * np.log2(0.375 / 0.5625) + 0.375 * np.log2(0.375 / 0.1875)
    expected = (left + right) / 2
    np.testing.assert_allclose(het.jensen_shannon(held), [expected, expected, 0.0], atol=1e-15)


@pytest.mark.parametrize("clients", [2, 10])
def test_distances_at_their_ends(clients):
    alike = np.ones((clients, 10), int) * 7
    apart = np.eye(clients, dtype=int) * 5  # each has a class of its own
    assert het.total_variation(alike).tolist() == het.jensen_shannon(alike).tolist()
    assert het.total_variation(alike).max() == 0
    np.testing.assert_allclose(het.total_variation(apart), 1 - 1 / clients)
    assert (het.jensen_shannon(apart) <= 1).all()
    # sizes do not matter, only shares
    np.testing.assert_allclose(het.total_variation(apart)[0], het.total_variation(apart * 3)[0])


def test_figures_of_sizes():
    assert het.gini(np.full(9, 4)) == het.variation(np.full(9, 4)) == 0
    assert het.gini(np.array([0, 0, 0, 12])) == 0.75
    assert het.variation(np.array([1, 3])) == 0.5
    sizes = np.array([5, 1, 3, 11])
    pairs = abs(sizes[:, None] - sizes).mean() / (2 * sizes.mean())  # Gini by its definition
    np.testing.assert_allclose(het.gini(sizes), pairs)


def test_what_clients_hold_is_counted():
    labels = np.array([0, 0, 1, 1, 2, 2, 0, 1, 2, 0, 1, 2])
    data = dataset(labels, writers=np.array([7, 7, 7, 9, 9, 9, 5, 5, 5, 5, 9, 7]))
    config = make({"partition": {"name": "iid", "clients": 3, "min_samples": 3}})
    federation = federate(config, data, np.random.default_rng(0))
    found = clients_of(data, federation)
    rows = np.split(federation.arrays.rows, federation.arrays.starts[1:-1])
    for client, mine in enumerate(rows):
        assert found.held[client].tolist() == [(labels[mine] == k).sum() for k in range(3)]
        assert found.writers[client] == len(set(data.writers[mine]))
    assert found.sizes.tolist() == [4, 4, 4]
    assert (found.samples, found.used) == (12, 12)
    assert not found.noise.any()


def test_targets_have_no_classes():
    data = dataset(np.linspace(0, 1, 30))._replace(classes=0)
    config = make({"partition": {"name": "iid", "clients": 3, "min_samples": 3}})
    found = clients_of(data, federate(config, data, np.random.default_rng(0)))
    assert found.held is None
    assert found.sizes.tolist() == [10, 10, 10]


# ---- partition


@functools.cache
def dealt(text: str):
    """Config, data, federation, and what its clients hold."""
    values: dict = {}
    for assignment in text.split():
        fj.config.override(values, assignment)
    config = make(values)
    data, federation = assemble(config)
    return config, data, federation, clients_of(data, federation)


def partitioned(text: str):
    config, data, _, found = dealt(text)
    return config, data, found


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", marks=pytest.mark.full),
        "data.limit=900 partition.name=dirichlet selection.on=test seed=3",
    ],
)
def test_partition_deals_what_a_run_uses(text, tmp_path, capsys):
    settings = sets(f"{text} rounds=1 model.name=mlr engine.devices=1")
    assert main(["run", *settings, "--out", str(tmp_path / "out"), "--quiet"]) == 0
    found = partitioned(text)[2]
    with np.load(tmp_path / "out" / "clients.npz", allow_pickle=False) as clients:
        np.testing.assert_array_equal(found.counts[:, 0], clients["train_samples"])
        np.testing.assert_array_equal(found.counts[:, 2], clients["test_samples"])
    assert run("partition", tmp_path / "out" / "config.toml") == 0
    said = capsys.readouterr().out
    assert f"{found.counts[:, 0].sum():,}" in said
    assert f"total variation {het.total_variation(found.held).mean():.3f}" in said


def test_partition_says_what_is_special(capsys):
    text = "partition.name=quantity partition.overlap=true attack.name=sign_flip data.limit=2000"
    assert run("partition", *sets(text)) == 0
    said = capsys.readouterr().out
    found = partitioned(text)[2]
    assert found.used < found.sizes.sum() == 2000
    assert f"{found.used:,} of 2,000 samples, and {2000 - found.used:,} copies" in said
    who = ", ".join(map(str, np.flatnonzero(found.malicious)))
    assert f"malicious: {who}\n" in said
    assert "mnist_mini data (2,000 samples) · quantity (beta = 0.5, overlap)" in said
    assert run("partition", *sets("partition.name=quality partition.sigma=0.2")) == 0
    said = capsys.readouterr().out
    assert ["noise", "variance", "0.02", "0.11", "0.2", "0.11"] in map(str.split, said.splitlines())


GENERATED = "data.name=synthetic partition.name=natural partition.clients=7 data.features=5"


def test_generated_clients_are_looked_at_too(capsys):
    text = GENERATED
    found = partitioned(text)[2]
    assert found.held.shape == (7, 10)
    np.testing.assert_array_equal(found.held.sum(1), found.sizes)
    # poisoned labels are not the client's own
    lies = partitioned(f"{text} attack.name=label_poison attack.fraction=0.5")[2]
    assert lies.malicious.sum() == 4
    np.testing.assert_array_equal(lies.held, found.held)
    assert run("partition", *sets(text)) == 0
    assert f"generated: {found.sizes.sum():,} samples" in capsys.readouterr().out
    assert run("partition", *sets("data.name=linreg partition.name=natural"), "--plot") == 0
    assert Path("linreg-natural-10.png").read_bytes().startswith(PNG)


def test_generated_labels_are_those_read():
    _, _, federation, found = dealt(GENERATED)
    arrays = jax.device_put(federation.arrays)
    positions = np.arange(found.sizes.max(), dtype=np.int32)
    read = jax.jit(lambda client: federation.read(arrays, client, positions)[1])
    for client in range(7):
        labels = np.asarray(read(np.int32(client)))[: found.sizes[client]]
        assert found.held[client].tolist() == np.bincount(labels, minlength=10).tolist()


PARTITIONS = [name for name in registry.names("partitions") if name != "natural"]


DRAWN = {("hybrid", 70), ("quality", 10)}  # by default: a map, and bubbles
EVERY = [*((name, 10) for name in PARTITIONS), ("hybrid", 70), ("quality", 70)]


@pytest.mark.parametrize(
    ("name", "clients"),
    [pytest.param(*one, marks=[pytest.mark.full] * (one not in DRAWN)) for one in EVERY],
)
def test_every_partition_is_drawn(name, clients):
    text = f"partition.name={name} partition.clients={clients} partition.min_samples=3"
    assert run("partition", *sets(text), "--plot") == 0
    picture = Path(f"mnist_mini-{name}-{clients}.png")
    assert picture.read_bytes().startswith(PNG)
    pixels = matplotlib.image.imread(picture)[..., :3]
    assert min(pixels.shape[:2]) > 500
    assert pixels.reshape(-1, 3).std(0).max() > 0.1  # more than an empty page


def test_bubbles_and_maps_differ_where_clients_do():
    config, data, clients = partitioned("partition.name=qlabel")
    drawn = data_figures.partition(config, clients, data, "png")
    assert drawn == data_figures.partition(config, clients, data, "png")
    turned = clients._replace(held=clients.held[::-1])
    assert data_figures.partition(config, turned, data, "png") != drawn
    attacked = clients._replace(malicious=np.arange(10) < 3)
    assert data_figures.partition(config, attacked, data, "png") != drawn


def test_pictures_of_thousands_of_clients_stay_small():
    config, data, clients = partitioned(
        "partition.clients=2500 partition.name=iid partition.min_samples=3"
    )
    drawn = data_figures.partition(config, clients, data, "png")
    assert len(drawn) < 1_000_000


@pytest.mark.parametrize("form", ["png", "pdf", "svg"])
def test_plot_goes_to_the_file_named(form, tmp_path, capsys):
    path = tmp_path / "new" / f"clients.{form}"
    assert run("partition", *sets("data.limit=500"), "--plot", path) == 0
    start = {"png": PNG, "pdf": b"%PDF", "svg": b"<?xml"}[form]
    assert path.read_bytes().startswith(start)
    assert f"Picture: {path}" in capsys.readouterr().out


# ---- list and info


def test_list_says_what_is_where(tmp_path, capsys):
    assert run("list") == 0
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 80
    lines = said.splitlines()
    for name in registry.names("datasets"):
        assert any(line.split()[:1] == [name] for line in lines), name
    assert "7,936       10  28x28x1   bundled, 1.3 MB" in said
    assert "70,000       10  28x28x1   not here: prepare or import idx files" in said
    for word in ("CC BY-SA 3.0", "MIT", "CC BY-SA 4.0", "no explicit licence"):
        assert word in said


def test_catalog_agrees_with_the_bundled_data():
    data, known = fj.load_data("mnist_mini"), catalog.KNOWN["mnist_mini"]
    facts = len(data.labels), data.classes, data.images.shape[1:]
    assert facts == (known.samples, known.classes, known.shape)
    assert set(catalog.KNOWN) <= set(registry.names("datasets"))


def test_list_starts_fast_and_without_jax():
    heavy = "sorted({'jax', 'flax', 'matplotlib', 'tensorflow', 'PIL', 'h5py'} & set(sys.modules))"
    code = f"""
import sys, time
from flamejax.cli import main
main(['data', 'list'])
print({heavy}, time.process_time())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found, _, seconds = done.stdout.splitlines()[-1].rpartition(" ")
    assert found == "[]"
    assert float(seconds) < 1  # of the processor, whatever else runs on the machine


def test_info_counts_and_draws(tmp_path, capsys):
    assert run("info", "mnist_mini", "--out", tmp_path / "pictures") == 0
    said = capsys.readouterr().out
    data = fj.load_data("mnist_mini")
    for k, count in enumerate(np.bincount(data.labels)):
        assert any(line.split()[:2] == [str(k), str(count)] for line in said.splitlines())
    for words in (
        "28 x 28 x 1, uint8; 6.2 MB",
        "- 0.1307) / 0.3081",
        "70, with 90 to 130 samples (median 118)",
    ):
        assert words in said
    path = tmp_path / "pictures" / "mnist_mini.png"
    assert f"Examples: {path}" in said
    pixels = matplotlib.image.imread(path)[..., 0]
    assert pixels.shape[0] > 10 * 56
    assert pixels.shape[1] > 12 * 56
    assert (
        run("info", "mnist_mini", "--out", tmp_path / "pictures") == 0
    )  # an older one is replaced


def test_mosaic_shows_samples_of_the_class_of_its_row():
    labels = np.repeat([0, 1, 2], [40, 30, 5])
    data = dataset(labels, size=48)  # as large as a tile
    data = data._replace(images=data.images * 3, class_names=("a", "b", "c"))
    (Path("m.png")).write_bytes(data_figures.mosaic(data))
    pixels = np.rint(matplotlib.image.imread("m.png")[..., 0] * 255).astype(int)
    left = pixels.shape[1] - 12 * 52
    for k in range(3):
        row = pixels[pixels.shape[0] - (3 - k) * 52 + 20, left + 20 :: 52]
        members = np.flatnonzero(labels == k)
        shown = [value // 3 for value in row if value != 255]
        assert len(shown) == min(12, len(members))
        assert shown == sorted(set(shown))
        assert {shown[0], shown[-1]} == {members[0], members[-1]}


def test_info_of_what_cannot_be_drawn(tmp_path, capsys):
    rng = np.random.default_rng(0)
    np.savez("own.npz", images=rng.normal(size=(30, 5)), labels=np.arange(30) % 3)
    assert run("info", "npz:own.npz") == 0
    said = capsys.readouterr().out
    assert "Not drawn" in said
    assert "5, float32" in said
    assert not list(Path().glob("*.png"))
    assert run("info", "synthetic") == 0
    assert "generated for each client" in capsys.readouterr().out


# ---- import and prepare


@pytest.fixture
def folders(tmp_path) -> Path:
    """Two classes of two images each, in folders."""
    for k, name in enumerate(("cat", "dog")):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for i in range(2):
            pixels = np.full((6, 5, 3), 100 * k + 10 * i, np.uint8)
            matplotlib.image.imsave(tmp_path / "pets" / name / f"{i}.png", pixels)
    return tmp_path / "pets"


def test_import_is_used_by_name(folders, tmp_path, capsys):
    assert run("import", folders) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"{folders}: class folders of images"
    assert said[1].startswith("pets: 4 samples of 6x5x")
    assert "2 classes" in said[1]
    assert str(tmp_path / "cache") in said[2]
    assert said[3] == "flamejax run --set data.name=kept:pets"
    data = fj.load_data("kept:pets")
    assert data.class_names == ("cat", "dog")
    assert run("list") == 0
    listed = capsys.readouterr().out
    assert "kept:pets " in listed
    assert said[2].split()[2] in listed
    assert run("info", "kept:pets") == 0
    said = capsys.readouterr().out
    assert " dog " in said
    assert Path("pets.png").exists()


def test_import_of_named_data(tmp_path, capsys):
    folder = tmp_path / "idx"
    folder.mkdir()
    for split, count in (("train", 6), ("t10k", 3)):
        images, labels = digits(count)
        write(folder, f"{split}-images-idx3-ubyte.gz", encode(images))
        write(folder, f"{split}-labels-idx1-ubyte.gz", encode(labels))
    assert run("import", folder, "--name", "mnist") == 0
    said = capsys.readouterr().out
    assert "mnist: 9 samples of 4x4x1, 10 classes" in said
    assert said.splitlines()[-1] == "flamejax run --set data.name=mnist"
    assert len(fj.load_data("mnist").labels) == 9
    assert run("list") == 0
    assert "9       10  4x4x1     imported" in capsys.readouterr().out


@needs_tfds
@pytest.mark.parametrize(
    ("name", "kept", "shape", "used"),
    [
        ("mnist", "mnist", "5x4x1", "mnist"),
        ("tfds:emnist/digits", "emnist-digits", "4x5x1", "kept:emnist-digits"),
    ],
)
def test_prepare_keeps_like_import(name, kept, shape, used, tmp_path, capsys):
    folder = prepared(tmp_path / "tfds", name.removeprefix("tfds:"))
    capsys.readouterr()  # what TFDS said
    with found_by_tfds(folder):
        assert run("prepare", name) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith(f"{kept}: 9 samples of {shape}, 3 classes, in ")
    assert said[2] == f"flamejax run --set data.name={used}"
    data = fj.load_data(f"tfds:{name.removeprefix('tfds:')}", folder)
    assert sorted(data.labels.tolist()) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    np.testing.assert_array_equal(fj.load_data(used).labels, data.labels)
    np.testing.assert_array_equal(fj.load_data(used).images, data.images)


# command line -> a piece of the refusal
BAD = [
    (["lisst"], "'lisst'"),
    (["info"], "NAME"),
    (["info", "mnits"], "did you mean 'mnist'?"),
    (["info", "mnist"], "flamejax data import"),
    (["info", "mnist", "--dir", "nowhere"], "nowhere"),
    (["info", "npz:nowhere.npz"], "nowhere.npz: no such file"),
    (["info", "mnist_mini", "--out", "file/below"], "file/below/mnist_mini.png: cannot be written"),
    (["import"], "PATH"),
    (["import", "nowhere"], "no such file or folder"),
    (["import", "file"], "not recognised"),
    (["prepare", "medical_mnist"], "kaggle.com/datasets/andrewmvd/medical-mnist"),
    (["prepare", "femnist"], "fed_emnist_digitsonly_train.h5"),
    (["prepare", "mnist_mini"], "nothing to prepare"),
    (["prepare", "linreg"], "nothing to prepare"),
    (["prepare", "cifar"], "did you mean 'cifar10'?"),
    (["prepare", "emnist"], "written tfds:NAME"),
    (["prepare", "tfds:a b"], "tfds:emnist/digits"),
    (["partition", "nowhere.toml"], "nowhere.toml: cannot read"),
    (["partition", "--set", "partition.q=11"], "partition.q = 11"),
    (["partition", "--set", "partition.nme=iid"], "did you mean 'partition.name'?"),
    (["partition", "--plot", "config.toml"], "name the config before --plot"),
    (["partition", "--plot", "x.gif"], "should end in .png, .pdf, .svg"),
    (["partition", "--plot", "file/x.png"], "file/x.png: cannot be written"),
]


@pytest.mark.parametrize(("words", "said"), BAD, ids=[" ".join(w)[:40] for w, _ in BAD])
def test_refusals_are_one_line(words, said, capsys):
    Path("file").write_text("what")
    Path("config.toml").write_text("seed = 1\n")
    assert run(*words) == 2
    err = capsys.readouterr().err
    assert err.startswith("flamejax: ")
    assert err.count("\n") == 1
    assert said in err
    assert {path.name for path in Path().iterdir()} == {"file", "config.toml"}
    assert Path("config.toml").read_text() == "seed = 1\n"


def test_no_command_shows_help(capsys):
    assert run() == 0
    said = capsys.readouterr().out
    assert all(word in said for word in ("list", "info", "import", "prepare", "partition"))


@pytest.mark.parametrize("words", [["info", "stop"], ["partition", *sets("data.name=stop")]])
def test_interrupted(words, capsys):
    def load(settings, quiet=True):
        signal.raise_signal(signal.SIGINT)

    registry.register("datasets", "stop", load)
    try:
        assert run(*words) == 3
    finally:
        registry.unregister("datasets", "stop")
    assert capsys.readouterr() == ("", "flamejax: interrupted\n")


@pytest.mark.filterwarnings("error")
def test_odd_data_is_shown(capsys):
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 2], 20)  # no sample of the class between
    names = np.array(["[red]$x^$", "猫", "a" * 60])
    images = rng.integers(0, 256, (40, 300, 200, 3)).astype(np.uint8)
    np.savez("odd[b].npz", images=images, labels=labels, class_names=names)
    assert run("info", "npz:odd[b].npz") == 0
    said, warned = capsys.readouterr()
    assert (warned, "[red]$x^$" in said, "npz:odd[b].npz:" in said) == ("", True, True)
    assert max(matplotlib.image.imread("odd-b-.png").shape) < 2000
    text = "data.name='npz:odd[b].npz' partition.name=iid partition.clients=3"
    assert run("partition", *sets(text), "--plot", "odd.png") == 0
    assert Path("odd.png").read_bytes().startswith(PNG)
