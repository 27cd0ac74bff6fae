"""FLAME and FedAvg as a plain PyTorch loop over clients: what one writes without a simulator.

    torch_loop.py JOB [channels_last] [processes] [ROUNDS]

`processes`: one process of one thread for every core, each with a share of the clients. With a
number of rounds: so many, an evaluation after every ten, and the last one's figures.
"""

from __future__ import annotations

import itertools
import json
import sys
from typing import Any

import numpy as np
import protocol
import torch
from torch import multiprocessing, nn

Weights = list[torch.Tensor]


def network(job: protocol.Job) -> nn.Module:
    """The network of the job with its first weights."""
    net = {
        "mlr": lambda: dense(784, job.classes),
        "mlp": lambda: dense(784, 128, 64, job.classes),
        "cnn_cifar": lambda: nn.Sequential(
            *convolution(3, 16, 1), *convolution(16, 32, 1), *dense(2048, 128, job.classes)
        ),
        "cnn_medical": lambda: nn.Sequential(
            *convolution(3, 32, 0), *convolution(32, 16, 0), nn.Dropout(0.2),
            *dense(3136, 64, job.classes),
        ),
    }[job.model]()  # fmt: skip
    with torch.no_grad():
        for parameter, weight in zip(net.parameters(), job.weights, strict=True):
            # [k, k, C, O] -> [O, C, k, k] and [in, out] -> [out, in]
            weight = weight.transpose(3, 2, 0, 1) if weight.ndim == 4 else weight.T
            parameter.copy_(torch.tensor(weight.copy()))
    return net


