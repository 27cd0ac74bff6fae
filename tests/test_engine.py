"""The engine: one result whatever the strategy, one compile, work only where it is needed."""

import functools
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flamejax import local
from flamejax.config import make
from flamejax.engine import build
from flamejax.engine.cohort import deal_out, guest_rows, most_each, select, share_out
from flamejax.engine.devices import lay_out
from flamejax.engine.execution import Step, choose, overhead
from flamejax.federation import TRAIN, assemble
from flamejax.models import from_flax
from flamejax.models.dense import Dense
from flamejax.readying import LONGEST_CALL, rounds_per_call
from flamejax.types import Batch

from .problems import PER_CALL, blobs, distance, set_up, small_net, train

RAGGED = {
    "partition": {"name": "quantity", "clients": 10, "beta": 0.7, "min_samples": 6},
    "method": {"lr": 0.05, "batch": 8, "momentum": 0.5},
}


@functools.cache
def ready(selected="all", **engine):
    """(config, federation, engine): compiled once for all tests of this file that ask for it."""
    values = {**RAGGED, "participation": {"clients_per_round": selected}, "engine": engine}
    return set_up(values, blobs(), small_net())


def start_of(eng):
    """A copy of the first state, because a run consumes the one that it is given."""
    return jax.tree.map(lambda x: x.copy(), eng.state)


def trained(selected="all", rounds=12, **engine):
    settings, fed, eng = ready(selected, **engine)
    return train(settings, fed, eng._replace(state=start_of(eng)), rounds)


PLAIN = {"execution": "map", "devices": 1}  # the order of a plain loop: one client at a time
SIDE_BY_SIDE = {"execution": "vmap", "devices": 2}
SPREAD = {"execution": "chunk", "devices": 2}
STRATEGIES = [
    (4, SPREAD),
]
OTHERS = [
    ("all", SIDE_BY_SIDE),
    ("all", {"execution": "vmap", "devices": 3}),
    ("all", {"rounds_per_call": 2, "devices": 2}),
    ("all", {"execution": "vmap", "devices": 1}),
    ("all", {"execution": "chunk", "chunk": 3, "devices": 1}),
    ("all", {"execution": "map", "devices": 4}),
    ("all", SPREAD),
    (4, {"execution": "vmap", "devices": 1}),
    (4, {"execution": "chunk", "chunk": 3, "devices": 1}),
    (4, {"execution": "map", "devices": 4}),
    (4, {"execution": "vmap", "devices": 3}),
    (4, {"rounds_per_call": 2, "devices": 2}),
]


@pytest.mark.parametrize(
    ("selected", "strategy"),
    [*STRATEGIES, *(pytest.param(*other, marks=pytest.mark.full) for other in OTHERS)],
    ids=lambda x: "-".join(map(str, x.values())) if isinstance(x, dict) else str(x),
)
def test_every_strategy_gives_the_same_result(selected, strategy):
    shared, personal, log = trained(selected, **strategy)
    expected_shared, expected_personal, expected_log = trained(selected, **PLAIN)
    assert distance(shared, expected_shared) < 1e-5
    assert distance(personal, expected_personal) < 1e-5
    np.testing.assert_array_equal(log.steps, expected_log.steps)
    np.testing.assert_allclose(log.loss, expected_log.loss, rtol=1e-5)
    assert (log.executed >= log.steps).all()


def test_a_repeated_run_is_equal_to_the_bit_however_it_is_cut_into_calls():
    _, _, eng = ready(4, **SPREAD)
    whole, _ = eng.run(start_of(eng), 12)
    state = start_of(eng)
    for rounds in (1, 4, 7):
        state, _ = eng.run(state, rounds)
    jax.tree.map(np.testing.assert_array_equal, state, whole)


def test_fifty_rounds_with_changing_selections_compile_once():
    compiled = []

    def listen(event, seconds, **_):
        if "compile" in event:
            compiled.append(event)

    _, _, eng = ready(4, **SPREAD)
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        jax.jit(lambda x: x + 3)(2.0)
        assert compiled  # the listener hears compilations
        state, _ = eng.run(start_of(eng), 1)
        eng.evaluate(state)
        compiled.clear()
        steps = set()
        for _ in range(50):
            state, log = eng.run(state, 1)
            steps.add(int(log.steps[0]))
            eng.evaluate(state)
        assert compiled == []
        assert len(steps) > 5  # the selections did change
    finally:
        jax.monitoring.clear_event_listeners()


