"""How sure is the answer? What resampled distances would have said, and who would rather be elsewhere.

`stability` solves the same problem for every replicate of the distances. Replicates are drawn jointly (each client is
resampled once per replicate, and all of its pairs with it), so that pairs which share samples vary together.

    together_ij = share of replicates in which i and j are in one coalition
    same_i      = share of replicates in which i's coalition is exactly the one of the answer
    agreement_i = mean over j != i of the share of replicates in which (i, j together or apart) is as in the answer

`steadiness` is the same in one number, beyond what chance would give: the mean adjusted Rand index of the answer and of
what the replicates say. Coalitions that follow the noise of the distances have .1 to .4, those that any sample of the
same clients would show have 1.

`rationality` lists the clients that their own bound would draw elsewhere: the answer minimises the sum over all, and a
client may pay for others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedcollab.coalitions.collaboration import Collaboration
from fedcollab.coalitions.explain import Choice, explain
from fedcollab.coalitions.inputs import Floats, read_inputs
from fedcollab.coalitions.solver.instance import build_instance
from fedcollab.coalitions.solver.local import search
from fedcollab.errors import InputError, number


@dataclass(frozen=True, eq=False)
class Stability:
    """Agreement of the replicates with the answer."""

    names: tuple[Any, ...]
    together: Floats
    same: Floats
    agreement: Floats
    replicates: int

    def as_dict(self) -> dict[str, Any]:
        """Return the content as plain values that can be written as JSON."""
        return {
            "replicates": self.replicates,
            "names": list(self.names),
            "same": self.same,
            "agreement": self.agreement,
            "together": self.together,
        }


@dataclass(frozen=True)
class Wish:
    """A client that its own bound would draw elsewhere: where to, and how much it would gain there."""

    client: Any
    choice: Choice
    gain: float


def stability(
    distances: Any,
    collaboration: Collaboration,
    *,
    replicates: ArrayLike | None = None,
    restarts: int = 20,
    seed: int = 0,
) -> Stability:
    """Solve for every replicate (R x N x N; by default those that `distances` carries) and compare with the answer."""
    given = getattr(distances, "replicates", None) if replicates is None else replicates
    if given is None:
        raise InputError("`distances` must carry replicates to tell how stable the answer is; estimate them with some")
    draws = np.asarray(given, dtype=np.float64)
    count = len(collaboration.assignment)
    if draws.ndim != 3 or draws.shape[1:] != (count, count) or len(draws) == 0:
        raise InputError(f"`replicates` (shape {draws.shape}) must be R matrices of {count} x {count}")
    restarts = int(number("restarts", restarts, at_least=1, whole=True))
    together = np.zeros((count, count))
    same = np.zeros(count)
    answer = collaboration.assignment
    mates = answer[:, None] == answer
    for labels in _solved(collaboration, draws, restarts, seed):
        now = labels[:, None] == labels
        together += now
        same += (now == mates).all(axis=1)
    together /= len(draws)
    agree = np.where(mates, together, 1 - together)
    np.fill_diagonal(agree, 0.0)
    names = collaboration.names if collaboration.names is not None else tuple(range(count))
    return Stability(names, together, same / len(draws), agree.sum(axis=1) / max(1, count - 1), len(draws))


def steadiness(collaboration: Collaboration, replicates: ArrayLike, *, restarts: int = 2, seed: int = 0) -> float:
    """Return how far resampled distances give the same coalitions: the mean adjusted Rand index, at most 1.

    Parameters
    ----------
    collaboration : Collaboration
        The coalitions, and the C that they are best for.
    replicates : array
        Resampled distances, R x N x N.
    restarts, seed
        Of the search for the best coalitions of each replicate.

    Examples
    --------
    >>> from fedcollab.coalitions import solve
    >>> near, far = np.zeros((2, 2)), np.full((2, 2), 0.9)
    >>> matrix = np.block([[near, far], [far, near]])
    >>> steadiness(solve(matrix, [50] * 4, C=5), [matrix * 0.8, matrix * 1.1])
    1.0
    """
    from sklearn.metrics import adjusted_rand_score

    draws = np.asarray(replicates, dtype=np.float64)
    found = _solved(collaboration, draws, restarts, seed)
    return float(np.mean([adjusted_rand_score(collaboration.assignment, labels) for labels in found]))


def _solved(collaboration: Collaboration, draws: Floats, restarts: int, seed: int) -> Iterator[Any]:
    """Yield the best coalitions found for each replicate, as labels of the clients."""
    for draw in draws:
        matrix = np.clip(np.nan_to_num(draw, nan=1.0), 0.0, 1.0)
        np.fill_diagonal(matrix, 0.0)
        instance = build_instance(
            read_inputs(matrix, collaboration.quantities), collaboration.constraints, collaboration.C
        )
        start = (instance.to_units(collaboration.assignment),)
        yield instance.to_clients(search(instance, restarts, seed, start))


def rationality(collaboration: Collaboration) -> list[Wish]:
    """Clients that would be better off, by their own bound, alone or in another coalition; largest gain first."""
    wishes = []
    for client in range(len(collaboration.assignment)):
        story = explain(collaboration, client)
        gain = story.now.bound - story.best.bound
        if gain > 1e-12 * story.now.bound:
            wishes.append(Wish(story.client, story.best, gain))
    return sorted(wishes, key=lambda wish: -wish.gain)