def dense(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def convolution(channels: int, features: int, padding: int) -> list[nn.Module]:
    return [nn.Conv2d(channels, features, 3, padding=padding), nn.MaxPool2d(2), nn.ReLU()]


class Clients:
    """Some of the clients, trained one after another."""

    def __init__(self, job: protocol.Job, mine: range, channels_last: bool) -> None:
        self.job, self.mine, self.net = job, mine, network(job)
        x = torch.tensor(job.images, dtype=torch.float32).div_(255).sub_(job.mean).div_(job.std)
        if job.model.startswith("cnn"):
            x = x.permute(0, 3, 1, 2).contiguous()
        if channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
            self.net = self.net.to(memory_format=torch.channels_last)
        self.x, self.y = x, torch.tensor(job.labels, dtype=torch.int64)
        self.first, self.loss = torch.tensor(job.first), nn.CrossEntropyLoss()
        self.parameters = list(self.net.parameters())
        self.theta = {i: self.copy() for i in mine} if job.method == "flame" else {}
        self.w = {i: self.copy() for i in self.theta}
        self.pi = {i: [torch.zeros_like(p) for p in self.parameters] for i in self.theta}
        self.heard = self.copy()  # sum of u_i = w_i + pi_i / rho over `mine`
        torch._foreach_mul_(self.heard, len(mine))

    def copy(self) -> Weights:
        return [p.detach().clone() for p in self.parameters]

    def put(self, weights: Weights) -> None:
        with torch.no_grad():
            torch._foreach_copy_(self.parameters, weights)

    def train(self, i: int, center: Weights | None) -> torch.Tensor:
        """An epoch; the sum of losses."""
        job, total = self.job, torch.zeros(())
        self.net.train()
        optimizer = torch.optim.SGD(self.parameters, lr=job.lr)
        places = self.first[i] + torch.randperm(int(job.training[i]))
        for batch in places.split(job.batch):
            optimizer.zero_grad()
            loss = self.loss(self.net(self.x[batch]), self.y[batch])
            loss.backward()
            if center is not None:
                with torch.no_grad():
                    for p, c in zip(self.parameters, center, strict=True):
                        p.grad.add_(p - c, alpha=job.lam)
            optimizer.step()
            total += len(batch) * loss.detach()
        return total

    def round(self, w: Weights, chosen: set[int]) -> tuple[Weights, float]:
        """What these clients add to the server's sum, and their losses."""
        return self.flame(w, chosen) if self.job.method == "flame" else self.fedavg(w, chosen)

    def fedavg(self, w: Weights, chosen: set[int]) -> tuple[Weights, float]:
        total, losses = [torch.zeros_like(p) for p in w], torch.zeros(())
        for i in chosen.intersection(self.mine):
            self.put(w)
            losses += self.train(i, None)
            torch._foreach_add_(total, [p.detach() for p in self.parameters])
        return total, float(losses)

    def flame(self, w: Weights, chosen: set[int]) -> tuple[Weights, float]:
        x, rho, losses = self.job.lam / self.job.clients, self.job.rho, torch.zeros(())
        for i in chosen.intersection(self.mine):
            theta, center, pi = self.theta[i], self.w[i], self.pi[i]
            self.put(theta)
            losses += self.train(i, center)
            with torch.no_grad():
                for k, p in enumerate(self.parameters):
                    self.heard[k] -= center[k] + pi[k] / rho
                    theta[k].copy_(p)
                    center[k] = (x * p + rho * w[k] - pi[k]) / (x + rho)
                    pi[k] += rho * (center[k] - w[k])
                    self.heard[k] += center[k] + pi[k] / rho
        return self.heard, float(losses)

    def test(self, i: int, weights: Weights) -> float:
        """Accuracy of a model on the client's test samples."""
        self.put(weights)
        self.net.eval()
        low, high = (int(self.first[i] + n[i]) for n in (self.job.training, self.job.samples))
        hits = 0
        with torch.no_grad():
            for at in range(low, high, 250):
                here = slice(at, min(at + 250, high))
                hits += int((self.net(self.x[here]).argmax(1) == self.y[here]).sum())
        return hits / (high - low)


class Server:
    """Clients in this process."""

    def __init__(self, job: protocol.Job, channels_last: bool) -> None:
        self.job, self.rng = job, np.random.default_rng(0)
        self.clients = Clients(job, range(job.clients), channels_last)
        self.w = self.clients.copy()

    def share(self) -> int:
        return self.job.clients if self.job.method == "flame" else self.job.selected

    def choose(self) -> set[int]:
        return set(self.rng.permutation(self.job.clients)[: self.job.selected].tolist())

    def train(self, rounds: int) -> dict[str, float]:
        for _ in range(rounds):
            chosen = self.choose()
            total, losses = self.clients.round(self.w, chosen)
            self.w = [t / self.share() for t in total]
        return {"loss": losses / self.job.training[list(chosen)].sum()}

    def evaluate(self, times: int) -> dict[str, float]:
        mine = self.clients.mine
        for _ in range(times):
            gm = np.mean([self.clients.test(i, self.w) for i in mine])
            pm = np.mean([self.clients.test(i, self.clients.theta[i]) for i in mine])
        return {"gm": float(gm), "pm": float(pm)}


class Shared(Server):
    """Clients in several processes, sums in memory that all of them see."""

    def __init__(self, job: protocol.Job, channels_last: bool, processes: int) -> None:
        self.job, self.rng = job, np.random.default_rng(0)
        self.w = [p.detach().clone().share_memory_() for p in network(job).parameters()]
        context = multiprocessing.get_context("fork")
        self.pipes = []
        for k in range(processes):
            mine = range(k * job.clients // processes, (k + 1) * job.clients // processes)
            total = [torch.zeros_like(p).share_memory_() for p in self.w]
            here, there = context.Pipe()
            arguments = (job, mine, channels_last, self.w, total, there)
            context.Process(target=employ, args=arguments, daemon=True).start()
            self.pipes.append((here, total))
        for pipe, _ in self.pipes:
            pipe.recv()

    def train(self, rounds: int) -> dict[str, float]:
        for _ in range(rounds):
            chosen = self.choose()
            for pipe, _ in self.pipes:
                pipe.send(chosen)
            losses = sum(pipe.recv() for pipe, _ in self.pipes)
            for k, w in enumerate(self.w):
                w.copy_(sum(total[k] for _, total in self.pipes) / self.share())
        return {"loss": losses / self.job.training[list(chosen)].sum()}


def employ(
    job: protocol.Job, mine: range, channels_last: bool, w: Weights, total: Weights, pipe: Any
) -> None:
    torch.set_num_threads(1)
    clients = Clients(job, mine, channels_last)
    pipe.send("ready")
    while True:
        mean, losses = clients.round(w, pipe.recv())
        torch._foreach_copy_(total, mean)
        pipe.send(losses)


def main(folder: str, *options: str) -> None:
    job, cores = protocol.load(folder), protocol.cores()
    torch.manual_seed(0)
    layout = "channels_last" in options
    if "processes" in options:
        torch.set_num_threads(1)
        server = Shared(job, layout, cores)
    else:
        torch.set_num_threads(cores)
        server = Server(job, layout)
    if options and options[-1].isdigit():
        for _ in range(int(options[-1]) // 10):
            found = server.train(10) | server.evaluate(1)
        print(json.dumps(found))
        return
    commands = {"train": server.train, "evaluate": server.evaluate}
    protocol.serve(commands, version=f"torch {torch.__version__}")


if __name__ == "__main__":
    main(*sys.argv[1:])
