"""In one process: the clients of a coalition grow a tree as one client that has the rows of all of them.

Sums of gradients are exact (`objectives`), so that those over all rows are those over clients added up: the trees are
the same bit for bit, at a fraction of the time. No real federation can do this. Traffic is counted as if every client
had been asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from fedcollab.training.trees.client import cuts_of
from fedcollab.training.trees.cuts import Cuts
from fedcollab.training.trees.forest import Forest, Growing
from fedcollab.training.trees.rows import Floats, Margins, Rows, histograms, rows_of
from fedcollab.wire.limits import NO_LIMITS
from fedcollab.wire.message import Message, payload
from fedcollab.wire.runtime import Cost
from fedcollab.wire.vectorised import Vectorised

if TYPE_CHECKING:
    from fedcollab.training.session import Session


@dataclass(frozen=True, eq=False)
class Pooled(Rows):
    """The rows of several clients, all of them to train on.

    Parameters
    ----------
    parts : sequence of Rows
        Those of each client.
    """

    parts: Sequence[Rows] = ()

    @classmethod
    def of(cls, parts: Sequence[Rows]) -> Pooled:
        """Return the rows to train on of several clients, one client after the other."""
        x = np.concatenate([part.x[: part.count] for part in parts])
        y = np.concatenate([part.y[: part.count] for part in parts])
        return cls(x, y, len(y), parts=parts)

    @property
    def ends(self) -> NDArray[np.intp]:
        """Where the rows of each client but the last end."""
        return np.cumsum([part.count for part in self.parts])[:-1]

    def _rows_bins(self, cuts: Cuts) -> NDArray[np.int32]:
        """Return the bins of all rows, [n, features]; each client's are remembered."""
        return np.concatenate([part.bins(cuts).T for part in self.parts]).astype(np.int32)

    def _fitted_base(self, sums: Floats, start: Floats, how: Growing) -> Floats:
        """Return the own base score of each row's client, [n, trees]; arguments as in `Rows.own_base`."""
        each = zip(self.parts, np.split(sums, self.ends), strict=True)
        found = [part._fitted_base(own, start, how) for part, own in each]
        return np.repeat(found, [part.count for part in self.parts], axis=0)


_pooled: WeakKeyDictionary[Any, dict[int, Pooled]] = WeakKeyDictionary()


def can_pool(session: Session, chosen: Mapping[int, Sequence[str]]) -> bool:
    """Return whether the clients of all coalitions are in this process, without limits, and all of them take part.

    Parameters
    ----------
    session : Session
        A training of trees.
    chosen : mapping
        Who takes part in each coalition.
    """
    runtime = session.federation.runtime
    if not isinstance(runtime, Vectorised) or any(
        runtime.silos[name].limits is not NO_LIMITS for name in session.names
    ):
        return False
    return all(names == session.members(k) for k, names in chosen.items())


def pooled_sums(session: Session, wanted: Mapping[int, Message]) -> tuple[dict[int, list[Floats]], dict[str, float]]:
    """Return what the clients of each coalition would answer to `train_trees`: their sums, added up, and their losses.

    Parameters
    ----------
    session : Session
        The training.
    wanted : mapping
        What every client of a coalition would be sent.
    """
    runtime, how = session.federation.runtime, session.growing
    assert isinstance(runtime, Vectorised)
    assert how is not None
    session.federation.hand_out(session.names)
    cost, sums, losses = Cost(rounds=1), dict[int, list[Floats]](), dict[str, float]()
    for coalition, message in wanted.items():
        names = session.members(coalition)
        rows = _rows(session, coalition, [rows_of(runtime.silos[name].arrays) for name in names])
        position, level = max(0, message["round"] - 1), message["level"]
        forest = Forest.of(message["w"][0], how.shape)
        own = bool(session.setting.keep) and message["round"] > 0
        margins = Margins.of(rows, forest, position, how, training="train", own=own)
        found = histograms(margins, forest, position, level, cuts_of(message))
        sums[coalition] = [found]
        if not level:
            each = np.split(margins.losses, rows.ends)
            losses |= {name: float(part.mean()) for name, part in zip(names, each, strict=True)}
        cost.down |= dict.fromkeys(names, payload(message))
        cost.up |= dict.fromkeys(names, found.nbytes + (0 if level else 8))
    runtime.cost.add(cost)
    return sums, losses


def _rows(session: Session, coalition: int, parts: list[Rows]) -> Pooled:
    """Return the rows of a coalition, joined once in a training."""
    known = _pooled.setdefault(session, {})
    if coalition not in known or list(known[coalition].parts) != parts:
        known[coalition] = Pooled.of(parts)
    return known[coalition]