# Two guards of the memory that the compiled rounds take. Donation: the program may write the new
# states over the old ones, so that the states of all clients are there once and not twice. And in
# place: a round writes the rows of the clients that were trained, and makes no copy of all others
# on its way, so that the states that fit on a device are the states that a run can have.


def stored_on_a_device(eng):
    """Bytes of the states of clients that one device has."""
    return max(
        sum(leaf.addressable_shards[i].data.nbytes for leaf in jax.tree.leaves(eng.state.clients))
        for i in range(eng.facts.plan.devices)
    )


@pytest.mark.parametrize(
    ("selected", "engine"),
    [("all", PLAIN), (4, PLAIN), ("all", SIDE_BY_SIDE), (4, SPREAD)],
    ids=["all-1", "some-1", "all-2", "some-2"],
)
def test_rounds_are_given_the_states_of_all_clients_to_write_over(selected, engine):
    _, _, eng = ready(selected, **engine)
    memory = eng.programs["rounds"].memory_analysis()
    assert eng.facts.plan.devices == engine["devices"]
    assert memory.alias_size_in_bytes >= stored_on_a_device(eng)
    state, _ = eng.run(start_of(eng), 1)
    before = jax.tree.leaves(state.clients)
    eng.run(state, 1)
    assert all(leaf.is_deleted() for leaf in before)  # and the run does hand them over


@pytest.mark.parametrize(
    ("selected", "devices"),
    [pytest.param("all", 1, marks=pytest.mark.full), (8, 2)],
)
def test_a_round_copies_no_states_on_its_way(selected, devices):
    """A wide layer and few samples: the states of 64 clients are much, what a step takes is not."""
    values = {
        "partition": {"name": "iid", "clients": 64, "min_samples": 3},
        "participation": {"clients_per_round": selected},
        "method": {"batch": 4},
        "engine": {"devices": devices, "execution": "map"},
    }
    _, _, eng = set_up(values, blobs(samples=640), from_flax(Dense((1000, 3))))
    states = stored_on_a_device(eng)
    assert states >= 64 / devices * 2 * 4 * eng.facts.parameters  # a model and a dual of each
    memory = eng.programs["rounds"].memory_analysis()
    assert memory.alias_size_in_bytes >= states
    assert memory.temp_size_in_bytes < states / 2  # a tenth


def exact_mean(state, lam, rho, clients):
    """The mean of u_i = w_i + lam alpha (theta_i - w_i) / rho, in float64."""
    ratio = lam / clients / rho
    stored = state.clients.state
    pairs = zip(jax.tree.leaves(stored.theta), jax.tree.leaves(stored.w), strict=True)
    both = [(np.asarray(t, np.float64), np.asarray(w, np.float64)) for t, w in pairs]
    return [(w + ratio * (t - w)).mean(0) for t, w in both]


def test_the_running_mean_does_not_drift():
    """However many rounds: a few roundings of the numbers summed, and not some for every round."""
    clients, selected, rounds = 10, 4, 2000
    settings, _, eng = ready(selected, **PLAIN)
    state = start_of(eng)
    for _ in range(rounds // PER_CALL):
        state, _ = eng.run(state, PER_CALL)
    method = settings.method
    for running, exact in zip(
        jax.tree.leaves(state.mean),
        exact_mean(state, method.lam, method.rho, clients),
        strict=True,
    ):
        size = max(float(np.abs(x).max()) for x in jax.tree.leaves(state.clients))
        error = np.abs(np.asarray(running, np.float64) - exact).max()
        assert error <= 2 * 2.0**-24 * size


@pytest.mark.parametrize("execution", [pytest.param("auto", marks=pytest.mark.full), "chunk"])
def test_small_clients_cost_what_they_hold(execution):
    """Dirichlet(0.5) sizes, 100 clients: steps executed over steps needed."""
    values = {
        "partition": {"name": "quantity", "clients": 100, "beta": 0.5, "min_samples": 3},
        "method": {"batch": 10},
        "engine": {"execution": execution, "devices": 2},
    }
    settings, fed, eng = set_up(values, blobs(7000), small_net())
    _, _, log = train(settings, fed, eng, rounds=1)
    counts = fed.counts[:, TRAIN]
    assert log.steps.sum() == np.ceil(counts / 10).sum()
    assert log.executed.sum() / log.steps.sum() <= 1.15
    if execution == "chunk":
        assert log.executed.sum() > log.steps.sum()  # a chunk does wait a little
    assert overhead(np.ceil(counts / 10)[None], 100) > 3  # what padding to the largest would cost


def test_padding_does_not_change_a_step(rng):
    """A batch with as much padding as samples gives the same loss and gradient."""
    model = small_net()
    x, y = rng.normal(size=(9, 6)).astype(np.float32), rng.integers(3, size=9).astype(np.int32)
    params = model.init(jax.random.key(0), x)
    step = jax.jit(local.loss_and_gradient(model))
    loss, grads = step(params, Batch(x, y, np.ones(9, np.float32), jax.random.key(0)))
    twice = Batch(
        np.concatenate([x, np.repeat(x[:1], 9, 0)]),
        np.concatenate([y, np.repeat(y[:1], 9)]),
        np.repeat(np.float32([1, 0]), 9),
        jax.random.key(0),
    )
    padded_loss, padded = step(params, twice)
    np.testing.assert_allclose(padded_loss, loss, rtol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), padded, grads)


