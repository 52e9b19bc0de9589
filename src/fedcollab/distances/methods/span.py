"""The vectorised runtime's way through `published`: all pairs in one batch, in the span of the training samples.

With one local step a round on the whole training set, averaging the two clients' weights is one step on the mean of
their gradients, and the first layer moves only in the span of the 2m training samples of the pair:

    A = A_0 - K S        pre-activations of any samples; A_0 those of the shared initial weights
    S' = S + lr g        g (2m x H) the derivative of the loss by the pre-activations

with K = <phi, phi'> between samples, phi = (x, 1, 2 s e_y, 2). K is taken once, so no round touches the features again,
and validation costs 2m multiplications a hidden unit instead of D. Otherwise (several local steps, or batches) the
clients' own functions run on stacked pairs. Tests hold both equal to the messages.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcollab.distances.methods import published_client
from fedcollab.distances.methods.discriminator import LABEL_WEIGHT, forward, initial, label_scale, parameters, unflatten
from fedcollab.distances.methods.published_client import ClientPlan
from fedcollab.distances.methods.published_loop import Active, PublishedSettings, active_of_clients, inputs, watch
from fedcollab.distances.request import Floats, Request, places
from fedcollab.wire.silo import Silo

BUDGET = 2 * 2**20


def run(
    request: Request, settings: PublishedSettings, plans: Mapping[str, ClientPlan]
) -> tuple[Floats, NDArray[np.int64]]:
    """Run Algorithm 1 in memory, in the span of the training samples if the settings allow it.

    Parameters
    ----------
    request : Request
        The pairs, in the vectorised runtime.
    settings : PublishedSettings
        The settings of the method.
    plans : mapping
        The plan of each client.

    Returns
    -------
    best : array
        The best distance of each pair.
    taken : array of int
        The rounds that each pair took.
    """
    silos = request.silos
    if settings.local_steps == 1 and settings.train <= settings.batch:
        return watch_span(request, settings, plans, silos)
    return watch_stacked(request, settings, plans, silos)


def watch_stacked(
    request: Request, settings: PublishedSettings, plans: Mapping[str, ClientPlan], silos: Mapping[str, Silo]
) -> tuple[Floats, NDArray[np.int64]]:
    """Run Algorithm 1 with the clients' own functions on stacked pairs, some pairs at a time.

    Parameters
    ----------
    request, settings, plans
        As in `run`.
    silos : mapping
        The clients' data.
    """
    features, classes = inputs(request, settings)
    start = initial(request.seed, features, classes, settings.hidden)
    size = max(1, 128 * BUDGET // (4 * parameters(features, classes, settings.hidden)))
    best, taken = np.empty(len(request.pairs)), np.empty(len(request.pairs), dtype=np.int64)
    mine = places(request.pairs)
    device = next(iter(silos.values())).device
    for first in range(0, len(request.pairs), size):
        chunk = np.arange(first, min(first + size, len(request.pairs)))
        w = start.to(device).repeat(len(chunk), 1)

        def advance(active: Active, round_: int, w: Tensor = w, first: int = first) -> None:
            """Train the `active` pairs for round `round_`; `w` are the weights of the chunk that starts at `first`."""
            fresh = torch.zeros(len(w), w.shape[1], device=device)
            for name, (own, pairs) in active_of_clients(mine, active + first).items():
                at = [pair - first for pair in pairs]
                fresh[at] += published_client.local_update(plans[name], w[at], own, round_, silos[name]) / 2
            w[active] = fresh[active]

        def balanced(active: Active, w: Tensor = w, first: int = first) -> Floats:
            """Return 2 BalAcc - 1 of the `active` pairs; `w` are the weights of the chunk that starts at `first`."""
            total: Floats = np.zeros(len(w))
            for name, (own, pairs) in active_of_clients(mine, active + first).items():
                at = [pair - first for pair in pairs]
                total[at] += published_client.accuracy(plans[name], w[at], own, silos[name])
            return total[active] - 1.0

        best[chunk], taken[chunk] = watch(advance, balanced, len(chunk), settings, request, settle=True)
    return best, taken


def watch_span(
    request: Request, settings: PublishedSettings, plans: Mapping[str, ClientPlan], silos: Mapping[str, Silo]
) -> tuple[Floats, NDArray[np.int64]]:
    """Run Algorithm 1 for all pairs at once, in the span of their training samples.

    Parameters
    ----------
    request, settings, plans
        As in `run`.
    silos : mapping
        The clients' data.
    """
    state = Span(request, settings, plans, silos)
    return watch(state.advance, state.balanced, len(request.pairs), settings, request, settle=True)


class Span:
    """The state of all pairs: coefficients S (pairs, 2m, H), last layers v (pairs, H) and c (pairs), and kernel blocks.

    Parameters
    ----------
    request, settings, plans
        As in `run`.
    silos : mapping
        The clients' data.
    """

    def __init__(
        self, request: Request, settings: PublishedSettings, plans: Mapping[str, ClientPlan], silos: Mapping[str, Silo]
    ) -> None:
        self.settings = settings
        features, classes = inputs(request, settings)
        names = list(plans)
        at = {name: position for position, name in enumerate(names)}
        self.first, self.second = (np.array([at[pair[side]] for pair in request.pairs]) for side in (0, 1))
        flat = initial(request.seed, features, classes, settings.hidden)
        device = silos[names[0]].device
        flat = flat.to(device)
        net = unflatten(flat[None], features, classes, settings.hidden)
        held = [published_client.tensors(plans[name], silos[name]) for name in names]
        splits = [published_client.split(plans[name], silos[name]) for name in names]
        m = settings.train
        x = torch.cat([x[train] for (x, _), (train, _) in zip(held, splits, strict=True)])
        y = torch.cat([y[train] for (_, y), (train, _) in zip(held, splits, strict=True)])
        before = [_before(flat, *part, classes, settings.hidden) for part in held]
        start = torch.stack([pre[train] for pre, (train, _) in zip(before, splits, strict=True)])  # (N, m, H)
        kernel = _kernel(x, y, x, y, classes).reshape(len(names), m, len(names), m).permute(0, 2, 1, 3)
        i, j = torch.from_numpy(self.first), torch.from_numpy(self.second)
        self.kernel = torch.cat(
            [
                torch.cat([kernel[i, i], kernel[i, j]], dim=2),
                torch.cat([kernel[j, i], kernel[j, j]], dim=2),
            ],
            dim=1,
        )  # (pairs, 2m, 2m)
        self.start = torch.cat([start[i], start[j]], dim=1)
        self.valid_start = [pre[valid] for pre, (_, valid) in zip(before, splits, strict=True)]
        self.valid_kernel = [
            _kernel(vx[valid], vy[valid], x, y, classes).reshape(len(valid), len(names), m)
            for (vx, vy), (_, valid) in zip(held, splits, strict=True)
        ]
        pairs = len(request.pairs)
        self.target = torch.cat([torch.ones(m), torch.zeros(m)]).to(device)
        self.s = torch.zeros(pairs, 2 * m, settings.hidden, device=device)
        self.v = net.out.repeat(pairs, 1)
        self.c = net.c.repeat(pairs)

    def advance(self, active: Active, round_: int) -> None:
        """Train the active pairs for one round."""
        at = torch.from_numpy(active)
        every = len(active) == len(self.v)
        start, kernel, s, v, c = (
            part if every else part[at] for part in (self.start, self.kernel, self.s, self.v, self.c)
        )
        after = torch.baddbmm(start, kernel, s, alpha=-1).relu_()
        logits = torch.bmm(after, v[:, :, None])[:, :, 0] + c[:, None]
        residual = (torch.sigmoid(logits) - self.target) * (self.settings.lr / len(self.target))
        step = (residual[:, :, None] * v[:, None, :]).mul_(after > 0)
        last = torch.bmm(residual[:, None, :], after)[:, 0]
        if every:
            self.s += step
            self.v -= last
            self.c -= residual.sum(1)
        else:
            self.s[at] = s + step
            self.v[at] = v - last
            self.c[at] = c - residual.sum(1)

    def balanced(self, active: Active) -> Floats:
        """Return 2 BalAcc - 1 of the active pairs on the held-out samples of both clients."""
        total: Floats = np.zeros(len(active))
        for side in (0, 1):
            client = (self.first, self.second)[side][active]
            other = (self.second, self.first)[side][active]
            for who in np.unique(client):
                rows = np.flatnonzero(client == who)
                positive = self._positive(int(who), other[rows], active[rows], side)
                total[rows] += positive if side == 0 else 1 - positive
        return total - 1.0

    def _positive(self, who: int, others: NDArray[np.int64], pairs: Active, side: int) -> Floats:
        """Return the share of a client's held-out samples with a positive logit, in each of these pairs."""
        found: Floats = np.empty(len(pairs))
        step = max(1, BUDGET // (self.valid_start[who].numel() * 4))
        for begin in range(0, len(pairs), step):
            part = slice(begin, begin + step)
            logits = self.held_out(who, others[part], pairs[part], side)
            found[part] = (logits > 0).double().mean(dim=1).cpu().numpy()
        return found

    def held_out(self, who: int, others: NDArray[np.int64], pairs: Active, side: int) -> Tensor:
        """Return the logits of a client's held-out samples in some of its pairs.

        Parameters
        ----------
        who : int
            The client.
        others : array of int
            The other client of each pair.
        pairs : array of int
            The pairs.
        side : int
            0 if the client is the first of these pairs, 1 if it is the second.

        Returns
        -------
        Tensor
            (pairs, samples).
        """
        start, kernel = self.valid_start[who], self.valid_kernel[who]
        at = torch.from_numpy(pairs)
        own = kernel[:, who].expand(len(at), -1, -1)
        theirs = kernel[:, others].transpose(0, 1)
        block = torch.cat([own, theirs] if side == 0 else [theirs, own], dim=2)
        after = torch.baddbmm(start.expand(len(at), -1, -1), block, self.s[at], alpha=-1).relu_()
        return torch.bmm(after, self.v[at][:, :, None])[:, :, 0] + self.c[at][:, None]


def _before(flat: Tensor, x: Tensor, y: Tensor, classes: int, hidden: int) -> Tensor:
    """Return the pre-activations (n, H) under the shared initial weights."""
    return forward(flat[None], x, y, classes, hidden)[1][0]


def _kernel(x: Tensor, y: Tensor, x2: Tensor, y2: Tensor, classes: int) -> Tensor:
    """Return <phi, phi'>: x.x' + 1, and with labels 4 (s^2 [y = y'] + 1) more."""
    kernel = x @ x2.T + 1.0
    if classes:
        same = (y[:, None] == y2[None, :]).to(x.dtype)
        kernel = kernel + LABEL_WEIGHT**2 * (label_scale(classes) ** 2 * same + 1.0)
    return kernel
