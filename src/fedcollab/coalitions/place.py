"""A client that comes later: which coalition should it join? (Section "New Training Clients")

The existing coalitions stay as they are; the newcomer k joins the T that raises the objective least,
    f(T + k) - f(T),  f(T) = |T| C / sqrt(m_T) + (1 / m_T) sum_{i, j in T} m_j D_ij,
or stays alone at C / sqrt(m_k). Only one coalition has to train again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedcollab.coalitions.collaboration import Collaboration
from fedcollab.coalitions.explain import Choice, name_position, names_in_words
from fedcollab.coalitions.inputs import Floats
from fedcollab.errors import InputError, number


@dataclass(frozen=True, eq=False)
class Placement:
    """Where a new client should go. `coalition` is None where it should stay alone."""

    client: Any
    quantity: float
    coalition: int | None
    choices: tuple[Choice, ...]
    coalitions: list[list[Any]]

    @property
    def best(self) -> Choice:
        """The choice that was made."""
        return next(choice for choice in self.choices if choice.coalition == self.coalition)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
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
    """The coalition that a new client should join, given its distance to every existing client and its sample count.

    distances    one per existing client in their order, or by name; NaN (or no entry) where it was not measured, which
                 bars the coalition of that client
    cannot_link  clients that the newcomer may not train with

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
    groups = collaboration.coalitions
    total = mass + mine
    before = size * C / np.sqrt(mass) + sums / mass
    after = size * C / np.sqrt(total) + (sums + mine * push) / total
    full = np.zeros(len(size), dtype=bool) if limit is None else size >= limit
    columns = (C / np.sqrt(total), pull / total, after - before, ~(closed | full))
    choices = [
        Choice("join", group, (*members, name), *own)
        for group, (members, *own) in enumerate(zip(groups, *(column.tolist() for column in columns), strict=True))
    ]
    alone = collaboration.constraints.min_size <= 1
    choices.append(Choice("alone", None, (name,), float(C / np.sqrt(mine)), 0.0, 0.0, alone))
    best = min(
        (choice for choice in choices if choice.allowed), key=lambda choice: choice.bound + choice.others, default=None
    )
    if best is None:
        raise InputError(
            f"`name` (={name!r}) can neither join a coalition nor stay alone: "
            "`max_size`, `min_size` and the clients it cannot be with leave nothing"
        )
    if best.coalition is None:
        groups.append([name])
    else:
        groups[best.coalition].append(name)
    return Placement(name, mine, best.coalition, tuple(choices), groups)


def _row(collaboration: Collaboration, distances: ArrayLike | Mapping[str, float]) -> Floats:
    count = len(collaboration.assignment)
    if isinstance(distances, Mapping):
        row = np.full(count, np.nan)
        for client, value in distances.items():
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
