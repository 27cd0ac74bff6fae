"""States that the host keeps: touched clients only, in memory and on disk, windows on devices."""

from __future__ import annotations

import errno
import functools

import jax
import numpy as np
import pytest

import flamejax as fj
from flamejax import registry
from flamejax.config import make
from flamejax.engine.devices import Size, seat
from flamejax.engine.store import Store
from flamejax.errors import InputError, RunError

from .problems import blobs, distance, set_up, small_net, train

METHODS = [name for name in registry.names("methods") if name != "local"]


def state(number):
    return {"a": np.full((3, 2), number, np.float32), "b": np.int32(number), "c": np.zeros((0, 4))}


def stacked(numbers):
    return jax.tree.map(lambda *x: np.stack(x), *[state(n) for n in numbers])


def read(store, clients):
    room = jax.tree.map(lambda x: np.full((len(clients), *np.shape(x)), -1, x.dtype), state(0))
    store.read(np.array(clients), np.arange(len(clients)), room)
    assert (room["a"] == room["b"][:, None, None]).all()
    return room["b"].tolist()


@pytest.mark.parametrize("in_memory", [0, 2, 100])
def test_a_store_gives_back_what_was_kept_last(in_memory, tmp_path, rng):
    store = Store(state(7), in_memory * 28, tmp_path)
    assert store.record == 28
    assert store.in_memory == in_memory
    expected = dict.fromkeys(range(50), 7)
    for _ in range(20):
        clients = rng.choice(50, 6, replace=False)
        numbers = rng.integers(1000, size=6)
        store.write(clients, np.arange(6)[::-1], stacked(numbers[::-1]))
        expected |= dict(zip(clients.tolist(), numbers.tolist(), strict=True))
        some = rng.choice(50, 20, replace=False)
        assert read(store, some) == [expected[client] for client in some.tolist()]
    touched = sum(value != 7 for value in expected.values())
    assert len(store.clients) >= touched
    assert store.spilled == max(0, len(store.clients) - in_memory) * 28
    assert list(tmp_path.iterdir()) == []  # the file has no name


