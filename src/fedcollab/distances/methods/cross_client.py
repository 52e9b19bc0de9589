"""The client side of cross-fitted discriminators: what each client does with the weights that it is sent.

    cross-norm       -> the mean of |x|^2 over its training samples
    cross-open       keeps the plan: head, folds, and for each of its pairs the training size, side, scale and repeats
    cross-step       weights of all its models -> the same after one step on its own training samples
    cross-validate   final weights -> held-out accuracies of each pair, and their replicates

Nothing per sample leaves: replies hold weights, means over the client's samples, and nothing else. Test data is never
read.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcollab.distances.methods.heads import Head, find
from fedcollab.distances.sampling import folds as folding
from fedcollab.distances.sampling.floor import require
from fedcollab.distances.sampling.uncertainty import partial, summary
from fedcollab.wire.message import Message
from fedcollab.wire.silo import Silo

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Part:
    """One client's part in the plan: lists have one entry a pair."""

    head: str
    classes: int
    seed: int
    folds: int
    replicates: int
    sizes: list[int]
    repeats: list[int]
    targets: list[int]
    scales: list[float]
    min_samples: int = 1
    label_counts: str = "drawn"

    @classmethod
    def of(cls, message: Message) -> Part:
        """From a message, or from what was kept of it."""
        return cls(**{key: message[key] for key in cls.__dataclass_fields__})

    def message(self) -> Message:
        """As a message."""
        return {key: getattr(self, key) for key in self.__dataclass_fields__}

    def models(self) -> list[tuple[int, int, int, int]]:
        """(pair, direction, repeat, fold) of every model, in the order of the stacked weights."""
        return models(find(self.head), self.folds, self.repeats)


def models(head: Head, folds: int, repeats: list[int]) -> list[tuple[int, int, int, int]]:
    """(pair, direction, repeat, fold) of every model of these pairs."""
    return [
        (pair, direction, repeat, fold)
        for pair, times in enumerate(repeats)
        for direction in range(head.directions)
        for repeat in range(times)
        for fold in range(folds)
    ]


def norm(message: Message, silo: Silo) -> Message:
    """Action `cross-norm`."""
    x = rows(silo)
    require(silo, message, len(x), "the length of its features")
    return {"norm": np.array([np.mean(np.sum(np.square(x, dtype=np.float64), axis=1))])}


def open_plan(message: Message, silo: Silo) -> Message:
    """Action `cross-open`."""
    check(Part.of(message), silo)
    silo.state["cross"] = Part.of(message).message()
    return {}


