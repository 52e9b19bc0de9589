"""Calls of trainings on folds: what `stopping` sends for neural networks, and `trees.boosting` for trees."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedcollab.errors import FedcollabWarning, Paused
from fedcollab.wire.action import Action
from fedcollab.wire.calls import Answered
from fedcollab.wire.message import Message

if TYPE_CHECKING:
    from fedcollab.training.session import Session

FOLDS = 2

Curve = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class FoldCall:
    """The messages of one call of `stopping.fold_rounds`.

    Parameters
    ----------
    number : int
        The round.
    ceiling : int
        The last round.
    layers : list of mappings
        What each client is sent, for each layer (see `Session.layers`).
    measured : mapping of lists
        What each client has measured so far.
    action : Action
        What the clients are asked to do.
    """

    number: int
    ceiling: int
    layers: list[dict[str, Message]]
    measured: Mapping[str, list[Curve]]
    action: Action


FoldRounds = Generator[FoldCall, list[Answered], dict[str, Curve]]


def as_arrays(curves: Mapping[str, list[Curve]]) -> dict[str, Curve]:
    """Return the curves of the clients that were measured after at least one round."""
    return {name: np.array(curve) for name, curve in curves.items() if len(curve) > 1}


def asked(session: Session) -> list[str]:
    """Return the clients whose rows outside every fold are as many as silos ask for at least."""
    least = max(session.federation.runtime.min_samples, 1)
    return [name for name in session.names if session.quantities[name] * (FOLDS - 1) // FOLDS >= least]


def stop_if_refused(session: Session, sent: Mapping[str, Message], error: Paused, ceiling: int) -> None:
    """Warn that rounds are not chosen where every client refused, so that asking again is of no use; else raise.

    Parameters
    ----------
    session : Session
        The training.
    sent : mapping
        What the clients were sent.
    error : Paused
        Why the call ended.
    ceiling : int
        How many rounds are trained then.
    """
    missing = {name: session.federation.absent[name] for name in sent if name in session.federation.absent}
    noted = session.federation.runtime.absences[-len(missing) :] if missing else []
    if not noted or any(each.kind != "refused" for each in noted):
        raise error
    text = f"{error}: the number of rounds is not chosen, all {ceiling} are trained (`stopping='none'`)"
    warnings.warn(text, FedcollabWarning, stacklevel=5)
