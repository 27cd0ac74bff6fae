"""How hard the pairs of classes of clients with two labels are, and what a draw of pairs does.

    python experiments/results/table2/pairs.py RUN      # results of `qlabel` with q = 2

Softmax regression is trained for every pair of classes, and the personalized accuracies of the
run's clients are put beside those of their pairs: where the two go together, a line through them
says what other draws of pairs would have given. One minute for CIFAR10.
"""

from __future__ import annotations

import argparse
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

import flamejax as fj
from flamejax.config import load, make
from flamejax.partitions.qlabel import qlabel

DRAWS = 1000


def one_each(rng: np.random.Generator, labels: np.ndarray, **_: Any) -> list[np.ndarray]:
    """A client for every pair of classes, each with its share of both."""
    classes = np.unique(labels)
    shares = {
        k: iter(np.array_split(rng.permutation(np.flatnonzero(labels == k)), len(classes) - 1))
        for k in classes
    }
    return [rng.permutation(np.r_[next(shares[a]), next(shares[b])]) for a, b in pairs(classes)]


def pairs(classes: np.ndarray) -> list[tuple[int, int]]:
    return [(int(a), int(b)) for a, b in combinations(classes, 2)]


def dealt(labels: np.ndarray, clients: int, seed: int) -> list[tuple[int, int]]:
    """The classes of each client, as a run with this seed deals them."""
    parts = qlabel(np.random.default_rng(seed), labels, clients=clients, q=2)
    return [(int(a), int(b)) for a, b in (np.unique(labels[part]) for part in parts)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", type=Path, metavar="RUN")
    folder = parser.parse_args().run
    config = make(load(folder / "config.toml"))
    labels, clients = fj.load_data(config.data.name).labels, config.partition.clients
    found = np.load(folder / "clients.npz", allow_pickle=False)["last_pm_accuracy"]

    fj.register("partitions", "one_each", one_each)
    all_pairs = pairs(np.unique(labels))
    simple = fj.run(
        rounds=60,
        eval_every=60,
        data={"name": config.data.name},
        partition={"name": "one_each", "clients": len(all_pairs)},
        model={"name": "mlr"},
        method={"name": "local", "lr": 0.01, "momentum": 0.5, "batch": 100},
    )
    ease = dict(zip(all_pairs, simple.clients["last_pm_accuracy"], strict=True))

    own = [ease[pair] for pair in dealt(labels, clients, config.seed)]
    slope, level = np.polyfit(own, found, 1)
    means = [np.mean([ease[p] for p in dealt(labels, clients, s)]) for s in range(DRAWS)]
    guessed = slope * np.array(means) + level
    print("pair       regression  the run's PM")
    for pair, easy, pm in zip(dealt(labels, clients, config.seed), own, found, strict=True):
        print(f"{pair!s:10} {easy:10.3f} {pm:13.3f}")
    print(f"correlation {np.corrcoef(own, found)[0, 1]:.3f}; PM = {level:.3f} + {slope:.3f} x")
    below = np.mean(guessed < found.mean())
    print(f"PM {found.mean():.4f}; by that line {below:.1%} of {DRAWS} draws of pairs are below it")
    print(f"their mean is {guessed.mean():.4f}, sd {guessed.std():.4f}")
    print("seeds 1 to 5:", *(f"{guessed[s]:.4f}" for s in range(1, 6)))


if __name__ == "__main__":
    main()
