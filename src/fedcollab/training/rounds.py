"""The one round loop: every coalition trains, independently, in the same rounds. The server side sees replies alone.

    grouping.before -> broadcast -> local training -> aggregate -> grouping.after -> metrics

Fixed coalitions are the default `Grouping`; the clustered baselines override its hooks and share everything else.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedcollab.errors import FedcollabWarning
from fedcollab.training.checkpoint import Snapshot
from fedcollab.training.hooks import State
from fedcollab.training.session import Evaluation, Replies, Session
from fedcollab.training.trees.boosting import boost_round


@dataclass(eq=False)
class Grouping:
    """Who is in which coalition: fixed, as given. Clustered baselines override the hooks.

    Parameters
    ----------
    coalitions : sequence of sequences of str
        The coalitions.
    source_weights : mapping
        For a coalition (its position) that learns from clients outside of it too: what each client weighs, by name.
    own_from : mapping
        As in `Session`.

    Attributes
    ----------
    method : str
        The name of the method.
    distances : array, optional
        N x N between clients in order of name, where the method has such a thing.
    """

    method: ClassVar[str] = "fixed"
    coalitions: Sequence[Sequence[str]] = ()
    source_weights: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    own_from: Mapping[str, str] = field(default_factory=dict)
    distances: NDArray[np.float64] | None = field(default=None, init=False)

    def options(self) -> dict[str, Any]:
        """Return the settings of the grouping: its fields that are numbers, texts or booleans."""
        chosen = {known.name: getattr(self, known.name) for known in fields(self) if known.init}
        return {key: value for key, value in chosen.items() if isinstance(value, (bool, int, float, str))}

    def start(self, session: Session) -> None:
        """Set `session.servers` and `session.assignment` before the first round."""
        session.servers = [session.algorithm.server_init(session.initial) for _ in self.coalitions]
        session.assignment = {name: k for k, members in enumerate(self.coalitions) for name in members}
        session.source_weights = {k: dict(row) for k, row in self.source_weights.items()}
        session.own_from = dict(self.own_from)

    def before(self, number: int, session: Session) -> None:
        """Change the coalitions, if the method does so, before a round's broadcast."""

    def after(self, number: int, session: Session, old: Sequence[State], replies: Replies) -> None:
        """Change the coalitions, if the method does so, after a round's aggregation.

        Parameters
        ----------
        number : int
            The round.
        session : Session
            The training.
        old : sequence of dict
            The servers' states before the aggregation.
        replies : dict
            What the clients sent back.
        """


@dataclass(frozen=True)
class Round:
    """What a round left.

    Parameters
    ----------
    number : int
        The round.
    losses : mapping
        The mean training loss of each client that took part.
    evaluation : Evaluation
        The measures; empty where the round was not evaluated.
    """

    number: int
    losses: Mapping[str, float]
    evaluation: Evaluation


def run_rounds(
    session: Session,
    grouping: Grouping,
    rounds: int,
    *,
    evaluate_every: int | None,
    watch: Callable[[Session, Round], None],
    keep: Callable[[Snapshot], None] | None = None,
    resumed: Snapshot | None = None,
) -> Evaluation:
    """Train all coalitions, round by round.

    Parameters
    ----------
    session : Session
        The training; its `stopping` says where single coalitions end earlier.
    grouping : Grouping
        Who is in which coalition.
    rounds : int
        How many rounds to train at most.
    evaluate_every : int or None
        Rounds between evaluations; None evaluates the last round only.
    watch : callable
        Called with the session and what each round left.
    keep : callable, optional
        Called with a snapshot of each round.
    resumed : Snapshot, optional
        The round to go on from.

    Returns
    -------
    Evaluation
        The last evaluation.
    """
    last, evaluation = False, Evaluation()
    if resumed is None:
        grouping.start(session)
    else:
        _restore(session, grouping, resumed)
    while session.number < rounds and not session.done:
        number = session.number + 1
        grouping.before(number, session)
        losses = _one_round(number, session, grouping)
        session.number = number
        last = number == rounds or session.done
        evaluation = Evaluation()
        if last or (evaluate_every and number % evaluate_every == 0):
            evaluation = session.evaluate(number, keep=last)
        watch(session, Round(number, losses, evaluation))
        if keep is not None:
            keep(_snapshot(session, grouping))
    return evaluation if last else session.evaluate(session.number, keep=True)


def _snapshot(session: Session, grouping: Grouping) -> Snapshot:
    """Return all that a round leaves; values are replaced as training goes on, never changed, so no copy is needed."""
    return Snapshot(
        session.number,
        list(session.servers),
        dict(session.assignment),
        dict(session.stopped),
        session.stopping,
        list(session.failures),
        dict(session.seen),
        grouping.distances,
        {name: kept for name, kept in session.federation.runtime.states().items() if name in session.names},
        secure={} if session.secure is None else session.secure.to_message(),
    )


def _restore(session: Session, grouping: Grouping, snapshot: Snapshot) -> None:
    """Set a session and its grouping to a snapshot."""
    session.number, session.stopping = snapshot.number, snapshot.stopping
    session.servers, session.assignment = list(snapshot.servers), dict(snapshot.assignment)
    session.source_weights = {k: dict(row) for k, row in grouping.source_weights.items()}
    session.own_from = dict(grouping.own_from)
    session.stopped, session.failures = dict(snapshot.stopped), list(snapshot.failures)
    session.seen, grouping.distances = dict(snapshot.seen), snapshot.distances
    session.federation.runtime.restore(snapshot.states)
    if session.secure is not None:
        session.secure.restore(snapshot.secure)


def _one_round(number: int, session: Session, grouping: Grouping) -> dict[str, float]:
    """Run one round: broadcast, local training, aggregation; return the training losses by client."""
    if session.growing is not None:
        return boost_round(number, session)
    chosen = {coalition: session.participants(number, coalition) for coalition in session.active}
    messages = {coalition: session.algorithm.broadcast(session.servers[coalition]) for coalition in chosen}
    layers = session.layers(chosen)
    trained = session.train(number, [{name: messages[k] for name, k in layer.items()} for layer in layers])
    replies: dict[int, Replies] = {coalition: {} for coalition in chosen}
    spoilt: dict[int, dict[str, str]] = {coalition: {} for coalition in chosen}
    for layer, (answered, _, broken) in zip(layers, trained, strict=True):
        for name, coalition in layer.items():
            if name in answered:
                replies[coalition][name] = answered[name]
            elif name in broken:
                spoilt[coalition][name] = broken[name]
    old = list(session.servers)
    for coalition in chosen:
        if spoilt[coalition]:
            bad, what = next(iter(sorted(spoilt[coalition].items())))
            session.stopped[coalition] = reason = (
                f"round {number}: the training loss or the weights of client `{bad}` became NaN or infinite "
                f"({what}); the model of round {number - 1} is kept"
            )
            warnings.warn(f"coalition of `{bad}` stopped in {reason}", FedcollabWarning, stacklevel=4)
        elif replies[coalition]:
            session.servers[coalition] = session.aggregate(
                session.servers[coalition], replies[coalition], number, coalition
            )
    first, losses, _ = trained[0]
    grouping.after(number, session, old, first)
    return losses
