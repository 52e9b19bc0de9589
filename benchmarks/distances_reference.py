"""Plain PyTorch loops over pairs that the distance stage is measured against and tested with: autograd, no stacking."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedcollab.distances.methods import cross_client, published_client
from fedcollab.distances.methods.cross_design import Design
from fedcollab.distances.methods.discriminator import initial, label_scale, unflatten
from fedcollab.distances.methods.published_client import ClientPlan, batch, split
from fedcollab.distances.methods.published_loop import PublishedSettings as Settings
from fedcollab.distances.request import Pair
from fedcollab.distances.sampling import folds as folding
from fedcollab.wire.silo import Silo


class Discriminator(nn.Module):
    """The paper's network, as one would write it."""

    def __init__(self, features: int, classes: int, hidden: int, seed: int) -> None:
        super().__init__()
        self.classes = classes
        self.features, self.labels = nn.Linear(features, hidden), nn.Linear(classes, hidden)
        self.last = nn.Linear(hidden, 1)
        start = unflatten(initial(seed, features, classes, hidden)[None], features, classes, hidden)
        assert start.v is not None
        assert start.a is not None
        with torch.no_grad():
            self.features.weight.copy_(start.w[0])
            self.features.bias.copy_(start.b[0])
            self.labels.weight.copy_(start.v[0])
            self.labels.bias.copy_(start.a[0])
            self.last.weight.copy_(start.out)
            self.last.bias.copy_(start.c)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Logits."""
        onehot = nn.functional.one_hot(y, self.classes).float() * label_scale(self.classes)
        hidden = torch.relu(self.features(x) + 2 * self.labels(onehot))
        return self.last(hidden)[:, 0]  # type: ignore[no-any-return]


def published_pair(
    pair: Pair, silos: Mapping[str, Silo], plan: ClientPlan, settings: Settings, *, rounds: int | None = None
) -> tuple[float, int, Tensor]:
    """One pair by Algorithm 1 with one local step: (distance, rounds, logits of its validation samples).

    `rounds` fixes their number; otherwise validation stops the pair.
    """
    data = [(*published_client.tensors(plan, silos[name]), *split(plan, silos[name])) for name in pair]
    net = Discriminator(data[0][0].shape[1], plan.classes, plan.hidden, plan.seed)
    optimiser = torch.optim.SGD(net.parameters(), lr=plan.lr)
    best, stale, round_ = -1.0, 0, 0
    held = [(x[valid], y[valid]) for x, y, _, valid in data]
    while round_ < (rounds or settings.rounds) and stale < settings.patience:
        optimiser.zero_grad()
        for side, (name, (x, y, train, _)) in enumerate(zip(pair, data, strict=True)):
            chosen = train[batch(plan, name, round_)]
            target = torch.full((len(chosen),), 1.0 - side)
            loss = nn.functional.binary_cross_entropy_with_logits(net(x[chosen], y[chosen]), target) / 2
            loss.backward()
        optimiser.step()
        round_ += 1
        if round_ % settings.every == 0 and rounds is None:
            with torch.no_grad():
                first, second = (net(x, y) for x, y in held)
            value = float((first > 0).double().mean() + (second <= 0).double().mean() - 1)
            best, stale = (value, 0) if value > best + 1e-9 else (best, stale + 1)
    with torch.no_grad():
        return best, round_, torch.cat([net(x, y) for x, y in held])


def cross_pair(design: Design, position: int, silos: Mapping[str, Silo]) -> float:
    """One pair of the default estimator: every repeat and fold trained on its own."""
    pair, size, scale = design.pairs[position], design.sizes[position], design.scales[position]
    repeats, folds = design.repeats[position], design.settings.folds
    data = []
    for name in pair:
        x, y = cross_client.tensors(silos[name], design.head)
        data.append((torch.cat([x / scale, torch.ones(len(x), 1)], dim=1), y))
    hits: list[NDArray[np.float64]] = [np.zeros(len(y)) for _, y in data]
    for repeat in range(repeats):
        cuts = [
            folding.cut(design.seed, name, repeat, y.numpy(), folds, design.settings.label_counts)
            for name, (_, y) in zip(pair, data, strict=True)
        ]
        for fold in range(folds):
            parts = [folding.split(cut, fold, size) for cut in cuts]
            w = torch.zeros(design.shape)
            look = w.clone()
            for t in range(design.settings.rounds):
                look.requires_grad_(True)
                loss = torch.zeros(())
                for side, ((x, y), (train, _)) in enumerate(zip(data, parts, strict=True)):
                    target = torch.full((size,), 1.0 - side)
                    logits = _score(look, x[train], y[train])
                    loss = loss + nn.functional.binary_cross_entropy_with_logits(logits, target) / 2
                (gradient,) = torch.autograd.grad(loss, look)
                with torch.no_grad():
                    stepped = look - design.head.step * gradient
                    look = stepped + t / (t + 3) * (stepped - w)
                    w = stepped
            for side, ((x, y), (_, held)) in enumerate(zip(data, parts, strict=True)):
                positive = (_score(w, x[held], y[held]) > 0).numpy()
                hits[side][held] += positive if side == 0 else ~positive
    return float(sum(part.mean() for part in hits) / repeats - 1)


def _score(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return (x * (w[0] + w[1 + y])).sum(dim=1)