def test_padding_does_not_change_a_run():
    """A far larger client doubles every batch; the others' training does not notice."""
    values = {**RAGGED, "method": {"lr": 0.05, "batch": 10**6}, "engine": {"devices": 1}}
    settings, fed, eng = set_up(values, blobs(), small_net())
    giant = [2 * fed.counts[:, TRAIN].max(), 1, 1]
    starts = np.append(fed.arrays.starts, 0).astype(np.int32)
    noise = np.append(fed.arrays.noise, 0)
    more = fed._replace(
        counts=np.vstack([fed.counts, giant]),
        arrays=fed.arrays._replace(starts=starts, noise=noise),
    )
    method = settings.method.build(small_net())
    padded = build(settings, method, small_net(), more)
    state, _ = eng.run(eng.state, 1)
    padded_state, _ = padded.run(padded.state, 1)
    for client in range(fed.clients):
        _, alone = eng.models(state, client)
        _, beside_a_giant = padded.models(padded_state, client)
        assert distance(beside_a_giant, alone) < 1e-6


@pytest.mark.parametrize("devices", [1, 2, 3, 8])
def test_layout_holds_every_client_once_and_shares_the_work(devices, rng):
    work = rng.pareto(1.5, 100) * 100
    layout = lay_out(work, devices)
    assert sorted(layout.client[layout.client < 100]) == list(range(100))
    np.testing.assert_array_equal(layout.client[layout.slot], np.arange(100))
    loads = np.append(work, 0)[layout.client].reshape(devices, -1).sum(1)
    assert loads.max() <= work.sum() / devices + work.max()
    rows = np.append(work, 0)[layout.client].reshape(devices, -1)
    assert (np.diff(rows, axis=1) <= 0).all()


def test_overhead_counts_waiting():
    steps = np.array([[4, 2, 2, 0], [3, 3, 1, 1]])
    assert overhead(steps, 1) == 1
    assert overhead(steps, 2) == (8 + 4 + 6 + 2) / 16
    assert overhead(steps, 3) == (12 + 0 + 9 + 3) / 16


def test_more_devices_than_there_are_is_refused():
    with pytest.raises(Exception, match=r"engine\.devices = 64"):
        set_up({**RAGGED, "engine": {"devices": 64}}, blobs(), small_net())


def test_bytes_and_parameters_are_counted():
    _, _, eng = ready("all", **PLAIN)
    assert eng.facts.parameters == 6 * 5 + 5 + 5 * 3 + 3
    assert eng.facts.bytes_up == eng.facts.bytes_down == 4 * eng.facts.parameters


