"""Seconds a round of pfl's simulated backend. Run by training_round.py in its own environment."""

# ruff: noqa: D101, D102

from __future__ import annotations

import json
import sys
import time

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import nn

ROUNDS = 6


class Mlp(nn.Sequential):
    def loss(self, x: torch.Tensor, y: torch.Tensor, eval: bool = False) -> torch.Tensor:
        return nn.functional.cross_entropy(self(x), y)

    def metrics(self, x: torch.Tensor, y: torch.Tensor, eval: bool = False) -> dict[str, Weighted]:
        return {"loss": Weighted(float(self.loss(x, y)) * len(y), len(y))}


class Clock(TrainingProcessCallback):
    def __init__(self) -> None:
        self.times: list[float] = [time.perf_counter()]

    def after_central_iteration(self, *args: object, **options: object) -> tuple[bool, Metrics]:
        self.times.append(time.perf_counter())
        return False, Metrics()


def main() -> None:
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    rng = np.random.default_rng(0)
    data = {}
    for index in range(20):
        size = 2100 if index < 10 else 14
        x = torch.from_numpy(rng.normal(0, 1, (size, 784)).astype(np.float32))
        data[str(index)] = Dataset(raw_data=[x, torch.from_numpy(rng.integers(0, 10, size))])
    users = list(data)
    federated = FederatedDataset(
        make_dataset_fn=data.__getitem__, user_sampler=get_user_sampler("minimize_reuse", users)
    )
    module = Mlp(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10))
    model = PyTorchModel(
        model=module,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(module.parameters(), lr=1.0),
    )
    clock = Clock()
    FederatedAveraging().run(
        backend=SimulatedBackend(training_data=federated, val_data=federated),
        model=model,
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=ROUNDS, evaluation_frequency=1000, train_cohort_size=20, val_cohort_size=0
        ),
        model_train_params=NNTrainHyperParams(local_num_epochs=1, local_learning_rate=0.1, local_batch_size=32),
        callbacks=[clock],
    )
    print(json.dumps({"seconds": float(np.median(np.diff(clock.times)[1:]))}))


if __name__ == "__main__":
    main()
