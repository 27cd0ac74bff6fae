"""What is measured: federations of given sizes, their images made up."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flamejax.bench.workers.protocol import Job

DIGIT, PHOTO, SCAN = (28, 28, 1), (32, 32, 3), (64, 64, 3)


class Workload(NamedTuple):
    text: str
    model: str
    shape: tuple[int, ...]
    clients: int
    samples: int  # that a client trains on; on average, where sizes differ
    batch: int = 100
    selected: int | None = None  # of the clients; None: all
    ragged: bool = False  # sizes ~ Dir(.5)
    method: str = "flame"


WORKLOADS = {
    "W1": Workload("softmax regression, 10 clients", "mlr", DIGIT, 10, 5600),
    "W2": Workload("MLP, 10 clients", "mlp", DIGIT, 10, 5600),
    "W3a": Workload("MLP, 100 clients", "mlp", DIGIT, 100, 500),
    "W3b": Workload("MLP, 1000 clients", "mlp", DIGIT, 1000, 56, batch=28),
    "W4": Workload("CNN for CIFAR, 10 clients", "cnn_cifar", PHOTO, 10, 1000),
    "W5": Workload("CNN for Medical MNIST, 10 clients", "cnn_medical", SCAN, 10, 500),
    "P1": Workload("FedAvg, MLP, 100 clients", "mlp", DIGIT, 100, 500, method="fedavg"),
    "P2": Workload("FedAvg, MLP, 10 clients", "mlp", DIGIT, 10, 5000, method="fedavg"),
    "ragged": Workload("W3a, sizes ~ Dir(.5)", "mlp", DIGIT, 100, 500, ragged=True),
    "few": Workload("MLP, 10 of 1000 clients", "mlp", DIGIT, 1000, 500, selected=10),
    "few-all": Workload("MLP, those 10 alone", "mlp", DIGIT, 10, 500),
    "few-small": Workload("MLP, 10 of 1000", "mlp", DIGIT, 1000, 56, batch=28, selected=10),
    "few-small-all": Workload("MLP, those 10", "mlp", DIGIT, 10, 56, batch=28),
}


def make_job(name: str, workload: Workload, seed: int = 0) -> Job:
    """The workload with data: noisy copies of one picture per class."""
    rng = np.random.default_rng(seed)
    classes = 6 if workload.model == "cnn_medical" else 10
    training = np.full(workload.clients, workload.samples)
    if workload.ragged:
        shares = rng.dirichlet(np.full(workload.clients, 0.5))
        training = np.maximum(1, np.rint(shares * training.sum())).astype(int)
    held = np.maximum(2, np.rint(training / 4)).astype(int)
    samples = training + held
    labels = rng.integers(classes, size=samples.sum(), dtype=np.int32)
    pictures = rng.integers(256, size=(classes, *workload.shape), dtype=np.uint8)
    images = rng.integers(256, size=(len(labels), *workload.shape), dtype=np.uint8)
    images = images // 2 + pictures[labels] // 4
    return Job(
        name, workload.method, workload.model, workload.selected or workload.clients,
        workload.batch, 0.01, 1.0, 0.1, 0.4, 0.2, classes, images, labels, samples, training,
        first_weights(workload, classes, rng),
    )  # fmt: skip


def first_weights(workload: Workload, classes: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Uniform in +-1/sqrt(fan-in), layer by layer."""
    kernels: dict[str, list[tuple[int, ...]]] = {
        "mlr": [(784, classes)],
        "mlp": [(784, 128), (128, 64), (64, classes)],
        "cnn_cifar": [(3, 3, 3, 16), (3, 3, 16, 32), (2048, 128), (128, classes)],
        "cnn_medical": [(3, 3, 3, 32), (3, 3, 32, 16), (3136, 64), (64, classes)],
    }
    weights: list[np.ndarray] = []
    for shape in kernels[workload.model]:
        bound = np.prod(shape[:-1]) ** -0.5
        weights += [rng.uniform(-bound, bound, s).astype(np.float32) for s in (shape, shape[-1:])]
    return weights
