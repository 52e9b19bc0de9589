"""A client's data grew or drifted: renew its own pairs, test the change against the uncertainty, regroup if it pays.

    z_j = (D_kj after - D_kj before) / sqrt(se_before^2 + se_after^2)

for every partner j of the changed client k. The change counts as real where the largest |z| of all pairs tested is
significant at `ALPHA` after Bonferroni's correction, which holds however the pairs depend on each other (they share k's
samples). A client whose change is not significant keeps its distances; its quantity, which is counted and not
estimated, is always renewed. Standard errors are at least sqrt(2) / m on each side, which is what a balanced accuracy
of 1 on m samples still leaves open; where a method gives none, the binomial one of half the samples is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.coalitions.explain import names_in_words
from fedcollab.distances import Distances, measure, pair_count, renewed
from fedcollab.errors import InputError, unknown
from fedcollab.federation import Federation
from fedcollab.progress import Progress, silent
from fedcollab.runs.membership.answers import require_clients, require_measured
from fedcollab.runs.membership.regroup import THRESHOLD, Regrouping, consider, limits_of
from fedcollab.runs.membership.state import State, Trained, Training, go_on

#: chance of calling a change real in a check in which nothing changed
ALPHA = 0.01


@dataclass(frozen=True)
class Change:
    """One client's data before and after a change.

    Parameters
    ----------
    client : str
        The client.
    quantity_before, quantity : int
        Its training samples before and now.
    partner : str
        The client to which its distance changed most, relative to the uncertainty.
    distance_before, distance : float
        That distance before and now.
    z : float
        That change in standard errors.
    p : float
        Its p-value, corrected for the number of pairs tested.
    pairs : int
        How many pairs were estimated again.
    """

    client: str
    quantity_before: int
    quantity: int
    partner: str
    distance_before: float
    distance: float
    z: float
    p: float
    pairs: int

    @property
    def significant(self) -> bool:
        """Whether the client's distances changed by more than their uncertainty."""
        return self.p < ALPHA

    def as_dict(self) -> dict[str, Any]:
        """Return the change as plain values, for JSON."""
        return {**{key: getattr(self, key) for key in self.__dataclass_fields__}, "significant": self.significant}

    def __str__(self) -> str:
        size = f"{self.quantity_before} -> {self.quantity} samples"
        most = f"distance to {self.partner} {self.distance_before:.2f} -> {self.distance:.2f}"
        word = "which is more than chance" if self.significant else "within the uncertainty"
        return f"{self.client}: {size}; its largest change is the {most}, {word} (p = {self.p:.2g})."


@dataclass(frozen=True, eq=False)
class Check:
    """What changed in the clients' data, and whether they should regroup.

    Parameters
    ----------
    changes : sequence of Change
        One for each client that was checked.
    after : State
        The state with the new distances, in which nobody has moved.
    regrouping : Regrouping
        The partition as it is against the best one.
    """

    changes: Sequence[Change]
    after: State
    regrouping: Regrouping

    def as_dict(self) -> dict[str, Any]:
        """Return the check as plain values, for JSON."""
        return {
            "changes": [change.as_dict() for change in self.changes],
            "pairs_estimated": sum(change.pairs for change in self.changes),
            "before": self.after.collaboration.coalitions,
            "after": self.regrouping.best.coalitions if self.regrouping.advised else self.regrouping.now.coalitions,
            "regrouping": self.regrouping.as_dict(),
        }

    def __str__(self) -> str:
        lines = [str(self.regrouping)]
        lines += [str(change) for change in self.changes] or ["No client's data changed."]
        if self.regrouping.advised:
            for title, side in (("Now:", self.regrouping.now), ("Better:", self.regrouping.best)):
                lines.append(f"{title:8}" + " | ".join(names_in_words(tuple(group), None) for group in side.coalitions))
        return "\n".join(lines)