def check(part: Part, silo: Silo) -> None:
    """The floor: updates of two folds, or of two training sizes, differ by the sum over the samples between them."""
    message: Message = {"min_samples": part.min_samples}
    count = len(silo.arrays.y)
    require(silo, message, max(1, count // part.folds), f"updates of {part.folds} folds of {count} samples")
    sizes = sorted(set(part.sizes))
    require(silo, message, sizes[0], f"updates from {sizes[0]} samples")
    for less, more in itertools.pairwise(sizes):
        require(silo, message, more - less, f"updates from {less} and from {more} samples (no multiples of the floor)")


def step(message: Message, silo: Silo) -> Message:
    """Action `cross-step`."""
    part = Part.of(silo.state["cross"])
    w = torch.from_numpy(np.array(message["w"])).to(silo.device)
    return {"w": descend(part, w, silo).cpu().numpy()}


def validate(message: Message, silo: Silo) -> Message:
    """Action `cross-validate`. The plan stays until the next one: a reply may be lost and asked for again."""
    part = Part.of(silo.state["cross"])
    return judge(part, torch.from_numpy(np.array(message["w"])).to(silo.device), silo)


def descend(part: Part, w: Tensor, silo: Silo) -> Tensor:
    """w - step * gradient of the mean loss over the client's training samples; w is (models, rows, D + 1)."""
    head = find(part.head)
    x, y = tensors(silo)
    updated = torch.empty_like(w)
    for (size, repeat, fold), chosen, target, scale in _groups(part, silo.device):
        train, _ = folding.split(_order(part, silo, repeat), part.folds, fold, size)
        features, labels = x[train], y[train, None]
        outputs = head.outputs(_responses(w[chosen], features, scale), labels)
        residual = head.spread(head.residual(outputs, labels, target), labels, part.classes) / size
        gradient = torch.einsum("mgr,md->grd", residual, features) / scale[:, None, None]
        gradient = torch.cat([gradient, residual.sum(0)[..., None]], dim=2)
        updated[chosen] = w[chosen] - head.step * gradient
    return updated


def judge(part: Part, w: Tensor, silo: Silo) -> Message:
    """Accuracy of each pair and direction on held-out samples (each held out once a repeat), and on training samples.

    See `uncertainty.summary`; `fitted` (pairs, directions) is the accuracy on training samples.
    """
    head = find(part.head)
    x, y = tensors(silo)
    count, shape = len(y), (len(part.sizes), head.directions)
    hits: Floats = np.zeros((*shape, count))
    fitted: Floats = np.zeros(shape)
    listed = np.array(part.models()).reshape(-1, 4)
    for (size, repeat, fold), chosen, target, scale in _groups(part, silo.device):
        samples = np.concatenate(folding.split(_order(part, silo, repeat), part.folds, fold, size))
        labels = y[samples, None]
        outputs = head.outputs(_responses(w[chosen], x[samples], scale), labels)
        right = head.correct(outputs, labels, target).cpu().numpy().T.astype(np.float64)
        pair, direction = listed[chosen.cpu().numpy(), :2].T
        times = np.array(part.repeats, dtype=np.float64)[pair]
        hits[pair[:, None], direction[:, None], samples[size:]] += right[:, size:] / times[:, None]
        np.add.at(fitted, (pair, direction), right[:, :size].mean(axis=1) / times / part.folds)
    drawn = summary(hits, partial(np.array(part.sizes)), part.replicates, part.seed, silo)
    return {**drawn, "fitted": fitted}


def rows(silo: Silo) -> NDArray[np.float32]:
    """Training features, one row a sample."""
    return silo.features


def tensors(silo: Silo) -> tuple[Tensor, Tensor]:
    """Training features and labels on the client's device."""
    return torch.from_numpy(rows(silo)).to(silo.device), torch.from_numpy(silo.arrays.y).to(silo.device)


def _responses(w: Tensor, x: Tensor, scale: Tensor) -> Tensor:
    """(m, G, rows) responses x~ . w of G models; x~ = (x / scale, 1)."""
    flat = w[..., :-1].reshape(-1, x.shape[1])
    return (x @ flat.T).reshape(len(x), *w.shape[:2]) / scale[:, None] + w[..., -1]


def _groups(part: Part, device: str) -> list[tuple[tuple[int, int, int], Tensor, Tensor, Tensor]]:
    """Models with the same training samples, together: (size, repeat, fold), their places, targets and scales."""
    members: dict[tuple[int, int, int], list[int]] = {}
    listed = part.models()
    for place, (pair, _, repeat, fold) in enumerate(listed):
        members.setdefault((part.sizes[pair], repeat, fold), []).append(place)
    grouped: list[Any] = []
    for key, places in members.items():
        pairs = [listed[place][0] for place in places]
        targets = [abs(part.targets[listed[place][0]] - listed[place][1]) for place in places]
        scales = [part.scales[pair] for pair in pairs]
        grouped.append(
            (
                key,
                torch.tensor(places, device=device),
                torch.tensor(targets, dtype=torch.float32, device=device),
                torch.tensor(scales, dtype=torch.float32, device=device),
            )
        )
    return grouped


def _order(part: Part, silo: Silo, repeat: int) -> folding.Ints:
    return folding.order(part.seed, silo.name, repeat, silo.arrays.y, part.folds, part.label_counts)
