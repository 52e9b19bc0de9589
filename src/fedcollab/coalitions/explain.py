"""Why a client is where it is: its two terms now, alone, with everyone, and in each other coalition.

    bound_k(S) = C / sqrt(m_S) + sum_{j in S} m_j D_kj / m_S          (half of what Theorem 3.3 adds to the best error)

`others` is how the sum over all other clients changes when k makes that choice; the solver minimises both together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcollab.errors import InputError

if TYPE_CHECKING:
    from fedcollab.coalitions.collaboration import Collaboration


@dataclass(frozen=True)
class Choice:
    """One place for a client: who it would be with, its two terms there, and what that does to the others."""

    kind: str
    coalition: int | None
    members: tuple[Any, ...]
    generalisation: float
    shift: float
    others: float
    allowed: bool = True

    @property
    def bound(self) -> float:
        """The client's own part of the objective: generalisation + shift."""
        return self.generalisation + self.shift

    def as_dict(self) -> dict[str, Any]:
        """Return the content as plain values that can be written as JSON."""
        return {
            "kind": self.kind,
            "coalition": self.coalition,
            "members": list(self.members),
            "generalisation": self.generalisation,
            "shift": self.shift,
            "bound": self.bound,
            "others": self.others,
            "allowed": self.allowed,
        }


@dataclass(frozen=True)
class Explanation:
    """One client's choices: now, alone, with everyone, and in each other coalition."""

    client: Any
    quantity: float
    now: Choice
    alone: Choice
    everyone: Choice
    elsewhere: tuple[Choice, ...]

    @property
    def generalisation(self) -> float:
        """C / sqrt(m_S) in its coalition."""
        return self.now.generalisation

    @property
    def shift(self) -> float:
        """sum_j (m_j / m_S) D_kj in its coalition."""
        return self.now.shift

    @property
    def best(self) -> Choice:
        """What would be best for this client alone, among what it may do (the present place where nothing beats it)."""
        choices = [choice for choice in (self.alone, *self.elsewhere) if choice.allowed]
        return min([self.now, *choices], key=lambda choice: choice.bound)

    def as_dict(self) -> dict[str, Any]:
        """Return the content as plain values that can be written as JSON."""
        return {
            "client": self.client,
            "quantity": self.quantity,
            "now": self.now.as_dict(),
            "alone": self.alone.as_dict(),
            "everyone": self.everyone.as_dict(),
            "elsewhere": [choice.as_dict() for choice in self.elsewhere],
        }

    def __str__(self) -> str:
        company, now = names_in_words(self.now.members, self.client), self.now
        place = f"trains with {company}" if company else "trains alone"
        digits = _decimals(now.bound)
        lines = [
            f"{self.client} ({self.quantity:,.0f} samples) {place}: error bound {now.bound:.{digits}f} = "
            f"{now.generalisation:.{digits}f} for too little data + {now.shift:.{digits}f} for unlike partners."
        ]
        if company:
            lines.append(f"Alone it would be {_compare(self.alone, self.now)}.")
        if len(self.elsewhere):
            lines.append(f"With everyone it would be {_compare(self.everyone, self.now)}.")
        for choice in self.elsewhere:
            allowed = "" if choice.allowed else "; not allowed"
            lines.append(
                f"With {names_in_words(choice.members, self.client)} it would be {_compare(choice, self.now)}{allowed}."
            )
        return "\n".join(lines)


