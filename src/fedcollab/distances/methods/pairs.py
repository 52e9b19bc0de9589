"""Pairs of clients, and what a method says about them, before it becomes a `Distances`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.distances.result import Distances
from fedcollab.distances.sampling import resample as sampling
from fedcollab.errors import FedcollabWarning, Paused, number
from fedcollab.progress import Progress
from fedcollab.wire.absence import reasons
from fedcollab.wire.message import Message
from fedcollab.wire.runtime import Cost, Runtime

Floats = NDArray[np.float64]
Pair = tuple[str, str]  # in order of name


@dataclass(frozen=True, eq=False)
class Estimate:
    """One value a pair: signed distances, standard errors, and replicates (R x pairs); and what they took.

    `cost` is given where a shortcut moved no messages: the count of what the messages would have been. `privacy` is
    what each client spent, {epsilon, delta}.
    """

    values: Floats
    stderr: Floats | None = None
    replicates: Floats | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    cost: Cost | None = None
    privacy: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


Method = Callable[..., Estimate]  # (runtime, pairs, seed=, progress=, **options)


@dataclass(frozen=True, eq=False)
class Request:
    """What every method is asked: these pairs of this federation, with this seed.

    lost   clients that did not answer at some time, and why: their pairs are left unobserved, all others go on
    """

    runtime: Runtime
    pairs: list[Pair]
    seed: int
    progress: Progress
    lost: dict[str, str] = field(default_factory=dict)

    @property
    def classes(self) -> int:
        """Labels in the federation."""
        assert self.runtime.schema is not None
        return len(self.runtime.schema.classes)

    @property
    def features(self) -> int:
        """Numbers that stand for one sample."""
        assert self.runtime.schema is not None
        return self.runtime.schema.width

    @property
    def encoded(self) -> bool:
        """Whether samples are seen through an encoder."""
        return self.runtime.schema is not None and self.runtime.schema.encoding is not None

    @property
    def names(self) -> list[str]:
        """The clients that appear in the pairs, in order of name."""
        return sorted({name for pair in self.pairs for name in pair})

    def ask(self, action: str, messages: Mapping[str, Message]) -> dict[str, Message]:
        """One round with those who have answered so far; who does not now is lost, and asked no more."""
        present = {name: message for name, message in messages.items() if name not in self.lost}
        replies = self.runtime.call(action, present, partial=True)
        self.lose(self.runtime.absent)
        return replies

    def expect(
        self, replies: dict[str, Message], key: str, shapes: Mapping[str, tuple[int, ...]]
    ) -> dict[str, Message]:
        """The replies whose array has the shape that the server knows it must have; the other clients are lost."""
        strange = {
            name: f"`{key}` has shape {reply[key].shape}; expected {shapes[name]}"
            for name, reply in replies.items()
            if reply[key].shape != shapes[name]
        }
        self.lose(strange)
        return {name: reply for name, reply in replies.items() if name not in strange}

    def lose(self, absent: Mapping[str, str]) -> None:
        """Go on without these clients, unless too few are left."""
        if not absent:
            return
        self.lost.update(absent)
        left, needed = len(self.names) - len(self.lost), self.runtime.policy.enough(len(self.names))
        if left < needed:
            raise Paused(f"{left} of {len(self.names)} clients left, {needed} must be: {reasons(self.lost)}")
        text = f"{reasons(absent)}: the distances of these clients are left unobserved"
        warnings.warn(text, FedcollabWarning, stacklevel=3)

    def observed(self) -> NDArray[np.bool_]:
        """For each pair whether both of its clients have answered throughout."""
        return np.array([not self.lost.keys() & set(pair) for pair in self.pairs], dtype=bool)

    def floor(self, asked: int | None) -> int:
        """The floor of samples that clients are asked to keep: as given, or the runtime's (see `distances.floor`)."""
        given = self.runtime.min_samples if asked is None else asked
        return int(number("min_samples", given, at_least=1, whole=True))

    def sampling(self, asked: str) -> str:
        """Whether the clients' label counts were drawn or set: as given, or found out (see `distances.sampling`)."""
        return sampling.resolve(asked, [reply["label_counts"] for reply in self.runtime.described.values()])

    def quantity(self, name: str) -> int:
        """A client's training samples."""
        return int(self.runtime.described[name]["quantity"])


def all_pairs(names: Iterable[str], only: str | None = None) -> list[Pair]:
    """Every two clients, or those of one client, each pair in order of name.

    >>> all_pairs(["b", "c", "a"])
    [('a', 'b'), ('a', 'c'), ('b', 'c')]
    """
    pairs = list(combinations(sorted(names), 2))
    return pairs if only is None else [pair for pair in pairs if only in pair]


def places(pairs: Sequence[Pair]) -> dict[str, list[int]]:
    """For each client, the positions of its pairs."""
    found: dict[str, list[int]] = {}
    for position, pair in enumerate(pairs):
        for name in pair:
            found.setdefault(name, []).append(position)
    return dict(sorted(found.items()))


def assemble(
    request: Request, estimate: Estimate, names: Sequence[str], *, method: str, cost: Mapping[str, Any]
) -> Distances:
    """The matrices, in the order of `names`; pairs that were not asked for, or lost, are unobserved."""
    count = len(names)
    seen = request.observed()
    at = {name: position for position, name in enumerate(names)}
    first = np.array([at[a] for a, _ in request.pairs], dtype=np.int64)
    second = np.array([at[b] for _, b in request.pairs], dtype=np.int64)

    def square(values: Floats, shape: tuple[int, ...] = ()) -> Floats:
        matrix: Floats = np.full((*shape, count, count), np.nan)
        matrix[..., first, second] = matrix[..., second, first] = np.where(seen, values, np.nan)
        matrix[..., np.arange(count), np.arange(count)] = 0.0
        return matrix

    return Distances(
        raw=square(estimate.values),
        names=tuple(names),
        quantities=np.array([request.quantity(name) for name in names]),
        stderr=None if estimate.stderr is None else square(estimate.stderr),
        replicates=None if estimate.replicates is None else square(estimate.replicates, (len(estimate.replicates),)),
        method=method,
        settings=estimate.settings,
        cost=cost,
        privacy=estimate.privacy,
    )