def check(
    state: State,
    federation: Federation,
    changed: Iterable[str],
    *,
    seed: int = 0,
    threshold: float = THRESHOLD,
    progress: Progress = silent,
) -> Check:
    """Estimate the distances of changed clients again, and see whether regrouping pays; nothing is trained or moved.

    Parameters
    ----------
    state : State
        The run as it is.
    federation : Federation
        All clients of the run, with their data as they are now.
    changed : iterable of str
        The clients whose data changed.
    seed : int, default 0
        Everything random in solving is derived from it.
    threshold : float, default `THRESHOLD`
        What a regrouping must gain to be advised, as a share of the bound.
    progress : callable, optional
        Called with (done, total).

    Returns
    -------
    Check
        What changed, and whether to regroup.

    Raises
    ------
    InputError
        If a name is unknown, or a client of the run is missing from `federation`.
    Paused
        If a client of the run does not answer.
    """
    names = sorted(set(changed))
    for name in names:
        if name not in state.names:
            raise InputError(unknown("client", name, state.names))
    require_clients(federation, state.names, "a client of this run; if it left: fedcollab leave")
    rows = {name: measure(state.distances, federation, name, progress) for name in names}
    for name, row in rows.items():
        require_measured(row, name)
    tested = sum(pair_count(row) for row in rows.values())
    changes = [_test(state.distances, row, name, tested) for name, row in rows.items()]
    distances = state.distances
    for change in changes:
        distances = renewed(distances, rows[change.client], change.client, quantity_only=not change.significant)
    old = state.collaboration
    regrouping = consider(
        distances, old.assignment, old.C, limits_of(old), seed=seed, threshold=threshold, method=old.method
    )
    return Check(changes, State(distances, regrouping.now, state.results), regrouping)


def apply(
    found: Check, state: State, federation: Federation, training: Training | None = None
) -> tuple[State, Trained | None]:
    """Accept the changes that a check found: regroup where advised, and train coalitions whose members or data changed.

    Parameters
    ----------
    found : Check
        The result of `check`.
    state : State
        The run as it was before.
    federation : Federation
        All clients of the run.
    training : Training, optional
        How to train; by default on from the saved models.

    Returns
    -------
    tuple of (State, Trained or None)
        The run with the changes, and what training gave (None where the run has no models yet).
    """
    regrouping = found.regrouping
    collaboration = regrouping.best if regrouping.advised else regrouping.now
    moved = set(regrouping.retrain) if regrouping.advised else set()
    stale = [change.client for change in found.changes]
    again = [
        members for members in collaboration.coalitions if moved.intersection(members) or set(stale) & set(members)
    ]
    results, trained = go_on(state, federation, collaboration, stale, training or Training(), again=again)
    return State(found.after.distances, collaboration, results), trained


def _test(before: Distances, row: Distances, name: str, tested: int) -> Change:
    """Return how much one client's distances changed, and the p-value of the largest change of all pairs `tested`."""
    others = [other for other in before.names if other != name]
    first = [before.index(other) for other in others]
    second = [row.index(other) for other in others]
    at, now = before.index(name), row.index(name)
    old, new = before.raw[at, first], row.raw[now, second]
    seen = before.observed[at, first]
    spread = np.hypot(_error(before, at, first), _error(row, now, second))
    z = np.where(seen, (new - old) / spread, 0.0)
    worst = int(np.abs(z).argmax())
    return Change(
        client=name,
        quantity_before=int(before.quantities[at]),
        quantity=int(row.quantities[now]),
        partner=others[worst],
        distance_before=float(np.clip(old[worst], 0, 1)),
        distance=float(np.clip(new[worst], 0, 1)),
        z=float(z[worst]),
        p=min(1.0, tested * math.erfc(abs(float(z[worst])) / math.sqrt(2))),
        pairs=pair_count(row),
    )


def _error(distances: Distances, at: int, partners: list[int]) -> NDArray[np.float64]:
    """Return the standard errors of a client's distances, none below the least that its samples allow."""
    mine, theirs = float(distances.quantities[at]), distances.quantities[partners].astype(np.float64)
    least = np.sqrt(2 / mine**2 + 2 / theirs**2)
    if distances.stderr is None:
        return np.maximum(least, np.sqrt((1 / mine + 1 / theirs) / 2))
    given = distances.stderr[at, partners]
    return np.maximum(least, np.where(np.isfinite(given), given, 1.0))
