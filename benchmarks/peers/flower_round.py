"""Seconds a round of Flower's simulation engine, after its warm-up. Run by training_round.py in its own environment."""

# ruff: noqa: E402

from __future__ import annotations

import json
import os
import sys
import time
import warnings

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
warnings.simplefilter("ignore")

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn

CLIENTS, ROUNDS = 20, 4
client_app, server_app = ClientApp(), ServerApp()
cache: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}


def module() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10))


@client_app.train()
def fit(message: Message, context: object) -> Message:
    torch.set_num_threads(1)
    index = int(context.node_config["partition-id"])
    if index not in cache:
        rng = np.random.default_rng(index)
        size = 2100 if index < 10 else 14
        cache[index] = (
            torch.from_numpy(rng.normal(0, 1, (size, 784)).astype(np.float32)),
            torch.from_numpy(rng.integers(0, 10, size)),
        )
    x, y = cache[index]
    model = module()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for rows in torch.randperm(len(y)).split(32):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimiser.step()
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": len(y)})})
    return Message(content=content, reply_to=message)


@server_app.main()
def serve(grid: object, context: object) -> None:
    times: list[float] = []

    class Timed(FedAvg):
        def configure_train(self, *args: object, **options: object) -> object:
            times.append(time.perf_counter())
            return super().configure_train(*args, **options)

    strategy = Timed(fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=CLIENTS, min_train_nodes=CLIENTS)
    strategy.start(
        grid=grid, initial_arrays=ArrayRecord(module().state_dict()), num_rounds=ROUNDS, train_config=ConfigRecord({})
    )
    gaps = np.diff(times)[1:]
    print(json.dumps({"seconds": float(np.median(gaps))}), file=sys.__stdout__, flush=True)


if __name__ == "__main__":
    cores = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    options = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0},
        "init_args": {"num_cpus": cores, "logging_level": 50},
    }
    run_simulation(server_app, client_app, num_supernodes=CLIENTS, backend_config=options)
