"""The front door: check the input, choose the method, search, prove, and hand over a `Collaboration`.

`method="auto"` is "exact" up to `PROGRAMME` clients (after contracting must-link groups), tries the proof within a
fixed budget of work up to `WIDEST`, and is "local" beyond. It goes by size and by counted work, never by the clock, so
the same call gives the same answer everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedcollab.coalitions.collaboration import Collaboration
from fedcollab.coalitions.constraints import Constraints, read_constraints
from fedcollab.coalitions.inputs import Floats, Inputs, Labels, read_inputs
from fedcollab.coalitions.objective import coalition_sums, own_sums, terms
from fedcollab.coalitions.solver.exact import PROGRAMME, SMALL, WIDEST, prove
from fedcollab.coalitions.solver.feasible import refuse_impossible
from fedcollab.coalitions.solver.instance import TOLERANCE, Instance, build_instance
from fedcollab.coalitions.solver.large import search_large
from fedcollab.coalitions.solver.local import search
from fedcollab.coalitions.solver.lower_bound import row_bound, shared_bound
from fedcollab.errors import InputError, choose, number

#: above this many clients the matrix is read in rows and never copied
ROWWISE = 400
#: with "auto", restarts times clients squared stay below this
AUTO_WORK = 20_000_000
#: partial coalitions that a proof may visit: with "auto", and where a proof was asked for
BUDGETS = {"auto": 100_000, "exact": 3_000_000}

_METHODS = {"auto": "auto", "local": "local", "exact": "exact"}


def solve(
    distances: Any,
    quantities: ArrayLike | None = None,
    C: float = 10.0,
    *,
    method: str = "auto",
    restarts: int = 100,
    seed: int = 0,
    names: Iterable[str] | None = None,
    must_link: Iterable[Iterable[Any]] = (),
    cannot_link: Iterable[Iterable[Any]] = (),
    min_size: int = 1,
    max_size: int | None = None,
) -> Collaboration:
    """Who should train with whom: the partition that minimises Eq. (collab_obj).

    distances    N x N matrix in [0, 1] with a zero diagonal (asymmetric allowed), or a `Distances`
    quantities   samples per client; defaults to what the `Distances` carries
    C            weight of the generalisation term (see `c_path` for choosing it)
    method       "local" (Algorithm 2 with restarts and escapes), "exact" (proves the optimum or says what limit it met)
                 or "auto" (by size and a fixed budget of work)
    restarts     of the local search; "auto" runs fewer where N is large
    must_link, cannot_link   groups of clients, by name (by position where there are no names)
    min_size, max_size       how many clients a coalition may hold

    >>> near, far = 0.05, 0.9
    >>> D = [[0, near, far], [near, 0, far], [far, far, 0]]
    >>> answer = solve(D, [100, 100, 5000], C=5, names=["north", "south", "east"])
    >>> answer.coalitions, answer.optimal
    ([['north', 'south'], ['east']], True)
    """
    choose("method", method, _METHODS)
    C = number("C", C, above=0)
    restarts = int(number("restarts", restarts, at_least=1, whole=True))
    seed = int(number("seed", seed, whole=True))
    inputs = read_inputs(distances, quantities, names)
    constraints = read_constraints(inputs, must_link, cannot_link, min_size, max_size)
    if len(inputs.quantities) > ROWWISE:
        found = _solve_large(inputs, constraints, C, method, restarts, seed)
    else:
        instance = build_instance(inputs, constraints, C)
        found = solve_instance(instance, method, restarts, seed)
        if found.labels is None:
            refuse_impossible(inputs, constraints)
        found = Found(instance.to_clients(found.labels), found.lower, found.optimal, found.method)
    return collaboration_of(inputs, constraints, C, found)


@dataclass(frozen=True)
class Found:
    """What a method found: labels (None: proven that there is no admissible partition), lower bound, proof, its name.

    `sums` are the pull and push of the partition, where the search has them anyway.
    """

    labels: Labels | None
    lower: float
    optimal: bool
    method: str
    sums: tuple[Floats, Floats] | None = None


def solve_instance(instance: Instance, method: str, restarts: int, seed: int, starts: tuple[Labels, ...] = ()) -> Found:
    """Solve one instance in memory; labels are of its units."""
    count = instance.count
    if method == "exact" and count > WIDEST:
        raise InputError(
            f"`method` (='exact') must be 'auto' or 'local' for more than {WIDEST} clients; there are {count}"
        )
    if method == "auto":
        restarts = int(np.clip(AUTO_WORK // (count * count), 1, restarts))
    # Few units are proven from nothing faster than they are searched.
    quick = method != "local" and count <= SMALL
    labels = np.arange(count) if quick else search(instance, restarts, seed, starts)
    admissible = instance.admits(labels)
    if method == "local" or count > WIDEST:
        if not admissible:
            # A search that ends outside the constraints proves nothing; ask the proof whether anything is inside.
            proof = prove(instance, labels, BUDGETS["exact"])
            if proof.labels is None and not proof.optimal:
                raise InputError(
                    "the constraints left no partition that could be found; loosen `min_size` or `cannot_link`"
                )
            return Found(proof.labels, proof.lower, proof.optimal, "exact")
        upper = instance.value(labels)
        lower = min(upper, shared_bound(instance, upper))
        return Found(labels, lower, upper - lower <= TOLERANCE * upper, "local")
    proof = prove(instance, labels, BUDGETS[method])
    if proof.optimal:
        return Found(proof.labels, proof.lower, True, "exact")
    if method == "exact":
        raise InputError(
            f"`method` (='exact') met its limit: {count} clients without enough structure cannot be proven within "
            f"{BUDGETS['exact']:,} partial coalitions (any matrix up to {PROGRAMME} clients can); use 'auto'"
        )
    if proof.labels is None:
        raise InputError("the constraints left no partition that could be found; loosen `min_size` or `cannot_link`")
    upper = instance.value(proof.labels)
    lower = min(upper, max(proof.lower, shared_bound(instance, upper)))
    return Found(proof.labels, lower, upper - lower <= TOLERANCE * upper, "local")


def _solve_large(inputs: Inputs, constraints: Constraints, C: float, method: str, restarts: int, seed: int) -> Found:
    count = len(inputs.quantities)
    if method == "exact":
        raise InputError(
            f"`method` (='exact') must be 'auto' or 'local' for more than {WIDEST} clients; there are {count}"
        )
    if method == "auto":
        restarts = int(np.clip(AUTO_WORK // (count * count), 1, restarts))
    labels, sums = search_large(inputs, constraints, C, restarts, seed)
    if not constraints.admits(labels):
        raise InputError("the constraints left no partition that could be found; loosen `min_size` or `cannot_link`")
    paid = terms(inputs.quantities, labels, own_sums(inputs.matrix, inputs.quantities, labels), C).sum(axis=1)
    upper = float(paid.sum())
    lower = min(upper, row_bound(inputs.matrix, inputs.quantities, C, paid))
    return Found(labels, lower, upper - lower <= TOLERANCE * upper, "local", sums)


def collaboration_of(inputs: Inputs, constraints: Constraints, C: float, found: Found) -> Collaboration:
    """A partition with its objective, its bound and the sums that explain it."""
    labels = found.labels
    if labels is None:
        raise InputError("the constraints leave no partition")
    pull, push = found.sums or coalition_sums(inputs.matrix, inputs.quantities, labels, inputs.symmetric)
    own = pull[np.arange(len(labels)), labels]
    value = float(terms(inputs.quantities, labels, own, C).sum())
    return Collaboration(
        assignment=labels,
        quantities=inputs.quantities,
        names=inputs.names,
        C=C,
        objective=value,
        lower_bound=value if found.optimal else min(found.lower, value),
        optimal=found.optimal,
        method=found.method,
        pull=pull,
        push=push,
        constraints=constraints,
    )
