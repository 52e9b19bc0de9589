"""The front door: check the input, choose the method, search, prove, and hand over a `Collaboration`.

`method="auto"` is "exact" up to `PROGRAMME` clients (after contracting must-link groups), tries the proof within a
fixed budget of work up to `WIDEST`, and is "local" beyond. It goes by size and by counted work, never by the clock, so
the same call gives the same answer everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedcollab.coalitions.collaboration import Collaboration
from fedcollab.coalitions.constraints import Constraints, read_constraints
from fedcollab.coalitions.inputs import Inputs, Labels, read_C, read_inputs
from fedcollab.coalitions.objective import coalition_sums, own_sums, terms
from fedcollab.coalitions.path import MOST, c_path
from fedcollab.coalitions.solver.exact import PROGRAMME, SMALL, WIDEST, Proof
from fedcollab.coalitions.solver.exact import prove as prove_optimum
from fedcollab.coalitions.solver.feasible import refuse_impossible
from fedcollab.coalitions.solver.instance import FEW, TOLERANCE, Instance, Problem, build_instance, build_rows
from fedcollab.coalitions.solver.levels import DENSE, search_best
from fedcollab.coalitions.solver.lower_bound import row_bound, shared_bound
from fedcollab.coalitions.weights import personal_weights
from fedcollab.errors import InputError, choose, number

#: partial coalitions that a proof may visit: with "auto", and where a proof was asked for
BUDGETS = {"auto": 100_000, "exact": 3_000_000}

_METHODS = {"auto": "auto", "local": "local", "exact": "exact"}


def solve(
    distances: Any,
    quantities: Any = None,
    C: float | str = "auto",
    *,
    method: str = "auto",
    restarts: int = 100,
    seed: int = 0,
    names: Iterable[str] | None = None,
    must_link: Iterable[Iterable[Any]] = (),
    cannot_link: Iterable[Iterable[Any]] = (),
    min_size: int = 1,
    max_size: int | None = None,
    prove: bool = True,
) -> Collaboration:
    """Find who should train with whom: the partition of the clients that minimises Eq. (collab_obj).

    Parameters
    ----------
    distances : array_like, pandas.DataFrame or Distances
        N x N matrix in [0, 1] with a zero diagonal; row i is how far the others are from client i (asymmetric allowed).
        A DataFrame whose index and columns are the clients' names is read by these names.
    quantities : array_like, pandas.Series or mapping, optional
        Samples per client; a Series or a mapping is read by name. Default: what the `Distances` carries.
    C : float or "auto"
        Weight of the generalisation term. "auto" takes the C that `c_path` suggests; the paper takes 10.
    method : {"auto", "local", "exact"}
        "local" searches (Algorithm 2 with restarts and escapes; above 400 clients merging, moves and refinement),
        "exact" proves the optimum or says what limit it met, "auto" chooses by size and a fixed budget of work.
    restarts : int
        Restarts of the search at most; "auto" runs fewer where N is large.
    seed : int
        Everything random is derived from it.
    names : iterable of str, optional
        One name per client. Default: those that the `Distances` carries, else clients are called by position.
    must_link, cannot_link : iterable of groups of clients
        Clients, by name (by position where there are no names), that must or may not be in one coalition.
    min_size, max_size : int
        How many clients a coalition may hold.
    prove : bool
        Whether to spend work on proving the answer. False: search only, with the quickest lower bound.

    Returns
    -------
    Collaboration
        The coalitions with their objective, a proven lower bound, and explanations.

    Raises
    ------
    InputError
        If an argument is wrong, no partition respects the constraints, or "exact" met its limit.

    Examples
    --------
    >>> near, far = 0.05, 0.9
    >>> D = [[0, near, far], [near, 0, far], [far, far, 0]]
    >>> answer = solve(D, [100, 100, 5000], C=5, names=["north", "south", "east"])
    >>> answer.coalitions, answer.optimal
    ([['north', 'south'], ['east']], True)

    Without C, it is the one that the path over C suggests.

    >>> solve(D, {"north": 100, "south": 100, "east": 5000}, names=["north", "south", "east"]).coalitions
    [['north', 'south'], ['east']]
    """
    choose("method", method, _METHODS)
    C = read_C(C)
    restarts = int(number("restarts", restarts, at_least=1, whole=True))
    seed = int(number("seed", seed, whole=True))
    if method == "exact" and not prove:
        raise InputError("`prove` (=False) must be True with `method` (='exact')")
    inputs = read_inputs(distances, quantities, names)
    must_link, cannot_link = (given if isinstance(given, str) else list(given) for given in (must_link, cannot_link))
    limits: dict[str, Any] = {"must_link": must_link, "cannot_link": cannot_link, "min_size": min_size}
    limits["max_size"] = max_size
    constraints = read_constraints(inputs, **limits)
    if isinstance(C, str):
        if len(inputs.quantities) > MOST:
            raise InputError(
                f"`C` (='auto') is read off the path over C, which is drawn for at most {MOST:,} clients; there are "
                f"{len(inputs.quantities):,}: give a number"
            )
        weight = c_path(distances, quantities, names=inputs.names, seed=seed, **limits).suggested.C
    else:
        weight = C
    problem = build_problem(inputs, constraints, weight)
    if method == "exact" and problem.count > WIDEST:
        raise InputError(
            f"`method` (='exact') must be 'auto' or 'local' for more than {WIDEST} clients; there are {problem.count}"
        )
    quick = prove and method != "local" and problem.count <= SMALL  # proven from nothing faster than searched
    labels = np.arange(problem.count) if quick else search_best(problem, method, restarts, seed)
    proof = Proof(labels if problem.admits(labels) else None, 0.0, False)
    wanted = (prove and method != "local") or proof.labels is None
    if wanted and isinstance(problem, Instance) and problem.count <= WIDEST:
        proof = prove_optimum(problem, labels, BUDGETS["auto" if method == "auto" else "exact"])
        if not proof.optimal:
            proof = replace(proof, spent=True)
    if proof.labels is None:
        if proof.optimal:
            refuse_impossible(inputs, constraints)
        raise InputError("the constraints left no partition that could be found; loosen `min_size` or `cannot_link`")
    if method == "exact" and not proof.optimal:
        raise InputError(
            f"`method` (='exact') met its limit: {problem.count} clients without enough structure cannot be proven "
            f"within {BUDGETS['exact']:,} partial coalitions (any matrix up to {PROGRAMME} clients can); use 'auto'"
        )
    return collaboration_of(inputs, constraints, weight, _bounded(inputs, problem, proof, prove))


def as_collaboration(distances: Any, coalitions: Sequence[Sequence[str]], C: float) -> Collaboration:
    """Return given coalitions as an answer: what they cost by the bound, and how far from the optimum that can be.

    Parameters
    ----------
    distances : Distances
        The distances, with names and quantities.
    coalitions : sequence of sequences of str
        Lists of client names, which partition the clients.
    C : float
        Weight of the generalisation term, above 0.

    Returns
    -------
    Collaboration
        With a lower bound from every client's own weights (`personal_weights`); its method is "given".

    Raises
    ------
    InputError
        If the coalitions do not partition the clients.
    """
    inputs = read_inputs(distances, None)
    names = list(inputs.names or ())
    flat = [name for members in coalitions for name in members]
    if sorted(flat) != sorted(names):
        raise InputError("`coalitions` must hold every client of the distances once")
    place = {name: label for label, members in enumerate(coalitions) for name in members}
    order = list(dict.fromkeys(place[name] for name in names))
    labels = np.array([order.index(place[name]) for name in names])
    lower = float(personal_weights(distances, None, C)[1].sum())
    return collaboration_of(inputs, read_constraints(inputs), C, Found(labels, lower, False, "given"))


@dataclass(frozen=True)
class Found:
    """A partition of the clients, a lower bound, whether the two meet, and the name of the method that found it.

    `budget_spent`: a proof was tried and ran out of its budget of work.
    """

    labels: Labels
    lower: float
    optimal: bool
    method: str
    budget_spent: bool = False


def build_problem(inputs: Inputs, constraints: Constraints, C: float) -> Problem:
    """Hold the pair costs in memory where there are few enough units, else read them from the matrix."""
    if len(inputs.quantities) <= DENSE:
        return build_instance(inputs, constraints, C)
    rows = build_rows(inputs, constraints, C)
    return rows if rows.count > DENSE else rows.contract(np.arange(rows.count)).in_order()


def _bounded(inputs: Inputs, problem: Problem, proof: Proof, prove: bool) -> Found:
    """Bring what was found to the clients, with the best lower bound that is to be had."""
    assert proof.labels is not None
    labels = problem.to_clients(proof.labels)
    if proof.optimal:
        return Found(labels, proof.lower, True, "exact")
    m, C = inputs.quantities, problem.C
    paid = terms(m, labels, own_sums(inputs.matrix, m, labels), C).sum(axis=1)
    upper = float(paid.sum())
    lower = max(proof.lower, row_bound(inputs.matrix, m, C, paid))
    if prove and isinstance(problem, Instance) and problem.count <= FEW:
        lower = max(lower, shared_bound(problem, upper))
    return Found(labels, min(upper, lower), upper - lower <= TOLERANCE * upper, "local", proof.spent)


def collaboration_of(inputs: Inputs, constraints: Constraints, C: float, found: Found) -> Collaboration:
    """Complete a partition with its objective, its bound and the sums that explain it."""
    labels = found.labels
    pull, push = coalition_sums(inputs.matrix, inputs.quantities, labels, inputs.symmetric)
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
        budget_spent=found.budget_spent,
    )
