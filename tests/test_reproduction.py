"""Real MNIST against the figures the paper and a prototype gave; a short form by default."""

import pytest

import flamejax as fj


def accuracies(mnist_dir, partition, preset, rounds, seed=1):
    result = fj.run(
        seed=seed,
        rounds=rounds,
        eval_every=rounds,
        data={"name": "mnist", "dir": str(mnist_dir)},
        partition={"name": partition},
        method={"preset": preset},
    )
    last = result.summary["last"]
    return last["pm"]["accuracy"], last["gm"]["accuracy"]


def test_ten_rounds_with_two_classes_a_client(mnist_dir):
    personal, shared = accuracies(mnist_dir, "qlabel", "published", rounds=10)
    assert 0.97 < personal < 0.99
    assert 0.65 < shared < 0.82


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    ("partition", "preset", "personal", "shared"),
    [
        ("qlabel", "published", (0.975, 0.99), (0.77, 0.84)),
        ("iid", "published", (0.942, 0.952), (0.942, 0.952)),
        ("iid", "paper", (0.93, 0.942), (0.93, 0.942)),
    ],
)
def test_hundred_rounds(mnist_dir, partition, preset, personal, shared, seed):
    pm, gm = accuracies(mnist_dir, partition, preset, rounds=100, seed=seed)
    assert personal[0] <= pm <= personal[1]
    assert shared[0] <= gm <= shared[1]