def explain(collaboration: Collaboration, client: int) -> Explanation:
    """Return what the client at this position pays in its place, and in every other."""
    labels, m, C = collaboration.assignment, collaboration.quantities, collaboration.C
    groups = collaboration.coalitions
    mass = np.bincount(labels, weights=m)
    size = np.bincount(labels)
    own = collaboration.pull[np.arange(len(m)), labels]
    sums = np.bincount(labels, weights=own)  # V_T of every coalition
    here, mine, pull, push = (
        int(labels[client]),
        float(m[client]),
        collaboration.pull[client],
        collaboration.push[client],
    )
    # Own coalition without the client: what the others would pay without it (nothing where it is alone).
    left = mass[here] - mine if size[here] > 1 else 0.0
    apart = sums[here] - pull[here] - mine * push[here]
    with_it = (size[here] - 1) * C / np.sqrt(mass[here]) + (sums[here] - pull[here]) / mass[here]
    leaving = (size[here] - 1) * C / np.sqrt(left) + apart / left - with_it if left > 0 else 0.0
    label: Any = client if collaboration.names is None else collaboration.names[client]

    def choice(kind: str, group: int) -> Choice:
        total = mass[group] + mine
        before = size[group] * C / np.sqrt(mass[group]) + sums[group] / mass[group]
        after = size[group] * C / np.sqrt(total) + (sums[group] + mine * push[group]) / total
        others = float(leaving + after - before)
        members = (*groups[group], label)
        return Choice(
            kind,
            group,
            members,
            float(C / np.sqrt(total)),
            float(pull[group] / total),
            others,
            _may(collaboration, client, group),
        )

    now = Choice("now", here, tuple(groups[here]), float(C / np.sqrt(mass[here])), float(pull[here] / mass[here]), 0.0)
    free = _free(collaboration, client)
    alone = Choice(
        "alone",
        None,
        (label,),
        float(C / np.sqrt(mine)),
        0.0,
        float(leaving),
        free and _sized(collaboration, 1),
    )
    total = mass.sum()
    everyone_sum = float(collaboration.pull.sum() - pull.sum()) / total + (len(m) - 1) * C / np.sqrt(total)
    today = float(sums @ (1 / mass) + (size * C / np.sqrt(mass)).sum()) - now.bound
    everybody = tuple(name for group in groups for name in group)
    everyone = Choice(
        "everyone",
        None,
        everybody,
        float(C / np.sqrt(total)),
        float(pull.sum() / total),
        float(everyone_sum - today),
    )
    elsewhere = tuple(choice("elsewhere", group) for group in range(len(groups)) if group != here)
    return Explanation(label, mine, now, alone, everyone, elsewhere)


def name_position(collaboration: Collaboration, client: str | int) -> int:
    """The position of a client given by name (or by position where there are no names)."""
    names, count = collaboration.names, len(collaboration.assignment)
    if names is not None and str(client) in names:
        return names.index(str(client))
    if names is None and str(client).isdigit() and int(client) < count:
        return int(client)
    shown = ", ".join(names[:8]) + (", ..." if count > 8 else "") if names is not None else f"0 to {count - 1}"
    raise InputError(f"`client` (={client!r}) must be one of: {shown}")


def _free(collaboration: Collaboration, client: int) -> bool:
    return not any(client in group for group in collaboration.constraints.together)


def _sized(collaboration: Collaboration, size: int) -> bool:
    limits = collaboration.constraints
    return size >= limits.min_size and (limits.max_size is None or size <= limits.max_size)


def _may(collaboration: Collaboration, client: int, group: int) -> bool:
    """Whether the constraints let this client move to that coalition by itself."""
    limits, labels = collaboration.constraints, collaboration.assignment
    members = np.flatnonzero(labels == group)
    apart = any({client, int(other)} == {i, j} for i, j in limits.apart for other in members)
    unseen = limits.unobserved is not None and bool(limits.unobserved[client, members].any())
    left = int((labels == labels[client]).sum()) - 1
    stays = left == 0 or left >= limits.min_size
    return (
        _free(collaboration, client) and not apart and not unseen and stays and _sized(collaboration, len(members) + 1)
    )


def names_in_words(members: tuple[Any, ...], client: Any) -> str:
    """The others of a coalition, at most six of them by name."""
    others = [str(member) for member in members if member != client]
    return ", ".join(others[:6]) + (f" and {len(others) - 6} more" if len(others) > 6 else "")


def more_in_words(share: float) -> str:
    """Say how much more something costs, in percent or, from twice as much on, as a multiple.

    >>> more_in_words(0.0042), more_in_words(0.25), more_in_words(2.5), more_in_words(119.2)
    ('0.42 % more', '25 % more', '3.5 times as much', '120 times as much')
    """
    if share < 1e-4:
        return "less than 0.01 % more"
    if share < 0.995:
        return f"{100 * share:.2g} % more"
    times = 1 + share
    return f"{times:.2g} times as much" if times < 9.95 else f"{times:,.0f} times as much"


def _decimals(bound: float) -> int:
    """Return with how many decimals bounds are written: three figures of this one.

    >>> _decimals(0.2029), _decimals(12.3), _decimals(2500.0), _decimals(0.0)
    (3, 1, 0, 3)
    """
    return max(0, 2 - math.floor(math.log10(bound))) if bound > 0 else 3


def _compare(choice: Choice, now: Choice) -> str:
    """Say what another place would change: for the client, in two parts, and for all others together."""
    difference, digits = choice.bound - now.bound, _decimals(now.bound)
    if abs(difference) <= 1e-12:
        word = "the same"
    else:
        word = f"{abs(difference):.{digits}f} {'worse' if difference > 0 else 'better'}"
    parts = f"{choice.generalisation:.{digits}f} + {choice.shift:.{digits}f}"
    if abs(choice.others) <= 1e-12:
        return f"{word} ({parts})"
    return f"{word} ({parts}), and the others together {abs(choice.others):.{digits}f} " + (
        "worse" if choice.others > 0 else "better"
    )
