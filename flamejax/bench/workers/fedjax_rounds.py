"""FedAvg by FedJAX: its loop over clients, its batches, its optimizer and its mean.

    fedjax_rounds.py JOB [pmap]

`pmap`: clients spread over one device for every core. The steps are those of
`fedjax.algorithms.fed_avg`, and return the loss as well.
"""

from __future__ import annotations

import os
import sys
from importlib import metadata
from typing import Any

import fedjax
import jax
import jax.numpy as jnp
import numpy as np
import protocol

Weights = list[jax.Array]


def mend() -> None:
    """Functions that FedJAX 0.0.17 calls and JAX has dropped."""

    def sharded(shards: list[Any], devices: list[jax.Device]) -> Any:
        mesh = jax.sharding.Mesh(np.array(devices), "i")
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i"))

        def spread(*leaves: Any) -> jax.Array:
            pairs = zip(leaves, devices, strict=True)
            parts = [jax.device_put(np.asarray(leaf)[None], device) for leaf, device in pairs]
            shape = len(parts), *parts[0].shape[1:]
            return jax.make_array_from_single_device_arrays(shape, sharding, parts)

        return jax.tree.map(spread, *shards)

    def replicated(x: Any, devices: list[jax.Device]) -> Any:
        return sharded([x] * len(devices), devices)

    dropped = {
        "tree_map": jax.tree.map,
        "device_put_sharded": sharded,
        "device_put_replicated": replicated,
    }
    for name, function in dropped.items():
        if not hasattr(jax, name):
            setattr(jax, name, function)


def network(weights: Weights, x: jax.Array) -> jax.Array:
    """[B, ...] -> [B, classes]"""
    kernels = list(zip(weights[::2], weights[1::2], strict=True))
    for kernel, bias in [pair for pair in kernels if pair[0].ndim == 4]:
        x = jax.lax.conv_general_dilated(
            x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        window = 1, 2, 2, 1
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")
        x = jax.nn.relu(x + bias)
    if x.ndim == 4:
        x = x.transpose(0, 3, 1, 2)
    x = x.reshape(len(x), -1)
    dense = [pair for pair in kernels if pair[0].ndim == 2]
    for kernel, bias in dense[:-1]:
        x = jax.nn.relu(x @ kernel + bias)
    return x @ dense[-1][0] + dense[-1][1]


def loss_of(weights: Weights, batch: dict[str, jax.Array]) -> jax.Array:
    logs = jax.nn.log_softmax(network(weights, batch["x"]))
    return -jnp.take_along_axis(logs, batch["y"][:, None], 1).mean()


def make_loop(job: protocol.Job) -> Any:
    """Weights and clients to every client's change of the weights and mean loss."""
    optimizer = fedjax.optimizers.sgd(job.lr)

    def init(w: Weights, _: Any) -> dict[str, Any]:
        return {"w": w, "opt": optimizer.init(w), "loss": jnp.zeros(()), "steps": jnp.zeros(())}

    def step(state: dict[str, Any], batch: dict[str, jax.Array]) -> dict[str, Any]:
        loss, gradient = jax.value_and_grad(loss_of)(state["w"], batch)
        opt, w = optimizer.apply(gradient, state["opt"], state["w"])
        return {"w": w, "opt": opt, "loss": state["loss"] + loss, "steps": state["steps"] + 1}

    def final(w: Weights, state: dict[str, Any]) -> tuple[Weights, jax.Array]:
        change = jax.tree.map(lambda a, b: a - b, state["w"], w)
        return change, state["loss"] / state["steps"]

    return fedjax.for_each_client(init, step, final)


def main(folder: str, option: str = "") -> None:
    job, cores = protocol.load(folder), protocol.cores()
    if job.method != "fedavg" or job.model == "cnn_medical":
        raise SystemExit(f"fedjax_rounds: does not run {job.method} on {job.model}")
    mend()
    if option == "pmap":
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={cores}"
        fedjax.set_for_each_client_backend("pmap")
    shape = job.images.shape[1:] if job.model.startswith("cnn") else (-1,)
    sets = []
    for first, n in zip(job.first, job.training, strict=True):
        x = job.images[first : first + n].astype(np.float32)
        x = (x / np.float32(255) - np.float32(job.mean)) / np.float32(job.std)
        examples = {"x": x.reshape(n, *shape), "y": job.labels[first : first + n]}
        sets.append(fedjax.ClientDataset(examples))
    loop, rng = make_loop(job), np.random.default_rng(0)
    batches = fedjax.ShuffleRepeatBatchHParams(job.batch, num_epochs=1)
    w = [jnp.asarray(weight) for weight in job.weights]

    def train(rounds: int) -> dict[str, float]:
        nonlocal w
        for _ in range(rounds):
            chosen = rng.permutation(job.clients)[: job.selected]
            clients = [(i, sets[i].shuffle_repeat_batch(batches), 0) for i in chosen]
            mean, loss = fedjax.tree_util.tree_mean(
                (change, len(sets[i])) for i, change in loop(w, clients)
            )
            # what comes from one of several devices has an axis of length 1 in front
            w = [a + b.reshape(a.shape) for a, b in zip(w, mean, strict=True)]
        jax.block_until_ready(w)
        return {"loss": float(loss.squeeze())}

    versions = [f"{package} {metadata.version(package)}" for package in ("fedjax", "jax")]
    protocol.serve({"train": train}, version=", ".join(versions))


if __name__ == "__main__":
    main(*sys.argv[1:])
