"""Updates that say what many samples say: each value gets an error of half its own standard error.

    w'_j = w_j + SHARE r_j s_j e_j,     e_j ~ N(0, 1) drawn from the silo's secret and what it was sent

s_j is the standard error of the mean gradient of parameter j over the n samples that were trained on: the larger of
that at the weights that training began with and that where it ended (also between, if the server sent more than
weights), since a server can send weights under which a parameter has no gradient, and a control variate that gives it
one after the first step:

    s_j^2 = sum_s g_sj^2 - (sum_s g_sj)^2 / n,      g_sj sample s's part of the mean gradient

Where the gradient of a unit (of any dense layer) is that of few samples, the first sum counts more, as if they were

    FEWEST / m_u of each,       m_u = (sum_s |d_s|)^2 / sum_s d_s^2,       d_s sample s's gradient at the unit,

for the update of a unit that one sample alone activates is that sample, and an error of half of it would average out
over the rounds of a plan, whatever they are called. Nor is the first sum less than that of FEWEST samples drawn from
all, were each to activate the unit: a unit without any would else have no error, and its silence would be exact.

r_j turns gradients into updates: how far the row of parameters that j belongs to moved, by the length of its gradient,
between one step and all of the round's.

An update is known to its standard error; what is more exact says nothing about the world, but lets a server solve many
updates, or many units of one, for single samples: the difference of two sums over 20 samples and over 21 is a sample,
with the error it is one within sqrt(41) / 2 of its own length. In training the error is a fourth of the variance that
the samples themselves have, is drawn anew each round and averages out over rounds and partners, as that of batches.
What many rounds with crafted weights could still average away ends at rows that are displaced (`displaced`), and
`honest.check_reply` looks at what is sent.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcollab import seeds
from fedcollab.silo.rounding import lot_of
from fedcollab.training.batches import Batch, shares
from fedcollab.training.gradient import Automatic, Dense
from fedcollab.training.models import Network
from fedcollab.wire.silo import Silo

#: the error of a value that is sent, as a share of its standard error
SHARE = 0.5
#: of how many samples a unit's gradient counts as at least, in its error
FEWEST = 20
#: parts of the samples from whose gradients the standard error is computed where layers are not known
PARTS = 8
#: where on the way from the first weights to the last standard errors are looked at: at the end, or also between
PATH = (0.25, 0.5, 0.75, 1.0)


def update_lot(silo: Silo, *asked: NDArray[Any] | str | int) -> str:
    """Return what the error of an update is drawn from; empty where the silo's limits ask for none.

    Parameters
    ----------
    silo, *asked
        As in `silo.rounding.lot_of`.
    """
    return lot_of(silo, "update", *asked) if silo.limits.blur_updates else ""


def blur(
    w: Tensor,
    begun: Tensor,
    x: Tensor,
    y: Tensor,
    network: Network,
    lot: str,
    lr: float,
    steps: int,
    *,
    adam: bool,
    guided: bool = False,
) -> None:
    """Give the weights after a round of training an error of half their standard error, in place.

    Parameters
    ----------
    w, begun : Tensor
        Flat weights after the round and before it, [P].
    x, y : Tensor
        The samples that were trained on, and their classes.
    network : Network
        The model.
    lot : str
        From `update_lot`.
    lr : float
        The step size.
    steps : int
        How many steps were taken.
    adam : bool
        Whether steps were taken by Adam, whose steps have the length of the step size whatever the gradient.
    guided : bool, default False
        Whether the server sent more than weights, and so much of the path is its own.
    """
    mean, error = errors(network, begun, x, y)
    for share in PATH if guided else PATH[-1:]:
        error = torch.maximum(error, errors(network, begun + share * (w - begun), x, y)[1])
    size = network.parameters
    moved = (w - begun)[:size]
    if adam:
        reach = lr * steps / (mean.abs() + error).clamp(min=1e-30)
    else:
        reach = _by_row(network, moved, mean, lr, lr * steps)
    draw = seeds.generator(0, "blur", lot).standard_normal(size).astype(np.float32)
    w[:size] += SHARE * reach * error * torch.from_numpy(draw).to(w.device)


def errors(network: Network, w: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean gradient over samples, and its standard error.

    Parameters
    ----------
    network : Network
        The model.
    w : Tensor
        Flat weights, [P].
    x, y : Tensor
        Samples and their classes.

    Returns
    -------
    mean, error : Tensor
        One value for each parameter.
    """
    count, w = len(y), w.detach().clone()[None]
    whole = Batch(x[None], y[None], shares([count], count, x.device), (count,))
    if network.widths:
        means, squares = [], []
        dense = Dense(network, 1.0)
        passes, layers = dense._backward(w, whole), dense._layers(w)
        for place, (h, delta) in enumerate(passes):
            last = place == len(passes) - 1
            reaching = delta[0] if last else passes[place + 1][1][0] @ layers[place + 1].weight[0]  # if active
            least = min(FEWEST, count) * reaching.square().mean(0)[:, None]
            ones = torch.ones_like(h[0, :, :1])
            square = delta[0].square()
            alike = delta[0].abs().sum(0).square() / square.sum(0).clamp(min=1e-30)  # 0 where no sample has a gradient
            square = square * (FEWEST / alike.clamp(min=1)).clamp(min=1)
            for inputs in (h[0], ones):
                means.append((delta[0].T @ inputs).flatten())
                most = torch.maximum(square.T @ inputs.square(), least * inputs.square().mean(0))
                squares.append(most.flatten())
        mean, square = torch.cat(means), torch.cat(squares)
        return mean, (square - mean.square() / count).clamp(min=0).sqrt()
    parts = max(2, min(PARTS, count // 2))
    found = torch.stack([
        Automatic(network, 1.0)(w.clone(), whole.part(place, parts))[0, : network.parameters] for place in range(parts)
    ])  # fmt: skip
    return found.mean(0), found.std(0) / parts**0.5


def _by_row(network: Network, moved: Tensor, mean: Tensor, least: float, most: float) -> Tensor:
    """Return for each parameter how far its row moved by the length of its gradient, between `least` and `most`."""
    reach, start = torch.empty_like(mean), 0
    for parameter in network.module.parameters():
        stop = start + parameter.numel()
        rows = (len(parameter), -1) if parameter.dim() else (1, 1)
        far, steep = (part[start:stop].reshape(rows).norm(dim=1, keepdim=True) for part in (moved, mean))
        ratio = (far / steep.clamp(min=1e-30)).clamp(least, most)
        reach[start:stop] = ratio.expand(rows[0], parameter.numel() // rows[0]).reshape(-1)
        start = stop
    return reach
