"""The vectorised runtime's way through `cross`: all models of many pairs in one batch, in the span of their samples.

With one full-batch step a round, the averaged weights are w = sum over training samples s of c_s phi_s: the
coefficients c evolve through the Gram matrix K = <phi_s, phi_s'> and never touch the features again,

    c' = c - step * residual(K c) * (1 / 2m),       w = Phi^T c  at the end.

Pairs with more training samples than weights step the weights themselves; whichever is cheaper.
A real federation cannot form K, whose entries join two clients' samples; a test holds this equal to the messages.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from fedcollab.distances.methods.cross_client import judge, tensors
from fedcollab.distances.methods.cross_design import Design, accelerate
from fedcollab.distances.request import places
from fedcollab.distances.samples import labels
from fedcollab.distances.sampling import folds as folding
from fedcollab.progress import Progress
from fedcollab.wire.message import Message
from fedcollab.wire.silo import Silo

BUDGET = 32 * 2**20  # bytes of one working array


def run(design: Design, silos: Mapping[str, Silo], progress: Progress) -> dict[str, Message]:
    """Train and validate all models in memory.

    Parameters
    ----------
    design : Design
        What is trained for each pair.
    silos : mapping
        The clients' data.
    progress : callable
        Called with (pairs done, pairs).

    Returns
    -------
    dict
        For each client what it would reply to `cross-validate`.
    """
    kept: dict[str, list[tuple[int, Message]]] = {name: [] for name in places(design.pairs)}
    done, within = 0, Within()
    for chosen, spanned in _chunks(design):
        chunk = design.of(chosen)
        w = _train(chunk, silos, spanned, within)
        rows = chunk.rows()
        for name, part in chunk.client_plans().items():
            reply: Message = dict(judge(part, w[rows[name]], silos[name]))
            mine = [chosen[p] for p in places(chunk.pairs)[name]]
            kept[name] += [(pair, {key: value[row] for key, value in reply.items()}) for row, pair in enumerate(mine)]
        done += len(chosen)
        progress(done, len(design.pairs))
    return {
        name: {key: np.stack([reply[key] for _, reply in sorted(replies, key=lambda item: item[0])]) for key in _KEYS}
        for name, replies in kept.items()
    }


_KEYS = ("accuracy", "variance", "fitted", "replicates")


def _chunks(design: Design) -> list[tuple[list[int], bool]]:
    """Return pairs of equal training size and repeats, in chunks that fit the budget; and whether to use the span."""
    alike: dict[tuple[int, int], list[int]] = {}
    for position, key in enumerate(zip(design.sizes, design.repeats, strict=True)):
        alike.setdefault(key, []).append(position)
    chunks = []
    for (size, repeats), members in alike.items():
        rows, width = design.shape
        spanned = size * design.head.width(design.classes) < rows * width
        models = design.head.directions * repeats * design.settings.folds
        largest = max(rows * width, 2 * size * width, 4 * size * size if spanned else 0)
        step = max(1, BUDGET // (4 * largest * models))
        chunks += [(members[start : start + step], spanned) for start in range(0, len(members), step)]
    return chunks


class Within:
    """A cache of the Gram matrices within one client's training sets, emptied when the training size changes."""

    def __init__(self) -> None:
        self.size = 0
        self.kept: dict[tuple[str, int, int], Tensor] = {}

    def __call__(self, key: tuple[str, int, int], x: Tensor) -> Tensor:
        """Return x x^T of the training set named by `key`."""
        if len(x) != self.size:
            self.size, self.kept = len(x), {}
        if key not in self.kept:
            self.kept[key] = x @ x.T
        return self.kept[key]


def _train(design: Design, silos: Mapping[str, Silo], spanned: bool, within: Within) -> Tensor:
    """Return the final weights (models, rows, D + 1) of all models; all pairs have one training size."""
    samples = _training(design, silos)
    pair, direction = np.array(design.models())[:, :2].T
    device = next(iter(samples.values()))[0].device
    scale = torch.tensor(design.scales, dtype=torch.float32)[pair].to(device)
    side = np.repeat([1, 0], design.sizes[0])[None] != direction[:, None]
    target = torch.from_numpy(side.astype(np.float32)).to(device)
    keys = [[(name, repeat, fold) for name in design.pairs[pair]] for pair, _, repeat, fold in design.models()]
    x = [torch.stack([samples[both[k]][0] for both in keys]) for k in (0, 1)]
    y = torch.cat([torch.stack([samples[both[k]][1] for both in keys]) for k in (0, 1)], dim=1)
    if not spanned:
        return _direct(design, torch.cat(x, dim=1), y, target, scale)
    own = [torch.stack([within(both[k], samples[both[k]][0]) for both in keys]) for k in (0, 1)]
    return _span(design, x, own, y, target, scale)


def _direct(design: Design, x: Tensor, y: Tensor, target: Tensor, scale: Tensor) -> Tensor:
    """Step the weights themselves, by the average of the two clients' steps, and return the last ones."""
    head, rate = design.head, design.head.step / x.shape[1]
    x = torch.cat([x / scale[:, None, None], x.new_ones(*x.shape[:2], 1)], dim=2)

    def step(look: Tensor) -> Tensor:
        outputs = head.outputs(torch.bmm(x, look.transpose(1, 2)), y)
        residual = head.spread(head.residual(outputs, y, target), y, design.classes)
        return look - rate * torch.bmm(residual.transpose(1, 2), x)

    return accelerate(step, x.new_zeros(len(x), *design.shape), design.settings.rounds)


def _span(design: Design, x: list[Tensor], own: list[Tensor], y: Tensor, target: Tensor, scale: Tensor) -> Tensor:
    """Return the same weights from coefficients of the training samples; `own` are the Gram matrices of each client."""
    head, size = design.head, design.sizes[0]
    kernel = x[0].new_empty(len(y), 2 * size, 2 * size)
    kernel[:, :size, :size], kernel[:, size:, size:] = own
    kernel[:, :size, size:] = torch.bmm(x[0], x[1].transpose(1, 2))
    kernel[:, size:, :size] = kernel[:, :size, size:].transpose(1, 2)
    kernel = kernel.div_(scale[:, None, None] ** 2).add_(1.0).mul_(head.gate(y[:, :, None], y[:, None, :]))
    rate = head.step / (2 * size)
    start = kernel.new_zeros(len(y), 2 * size, head.width(design.classes))
    c = accelerate(
        lambda look: look - rate * head.residual(torch.bmm(kernel, look), y, target), start, design.settings.rounds
    )
    rows = head.spread(c, y, design.classes).transpose(1, 2)
    w = torch.bmm(rows[..., :size], x[0]).baddbmm_(rows[..., size:], x[1]) / scale[:, None, None]
    return torch.cat([w, rows.sum(dim=2, keepdim=True)], dim=2)


def _training(design: Design, silos: Mapping[str, Silo]) -> dict[tuple[str, int, int], tuple[Tensor, Tensor]]:
    """Return training features (m, D) and labels (m) by client, repeat and fold."""
    folds, size = design.settings.folds, design.sizes[0]
    taken: dict[tuple[str, int, int], tuple[Tensor, Tensor]] = {}
    for name in places(design.pairs):
        x, y = tensors(silos[name], design.head)
        for repeat in range(design.repeats[0]):
            groups, counts = silos[name].arrays.groups, design.settings.label_counts
            parts = folding.cut(design.seed, name, repeat, labels(silos[name]), folds, counts, groups)
            for fold in range(folds):
                train, _ = folding.split(parts, fold, size)
                taken[name, repeat, fold] = x[train], y[train]
    return taken
