"""What is measured: federations of given sizes, their images made up."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flamejax.bench.workers.protocol import Job

DIGIT, PHOTO, SCAN = (28, 28, 1), (32, 32, 3), (64, 64, 3)


class Layer(NamedTuple):
    kernel: tuple[int, ...]
    places: int = 1  # where it is applied in one sample


LAYERS = {  # of the models as they are built for these images
    "mlr": (Layer((784, 10)),),
    "mlp": (Layer((784, 128)), Layer((128, 64)), Layer((64, 10))),
    "cnn_cifar": (
        Layer((3, 3, 3, 16), 32 * 32), Layer((3, 3, 16, 32), 16 * 16),
        Layer((2048, 128)), Layer((128, 10)),
    ),
    "cnn_medical": (
        Layer((3, 3, 3, 32), 62 * 62), Layer((3, 3, 32, 16), 29 * 29),
        Layer((3136, 64)), Layer((64, 6)),
    ),
}  # fmt: skip


class Workload(NamedTuple):
    text: str
    model: str
    clients: int
    samples: int  # that a client trains on; on average, where sizes differ
    batch: int = 100
    selected: int | None = None  # of the clients; None: all
    ragged: bool = False  # sizes ~ Dir(.5)
    method: str = "flame"

    @property
    def trained(self) -> int:
        """Samples of a round."""
        return (self.selected or self.clients) * self.samples


WORKLOADS = {
    "W1": Workload("softmax regression, 10 clients x 5,600", "mlr", 10, 5600),
    "W2": Workload("MLP, 10 clients x 5,600", "mlp", 10, 5600),
    "W3a": Workload("MLP, 100 clients x 500", "mlp", 100, 500),
    "W3b": Workload("MLP, 1,000 clients x 56, batch 28", "mlp", 1000, 56, batch=28),
    "W4": Workload("CNN for CIFAR, 10 clients x 1,000", "cnn_cifar", 10, 1000),
    "W5": Workload("CNN for Medical MNIST, 10 clients x 500", "cnn_medical", 10, 500),
    "ragged": Workload("W3a with sizes ~ Dir(.5)", "mlp", 100, 500, ragged=True),
    "few": Workload("MLP, 10 of 1,000 clients x 500", "mlp", 1000, 500, selected=10),
    "ten": Workload("MLP, 10 of 10 clients x 500", "mlp", 10, 500),
    "P1": Workload("FedAvg, MLP, 100 clients x 500", "mlp", 100, 500, method="fedavg"),
    "P2": Workload("FedAvg, MLP, 10 clients x 5,000", "mlp", 10, 5000, method="fedavg"),
    "small": Workload("MLP, 10 clients x 1,000", "mlp", 10, 1000),
    "small-cnn": Workload("CNN for CIFAR, 4 clients x 200", "cnn_cifar", 4, 200),
}


def flops(workload: Workload, command: str) -> float:
    """Of the matrix products in one round, or one evaluation of PM and GM on all clients."""
    products = [2 * np.prod(layer.kernel) * layer.places for layer in LAYERS[workload.model]]
    if command == "evaluate":
        return float(2 * sum(products) * held_out(workload.samples) * workload.clients)
    # forward, and the gradients of weights and of inputs, of which the first layer's is not needed
    return float((3 * sum(products) - products[0]) * workload.trained)


def held_out(training: int | np.ndarray) -> np.ndarray:
    """Samples beside those for training: a fifth of all."""
    return np.maximum(2, np.rint(np.asarray(training) / 4)).astype(int)


def make_job(name: str, seed: int = 0) -> Job:
    """The workload with data: noisy copies of one picture per class."""
    workload, rng = WORKLOADS[name], np.random.default_rng(seed)
    layers = LAYERS[workload.model]
    classes = layers[-1].kernel[-1]
    shape = {"cnn_cifar": PHOTO, "cnn_medical": SCAN}.get(workload.model, DIGIT)
    training = np.full(workload.clients, workload.samples)
    if workload.ragged:
        shares = rng.dirichlet(np.full(workload.clients, 0.5))
        training = np.maximum(1, np.rint(shares * training.sum())).astype(int)
        training[np.argmax(training)] += workload.trained - training.sum()
    samples = training + held_out(training)
    labels = rng.integers(classes, size=samples.sum(), dtype=np.int32)
    pictures = rng.integers(64, size=(classes, *shape), dtype=np.uint8)
    images = rng.integers(128, size=(len(labels), *shape), dtype=np.uint8)
    images += pictures[labels]
    return Job(
        name=name,
        method=workload.method,
        model=workload.model,
        selected=workload.selected or workload.clients,
        batch=workload.batch,
        lr=0.01,
        lam=1.0,
        rho=0.1,
        mean=0.4,
        std=0.2,
        classes=classes,
        images=images,
        labels=labels,
        samples=samples,
        training=training,
        weights=first_weights(layers, rng),
    )


def first_weights(layers: tuple[Layer, ...], rng: np.random.Generator) -> list[np.ndarray]:
    """Uniform in +-1/sqrt(fan-in), layer by layer: kernel, bias."""
    weights: list[np.ndarray] = []
    for layer in layers:
        bound = np.prod(layer.kernel[:-1]) ** -0.5
        for shape in (layer.kernel, layer.kernel[-1:]):
            weights.append(rng.uniform(-bound, bound, shape).astype(np.float32))
    return weights
