"""Other ways of dealing labels to clients, and epochs without their last, partial batch.

    python experiments/results/table2/dealing.py fashion_mnist 6 [--shards] [--whole-batches]

FLAME as published, 100 rounds, seeds 1, 2 and 3: what the accuracy table would be.
"""

import argparse

import jax.numpy as jnp
import numpy as np

import flamejax as fj
from flamejax import local

METHOD = {"name": "flame", "preset": "published", "lam": 1.0, "rho": 0.1, "lr": 0.01, "batch": 100}


def shards(rng, labels, *, clients, q, **_):
    """Every class is cut into q m / 10 shards; a client gets q of all, whatever their class."""
    classes = [rng.permutation(np.flatnonzero(labels == k)) for k in np.unique(labels)]
    count = q * clients // len(classes)
    pieces = [piece for members in classes for piece in np.array_split(members, count)]
    hands = rng.permutation(len(pieces)).reshape(clients, q)
    return [rng.permutation(np.concatenate([pieces[j] for j in hand])) for hand in hands]


def whole_batches(shard, size):
    """As `local.batches`, without a partial one."""
    return jnp.maximum(shard.samples // min(size, shard.largest), 1)


parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("data")
parser.add_argument("q", type=int)
parser.add_argument("--shards", action="store_true")
parser.add_argument("--whole-batches", action="store_true")
given = parser.parse_args()
fj.register("partitions", "shards", shards)
if given.whole_batches:
    local.batches = whole_batches
for seed in (1, 2, 3):
    partition = {"name": "shards" if given.shards else "qlabel", "q": given.q, "clients": 10}
    result = fj.run(
        seed=seed, rounds=100, eval_every=20, data={"name": given.data}, partition=partition,
        method=METHOD, quiet=True,
    )  # fmt: skip
    last = result.summary["last"]
    print(f"seed {seed}: PM {last['pm']['accuracy']:.4f} GM {last['gm']['accuracy']:.4f}")
    print("  left over:", result.clients["train_samples"] % METHOD["batch"])
    print("  PM:", result.clients["last_pm_accuracy"].round(3), flush=True)
