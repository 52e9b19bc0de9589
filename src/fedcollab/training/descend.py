"""The one loop of local training: for a stack of clients, and for a single one as a stack of one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcollab.training.batches import plan, stacked
from fedcollab.training.blur import blur
from fedcollab.training.gradient import Automatic, Dense, Gradient
from fedcollab.training.hooks import Algorithm, State
from fedcollab.training.models import Network
from fedcollab.training.optimizers import Adam, Decayed

OPTIMIZERS = ("sgd", "adam")


@dataclass(frozen=True)
class Setting:
    """What all clients of one training have in common; it travels as JSON.

    Parameters
    ----------
    algorithm : str
        The algorithm's registered name.
    options : dict
        The algorithm's options.
    model : str
        The model, as `Network.describe` writes it.
    lr : float
        Step size of local training.
    batch_size : int
        Batch size of local training.
    epochs : int
        Passes over a client's training samples in a round.
    seed : int
        Everything random is derived from it.
    weight_decay : float, default 0.0
        After each step the weights shrink by this share of the step size.
    optimizer : str, default "sgd"
        What takes a local step, "sgd" or "adam".
    keep : sequence of str, default ()
        Names of the parameters that stay with each client (see `Network.names_of`).
    averaging : float, default 0.0
        How far back the mean over rounds reaches that is used in the place of the last round's model (see
        `averaging`); 0 for none.
    """

    algorithm: str
    options: dict[str, Any]
    model: str
    lr: float
    batch_size: int
    epochs: int
    seed: int
    weight_decay: float = 0.0
    optimizer: str = "sgd"
    keep: Sequence[str] = ()
    averaging: float = 0.0

    def to_json(self) -> str:
        """Return the setting as JSON, as messages carry it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Setting:
        """Return the setting that `to_json` wrote as text."""
        return cls(**json.loads(text))


@dataclass(eq=False)
class Local:
    """One client's part in a round.

    Parameters
    ----------
    name : str
        The client, as its draws know it (`Silo.lot`).
    x, y : Tensor
        Its training features and class indices.
    message : dict of Tensor
        What the server sent it.
    state : dict of Tensor
        What it keeps between rounds.
    means : dict of Tensor
        The means over rounds of parts of its state (see `averaging`).
    least : int
        The fewest samples of a step.
    lot : str
        What the error of its update is drawn from (see `blur`); empty for none.
    """

    name: str
    x: Tensor
    y: Tensor
    message: State
    state: State
    means: State = field(default_factory=dict)
    least: int = 1
    lot: str = ""


def gradient(network: Network, setting: Setting, clients: int = 1) -> Gradient:
    """Return an object that computes gradients of a network: by hand where its layers are known, else by autograd.

    Parameters
    ----------
    network : Network
        The model.
    setting : Setting
        Step size, optimizer and weight decay of `Gradient.descend`.
    clients : int, default 1
        How many clients are stacked.
    """
    plain = (Dense if network.widths else Automatic)(network, setting.lr, clients)
    stepping = Adam(plain) if setting.optimizer == "adam" else plain
    return Decayed(stepping, setting.weight_decay) if setting.weight_decay else stepping


def steps_of(count: int, setting: Setting) -> int:
    """Return how many steps a client with `count` samples takes in a round."""
    return setting.epochs * -(-count // setting.batch_size)


def descend(
    clients: Sequence[Local], algorithm: Algorithm, network: Network, setting: Setting, number: int
) -> tuple[list[State], list[State], NDArray[np.float64]]:
    """Run one round of local training for a stack of clients.

    Parameters
    ----------
    clients : sequence of Local
        The clients, those with most steps first: as clients finish, the stack shrinks.
    algorithm : Algorithm
        Its hooks take the steps.
    network : Network
        The model.
    setting : Setting
        Step size, batch size, epochs and seed.
    number : int
        The round, from which the batches are derived.

    Returns
    -------
    tuple
        Each client's reply, each client's next state, and an array with each client's mean training loss.
    """
    plans = [
        plan(len(c.y), setting.batch_size, setting.epochs, setting.seed, "train", number, c.name, c.least)
        for c in clients
    ]
    message = stack([client.message for client in clients])
    state = stack([client.state for client in clients])
    w = algorithm.begin(message, state)
    begun = w.clone() if any(client.lot for client in clients) else w
    grad = gradient(network, setting, len(clients))
    active, view = -1, (w, message, state)
    for batch in stacked([c.x for c in clients], [c.y for c in clients], plans):
        if len(batch.sizes) != active:
            active = len(batch.sizes)
            view = (w[:active], {k: v[:active] for k, v in message.items()}, {k: v[:active] for k, v in state.items()})
        algorithm.step(*view, grad, batch)
    for row, (client, taken) in enumerate(zip(clients, plans, strict=True)):
        if client.lot and taken:
            adam = setting.optimizer == "adam"
            guided = bool(client.message.keys() - {"w", "mean"})
            about = (client.x, client.y, network, client.lot, setting.lr, len(taken))
            blur(w[row], begun[row], *about, adam=adam, guided=guided)
    steps = torch.tensor([[float(len(steps))] for steps in plans], device=w.device)
    reply = algorithm.reply(w, message, state, steps, setting.lr)
    loss = grad.mean_loss.numpy()
    return unstack(reply, len(clients)), unstack(state, len(clients)), loss


def personal(client: Local, algorithm: Algorithm, network: Network, setting: Setting, number: int) -> Tensor:
    """Return a client's personal model, of shape [P].

    Parameters
    ----------
    client : Local
        The client.
    algorithm : Algorithm
        Its hook `personal` makes the model.
    network : Network
        The model.
    setting : Setting
        Step size, batch size and seed.
    number : int
        The round, from which the batches are derived.
    """
    grad = gradient(network, setting)

    def batches(count: int) -> Any:
        epochs = -(-count * setting.batch_size // len(client.y)) if count else 0
        drawn = plan(
            len(client.y), setting.batch_size, epochs, setting.seed, "personal", number, client.name, client.least
        )
        steps = drawn[:count]
        return stacked([client.x], [client.y], [steps]) if steps else ()

    return algorithm.personal(stack([client.message]), stack([client.state]), grad, batches)[0]


def stack(parts: Sequence[State]) -> State:
    """Stack the states of several clients, one row for each client."""
    return {key: torch.stack([part[key] for part in parts]) for key in parts[0]}


def unstack(values: State, count: int) -> list[State]:
    """Return the states of `count` clients from their stack."""
    return [{key: value[row] for key, value in values.items()} for row in range(count)]
