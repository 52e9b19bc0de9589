"""Your own PyTorch model, trained inside given coalitions, with its output layer kept by each client."""

import math

import torch

import fedcollab


def narrow(shape: tuple[int, ...], classes: int) -> torch.nn.Module:
    """A network with one small hidden layer; called with the shape of a sample and the number of classes."""
    return torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(math.prod(shape), 16), torch.nn.ReLU(), torch.nn.Linear(16, classes)
    )


clients = fedcollab.scenarios.make("digits", seed=0).clients[:10]
coalitions = [[client.name for client in clients[:5]], [client.name for client in clients[5:]]]
shared = fedcollab.train(clients, coalitions, model=narrow, rounds=10)
own_output = fedcollab.train(clients, coalitions, model=narrow, rounds=10, keep=["3"])
print(f"one model a coalition {shared.reported.mean():.3f}, own output layers {own_output.reported.mean():.3f}")
