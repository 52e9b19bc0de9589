"""Batches: who sees which samples in which step, and many clients' batches side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcollab import seeds

AHEAD_BYTES = 1 << 20  # samples of one client that are fetched at a time


@dataclass(frozen=True, eq=False)
class Batch:
    """One batch of each of K clients.

    Parameters
    ----------
    x : Tensor
        Features, [K, B, ...]; rows beyond a client's own number of samples are padding.
    y : Tensor
        Class indices, [K, B].
    share : Tensor
        What each sample weighs in its client's mean, [K, B, 1]: 1 / size, and 0 for padding.
    sizes : tuple of int
        The number of samples of each client.
    """

    x: Tensor
    y: Tensor
    share: Tensor
    sizes: tuple[int, ...]

    def part(self, index: int, parts: int, at_least: int = 0) -> Batch:
        """Return one of several consecutive parts of the batch.

        Parameters
        ----------
        index : int
            Which part, counted from 0.
        parts : int
            How many parts the batch is cut into.
        at_least : int, default 0
            A client with fewer samples in the batch gets an empty part.
        """
        edges = [
            (size * index // parts, size * (index + 1) // parts) if size >= at_least else (0, 0) for size in self.sizes
        ]
        sizes = tuple(stop - start for start, stop in edges)
        width = max(sizes)
        if len(set(edges)) == 1:
            start, stop = edges[0]
            x, y = self.x[:, start:stop], self.y[:, start:stop]
        else:
            rows = torch.tensor([[min(start + i, self.x.shape[1] - 1) for i in range(width)] for start, _ in edges])
            rows = rows.to(self.x.device)
            client = torch.arange(len(edges), device=self.x.device)[:, None]
            x, y = self.x[client, rows], self.y[client, rows]
        return Batch(x, y, shares(sizes, width, self.x.device), sizes)


def shares(sizes: Sequence[int], width: int, device: torch.device | str = "cpu") -> Tensor:
    """Return what each sample weighs in its client's mean: 1 / size, and 0 for padding.

    Parameters
    ----------
    sizes : sequence of int
        The number of samples of each client.
    width : int
        Samples of the padded batch.
    device : torch.device or str, default "cpu"
        Where the result is put.

    Returns
    -------
    Tensor
        Of shape [K, width, 1].
    """
    share = np.zeros((len(sizes), width, 1), dtype=np.float32)
    for row, size in enumerate(sizes):
        if size:
            share[row, :size] = 1 / size
    return torch.from_numpy(share).to(device)


def plan(
    count: int, batch_size: int, epochs: int, seed: int, stage: str, number: int, name: str, least: int = 1
) -> list[NDArray[np.int64]]:
    """Return which samples each step sees: one permutation per epoch, cut into batches (the last may be smaller).

    Parameters
    ----------
    count : int
        The client's training samples.
    batch_size, epochs : int
        As in `Setting`.
    seed, stage, number, name
        What the permutations are derived from: the training's seed, what they are for, the round and the client.
    least : int
        The fewest samples of a step; a shorter rest of an epoch joins the step before it.

    Returns
    -------
    list of integer arrays
        The positions of the samples, one array for each step.
    """
    rng = seeds.generator(seed, stage, number, name)
    steps = []
    for _ in range(epochs):
        order = rng.permutation(count)
        starts = list(range(0, count, batch_size))
        if len(starts) > 1 and count - starts[-1] < least:
            starts.pop()
        steps += np.split(order, starts[1:])
    return steps


def stacked(x: Sequence[Tensor], y: Sequence[Tensor], plans: Sequence[Sequence[NDArray[np.int64]]]) -> Iterator[Batch]:
    """Yield batch after batch for a stack of clients, which shrinks as clients run out of steps.

    The samples of several steps are fetched at a time. The tensors of a batch are overwritten by a later one.

    Parameters
    ----------
    x, y : sequence of Tensor
        Each client's features and class indices.
    plans : sequence of sequences of integer arrays
        Each client's steps, as `plan` returns them; clients with most steps come first.
    """
    lengths = [len(steps) for steps in plans]
    width = max(len(step) for steps in plans for step in steps)
    device = x[0].device
    rows = [torch.from_numpy(_padded(steps, width)).to(device) for steps in plans]
    ys = torch.zeros((len(x), lengths[0] * width), dtype=y[0].dtype, device=device)
    for client, chosen in enumerate(rows):
        torch.index_select(y[client], 0, chosen, out=ys[client, : len(chosen)])
    ahead = min(lengths[0], max(1, AHEAD_BYTES // (4 * width * x[0][0].numel())))
    xs = torch.zeros((len(x), ahead * width, *x[0].shape[1:]), device=device)
    known: dict[tuple[int, ...], Tensor] = {}
    for step in range(lengths[0]):
        start, place = step * width, step % ahead * width
        if not place:
            for client, length in enumerate(lengths):
                count = min(ahead, length - step) * width
                if count > 0:
                    torch.index_select(x[client], 0, rows[client][start : start + count], out=xs[client, :count])
        sizes = tuple(len(steps[step]) for steps, length in zip(plans, lengths, strict=True) if length > step)
        if sizes not in known:
            known[sizes] = shares(sizes, max(sizes), device)
        active, most = len(sizes), max(sizes)
        yield Batch(xs[:active, place : place + most], ys[:active, start : start + most], known[sizes], sizes)


def _padded(steps: Sequence[NDArray[np.int64]], width: int) -> NDArray[np.int64]:
    """Return the sample positions of all steps in a row, `width` for each step; gaps point at sample 0."""
    rows = np.zeros((len(steps), width), dtype=np.int64)
    for row, step in zip(rows, steps, strict=True):
        row[: len(step)] = step
    return rows.reshape(-1)
