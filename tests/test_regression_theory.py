"""Federated linear regression: closed forms, plain NumPy, and the engine agree; the paper's printed
formulas do not where they are wrong."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flamejax import config as configs
from flamejax.cli import main
from flamejax.datasets import load
from flamejax.errors import InputError
from flamejax.federation import TEST, TRAIN
from flamejax.models.dense import linear
from flamejax.theory import monte_carlo, printed, regression, study
from flamejax.theory.regression import ATTACKS, MODELS, Problem

from .problems import precision, set_up, train

PNG = b"\x89PNG\r\n\x1a\n"
RECORDED = Path(__file__).parents[1] / "experiments" / "theory" / "regression.json"
# two parameter sets for the engine, as nested settings
FIRST = {
    "seed": 21,
    "data": {"features": 2, "samples": 3, "scale": 1.3, "noise": 1.0, "spread": 1.0},
    "partition": {"clients": 4},
    "method": {"lam": 0.6, "rho": 0.2},
    "attack": {"fraction": 0.25, "gamma2": 0.5},
}
SECOND = {
    "seed": 22,
    "data": {"features": 3, "samples": 6, "scale": 0.5, "noise": 2.0, "spread": 0.7},
    "partition": {"clients": 4},
    "method": {"lam": 3.0, "rho": 0.5},
    "attack": {"fraction": 0.5, "gamma2": 4.0},
}
NOT_FLIPPED = [attack for attack in ATTACKS if attack != "sign_flip"]
EVERY = [(attack, model) for attack in ATTACKS for model in MODELS]


def random_problem(seed, clients=6, malicious=2, features=3, samples=7):
    rng = np.random.default_rng(seed)
    lam, scale, noise, gamma2 = rng.uniform(0.3, 2, 4)
    theta = rng.normal(size=(clients, features)) + 1
    return Problem(theta, np.arange(clients) < malicious, samples, scale, noise, lam, gamma2)


# ---- plain NumPy


def losses_by_matrices(problem, attack, rho, draws, rng):
    """Test losses [draws, C] of both models: Algorithm 1 with exact solutions, by matrices."""
    m, d = problem.theta.shape
    n, lam, eye, x = problem.samples, problem.lam, np.eye(d), problem.lam / m
    inputs, targets, tests, u = [], [], [], []
    for theta in problem.theta:
        rows = np.sqrt(n * problem.scale) * np.linalg.qr(rng.normal(size=(n, d)))[0]
        y, fresh = (rows @ theta + problem.noise * rng.normal(size=(draws, n)) for _ in range(2))
        solved = np.linalg.solve(rows.T @ rows / n + lam * eye, rows.T @ y.T / n).T  # from w_i = 0
        w_i = x * solved / (x + rho)  # (13)
        pi = rho * w_i  # (14)
        u.append(w_i + pi / rho)
        inputs.append(rows)
        targets.append(y)
        tests.append(fresh)
    for i in np.flatnonzero(problem.malicious) if attack != "none" else ():
        p = np.sqrt(problem.gamma2) * rng.normal(size=(draws, 1))
        u[i] = {
            "same_value": p * np.ones(d),
            "sign_flip": -abs(p) * u[i],
            "gaussian": np.sqrt(problem.gamma2) * rng.normal(size=(draws, d)),
        }[attack]
    w = np.mean(u, axis=0)  # [draws, d]
    found = {"pm": [], "gm": []}
    for rows, y, fresh in zip(inputs, targets, tests, strict=True):
        right = rows.T @ y.T / n + lam * w.T
        theta = np.linalg.solve(rows.T @ rows / n + lam * eye, right).T
        for name, model in (("pm", theta), ("gm", w)):
            found[name].append(((model @ rows.T - fresh) ** 2).sum(1) / (2 * n))
    return {name: np.stack(values, axis=1) for name, values in found.items()}


@pytest.mark.parametrize(
    "attack", ["sign_flip", *(pytest.param(a, marks=pytest.mark.full) for a in NOT_FLIPPED)]
)
def test_closed_forms_are_those_of_the_matrices(attack, rng):
    problem, rho, draws = random_problem(3), 0.15, 100_000
    q = regression.q_of(problem.lam, rho, len(problem.theta), problem.scale)
    found = losses_by_matrices(problem, attack, rho, draws, rng)
    benign = ~problem.malicious | (attack == "none")
    for model in MODELS:
        seen = found[model][:, benign]
        away = seen.mean(0) - regression.client_losses(problem, attack, q, model)
        assert np.abs(away / (seen.std(0) / draws**0.5)).max() < 4
        total = seen.mean(1)
        away = total.mean() - regression.average_loss(problem, attack, q, model)
        assert abs(away) < 4 * total.std() / draws**0.5


# ---- what the closed forms say of each other


@pytest.mark.parametrize(("attack", "model"), EVERY)
def test_the_threshold_is_where_the_loss_is_least_and_break_even_where_it_is_as_at_one(
    attack, model
):
    problem = random_problem(5)
    loss = lambda q: regression.average_loss(problem, attack, q, model)  # noqa: E731
    least, even = (f(problem, attack, model) for f in (regression.threshold, regression.break_even))
    assert loss(least + 0.01) > loss(least) < loss(least - 0.01)
    assert loss(least + 0.3) == pytest.approx(loss(least - 0.3), rel=1e-12)
    assert loss(even) == pytest.approx(loss(1.0), rel=1e-12)


@pytest.mark.parametrize(("attack", "model"), EVERY)
def test_the_variance_over_clients_is_a_convex_parabola_in_q(attack, model):
    problem = random_problem(7)
    V, C, rest = regression.fairness(problem, attack)
    b, lam = problem.scale, problem.lam
    unit = b**2 / 4 * ((lam / (b + lam)) ** 4 if model == "pm" else 1)
    at = [regression.loss_variance(problem, attack, q, model) for q in (0.3, 0.6, 0.9)]
    for q, variance in zip((0.3, 0.6, 0.9), at, strict=True):
        assert variance == pytest.approx(unit * (4 * q**2 * V - 4 * q * C + rest), rel=1e-10)
    bend = (at[0] - 2 * at[1] + at[2]) / 0.3**2
    assert regression.variance_curvature(problem, attack, model) == pytest.approx(bend, rel=1e-8)
    assert bend > 0


def test_the_criterion_of_fairness_is_exact():
    answers = set()
    for seed in range(40):
        problem, q = random_problem(seed, clients=4, malicious=1), 0.4
        for attack, model in EVERY:
            flame, ditto = (regression.loss_variance(problem, attack, x, model) for x in (q, 1.0))
            assert regression.fairer(problem, attack, q) == (flame < ditto)
            answers.add(flame < ditto)
    assert answers == {True, False}


def test_with_equal_norms_flame_is_fairer_at_any_q():
    problem = random_problem(9)
    theta = problem.theta / np.linalg.norm(problem.theta, axis=1, keepdims=True)
    problem = problem._replace(theta=theta)
    assert abs(regression.fairness(problem, "none").C) < 1e-12
    assert all(regression.fairer(problem, "none", q) for q in (0.01, 0.5, 0.99))


def test_q_and_rho():
    assert regression.q_of(0.7, regression.rho_of(0.7, 0.31, 9, 1.4), 9, 1.4) == pytest.approx(0.31)
    with pytest.raises(InputError, match=r"below 2b / \(b \+ lam\) = 1\.0"):
        regression.rho_of(1.0, 1.0, 9, 1.0)


# ---- what the paper prints


def test_printed_formulas_are_right_where_their_errors_vanish():
    """Each is as in the paper: it agrees with the corrected one just where its error is nothing."""
    problem = random_problem(13)
    same = problem._replace(scale=0.5, lam=0.25)  # b + lam^2 = (b + lam)^2
    agree(same, "average_loss", "none", 1.0, "pm")
    # as many samples as clients; half of them malicious, and all with the same parameters
    n_is_m = problem._replace(samples=6)
    agree(n_is_m, "average_loss", "sign_flip", 0.6, "pm")
    alike = n_is_m._replace(theta=np.tile(problem.theta[:1], (6, 1)), malicious=np.arange(6) < 3)
    agree(alike, "average_loss", "sign_flip", 0.6, "gm")
    agree(alike, "threshold", "sign_flip", "gm")
    agree(alike, "threshold", "sign_flip", "pm")
    benign = problem.theta[~problem.malicious].mean(0)
    of_length_one = problem._replace(theta=problem.theta / np.linalg.norm(benign))
    agree(of_length_one, "threshold", "same_value", "gm")
    agree(of_length_one, "threshold", "gaussian", "gm")
    # all distances are 0 or 1, and equal their squares
    apart = problem._replace(theta=np.array([[0.0, 1.0], [0.0, -1.0], [0.0, 0.0]]))
    agree(apart, "loss_variance", "none", 0.6, "pm")


def agree(problem, figure, *arguments):
    right, wrong = (
        getattr(module, figure)(problem, *arguments) for module in (regression, printed)
    )
    assert wrong == pytest.approx(right, rel=1e-12)


def test_printed_curvature_has_the_other_sign():
    problem = random_problem(15)
    for model in MODELS:
        right, wrong = (m.variance_curvature(problem, "none", model) for m in (regression, printed))
        assert wrong == pytest.approx(-right, rel=1e-12)


# ---- the engine


@pytest.fixture
def quick():
    """Compiling without optimization, for tests of a round or two."""
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


REST = [pytest.param(name, marks=pytest.mark.full) for name in monte_carlo.METHODS[1:]]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("method", [monte_carlo.METHODS[0], *REST])
def test_local_solutions_are_exact(method):
    """After a round w is q times the mean of least squares; after another, every personalized
    model solves its problem around that w."""
    config = monte_carlo.exactly(study.configure(FIRST, {}), method, "none")
    values = config.model_dump() | {"engine": {"precision": "float64", "devices": 1}}
    _, fed, eng = set_up(values, load(config.data, None), linear(0))
    b, lam = config.data.scale, config.method.lam
    with precision(config):
        arrays = jax.tree.map(jnp.asarray, fed.arrays)
        samples = jax.jit(lambda i: fed.read(arrays, i, jnp.arange(3, dtype=jnp.int32)))
        read = [samples(np.int32(i)) for i in range(4)]
        state, _ = eng.run(eng.state, 1)
        w, _ = eng.models(state, 0)
        state, _ = eng.run(state, 1)
        personal = np.stack([eng.models(state, i)[1] for i in range(4)])
    read = jax.tree.map(np.asarray, read)
    fits = np.stack([np.linalg.lstsq(*xy)[0] for xy in read])
    q = regression.q_of(lam, 0.2, 4, b) if method == "flame" else 1.0
    np.testing.assert_allclose(w, q * fits.mean(0), atol=1e-12)
    np.testing.assert_allclose(personal, (b * fits + lam * w) / (b + lam), atol=1e-12)
    for (x, y), theta in zip(read, personal, strict=True):
        gradient = x.T @ (x @ theta - y) / len(y) + lam * (theta - w)
        assert np.abs(gradient).max() < 1e-12


@pytest.mark.full
@pytest.mark.usefixtures("quick")
def test_endless_local_rounds_of_pfedme_end_at_least_squares():
    config = monte_carlo.exactly(study.configure(FIRST, {}), "pfedme", "none")
    values = config.model_dump() | {"engine": {"precision": "float64", "devices": 1}}
    ends = []
    for changes in ({}, {"local_rounds": 400, "inner_steps": 3, "lr": 0.3, "global_lr": 1.0}):
        method = values["method"] | changes
        ready = set_up(values | {"method": method}, load(config.data, None), linear(0))
        ends.append(train(*ready, rounds=1)[0])
    np.testing.assert_allclose(*ends, atol=1e-10)


def sets(settings):
    """Nested settings as --set options."""
    pairs = [("seed", settings["seed"])]
    pairs += [
        (f"{section}.{key}", value)
        for section, values in settings.items()
        if section != "seed"
        for key, value in values.items()
    ]
    return [word for key, value in pairs for word in ("--set", f"{key}={value}")]


def disagreeing(rows, settings):
    """Closed forms that the engine contradicts: there should be none. One beyond 3 standard errors
    in some 400 is chance; it is repeated with four times as many fresh draws."""
    assert len(rows) == 64  # (3 methods x 2 figures + 2 of FLAME alone) x models x attacks
    losses = [row for row in rows if row["figure"] == "average_loss"]
    assert all(row["error"] < 0.003 * row["closed"] for row in losses)  # it would notice
    doubtful = [row for row in rows if not abs(row["z"]) < 3]
    if not doubtful:
        return []
    assert len({(row["method"], row["attack"]) for row in doubtful}) == 1  # of 12
    lab = study.set_up(study.configure(settings, {}), 200_000)
    again = [study.repeat(lab, row, 4) for row in doubtful]
    return [row for row in again if not abs(row["z"]) < 3]


def refuted(rows):
    """Printed formulas that it contradicts beyond doubt."""
    wrong = [row for row in rows if row["printed"] is not None]
    assert {key_of(row) for row in wrong} == set(printed.ERRORS)
    return {key_of(row) for row in wrong if abs(row["printed_z"]) > 5}


def key_of(row):
    return row["figure"], row["attack"], row["model"]


@pytest.mark.full
def test_the_command_on_one_set(tmp_path):
    """Everything agrees with the engine but what is printed; tables and a picture are left."""
    out = tmp_path / "out"
    asked = [*sets(FIRST), "--draws", "200000", "--out", str(out)]
    assert main(["theory", "regression", *asked]) == 0
    result = json.loads((out / "result.json").read_text())
    assert disagreeing(result["rows"], FIRST) == []
    # sigma^2/(bm) for sigma^2/(bN) makes little difference here
    assert refuted(result["rows"]) >= set(printed.ERRORS) - {("average_loss", "sign_flip", "pm")}
    assert result["draws"] == 200_000
    assert result["q"] == pytest.approx(regression.q_of(0.6, 0.2, 4, 1.3))
    assert (out / "losses.png").read_bytes().startswith(PNG)
    table = (out / "table.md").read_text()
    assert table.count("\n**") + table.startswith("**") == 4
    lines = (out / "table.csv").read_text().splitlines()
    assert len(lines) == 65
    assert lines[0].startswith("figure,attack,method,model,q,closed,measured,error,z,printed")
    again = study.configure(configs.load(out / "config.toml"), {})  # goes in as it came out
    assert again.to_toml() == (out / "config.toml").read_text()


@pytest.mark.full
def test_python_on_another_set():
    rows = study.study(study.configure(SECOND, {}), 200_000).rows
    assert disagreeing(rows, SECOND) == []
    assert ("average_loss", "sign_flip", "pm") in refuted(rows)  # the others were by the first set


@pytest.mark.full
def test_the_engine_finds_flame_less_fair_on_the_counterexample():
    wanted = regression.counterexample()
    clients, features = wanted.theta.shape
    own = {"features": features, "samples": wanted.samples, "noise": wanted.noise}
    config = study.configure(
        {
            "data": own,
            "partition": {"clients": clients},
            "method": {"lam": wanted.lam},
            "attack": {"fraction": 0.34},
        },
        {},
    )
    federation, problem = monte_carlo.clients_of(config)
    moved = monte_carlo.relocate(federation, problem, wanted.theta)
    qs = [0.5, 1.0]
    rhos = [regression.rho_of(wanted.lam, q, clients, wanted.scale) for q in qs]
    losses = monte_carlo.compile_draws(config, "flame", moved, rhos, 40_000)("none", 0)
    for j, model in enumerate(MODELS):
        flame, ditto = (monte_carlo.loss_variance(losses[:, k, :, j]) for k in range(2))
        for q, found in zip(qs, (flame, ditto), strict=True):
            closed = regression.loss_variance(wanted, "none", q, model)
            assert abs(found.value - closed) < 3 * found.error
        assert flame.value - ditto.value > 10 * np.hypot(flame.error, ditto.error)
    assert not regression.fairer(wanted, "none", 0.5)


def test_clients_have_the_promised_data():
    federation, problem = monte_carlo.clients_of(study.configure(SECOND, {}))
    assert (federation.counts[:, [TRAIN, TEST]] == 6).all()
    assert problem.theta.shape == (4, 3)
    assert problem.theta.dtype == np.float64
    assert problem.malicious.sum() == 2


# ---- estimates from batches of known laws


def test_estimates_are_unbiased_and_know_their_errors(rng):
    """On batches made up from known means: z is standard normal."""
    qs = [0.2, 0.5, 0.9]
    means = np.array([[2.0, 3.0, 1.0], [1.5, 2.1, 0.9], [1.9, 2.2, 1.8]])  # [Q, clients]
    least = -0.5 * np.divide(*np.polyfit(qs, means.mean(1), 2)[1::-1])
    bend = 2 * np.polyfit(qs, means.var(1), 2)[0]
    z = []
    for _ in range(300):
        batches = means + 0.2 * rng.normal(size=(100, 3, 3))
        found = [
            (monte_carlo.average_loss(batches[:, 0]), means[0].mean()),
            (monte_carlo.loss_variance(batches[:, 0]), means[0].var()),
            (monte_carlo.threshold(batches, qs), least),
            (monte_carlo.variance_curvature(batches, qs), bend),
        ]
        z.append([study.score(estimate, value) for estimate, value in found])
    assert np.abs(np.mean(z, axis=0)).max() < 4 / 300**0.5
    assert np.abs(np.std(z, axis=0) - 1).max() < 0.17


@pytest.mark.parametrize("every", [20, pytest.param(5, marks=pytest.mark.full)])
def test_recorded_sets_are_of_these_formulas(every):
    """The committed verification: its closed forms are still what the functions give."""
    recorded = json.loads(RECORDED.read_text())
    assert len(recorded["sets"]) >= 20
    for one in recorded["sets"][::every]:
        _, problem = monte_carlo.clients_of(study.configure(one["settings"], {}))
        for row in (dict(zip(recorded["columns"], row, strict=True)) for row in one["rows"]):
            at = [] if row["q"] is None else [row["q"]]
            arguments = (problem, row["attack"], *at, row["model"])
            assert getattr(regression, row["figure"])(*arguments) == pytest.approx(
                row["closed"], rel=1e-5
            )
    again = [dict(zip(recorded["columns"], r, strict=True)) for s in recorded["sets"]
             for r in s["again"]]  # fmt: skip
    assert all(abs(row["z"]) < 3 for row in again)


# ---- bad input


BAD = {
    "--draws 999": "--draws '999': should be a whole number from 1000",
    "--draws 1e5": "--draws '1e5'",
    "--set data.name=mnist": "data.name = 'mnist'",
    "--set partition.name=quantity": "partition.name = 'quantity'",
    "--set model.name=mlp": "model.name = 'mlp'",
    "--set participation.clients_per_round=2": "participation.clients_per_round = 2",
    "--set aggregator.name=median": "aggregator.name = 'median'",
    "--set attack.name=alie": "attack.name = 'alie'",
    "--set attack.fraction=0.0": "attack.fraction = 0.0: none of 5 clients is malicious",
    "--set attack.fraction=1.0": "attack.fraction = 1.0 leaves no benign client",
    "--set method.name=ditto": "method.name = 'ditto'",
    "--set method.lr=0.1": "method.lr = 0.1: local solutions are exact",
    "--set method.preset=published": "method.preset = 'published'",
    "--set data.samples=6": "data.samples = 6: linreg needs more than data.features = 6",
    "--set data.features=1 --set data.samples=2": "data.samples = 2: at least 3",
    "--set method.rho=0.0": "method.rho = 0.0",
    "--set data.feature=3": "data.feature is not a known key",
}


@pytest.mark.parametrize(("options", "complaint"), BAD.items(), ids=BAD)
def test_bad_input_is_refused_in_one_line(options, complaint, capsys, tmp_path):
    out = tmp_path / "out"
    assert main(["theory", "regression", *options.split(), "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert said.count("\n") == 1
    assert not out.exists()


def test_a_folder_that_holds_something_is_not_written_to(capsys, tmp_path):
    (tmp_path / "kept").write_text("mine")
    assert main(["theory", "regression", "--out", str(tmp_path)]) == 2
    assert "already exists" in capsys.readouterr().err


def test_no_clients_are_malicious_without_attack():
    problem = random_problem(1)
    honest = regression.moments(problem, "none")
    np.testing.assert_allclose(honest.center, problem.theta.mean(0))
    with pytest.raises(InputError, match="attack = 'alie' should be one of none, same_value"):
        regression.moments(problem, "alie")
