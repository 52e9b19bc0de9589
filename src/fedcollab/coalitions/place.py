"""A client that comes later: which coalition should it join? (Section "New Training Clients")

The existing coalitions stay as they are; the newcomer k joins the T that raises the objective least,
    f(T + k) - f(T),  f(T) = |T| C / sqrt(m_T) + (1 / m_T) sum_{i, j in T} m_j D_ij,
or stays alone at C / sqrt(m_k). Only one coalition has to train again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcollab.coalitions.collaboration import Collaboration
from fedcollab.coalitions.explain import Choice, name_position, names_in_words
from fedcollab.coalitions.inputs import Floats, named_values
from fedcollab.errors import InputError, number


@dataclass(frozen=True, eq=False)
class Placement:
    """Where a new client should go. `coalition` is None where it should stay alone.

    `terms` are, for every coalition and last for being alone: generalisation, shift, others, allowed (see `Choice`).
    """

    client: Any
    quantity: float
    coalition: int | None
    collaboration: Collaboration = field(repr=False)
    terms: tuple[NDArray[Any], ...] = field(repr=False)

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        """Every coalition, and last being alone."""
        groups = self.collaboration.coalitions
        rows = list(zip(*(column.tolist() for column in self.terms), strict=True))
        joins = [Choice("join", group, (*members, self.client), *rows[group]) for group, members in enumerate(groups)]
        return (*joins, Choice("alone", None, (self.client,), *rows[-1]))

    @property
    def coalitions(self) -> list[list[Any]]:
        """The coalitions with the newcomer in its place."""
        groups = self.collaboration.coalitions
        if self.coalition is None:
            return [*groups, [self.client]]
        groups[self.coalition].append(self.client)
        return groups

    @property
    def best(self) -> Choice:
        """The choice that raises the objective least: the one that was made."""
        return self.choices[-1 if self.coalition is None else self.coalition]

    def gain(self, a: float, b: float) -> float:
        """Return what the newcomer gains over training alone, where a unit of each part of the bound is worth so much.

        Parameters
        ----------
        a, b : float
            What C = 1 and a distance of 1 cost, in the user's units, such as log loss (`Advice.bound`).
        """
        if self.coalition is None:
            return 0.0
        generalisation, shift = (float(column[self.coalition]) for column in self.terms[:2])
        return a * (1 / math.sqrt(self.quantity) - generalisation / self.collaboration.C) - b * shift

    def as_dict(self) -> dict[str, Any]:
        """Return the content as plain values that can be written as JSON."""
        return {
            "client": self.client,
            "quantity": self.quantity,
            "coalition": self.coalition,
            "choices": [choice.as_dict() for choice in self.choices],
            "coalitions": self.coalitions,
        }

    def __str__(self) -> str:
        company = names_in_words(self.best.members, self.client)
        first = f"{self.client} should join {company}" if company else f"{self.client} should stay alone"
        lines = [f"{first}: bound {self.best.bound:.4g}, the others together {self.best.others:+.4g}."]
        for choice in self.choices:
            if choice is not self.best:
                place = names_in_words(choice.members, self.client)
                where = f"With {place}" if place else "Alone"
                allowed = "" if choice.allowed else " (not allowed)"
                lines.append(f"{where}: bound {choice.bound:.4g}, the others together {choice.others:+.4g}{allowed}.")
        return "\n".join(lines)


def place(
    collaboration: Collaboration,
    distances: ArrayLike | Mapping[str, float],
    quantity: float,
    *,
    name: str = "new client",
    cannot_link: Iterable[Any] = (),
) -> Placement:
    """Return the coalition that a new client should join, from its distance to every existing client and its samples.

    Nobody else moves. Where every coalition costs more than it brings, the newcomer stays alone.

    Parameters
    ----------
    collaboration : Collaboration
        The coalitions that exist.
    distances : array-like or mapping
        One distance for each existing client in their order, or by name (a mapping or a Series); NaN (or no entry)
        where it was not measured, which bars the coalition of that client.
    quantity : float
        The newcomer's training samples.
    name : str
        The newcomer's name.
    cannot_link : iterable
        Clients that the newcomer may not train with.

    Returns
    -------
    Placement
        The coalition, its cost, and the cost of every other choice.

    Raises
    ------
    InputError
        If the name is taken, or the constraints leave no place.

    Examples
    --------
    >>> from fedcollab.coalitions import solve
    >>> answer = solve([[0, 0.1, 0.9], [0.1, 0, 0.9], [0.9, 0.9, 0]], [100, 100, 100], C=5)
    >>> print(str(place(answer, [0.9, 0.8, 0.05], 50)).splitlines()[0])
    new client should join 2: bound 0.4416, the others together -0.07509.
    """
    mine = number("quantity", quantity, above=0)
    if collaboration.names is not None and name in collaboration.names:
        raise InputError(f"`name` (={name!r}) must differ from the names of the existing clients")
    row = _row(collaboration, distances)
    barred = np.isnan(row)
    for client in cannot_link:
        barred[name_position(collaboration, client)] = True
    known = np.where(np.isnan(row), 1.0, row)
    labels, m, C = collaboration.assignment, collaboration.quantities, collaboration.C
    mass, size = np.bincount(labels, weights=m), np.bincount(labels)
    sums = np.bincount(labels, weights=collaboration.pull[np.arange(len(m)), labels])
    pull, push = np.bincount(labels, weights=known * m), np.bincount(labels, weights=known)
    closed = np.bincount(labels, weights=barred) > 0
    limit = collaboration.constraints.max_size
    total = mass + mine
    before = size * C / np.sqrt(mass) + sums / mass
    after = size * C / np.sqrt(total) + (sums + mine * push) / total
    open_to_it = ~closed if limit is None else ~closed & (size < limit)
    generalisation = np.append(C / np.sqrt(total), C / np.sqrt(mine))
    shift, others = np.append(pull / total, 0.0), np.append(after - before, 0.0)
    allowed = np.append(open_to_it, collaboration.constraints.min_size <= 1)
    if not allowed.any():
        raise InputError(
            f"`name` (={name!r}) can neither join a coalition nor stay alone: "
            "`max_size`, `min_size` and the clients it cannot be with leave nothing"
        )
    best = int(np.where(allowed, generalisation + shift + others, np.inf).argmin())
    terms = (generalisation, shift, others, allowed)
    return Placement(name, mine, best if best < len(size) else None, collaboration, terms)


def _row(collaboration: Collaboration, distances: ArrayLike | Mapping[str, float]) -> Floats:
    count = len(collaboration.assignment)
    named = named_values("distances", distances)
    if named is not None:
        row = np.full(count, np.nan)
        for client, value in named.items():
            row[name_position(collaboration, client)] = value
    else:
        row = np.array(distances, dtype=np.float64)
    if row.shape != (count,):
        raise InputError(
            f"`distances` (shape {row.shape}) must hold one number for each of the {count} existing clients"
        )
    bad = np.flatnonzero((row < 0) | (row > 1))
    if bad.size:
        raise InputError(
            f"`distances` (={row[bad[0]]:g} at position {bad[0]}) must be numbers of at least 0 and at most 1"
        )
    return row
