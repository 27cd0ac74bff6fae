"""What travels between clients and server, counted by hand and by the run."""

import json

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest

import flamejax as fj
from flamejax import config, registry
from flamejax.types import Shard

from .problems import blobs, small_net

METHODS = registry.names("methods")
# for 28 x 28 pixels and 10 digits
D = {"mlr": 784 * 10 + 10, "mlp": 784 * 128 + 128 + 128 * 64 + 64 + 64 * 10 + 10}
D_SUB = 7
# what a client sends up in a round, and what is sent down to it
NUMBERS = {
    "flame": ("d", "d"),  # u_i; w. pi_i, w_i and theta_i stay
    "pfedme": ("d", "d"),  # w_i; w. theta_i stays
    "ditto": ("d", "d"),  # x; w. v_i stays
    "fedadmm": ("d", "d"),  # u_i; w. pi_i stays
    "fedavg": ("d", "d"),
    "fedprox": ("d", "d"),
    "per_fedavg": ("d", "d"),
    "lp_proj": ("d_sub", "d_sub"),  # P is made from the seed
    "flame_lp_proj": ("d_sub", "d_sub"),
    "local": ("none", "none"),
}
ROUNDS, CLIENTS, SELECTED = 3, 5, 2


OTHERS = [*((m, "mlr") for m in METHODS if m != "lp_proj"), ("flame", "mlp"), ("lp_proj", "mlp")]


@pytest.mark.parametrize(
    ("method", "model"),
    [("lp_proj", "mlr"), *(pytest.param(*other, marks=pytest.mark.full) for other in OTHERS)],
)
def test_bytes_by_hand(method, model):
    size = {"d": D[model], "d_sub": D_SUB, "none": 0}
    up, down = (4 * SELECTED * size[kind] for kind in NUMBERS[method])
    chosen = {"name": method, **({"d_sub": D_SUB} if "lp_proj" in method else {})}
    result = fj.run(
        rounds=ROUNDS,
        eval_every=2,
        data={"limit": 100},
        partition={"name": "iid", "clients": CLIENTS},
        participation={"clients_per_round": SELECTED},
        model={"name": model},
        method=chosen,
        quiet=True,
    )
    assert result.summary["parameters"] == D[model]
    assert result.metrics["bytes_up"].tolist() == [2 * up, 3 * up]
    assert result.metrics["bytes_down"].tolist() == [2 * down, 3 * down]
    assert (result.summary["bytes_up"], result.summary["bytes_down"]) == (3 * up, 3 * down)


FORMS = [(m, preset) for m in METHODS for preset in registry.get("methods", m).presets]


@pytest.mark.parametrize(
    ("name", "preset"),
    [form if form[0] == "flame" else pytest.param(*form, marks=pytest.mark.full) for form in FORMS],
)
def test_all_that_is_sent_down_is_used_and_all_that_changes_is_sent(name, preset):
    settings = config.make({"method": {"name": name, "preset": preset, "batch": 4}}).method
    method, hyper = settings.build(small_net()), jax.tree.map(jnp.asarray, settings.hyper())
    data, at = blobs(20), jnp.zeros((), jnp.int32)
    x, y = jnp.asarray(data.images, jnp.float32), jnp.asarray(data.labels, jnp.int32)
    shard = Shard(at, 2, at + 20, 20, jnp.float32(0.5), lambda rows: (x[rows], y[rows]))
    key = jax.random.key(1)
    server, client = method.init(hyper, small_net().init(key, x), key)
    train = jax.jit(lambda server: method.client(hyper, server, client, shard, key)[:2])
    done = train(server)
    later = method.server(hyper, server, jax.tree.map(lambda x: x + 1, done[1]))

    def same(one, other):
        return all(map(np.array_equal, jax.tree.leaves(one), jax.tree.leaves(other)))

    leaves, structure = jax.tree.flatten(server)
    for i, leaf in enumerate(leaves):
        other = jax.tree.unflatten(structure, [*leaves[:i], leaf + 1, *leaves[i + 1 :]])
        used = not same(train(other), done)
        sent = not same(method.broadcast(other), method.broadcast(server))
        changes = not np.array_equal(jax.tree.leaves(later)[i], leaf)
        assert sent == (used and changes)


@pytest.mark.full
def test_rows_add_up_and_are_drawn(tmp_path):
    matplotlib.use("Agg")
    settings = {"rounds": 3, "eval_every": 1, "model": {"name": "mlr"}, "data": {"limit": 100}}
    settings |= {"partition": {"name": "iid", "clients": 2}, "quiet": True}
    result = fj.run(out=tmp_path / "out", **settings)
    rows = [json.loads(line) for line in (tmp_path / "out/metrics.jsonl").read_text().splitlines()]
    each = 4 * 2 * D["mlr"]
    for number, row in enumerate(rows, start=1):
        per_round = {"up_per_round": each, "down_per_round": each}
        assert row["bytes"] == {**per_round, "up": number * each, "down": number * each}
    for axes in result.plot(against="bytes").axes:
        for line in axes.lines:
            np.testing.assert_allclose(line.get_xdata(), np.array([2, 4, 6]) * each / 1e6)
    silent = fj.run(method={"name": "local"}, **settings)
    with pytest.raises(fj.InputError, match="nothing was sent; draw it against 'rounds'"):
        silent.plot(against="bytes")
