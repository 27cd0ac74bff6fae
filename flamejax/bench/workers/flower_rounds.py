"""FedAvg by Flower's simulation: a ServerApp, a ClientApp, and Ray between them.

    flower_rounds.py JOB

As many clients at a time as there are cores, each with one thread. Flower decides when a simulation
ends, so that requests are answered inside the ServerApp: one call of the strategy for each of them.
"""

from __future__ import annotations

import functools
import os
import sys
from importlib import metadata

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}

import protocol
import torch
import torch_loop
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

client, server = ClientApp(), ServerApp()


@functools.cache
def load(folder: str) -> torch_loop.Clients:
    """All clients' samples and one network, kept by every process of the simulation."""
    torch.set_num_threads(1)
    torch.manual_seed(os.getpid())
    return torch_loop.Clients(protocol.load(folder), range(0), False)


@client.query()
def prepare(message: Message, _: Context) -> Message:
    load(message.content["config"]["folder"])
    return Message(RecordDict(), reply_to=message)


@client.train()
def train(message: Message, context: Context) -> Message:
    clients, i = load(message.content["config"]["folder"]), int(context.node_config["partition-id"])
    clients.net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    n = int(clients.job.training[i])
    metrics = MetricRecord({"loss": float(clients.train(i, None)) / n, "num-examples": n})
    arrays = ArrayRecord(clients.net.state_dict())
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


@server.main()
def answer(grid: Grid, _: Context) -> None:
    folder = sys.argv[1]
    job, config = protocol.load(folder), ConfigRecord({"folder": folder})
    arrays = ArrayRecord(torch_loop.network(job).state_dict())
    strategy = FedAvg(
        fraction_train=job.selected / job.clients, fraction_evaluate=0.0,
        min_train_nodes=job.selected, min_available_nodes=job.clients,
    )  # fmt: skip

    def run(rounds: int) -> dict[str, float]:
        nonlocal arrays
        found = strategy.start(grid, arrays, num_rounds=rounds, train_config=config)
        arrays = found.arrays
        return {"loss": float(found.train_metrics_clientapp[rounds]["loss"])}

    first = RecordDict({"config": config})
    grid.send_and_receive([Message(first, node, "query") for node in grid.get_node_ids()])
    versions = [f"{name} {metadata.version(name)}" for name in ("flwr", "ray", "torch")]
    protocol.serve({"train": run}, version=", ".join(versions))


def main(folder: str) -> None:
    job, cores = protocol.load(folder), protocol.cores()
    if job.method != "fedavg":
        raise SystemExit(f"flower_rounds: does not run {job.method}")
    resources = {"init_args": {"num_cpus": cores}, "client_resources": {"num_cpus": 1}}
    run_simulation(server, client, job.clients, backend_config=resources)


if __name__ == "__main__":
    # Processes of the simulation know the apps by the module's name; those of a script they would
    # build anew for every message, with nothing kept.
    from flower_rounds import main as start

    start(*sys.argv[1:])
