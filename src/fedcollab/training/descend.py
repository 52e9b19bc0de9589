"""The one descend loop: local training of a stack of clients, and of a single one as a stack of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcollab.training.batches import plan, stacked
from fedcollab.training.gradient import Automatic, Dense, Gradient
from fedcollab.training.hooks import Algorithm, State
from fedcollab.training.models import Network


@dataclass(frozen=True)
class Setting:
    """What the clients of one run have in common; it travels as JSON."""

    algorithm: str
    options: dict[str, Any]
    model: str
    lr: float
    batch_size: int
    epochs: int
    seed: int


@dataclass(eq=False)
class Local:
    """One client's part in a round: its data, what it was sent, and what it keeps."""

    name: str
    x: Tensor
    y: Tensor
    message: State
    state: State


def gradient(network: Network, lr: float, clients: int = 1) -> Gradient:
    """The oracle for a network: by hand where its layers are known, else by autograd."""
    return (Dense if network.widths else Automatic)(network, lr, clients)


def steps_of(count: int, setting: Setting) -> int:
    """Steps that a client with `count` samples takes in a round."""
    return setting.epochs * -(-count // setting.batch_size)


def descend(
    clients: Sequence[Local], algorithm: Algorithm, network: Network, setting: Setting, number: int
) -> tuple[list[State], list[State], NDArray[np.float64]]:
    """One round of local training: each client's reply, its next state, and its mean training loss.

    The clients must come with most steps first; as they finish, the stack shrinks.
    """
    plans = [plan(len(c.y), setting.batch_size, setting.epochs, setting.seed, "train", number, c.name) for c in clients]
    message = _stack([client.message for client in clients])
    state = _stack([client.state for client in clients])
    w = algorithm.begin(message, state)
    grad = gradient(network, setting.lr, len(clients))
    active, view = -1, (w, message, state)
    for batch in stacked([c.x for c in clients], [c.y for c in clients], plans):
        if len(batch.sizes) != active:
            active = len(batch.sizes)
            view = (w[:active], {k: v[:active] for k, v in message.items()}, {k: v[:active] for k, v in state.items()})
        algorithm.step(*view, grad, batch)
    steps = torch.tensor([[float(len(steps))] for steps in plans], device=w.device)
    reply = algorithm.reply(w, message, state, steps, setting.lr)
    loss = grad.mean_loss.numpy()
    return _unstack(reply, len(clients)), _unstack(state, len(clients)), loss


def personal(client: Local, algorithm: Algorithm, network: Network, setting: Setting, number: int) -> Tensor:
    """A client's own model, of shape [P]."""
    grad = gradient(network, setting.lr)

    def batches(count: int) -> Any:
        epochs = -(-count * setting.batch_size // len(client.y)) if count else 0
        steps = plan(len(client.y), setting.batch_size, epochs, setting.seed, "personal", number, client.name)[:count]
        return stacked([client.x], [client.y], [steps]) if steps else ()

    return algorithm.personal(_stack([client.message]), _stack([client.state]), grad, batches)[0]


def _stack(parts: Sequence[State]) -> State:
    return {key: torch.stack([part[key] for part in parts]) for key in parts[0]}


def _unstack(values: State, count: int) -> list[State]:
    return [{key: value[row] for key, value in values.items()} for row in range(count)]
