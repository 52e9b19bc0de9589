"""The client side of `published` (Algorithm 1): local updates of the discriminators of all of a client's pairs.

    published-open       keeps the settings: training size, step size, batch, local steps, the side of each pair
    published-step       weights of the active pairs -> the same after the local steps
    published-validate   weights of the active pairs -> the share of held-out samples told right, one number a pair

Replies hold weights and balanced-accuracy halves; test data is never read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcollab import seeds
from fedcollab.distances.methods.cross_client import tensors
from fedcollab.distances.methods.discriminator import descend, forward
from fedcollab.distances.sampling.floor import require
from fedcollab.distances.sampling.folds import Ints
from fedcollab.federation.prepare import stratified
from fedcollab.wire.message import Message
from fedcollab.wire.silo import Silo


@dataclass(frozen=True)
class Task:
    """What a client is told once: `train` samples for training, and its target (1 first, 0 second) in each pair."""

    seed: int
    train: int
    lr: float
    batch: int
    local_steps: int
    hidden: int
    classes: int
    targets: list[int]
    min_samples: int = 1

    @classmethod
    def of(cls, message: Message) -> Task:
        """From a message, or from what was kept of it."""
        return cls(**{key: message[key] for key in cls.__dataclass_fields__})

    def message(self) -> Message:
        """As a message."""
        return {key: getattr(self, key) for key in self.__dataclass_fields__}


def open_task(message: Message, silo: Silo) -> Message:
    """Action `published-open`."""
    check(Task.of(message), silo)
    silo.state["published"] = Task.of(message).message()
    return {}


def check(task: Task, silo: Silo) -> None:
    """The floor: the smallest batch that makes an update."""
    smallest = task.train % task.batch or min(task.batch, task.train)
    require(silo, {"min_samples": task.min_samples}, smallest, f"updates from batches of {smallest} samples")


def step(message: Message, silo: Silo) -> Message:
    """Action `published-step`."""
    task = Task.of(silo.state["published"])
    w = torch.from_numpy(np.array(message["w"])).to(silo.device)
    return {"w": local_update(task, w, message["pairs"], message["round"], silo).cpu().numpy()}


def validate(message: Message, silo: Silo) -> Message:
    """Action `published-validate`."""
    task = Task.of(silo.state["published"])
    w = torch.from_numpy(np.array(message["w"])).to(silo.device)
    return {"accuracy": accuracy(task, w, message["pairs"], silo)}


def local_update(task: Task, w: Tensor, pairs: list[int], round_: int, silo: Silo) -> Tensor:
    """`local_steps` steps of SGD on the client's own training samples; `round_` counts from 0."""
    x, y = tensors(silo)
    train, _ = split(task, silo)
    target = torch.tensor(task.targets, dtype=torch.float32, device=w.device)[pairs]
    for local in range(task.local_steps):
        chosen = train[batch(task, silo.name, round_ * task.local_steps + local)]
        w = descend(w, x[chosen], y[chosen], target, task.lr, task.classes, task.hidden)
    return w


def accuracy(task: Task, w: Tensor, pairs: list[int], silo: Silo) -> np.ndarray:
    """The share of the held-out samples that each model attributes to this client."""
    x, y = tensors(silo)
    _, valid = split(task, silo)
    target = np.array(task.targets)[pairs]
    found = np.empty(len(w))
    for start in range(0, len(w), 8):  # a few pairs at a time: pre-activations are (pairs, samples, hidden)
        logits, _ = forward(w[start : start + 8], x[valid], y[valid], task.classes, task.hidden)
        positive = (logits > 0).double().mean(dim=1).cpu().numpy()
        found[start : start + 8] = np.where(target[start : start + 8] == 1, positive, 1 - positive)
    return found


def split(task: Task, silo: Silo) -> tuple[Ints, Ints]:
    """Training and held-out samples, stratified by label: the same in all pairs of the client."""
    y = silo.arrays.y
    mask = stratified(y, task.train / len(y), seeds.generator(task.seed, "published-split", silo.name))
    return np.flatnonzero(mask), np.flatnonzero(~mask)


def batch(task: Task, name: str, step_: int) -> Ints:
    """Positions in the training set of one step's batch: epochs of random order, the last batch of each shorter."""
    a_pass = -(-task.train // task.batch)
    order = seeds.generator(task.seed, "published-batch", name, step_ // a_pass).permutation(task.train)
    start = step_ % a_pass * task.batch
    return order[start : start + task.batch]
