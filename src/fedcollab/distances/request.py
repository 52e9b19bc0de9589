"""Pairs of clients, and what a method estimates for them, before it becomes a `Distances`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.distances import samples
from fedcollab.distances.result import Distances
from fedcollab.distances.sampling import resample as sampling
from fedcollab.errors import FedcollabWarning, Paused, number
from fedcollab.federation import Federation
from fedcollab.progress import Progress
from fedcollab.wire.absence import reasons
from fedcollab.wire.action import Action
from fedcollab.wire.message import Message
from fedcollab.wire.runtime import Cost, Runtime
from fedcollab.wire.silo import Silo
from fedcollab.wire.vectorised import Vectorised

Floats = NDArray[np.float64]
Pair = tuple[str, str]  # in order of name


@dataclass(frozen=True, eq=False)
class Estimate:
    """What a method returns: one value a pair, and how it was found.

    Parameters
    ----------
    values : array
        Signed distances, one a pair.
    stderr : array, optional
        Their standard errors.
    replicates : array, optional
        Joint replicates of the distances, R x pairs.
    settings : mapping
        The settings that were used.
    cost : Cost, optional
        Given where a shortcut moved no messages: what the messages would have cost.
    privacy : mapping
        What each client spent: `epsilon` and `delta`.
    """

    values: Floats
    stderr: Floats | None = None
    replicates: Floats | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    cost: Cost | None = None
    privacy: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


Method = Callable[..., Estimate]  # (request, **options)


@dataclass(frozen=True, eq=False)
class Request:
    """What every method is asked: these pairs of this federation, with this seed.

    Parameters
    ----------
    federation : Federation
        The clients.
    pairs : list of (str, str)
        The pairs to estimate, each in order of name.
    seed : int
        Everything random is derived from it.
    progress : callable
        Called with (done, total).
    lost : dict of str to str
        Clients that did not answer at some time, and why: their pairs are left unobserved, all others go on.
    """

    federation: Federation
    pairs: list[Pair]
    seed: int
    progress: Progress
    lost: dict[str, str] = field(default_factory=dict)

    @property
    def runtime(self) -> Runtime:
        """Return the runtime that carries the messages."""
        return self.federation.runtime

    @property
    def silos(self) -> Mapping[str, Silo]:
        """The clients' side of a vectorised runtime, prepared with the schema of this federation."""
        assert isinstance(self.runtime, Vectorised)
        self.federation.hand_out(self.federation.names)
        return self.runtime.silos

    @property
    def classes(self) -> int:
        """Return how many classes there are in the federation; 0 where the target is numeric."""
        return len(self.federation.schema.classes)

    @property
    def numeric(self) -> bool:
        """Return whether the target is a number."""
        return self.federation.schema.task == "regression"

    def features(self, *, target: bool) -> int:
        """Return how many numbers stand for one sample.

        Parameters
        ----------
        target : bool
            Whether a numeric target is part of the sample (see `distances.samples`); where there are classes it is not.
        """
        return samples.width(self.federation.schema, target and self.numeric)

    @property
    def encoded(self) -> bool:
        """Return whether samples are seen through an encoder."""
        return self.federation.schema.encoding is not None

    @property
    def names(self) -> list[str]:
        """Return the clients that appear in the pairs, in order of name."""
        return sorted({name for pair in self.pairs for name in pair})

    def ask(self, action: Action, messages: Mapping[str, Any]) -> dict[str, Message]:
        """Call the clients that have answered every round so far; those that do not answer now are not asked again.

        Parameters
        ----------
        action : Action
            What to do.
        messages : mapping
            A message for each client.

        Raises
        ------
        Paused
            If too few clients answered.
        """
        present = {name: message for name, message in messages.items() if name not in self.lost}
        replies = self.federation.call(action, present, partial=True)
        self.lose(self.federation.absent)
        return replies

    def expect(
        self, replies: dict[str, Message], key: str, shapes: Mapping[str, tuple[int, ...]]
    ) -> dict[str, Message]:
        """Return the replies with an array of the expected shape; the other clients are lost.

        Parameters
        ----------
        replies : dict
            The reply of each client.
        key : str
            The field that holds the array.
        shapes : mapping
            The shape that the array of each client must have.

        Raises
        ------
        Paused
            If too few clients are left.
        """
        strange = {
            name: f"`{key}` has shape {reply[key].shape}; expected {shapes[name]}"
            for name, reply in replies.items()
            if reply[key].shape != shapes[name]
        }
        self.lose(strange)
        return {name: reply for name, reply in replies.items() if name not in strange}

    def lose(self, absent: Mapping[str, str]) -> None:
        """Go on without these clients, with a warning.

        Parameters
        ----------
        absent : mapping of str to str
            The clients, and why each is lost.

        Raises
        ------
        Paused
            If too few clients are left.
        """
        if not absent:
            return
        self.lost.update(absent)
        left, needed = len(self.names) - len(self.lost), self.runtime.policy.enough(len(self.names))
        if left < needed:
            raise Paused(f"{left} of {len(self.names)} clients left, {needed} must be: {reasons(self.lost)}")
        text = f"{reasons(absent)}: the distances of these clients are left unobserved"
        warnings.warn(text, FedcollabWarning, stacklevel=3)

    def observed(self) -> NDArray[np.bool_]:
        """Return for each pair whether both of its clients have answered every round."""
        return np.array([not self.lost.keys() & set(pair) for pair in self.pairs], dtype=bool)

    def min_samples(self, asked: int | None) -> int:
        """Return the fewest samples that a client's numbers may be made of: `asked`, or for None the runtime's."""
        given = self.runtime.min_samples if asked is None else asked
        return int(number("min_samples", given, at_least=1, whole=True))

    def sampling(self, asked: str) -> str:
        """Return whether the clients' label counts were "drawn" or "set": as asked, or found out from the counts.

        See `sampling.resample`.
        """
        return sampling.resolve(asked, [reply["label_counts"] for reply in self.federation.described.values()])

    def squared_length(self) -> float | None:
        """Return how long all clients' samples are together where the schema scales every feature to 1, else None.

        With a numeric target, products with it are part of a sample, whose length is not known: None.
        """
        schema = self.federation.schema
        if (
            self.numeric
            or schema.encoding is not None
            or (schema.columns is None and schema.settings["scale"] != "features")
        ):
            return None
        return float(schema.width * sum(self.quantity(name) for name in self.federation.names))

    def quantity(self, name: str) -> int:
        """Return the number of training samples of a client."""
        return int(self.federation.described[name]["quantity"])


