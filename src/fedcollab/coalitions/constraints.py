"""Constraints that real consortia have: who must and who cannot train together, and how large a coalition may be.

Must-link groups are contracted to one *unit* each before anything is solved; the rest is kept per pair of units.
Contradictions are reported by naming the constraints that clash.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.coalitions.inputs import Inputs, Labels, some
from fedcollab.errors import InputError, number


@dataclass(frozen=True)
class Constraints:
    """Checked constraints, by position: `apart` are cannot-link pairs of the user, `unobserved` unmeasured ones."""

    together: tuple[tuple[int, ...], ...] = ()
    apart: tuple[tuple[int, int], ...] = ()
    min_size: int = 1
    max_size: int | None = None
    unobserved: NDArray[np.bool_] | None = field(default=None, repr=False, compare=False)

    @property
    def any(self) -> bool:
        """Whether anything is constrained at all."""
        sized = self.min_size > 1 or self.max_size is not None
        return bool(self.together or self.apart or sized or self.unobserved is not None)

    def units(self, count: int) -> Labels:
        """One unit label per client: clients that must stay together share it."""
        parent = np.arange(count)
        for group in self.together:
            roots = {int(parent[client]) for client in group}
            parent[np.isin(parent, list(roots))] = min(roots)
        return np.unique(parent, return_inverse=True)[1].astype(np.int64)

    def conflicts(self, unit: Labels) -> NDArray[np.bool_] | None:
        """Units that cannot be together, U x U, or None where every two may."""
        units = int(unit.max()) + 1
        if not self.apart and self.unobserved is None:
            return None
        clash = np.zeros((units, units), dtype=bool)
        for i, j in self.apart:
            clash[unit[i], unit[j]] = clash[unit[j], unit[i]] = True
        if self.unobserved is not None:
            rows, columns = np.nonzero(self.unobserved)
            clash[unit[rows], unit[columns]] = True
        return clash

    def admits(self, labels: Labels) -> bool:
        """Whether a partition respects every constraint."""
        sizes = np.bincount(labels)
        sizes = sizes[sizes > 0]
        return (
            all(len({int(labels[client]) for client in group}) == 1 for group in self.together)
            and all(labels[i] != labels[j] for i, j in self.apart)
            and bool((sizes >= self.min_size).all())
            and (self.max_size is None or bool((sizes <= self.max_size).all()))
            and (self.unobserved is None or not clashing(self.unobserved, labels))
        )


def clashing(clash: NDArray[np.bool_], labels: Labels) -> bool:
    """Return whether two positions with the same label clash; reads only the blocks inside coalitions."""
    order = np.argsort(labels, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)
    return any(clash[np.ix_(members, members)].any() for members in groups)


def read_constraints(
    inputs: Inputs,
    must_link: Iterable[Any] = (),
    cannot_link: Iterable[Any] = (),
    min_size: int = 1,
    max_size: int | None = None,
) -> Constraints:
    """Check the constraints, translate client names to positions and refuse what contradicts itself at sight."""
    count = len(inputs.quantities)
    small = int(number("min_size", min_size, at_least=1, whole=True))
    large = None if max_size is None else int(number("max_size", max_size, at_least=1, whole=True))
    together = tuple(_groups("must_link", must_link, inputs))
    pairs = (
        (min(i, j), max(i, j))
        for group in _groups("cannot_link", cannot_link, inputs)
        for i in group
        for j in group
        if i < j
    )
    constraints = Constraints(together, tuple(dict.fromkeys(pairs)), small, large, inputs.unobserved)
    _refuse_contradictions(constraints, inputs, count)
    return constraints


def position(argument: str, client: object, inputs: Inputs) -> int:
    """The position of a client that the user named (by name where names were given, else by position)."""
    count = len(inputs.quantities)
    if inputs.names is not None:
        if str(client) in inputs.names:
            return inputs.names.index(str(client))
        raise InputError(f"`{argument}` (={client!r}) must be one of the clients: {some(inputs.names)}")
    if isinstance(client, (int, np.integer)) and not isinstance(client, bool) and 0 <= client < count:
        return int(client)
    raise InputError(f"`{argument}` (={client!r}) must be a client's position from 0 to {count - 1}")


def _groups(argument: str, given: Iterable[Any], inputs: Inputs) -> Iterable[tuple[int, ...]]:
    if isinstance(given, str):
        raise InputError(f"`{argument}` (={given!r}) must be a list of groups of clients")
    for group in given:
        if isinstance(group, str) or not isinstance(group, Iterable):
            raise InputError(f"`{argument}` (={group!r}) must hold groups of at least 2 clients")
        clients = tuple(position(argument, client, inputs) for client in group)
        if len(clients) < 2 or len(set(clients)) < len(clients):
            raise InputError(f"`{argument}` (={tuple(group)!r}) must hold groups of at least 2 different clients")
        yield clients


def _refuse_contradictions(constraints: Constraints, inputs: Inputs, count: int) -> None:
    small, large = constraints.min_size, constraints.max_size
    if small > count:
        raise InputError(f"`min_size` (={small}) must be at most the number of clients ({count})")
    if large is not None and small > large:
        raise InputError(f"`min_size` (={small}) must be at most `max_size` (={large})")
    if large is not None and small * -(-count // large) > count:
        raise InputError(
            f"`min_size` (={small}) and `max_size` (={large}) conflict: "
            f"{count} clients cannot be divided into such coalitions"
        )
    unit = constraints.units(count)
    for i, j in constraints.apart:
        if unit[i] == unit[j]:
            raise InputError(
                f"`cannot_link` ({inputs.label(i)}, {inputs.label(j)}) conflicts with "
                f"`must_link` {_link(constraints, inputs, i)}"
            )
    if constraints.unobserved is not None:
        clash = np.argwhere(constraints.unobserved & (unit[:, None] == unit))
        if clash.size:
            i, j = clash[0]
            raise InputError(
                f"`must_link` {_link(constraints, inputs, i)} joins {inputs.label(i)} and {inputs.label(j)}, "
                "whose distance was never measured"
            )
    sizes = np.bincount(unit)
    if large is not None and sizes.max() > large:
        member = int(np.flatnonzero(unit == sizes.argmax())[0])
        raise InputError(
            f"`must_link` {_link(constraints, inputs, member)} joins {sizes.max()} clients, "
            f"more than `max_size` (={large})"
        )
    clash_units = constraints.conflicts(unit)
    if small > 1 and clash_units is not None:
        reach = sizes @ ~clash_units
        if reach.min() < small:
            client = int(np.flatnonzero(unit == reach.argmin())[0])
            kept = "`cannot_link`" if constraints.apart else "unmeasured distances"
            raise InputError(
                f"`min_size` (={small}) conflicts with {kept}: {inputs.label(client)} can be with only "
                f"{int(reach.min()) - 1} other clients"
            )


def _link(constraints: Constraints, inputs: Inputs, client: int) -> str:
    """The must-link groups that tie a client, in the user's words."""
    unit = constraints.units(len(inputs.quantities))
    groups = [group for group in constraints.together if unit[group[0]] == unit[client]]
    return " and ".join("(" + ", ".join(str(inputs.label(member)) for member in group) + ")" for group in groups)
