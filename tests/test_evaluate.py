"""Per-client figures against a direct computation, and the hybrid choice."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flamejax.evaluate import Sums, correct, evenness, figures, gap, summarize
from flamejax.federation import TEST, TRAIN, VALIDATION

from .problems import blobs, set_up, small_net


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param({"devices": 1}, marks=pytest.mark.full),
        {"devices": 3, "execution": "vmap"},
    ],
)
def test_sums_equal_a_direct_evaluation_of_every_client(engine):
    values = {
        "partition": {"name": "quantity", "clients": 7, "min_samples": 8},
        "method": {"lr": 0.1, "batch": 10},
        "engine": engine,
    }
    data, model = blobs(), small_net()
    _, fed, eng = set_up(values, data, model)
    state, _ = eng.run(eng.state, 5)
    sums = eng.evaluate(state)
    assert sums.loss.shape == (7, 2, 2)
    for client in range(7):
        shared, personal = eng.models(state, client)
        begin = fed.arrays.starts[client] + fed.counts[client, TRAIN]
        for split, place in ((VALIDATION, 0), (TEST, 1)):
            rows = fed.arrays.rows[begin : begin + fed.counts[client, split]]
            begin += fed.counts[client, split]
            for i, params in enumerate((personal, shared)):
                outputs = model.apply(params, data.images[rows].astype(np.float32))
                hits = (np.argmax(np.asarray(outputs), -1) == data.labels[rows]).sum()
                loss = model.loss(outputs, data.labels[rows].astype(np.int32)).sum()
                assert sums.correct[client, i, place] == hits
                np.testing.assert_allclose(sums.loss[client, i, place], loss, rtol=1e-4)


def sums_of(pm, gm):
    """Counts of right answers of 10: (validation, test) of each model for each client."""
    correct = np.stack([np.array(pm, float), np.array(gm, float)], axis=1)
    return Sums(loss=10 - correct, correct=correct)


COUNTS = np.tile([50, 10, 10], (3, 1))
SUMS = sums_of(pm=[[9, 5], [3, 9], [6, 6]], gm=[[8, 7], [4, 8], [6, 7]])


def test_hybrid_is_chosen_on_validation_and_reported_on_test():
    result = figures(SUMS, COUNTS, "validation")
    assert result.picks_global.tolist() == [False, True, False]  # the tie goes to PM
    assert result.test.accuracy["hm"].tolist() == [0.5, 0.8, 0.6]
    assert result.selection.accuracy["hm"].tolist() == [0.9, 0.4, 0.6]


def test_oracle_chooses_on_test_and_is_never_worse():
    result = figures(SUMS, COUNTS, "test")
    assert result.test.accuracy["hm"].tolist() == [0.7, 0.9, 0.7]


def test_a_method_without_global_model_reports_none():
    sums = jax.tree.map(lambda x: x[:, :1], SUMS)
    summary = summarize(figures(sums, COUNTS, "validation").test)
    assert summary["gm"] is None
    assert summary["hm"] is None
    assert summary["pm"]["accuracy"] == pytest.approx(20 / 30)


def test_statistics_over_clients():
    accuracy = np.linspace(0, 9, 30).round()
    sums = Sums(loss=np.zeros((30, 1, 2)), correct=np.tile(accuracy[:, None, None], (1, 1, 2)))
    summary = summarize(figures(sums, np.tile([1, 10, 10], (30, 1)), "validation").test)["pm"]
    assert summary["accuracy"] == pytest.approx(accuracy.mean() / 10)
    assert summary["accuracy_var"] == pytest.approx((accuracy / 10).var())
    assert summary["worst10"] == pytest.approx(np.sort(accuracy)[:3].mean() / 10)
    assert summary["best10"] == pytest.approx(np.sort(accuracy)[-3:].mean() / 10)


def test_evenness_of_accuracies():
    same = evenness(np.full(8, 0.7))
    assert same["jain"] == pytest.approx(1)
    assert same["entropy"] == pytest.approx(np.log(8))
    one_has_all = evenness(np.eye(8)[0])
    assert one_has_all["jain"] == pytest.approx(1 / 8)
    assert one_has_all["entropy"] == pytest.approx(0)
    accuracy = np.array([0.9, 0.6, 0.3])
    shares = accuracy / 1.8
    found = evenness(accuracy)
    assert found["jain"] == pytest.approx(1.8**2 / (3 * (0.81 + 0.36 + 0.09)))
    assert found["entropy"] == pytest.approx(-sum(p * np.log(p) for p in shares))
    assert np.isnan(evenness(np.zeros(3))["jain"])


def test_the_gap_is_what_personalization_gains():
    assert gap(figures(SUMS, COUNTS, "validation").test) == pytest.approx((20 - 22) / 30)
    alone = jax.tree.map(lambda x: x[:, :1], SUMS)
    assert gap(figures(alone, COUNTS, "validation").test) is None


def test_outputs_that_are_not_finite_are_wrong():
    outputs = jnp.array([[0.0, 1.0], [jnp.nan, 0.0], [jnp.inf, 0.0], [2.0, 1.0]])
    hits = correct(outputs, jnp.array([1, 0, 0, 0], jnp.int32))
    assert hits.tolist() == [1, 0, 0, 1]