def all_pairs(names: Iterable[str], only: str | None = None) -> list[Pair]:
    """Return every pair of clients, or every pair with one client, each pair in order of name.

    Parameters
    ----------
    names : iterable of str
        The clients.
    only : str, optional
        The client that every pair must have.

    Examples
    --------
    >>> all_pairs(["b", "c", "a"])
    [('a', 'b'), ('a', 'c'), ('b', 'c')]
    """
    pairs = list(combinations(sorted(names), 2))
    return pairs if only is None else [pair for pair in pairs if only in pair]


def places(pairs: Sequence[Pair]) -> dict[str, list[int]]:
    """Return for each client the positions of its pairs in the list, clients in order of name.

    Examples
    --------
    >>> places([("a", "b"), ("a", "c")])
    {'a': [0, 1], 'b': [0], 'c': [1]}
    """
    found: dict[str, list[int]] = {}
    for position, pair in enumerate(pairs):
        for name in pair:
            found.setdefault(name, []).append(position)
    return dict(sorted(found.items()))


def assemble(
    request: Request, estimate: Estimate, names: Sequence[str], *, method: str, cost: Mapping[str, Any]
) -> Distances:
    """Return the result as matrices; pairs that were not asked for, or lost, are unobserved.

    Parameters
    ----------
    request : Request
        What the method was asked.
    estimate : Estimate
        What it returned.
    names : sequence of str
        The clients, in the order of rows and columns.
    method : str
        The method's name.
    cost : mapping
        Rounds and bytes that the estimate took.
    """
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
