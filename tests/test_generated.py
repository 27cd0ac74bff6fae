"""Generated data: the promised laws, the same samples whenever they are read, nothing stored."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import flamejax as fj
from flamejax import config, registry
from flamejax.datasets import load, synthetic
from flamejax.errors import InputError
from flamejax.federation import TEST, TRAIN, VALIDATION, data_seeds, federate

from .problems import distance, precision, set_up, train

NAMES = registry.GENERATED
SMALL = {"samples": 12, "features": 5}  # of linreg
CLEARLY = 1e-4  # below this p-value a law does not hold


def make(name, clients=4, seed=0, **values):
    """(config, generator, federation); keywords are tables of a config, "data" laid over a name."""
    tables = {"data": {"name": name}, "partition": {"clients": clients}, "seed": seed}
    settings = config.make(config.lay_over(tables, values))
    rng = np.random.default_rng(seed)
    data = load(settings.data, rng)
    return settings, data, federate(settings, data, rng)


def reader(fed):
    """(client, positions) -> x, y as NumPy arrays, compiled once for a length of positions."""
    read = jax.jit(fed.read)
    return lambda client, positions: jax.tree.map(
        np.asarray, read(fed.arrays, np.int32(client), np.asarray(positions, np.int32))
    )


def parameters_of(settings, data, fed, clients):
    """Stacked parameters of some clients."""
    key = jax.random.key(data_seeds(settings.seed)[0])
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.asarray(clients))
    samples = jnp.asarray(fed.counts[clients, TRAIN].astype(np.int32))
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(data.parameters))(keys, samples))


# --- both ------------------------------------------------------------------------------------


def only(always):
    """Both generators, the other in the long form only."""
    return [n if n == always else pytest.param(n, marks=pytest.mark.full) for n in NAMES]


@pytest.mark.parametrize("name", only("synthetic"))
def test_a_sample_is_the_same_whenever_and_however_it_is_read(name):
    fed = make(name)[2]
    read = reader(fed)
    x, y = read(2, np.arange(40))
    again = read(2, [39, 3, 3, 0])
    np.testing.assert_allclose(again[0], x[[39, 3, 3, 0]], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(again[1], y[[39, 3, 3, 0]], rtol=1e-5, atol=1e-5)
    arrays = jax.tree.map(jnp.asarray, fed.arrays)
    ids, few = jnp.arange(4, dtype=jnp.int32), jnp.arange(40, dtype=jnp.int32)
    together = jax.jit(jax.vmap(lambda i: fed.read(arrays, i, few)))(ids)
    np.testing.assert_allclose(together[0][2], x, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(together[1][2], y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", only("linreg"))
def test_the_seed_decides(name):
    x, same, other = (
        reader(make(name, clients, seed)[2])(1, np.arange(30))[0]
        for clients, seed in ((4, 3), (9, 3), (4, 5))
    )
    np.testing.assert_array_equal(x, same)  # more clients leave the others as they were
    assert np.abs(x - other).max() > 0.1


@pytest.mark.parametrize("name", only("synthetic"))
def test_precision_and_types_follow_the_engine(name):
    for wanted in ("float32", "float64"):
        settings, _, fed = make(name, engine={"precision": wanted})
        with precision(settings):
            x, y = reader(fed)(0, [0, 1])
        assert x.dtype == wanted
        assert y.dtype == (np.int32 if fed.classes else wanted)


@pytest.mark.parametrize("name", only("linreg"))
def test_a_hundred_thousand_clients_are_a_few_numbers_each(name):
    _, _, fed = make(name, clients=100_000)
    assert sum(x.nbytes for x in jax.tree.leaves(fed.arrays)) < 20 * 100_001
    x, _ = reader(fed)(99_999, [0])
    assert np.isfinite(x).all()


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_devices_and_executions_agree(name):
    found = []
    for engine in ({"devices": 1, "execution": "map"}, {"devices": 4, "execution": "vmap"}):
        result = fj.run(
            rounds=3, eval_every=3, data={"name": name}, method={"name": "fedavg"},
            partition={"name": "iid", "clients": 9}, participation={"clients_per_round": 7},
            engine=engine, quiet=True,
        )  # fmt: skip
        found.append([result.models(i) for i in range(9)])
        found[-1].append(result.clients["last_pm_loss"])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), *found)


# --- synthetic -------------------------------------------------------------------------------


def test_synthetic_inputs_follow_their_law():
    settings, data, fed = make("synthetic", partition={"name": "iid"}, data={"samples": 4000})
    of = parameters_of(settings, data, fed, np.arange(2))
    deviation = np.arange(1, 61) ** -0.6  # variance j^-1.2
    noises = []
    read = reader(fed)
    for client in range(2):
        x, _ = read(client, np.arange(4000))
        noise = (x - of.center[client]) / deviation
        assert stats.kstest(noise.ravel(), "norm").pvalue > CLEARLY
        chi2 = (noise**2).sum(0)  # of every feature
        assert stats.kstest(chi2, stats.chi2(4000).cdf).pvalue > CLEARLY
        between = np.corrcoef(noise.T)[np.triu_indices(60, 1)]  # features
        assert stats.kstest(between * 4000**0.5, "norm").pvalue > CLEARLY
        noises.append(noise.ravel())
    assert abs(np.corrcoef(noises)[0, 1]) < 5 / len(noises[0]) ** 0.5


def test_synthetic_labels_are_those_of_the_clients_classifiers():
    settings, data, fed = make("synthetic", clients=3)
    of = parameters_of(settings, data, fed, np.arange(3))
    read = reader(fed)
    for client in range(3):
        x, y = read(client, np.arange(200))
        scores = x.astype(float) @ of.weights[client] + of.bias[client]
        margins = np.diff(np.sort(scores, axis=1)[:, -2:])[:, 0]
        clear = margins > 1e-4  # the others may fall either way by rounding
        assert clear.mean() > 0.99
        np.testing.assert_array_equal(y[clear], scores.argmax(1)[clear])


def test_synthetic_clients_follow_their_law():
    alpha, beta, clients = 2.0, 0.5, 600
    settings, data, fed = make("synthetic", clients, data={"alpha": alpha, "beta": beta})
    of = parameters_of(settings, data, fed, np.arange(clients))
    u, u_too, shift = of.weights.mean((1, 2)), of.bias.mean(1), of.center.mean(1)
    for found, variance in (
        (u, alpha**2 + 1 / 600),
        (u_too, alpha**2 + 1 / 10),
        (u - u_too, 1 / 600 + 1 / 10),  # weights and bias share their u
        (shift, beta**2 + 1 / 60),
    ):
        assert stats.kstest(found, stats.norm(0, variance**0.5).cdf).pvalue > CLEARLY
    for entries in (of.weights.reshape(clients, -1), of.center):
        rest = entries - entries.mean(1, keepdims=True)
        rest *= (1 - 1 / entries.shape[1]) ** -0.5
        assert stats.kstest(rest[:, :50].ravel(), "norm").pvalue > CLEARLY
    between = np.corrcoef(of.weights[:60].reshape(60, -1))[np.triu_indices(60, 1)]  # clients
    assert stats.kstest(between * 600**0.5, "norm").pvalue > CLEARLY


def test_alpha_changes_no_label():
    labels = [
        reader(make("synthetic", data={"alpha": alpha})[2])(0, np.arange(300))[1]
        for alpha in (0.0, 1.0)
    ]
    assert (labels[0] != labels[1]).mean() < 0.01  # but for rounding
    assert len(np.unique(labels[0])) > 1


def test_synthetic_sizes_follow_their_law():
    sizes = synthetic.sizes(np.random.default_rng(0), 20_000)
    edges = np.array([0, 5, 20, 54, 150, 500, 2000, 9950])
    expected = np.diff(stats.lognorm(2, scale=np.exp(4)).cdf(edges), append=1.0)
    expected[-1] = 1 - expected[:-1].sum()
    found = np.histogram(sizes - 50, [*edges, 10**9])[0]
    assert stats.chisquare(found, 20_000 * expected).pvalue > CLEARLY
    assert sizes.min() >= 50
    assert sizes.max() == synthetic.LARGEST


def test_synthetic_is_split_like_stored_data():
    fed = make("synthetic", 50)[2]
    total = fed.counts.sum(1)
    np.testing.assert_array_equal(fed.counts[:, TRAIN], total - np.rint(0.2 * total))
    assert (fed.counts > 0).all()
    assert len(np.unique(total)) > 20


def test_poisoned_labels_are_uniform_and_held_out_ones_are_left():
    values = {"data": {"samples": 1000}, "partition": {"name": "iid"}}
    attack = {"name": "label_poison", "fraction": 0.5}
    honest, attacked = make("synthetic", **values)[2], make("synthetic", **values, attack=attack)[2]
    assert attacked.malicious.sum() == 2
    readers = [reader(fed) for fed in (honest, attacked)]
    for client in range(4):
        before, after = (read(client, np.arange(1000)) for read in readers)
        np.testing.assert_array_equal(before[0], after[0])
        np.testing.assert_array_equal(before[1][800:], after[1][800:])
        lies = np.bincount(after[1][:800], minlength=10)
        if attacked.malicious[client]:
            assert stats.chisquare(lies).pvalue > CLEARLY
        else:
            np.testing.assert_array_equal(before[1], after[1])
    with pytest.raises(InputError, match="label_poison"):
        make("linreg", attack=attack)


@pytest.mark.full
def test_flame_learns_every_clients_own_classifier():
    result = fj.run(rounds=60, eval_every=60, data={"name": "synthetic"}, quiet=True)
    assert result.summary["model"] == "mlr"
    assert result.config.partition.name == "natural"
    assert result.summary["last"]["pm"]["accuracy"] > 0.75


# --- linreg ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("samples", "features", "wide", "close"),
    [
        (100, 99, "float64", 1e-10),
        *(
            pytest.param(*x, marks=pytest.mark.full)
            for x in (
                (12, 5, "float32", 1e-5),
                (12, 5, "float64", 1e-10),
                (100, 99, "float32", 1e-5),
                (300_000, 3, "float32", 1e-5),
                (300_000, 3, "float64", 1e-10),
            )
        ),
    ],
)
def test_the_design_is_orthogonal(samples, features, wide, close):
    data = {"samples": samples, "features": features, "scale": 2.5}
    settings, _, fed = make("linreg", 2, data=data, engine={"precision": wide})
    with precision(settings):
        read = reader(fed)
        x = [read(client, np.arange(samples))[0].astype(float) for client in range(2)]
    for design in x:
        gram = design.T @ design / samples
        np.testing.assert_allclose(gram, 2.5 * np.eye(features), atol=close * 2.5)
    assert np.abs(x[0] - x[1]).max() > 0.1


@pytest.mark.parametrize("on", ["validation", pytest.param("test", marks=pytest.mark.full)])
def test_held_out_sets_have_the_same_inputs_and_noise_of_their_own(on):
    data = {"samples": 3000, "features": 4, "noise": 0.5}
    settings, generator, fed = make("linreg", 2, data=data, selection={"on": on})
    assert fed.counts.tolist() == [[3000, 3000 if on == "validation" else 0, 3000]] * 2
    splits = [s for s in (TRAIN, VALIDATION, TEST) if fed.counts[0, s]]
    x, y = reader(fed)(1, np.arange(3000 * len(splits)))
    x, y = x.reshape(len(splits), 3000, 4), y.reshape(len(splits), 3000)
    np.testing.assert_array_equal(x[1:], x[:-1])
    of = parameters_of(settings, generator, fed, np.arange(2))
    noise = (y - x @ of.theta[1]) / 0.5
    assert stats.kstest(noise.ravel(), "norm").pvalue > CLEARLY
    assert all(stats.kstest(part, "norm").pvalue > CLEARLY for part in noise)
    assert np.abs(np.corrcoef(noise)[np.triu_indices(len(splits), 1)]).max() < 5 / 3000**0.5


def test_true_parameters_follow_their_law():
    clients, spread = 500, 3.0
    settings, data, fed = make("linreg", clients, data={"spread": spread})
    theta = parameters_of(settings, data, fed, np.arange(clients)).theta
    away = (theta - 60**-0.5) / spread
    assert stats.kstest((away * 60**0.5).ravel(), "norm").pvalue > CLEARLY
    np.testing.assert_allclose(np.mean(np.sum(away**2, axis=1)), 1, rtol=0.05)
    between = np.corrcoef(away[:60])[np.triu_indices(60, 1)]
    assert stats.kstest(between * 60**0.5, "norm").pvalue > CLEARLY


def test_sizes_may_differ_and_every_design_stays_orthogonal():
    data = {"samples": 40, "features": 5}
    fed = make("linreg", 6, data=data, partition={"name": "quantity"})[2]
    sizes = fed.counts[:, TRAIN]
    assert sizes.sum() == 240
    assert len(set(sizes)) > 3
    read = reader(fed)
    for client, size in enumerate(sizes):
        x = read(client, np.arange(sizes.max()))[0][:size]
        np.testing.assert_allclose(x.T @ x / size, np.eye(5), atol=1e-5)


EXACT = {
    "data": {"name": "linreg", **SMALL, "scale": 0.7},
    "method": {"lam": 0.8, "rho": 0.15, "lr": 0.3, "local_solver": "until_epsilon",
               "epsilon0": 1e-24, "max_steps": 2000},
    "engine": {"precision": "float64", "devices": 1},
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("clients", [1, 5])
def test_flame_reaches_the_closed_form(clients):
    """theta_i = (b ols_i + lam w) / (b + lam), w = mean of ols_i; for one client, ols itself."""
    values = {**EXACT, "partition": {"clients": clients}}
    data = load(config.make(values).data, np.random.default_rng(0))
    ready = set_up(values, data, registry.get("models", "linear")(0))
    with precision(ready[0]):
        read = reader(ready[1])
        samples = [read(client, np.arange(12)) for client in range(clients)]
    ols = np.stack([np.linalg.lstsq(x, y, rcond=None)[0] for x, y in samples])
    shared, personal, _ = train(*ready, rounds=400)
    assert distance(shared, ols.mean(0)) < 1e-6
    assert distance(personal, (0.7 * ols + 0.8 * ols.mean(0)) / (0.7 + 0.8)) < 1e-6


@pytest.mark.full
def test_a_regression_is_run_and_recorded_without_accuracies(tmp_path):
    result = fj.run(rounds=100, eval_every=10, data={"name": "linreg"}, out=tmp_path / "out")
    assert (result.summary["model"], result.summary["parameters"]) == ("linear", 60)
    assert result.summary["last"]["pm"]["accuracy"] is None
    loss = result.metrics["pm_loss"]
    assert loss[-1] < 0.7 * loss[0]
    assert 0.5 < loss[-1] < 0.9  # 1/2 is the noise's own
    assert (tmp_path / "out" / "curves.png").stat().st_size > 1000


# --- how many samples ------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rule", ["iid", "quality", "quantity"])
def test_sizes_by_the_partitions_that_apply(name, rule):
    fed = make(name, 40, data={"samples": 200}, partition={"name": rule, "min_samples": 70})[2]
    sizes = fed.counts[:, TRAIN] if name == "linreg" else fed.counts.sum(1)
    assert sizes.sum() == 8000
    assert sizes.min() >= 70
    assert (sizes.std() > 0) == (rule == "quantity")


def test_quantity_follows_the_dirichlet_law():
    """The share of one client of five is Beta(2, 8)."""
    options = {"partition": {"name": "quantity", "beta": 2.0, "min_samples": 3}}
    sizes = [
        make("synthetic", 5, seed, data={"samples": 20_000}, **options)[2].counts[0].sum()
        for seed in range(300)
    ]
    assert stats.kstest(np.array(sizes) / 100_000, stats.beta(2, 8).cdf).pvalue > CLEARLY


def test_the_partition_is_natural_unless_said_otherwise():
    assert config.make({}).partition.name == "hybrid"
    assert config.make({"data": {"name": "mnist"}}).partition.name == "hybrid"
    for name in NAMES:
        chosen = config.make({"data": {"name": name}})
        assert chosen.partition == config.Partition(name="natural")
        assert config.make(chosen.model_dump()) == chosen
        said = config.make({"data": {"name": name}, "partition": {"name": "iid", "clients": 3}})
        assert (said.partition.name, said.partition.clients) == ("iid", 3)


@pytest.mark.parametrize("partition", [3, "iid", None])
def test_the_default_does_not_hide_a_bad_partition(partition):
    with pytest.raises(InputError, match=r"^partition = "):
        config.make({"data": {"name": "linreg"}, "partition": partition})


LINREG, SYNTHETIC = ({"name": name} for name in ("linreg", "synthetic"))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"data": {**LINREG, "samples": 60}}, "data.samples = 60.*data.features = 60"),
        ({"data": {**SYNTHETIC, "limit": 50}}, "data.limit = 50.*generated"),
        ({"data": {**SYNTHETIC, "dir": "/x"}}, "data.dir = '/x'.*generated"),
        ({"data": SYNTHETIC, "partition": {"name": "qlabel"}}, "'qlabel'.*natural, iid"),
        ({"data": LINREG, "partition": {"name": "hybrid"}}, "'hybrid'.*natural, iid"),
        ({"data": SYNTHETIC, "partition": {"overlap": True}}, "partition.overlap"),
        (
            {"data": SYNTHETIC, "partition": {"min_samples": 200}},
            "min_samples = 200: client .* lower it$",
        ),
        (
            {"data": {**SYNTHETIC, "samples": 5}, "partition": {"name": "iid"}},
            "min_samples = 10: client 0 gets only 5; lower it or raise data.samples$",
        ),
        ({"data": LINREG, "model": {"name": "mlr"}}, "model.name = 'mlr' needs classes"),
        ({"data": SYNTHETIC, "model": {"name": "linear"}}, "'linear' is a regression.*10 classes"),
        ({"partition": {"name": "natural"}}, "'natural' needs generated data"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not_fit_is_refused_in_one_line(values, says):
    with pytest.raises(InputError, match=says) as refusal:
        fj.run(values, rounds=1, quiet=True)
    assert "\n" not in str(refusal.value)