def test_a_full_disk_is_named(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    store = Store(state(7), 0, tmp_path)
    monkeypatch.setattr("os.pwritev", full)
    with pytest.raises(RunError, match=r"state_budget cannot be kept in .*No space left"):
        store.write(np.array([1]), np.array([0]), stacked([1]))


@pytest.mark.parametrize(("devices", "processes"), [(1, 1), (3, 1), (4, 2), (4, 4)])
def test_clients_take_seats_on_devices_of_their_process(devices, processes, rng):
    clients = np.sort(rng.choice(1000, 40, replace=False))
    size, nobody = Size.of(40, devices, processes), 1000
    layout = seat(clients, rng.integers(1, 9, 40), nobody, size, guests=2)
    slots = layout.client.reshape(devices, -1)
    assert slots.shape == (devices, size.slots + 2)
    assert (slots[:, -2:] == nobody).all()
    present = layout.present[layout.present < nobody]
    np.testing.assert_array_equal(present, clients)
    np.testing.assert_array_equal(layout.client[layout.slot[: len(present)]], clients)
    assert len(layout.present) == len(layout.slot) == size.slots * devices
    per_process = slots.reshape(processes, -1)
    for process, part in enumerate(per_process):
        assert (part[part < nobody] % processes == process).all()


RAGGED = {
    "partition": {"name": "quantity", "clients": 23, "beta": 1.0, "min_samples": 6},
    "participation": {"clients_per_round": 5},
    "rounds": 100,
    "eval_every": 7,
}


TIGHT = {"store": "touched", "devices": 3, "state_budget": "20kB"}  # most of it on disk


def a_run(rounds=20, store=None, **values):
    """By default with the states of all clients on one device."""
    values |= {"rounds": rounds, "engine": store or {"devices": 1}}
    return fj.run(data=blobs(), model=small_net(), quiet=True, **{**RAGGED, **values})


plain_run = functools.cache(a_run)


def trained(method="flame", rounds=18, **engine):
    values = {**RAGGED, "method": {"name": method, "batch": 10}, "engine": engine}
    return train(*set_up(values, blobs(), small_net()), rounds)


@pytest.mark.full
@pytest.mark.parametrize("method", METHODS)
def test_a_store_on_the_host_changes_no_method(method):
    expected = trained(method, store="dense", devices=2)
    found = trained(method, store="touched", devices=2)
    assert distance(found[1], expected[1]) < 1e-5
    np.testing.assert_allclose(found[2].loss, expected[2].loss, rtol=1e-5)


@pytest.mark.parametrize(
    "store",
    [
        TIGHT,
        pytest.param({"store": "touched", "devices": 1}, marks=pytest.mark.full),
        pytest.param(
            {"store": "touched", "devices": 4, "execution": "vmap"}, marks=pytest.mark.full
        ),
        pytest.param(
            {"store": "touched", "devices": 2, "state_budget": 16000}, marks=pytest.mark.full
        ),
    ],
    ids=str,
)
def test_windows_of_any_size_give_the_same_run(store):
    expected, found = plain_run(), a_run(store=store)
    for key, values in expected.metrics.items():
        np.testing.assert_allclose(found.metrics[key], values, rtol=1e-5, err_msg=key)
    for client in range(23):
        assert distance(found.models(client), expected.models(client)) < 1e-5


@pytest.mark.full
def test_attacks_and_their_messages_are_kept_too():
    attack = {"name": "sign_flip", "fraction": 0.3}
    dense, touched = (
        a_run(12, {"store": store, "devices": 1}, attack=attack) for store in ("dense", "touched")
    )
    np.testing.assert_allclose(dense.metrics["pm_loss"], touched.metrics["pm_loss"], rtol=1e-5)


def test_a_store_that_cannot_serve_is_refused():
    def refused(match, **values):
        with pytest.raises(InputError, match=match):
            set_up({**RAGGED, **values}, blobs(), small_net())

    refused("looks at the states of all", engine={"store": "touched"}, participation={})
    krum = {"name": "multi_krum"}
    refused("looks at the states of all", engine={"store": "touched"}, aggregator=krum)
    refused(
        r"state_budget = 900: .* take '\d+kB'",
        engine={**TIGHT, "state_budget": 900},
    )
    refused(
        "state_budget = 'much' should be 'auto' or a number of bytes",
        engine={"state_budget": "much"},
    )


def test_budgets_have_units():
    def budget(value):
        return make({"engine": {"state_budget": value}}).engine.state_budget

    assert [budget(x) for x in (5, "5", "5B", "1.5kB", "2 GB")] == [5, 5, 5, 1500, 2 * 10**9]
    assert budget("auto") == "auto"


def test_evaluations_look_at_some_clients_and_say_so():
    whole = plain_run(7)
    assert whole.summary["evaluated_clients"] == 23
    for store in (None, TIGHT):
        some = a_run(7, store, eval_clients=9)
        seen = np.isfinite(some.clients["last_pm_accuracy"])
        assert some.summary["evaluated_clients"] == seen.sum() == 9
        for name in ("last_pm_loss", "last_gm_accuracy", "best_hm_loss"):
            np.testing.assert_allclose(
                some.clients[name][seen], whole.clients[name][seen], rtol=1e-5
            )
        assert some.summary["last"]["pm"]["loss"] == pytest.approx(
            whole.clients["last_pm_loss"][seen].mean(), rel=1e-5
        )


def test_a_million_clients_take_what_the_selected_take():
    result = fj.run(
        data={"name": "synthetic", "features": 5, "samples": 10},
        partition={"name": "iid", "clients": 1_000_000},
        model={"name": "mlr"},
        participation={"clients_per_round": 10},
        rounds=4,
        eval_every=4,
        eval_clients=50,
        quiet=True,
    )
    assert result.summary["status"] == "finished"
    assert result.summary["round_seconds"] < 5
    assert np.isfinite(result.clients["last_pm_loss"]).sum() == 50
