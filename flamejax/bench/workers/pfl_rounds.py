"""FedAvg by pfl-research (`pfl` on PyPI), on PyTorch.

    pfl_rounds.py JOB [processes] [ordered]

`processes`: one process of one thread for every core. All of them run this script; the first
passes on what it is asked, and pfl shares out the clients and adds up (`torch.distributed`).
`ordered`: samples in the same order in every epoch, as in pfl's own data sets; less work than a
shuffle.
"""

# ruff: noqa: E402 - pfl looks for its other processes while it is imported
from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Any

CORES = len(os.sched_getaffinity(0))
RANK, ADDRESSES = "PFL_WORKER_RANK", "PFL_WORKER_ADDRESSES"  # what pfl reads


def hire() -> list[subprocess.Popen[str]]:
    """Start the other processes. They end when their input does."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    # one address for each process, of which pfl uses the first
    os.environ[ADDRESSES] = ",".join([f"localhost:{port}"] * CORES)
    os.environ[RANK] = "0"
    return [
        subprocess.Popen(
            [sys.executable, *sys.argv], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            env={**os.environ, RANK: str(rank)}, text=True, bufsize=1,
        )
        for rank in range(1, CORES)
    ]  # fmt: skip


PARALLEL = "processes" in sys.argv[2:]
OTHERS = hire() if PARALLEL and RANK not in os.environ else []

import numpy as np
import protocol
import torch
import torch_loop
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel


class Network(torch.nn.Module):
    """The network with what pfl asks of one."""

    def __init__(self, job: protocol.Job) -> None:
        super().__init__()
        self.net, self.seen = torch_loop.network(job), torch.zeros(())

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = torch.nn.functional.cross_entropy(self.net(x), y)
        self.seen += len(x) * loss.detach()
        return loss

    def metrics(self, *_: torch.Tensor) -> dict[str, Any]:
        return {}  # pfl evaluates in its first round, asked or not


class Shuffled(PyTorchTensorDataset):
    """A client whose samples come in another order in every epoch."""

    def iter(self, batch_size: int) -> Iterator[list[torch.Tensor]]:
        for places in torch.randperm(len(self)).split(batch_size):
            yield [tensor[places] for tensor in self.raw_data]


class FedAvg(FederatedAveraging):
    """Reports the loss during training."""

    def train_one_user(self, state: Any, model: Any, data: Any, context: Any) -> Any:
        model.pytorch_model.seen.zero_()
        change, _ = super().train_one_user(state, model, data, context)
        return change, Metrics([("loss", Weighted(float(model.pytorch_model.seen), len(data)))])


class Note(TrainingProcessCallback):
    """Keeps what a round reported."""

    loss = float("nan")

    def after_central_iteration(self, metrics: Metrics, *_: Any, **__: Any) -> Any:
        self.loss = metrics["loss"].overall_value
        return False, Metrics()


def main(folder: str, *options: str) -> None:
    job = protocol.load(folder)
    if job.method != "fedavg":
        raise SystemExit(f"pfl_rounds: does not run {job.method}")
    torch.set_num_threads(1 if PARALLEL else CORES)
    torch.manual_seed(int(os.environ.get(RANK, 0)))
    np.random.seed(0)  # pfl: the same in all processes
    data = torch_loop.Clients(job, range(0), False)
    ends = zip(job.first, job.training, strict=True)
    places = [slice(int(first), int(first + n)) for first, n in ends]
    kind = PyTorchTensorDataset if "ordered" in options else Shuffled
    sets = [kind((data.x[here], data.y[here])) for here in places]
    net = Network(job)
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
    sampler = get_user_sampler("minimize_reuse", list(range(job.clients)))
    backend = SimulatedBackend(FederatedDataset(sets.__getitem__, sampler), None)
    local = NNTrainHyperParams(
        local_learning_rate=job.lr, local_num_epochs=1, local_batch_size=job.batch
    )
    algorithm, note, done = FedAvg(), Note(), 0

    def train(rounds: int) -> dict[str, float]:
        nonlocal done
        for other in OTHERS:
            print("train", rounds, file=other.stdin)
        done += rounds
        goal = NNAlgorithmParams(
            central_num_iterations=done, evaluation_frequency=sys.maxsize,
            train_cohort_size=job.selected, val_cohort_size=0,
        )  # fmt: skip
        algorithm.run(goal, backend, model, local, callbacks=[note], send_metrics_to_platform=False)
        return {"loss": note.loss}

    versions = [f"{package} {metadata.version(package)}" for package in ("pfl", "torch")]
    protocol.serve({"train": train}, version=", ".join(versions))


if __name__ == "__main__":
    main(*sys.argv[1:])