@pytest.mark.parametrize(
    ("values", "piece", "expected"),
    [
        ({"eval_every": 5}, None, 5),
        ({"eval_every": 500, "rounds": 60}, None, 60),
        ({"eval_every": 500, "rounds": 500}, None, LONGEST_CALL // 40),  # 40 batches a round
        ({"eval_every": 500, "rounds": 500}, 1, LONGEST_CALL // 400),  # of 10 samples each
        ({"eval_every": 500, "rounds": 500, "method": {"batch": 10, "epochs": 300}}, 1, 1),
        ({"eval_every": 500, "rounds": 500, "engine": {"rounds_per_call": 450}}, 1, 450),
        (
            {"eval_every": 500, "rounds": 500, "participation": {"clients_per_round": 2}},
            None,
            LONGEST_CALL // 20,
        ),
    ],
)
def test_a_call_is_bounded(values, piece, expected):
    """By the passes through a model in it, each of which XLA remembers for a while on CPU."""
    partition = {"name": "iid", "clients": 4}
    settings = make({"partition": partition, "method": {"batch": 10}, **values})
    _, fed = assemble(settings, blobs(samples=500))
    assert fed.counts[:, TRAIN].sum() == 400
    assert rounds_per_call(settings, small_net()._replace(cpu_piece=piece), fed) == expected


share = jax.jit(share_out, static_argnums=2)


@pytest.mark.parametrize(("devices", "selected"), [(2, 10), (2, 11), (4, 10), (8, 40), (3, 2)])
@pytest.mark.parametrize("ragged", [False, True])
def test_clients_travel_only_to_even_out_the_work(rng, devices, selected, ragged):
    for _ in range(20):
        work = np.sort(rng.integers(1, 400, selected) if ragged else np.full(selected, 7))[::-1]
        home = rng.integers(devices, size=selected).astype(np.int32)
        host, place = map(np.asarray, share(work, home, devices))
        each = most_each(selected, devices)
        load = np.bincount(host, work, devices)
        assert len({*zip(host, place, strict=True)}) == selected
        assert place.max() < each
        if not ragged:
            kept = np.minimum(np.bincount(home, minlength=devices), each).sum()
            assert (host == home).sum() >= kept - (devices - 2)  # two devices: as many as can
        elif selected >= 4 * devices:
            assert load.max() <= work.sum() / devices + work[0]


def test_a_draw_places_every_selected_client_once(rng):
    clients, devices, selected = 23, 3, 7
    work = rng.integers(1, 50, clients)
    guests = guest_rows(selected, clients, devices)
    layout = lay_out(work, devices, guests)
    rows = len(layout.client) // devices
    travelled = 0

    @jax.jit
    def draw(key):
        chosen = select(key, jnp.int32(0), selected, clients)
        slot, taken = jnp.asarray(layout.slot)[chosen], jnp.asarray(work)[chosen]
        return deal_out(chosen, slot, taken, clients, rows, guests, devices)

    for number in range(30):
        cohorts, trips = draw(jax.random.key(number))
        ids = np.asarray(cohorts.ids)
        assert len(set(ids[ids < clients])) == (ids < clients).sum() == selected
        made = int(trips.number)
        travelled += made
        away = {(int(trips.host[i]), int(trips.guest[i])): i for i in range(made)}
        assert len(away) == made
        for device, place in np.ndindex(ids.shape):
            if ids[device, place] == clients:
                continue
            row = int(cohorts.rows[device, place])
            home = divmod(int(layout.slot[ids[device, place]]), rows)
            if (device, row) in away:
                i = away[device, row]
                assert rows - guests <= row < rows - 1
                assert (int(trips.home[i]), int(trips.row[i])) == home
                assert home[0] != device
            else:
                assert (device, row) == home
    assert travelled > 0


def test_small_steps_are_taken_side_by_side_on_cpu():
    steps = np.full((2, 50), 3)
    auto = make({}).engine
    assert choose(auto, "cpu", steps, 2, 50, Step(100, 109_386)).execution == "map"
    tiny = choose(auto, "cpu", steps, 2, 50, Step(4, 570))
    assert (tiny.execution, tiny.width) == ("chunk", 50)
    assert choose(auto, "cpu", steps, 2, 50, Step(13, 2**20 // 130)).width == 10
    assert choose(auto, "cpu", steps, 2, 50, Step(100, 7850)).execution == "map"
    assert choose(auto, "cpu", steps, 2, 50, Step(80, 610)).width == 50
    uneven = np.array([[100] + [1] * 49] * 2)
    assert choose(auto, "cpu", uneven, 2, 50, Step(1, 10)).width == 1
    assert choose(auto, "gpu", steps, 2, 50, Step(100, 109_386)).width == 50
    asked = make({"engine": {"execution": "vmap"}}).engine
    assert "asked" in choose(asked, "cpu", steps, 2, 50, Step(1, 1)).reason


def test_few_devices_because_jax_was_running_are_warned_of():
    program = """
import os, warnings
import jax.numpy as jnp
from flamejax.engine import devices
os.sched_getaffinity = lambda process: {0, 1}  # a machine of two cores
jnp.zeros(2) + 1
for useful in (1, 2):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        devices.make_mesh("auto", useful)
    print(["this run uses 1" in str(one.message) for one in said])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["[]", "[True]"]
