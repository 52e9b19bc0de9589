"""The server's side of trees: from the clients' histograms to a coalition's trees, round by round and level by level.

All coalitions grow in the same calls. A round takes one call for each level of its trees; before the first round one
more gives the base score. The thresholds are agreed on once for all clients (`cuts`), whoever trains with whom.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from fedcollab.errors import FedcollabWarning, Paused
from fedcollab.federation import Federation
from fedcollab.training.fold_calls import FOLDS, FoldCall, FoldRounds, as_arrays, asked, stop_if_refused
from fedcollab.training.trees.client import count_rows, train_trees, train_trees_folds
from fedcollab.training.trees.cuts import Cuts, agree
from fedcollab.training.trees.forest import Forest, Growing
from fedcollab.training.trees.growth import grow_level, open_nodes, set_base
from fedcollab.training.trees.pooled import can_pool, pooled_sums
from fedcollab.wire.absence import reasons
from fedcollab.wire.message import Message

if TYPE_CHECKING:
    from fedcollab.training.rounds import Grouping
    from fedcollab.training.session import Session

Weights = NDArray[np.float32]
#: of each coalition the weights of its model, or of one for each fold
Models = Mapping[int, Sequence[Weights]]
Sums = NDArray[np.float64]

#: a client may count so many times the rows that it said it has, and so many more: a silo that rounds adds errors
MORE, BESIDES = 2, 100

_cuts: WeakKeyDictionary[Federation, dict[int, Cuts]] = WeakKeyDictionary()


def agreed_cuts(session: Session) -> Cuts:
    """Return the thresholds of all clients, asked for once.

    Parameters
    ----------
    session : Session
        A training of trees.
    """
    federation, how = session.federation, _how(session)
    known = _cuts.setdefault(federation, {})
    if how.max_bin not in known:

        def count(edges: Cuts) -> NDArray[np.int64]:
            message = {"setting": session.text, "round": 0, "cuts": edges.values, "ends": edges.ends}
            replies = federation.call_all(count_rows, message, partial=True)
            counted = {name: reply["counts"] for name, reply in replies.items()}
            if federation.runtime.checks:
                counted = _plausible(counted, edges, federation.quantities)
            counts: NDArray[np.int64] = np.sum([*counted.values()], axis=0)
            return counts

        known[how.max_bin] = agree(count, how.features, how.max_bin)
    return known[how.max_bin]


def _plausible(
    counted: Mapping[str, NDArray[np.int64]], edges: Cuts, quantities: Mapping[str, int]
) -> dict[str, NDArray[np.int64]]:
    """Return the counts of clients that count about as many rows as they said they have; name the others.

    Thresholds are made of all counts: by more rows than it has, a client would draw everybody's thresholds to its own.

    Parameters
    ----------
    counted : mapping
        The counts in each cell, by client.
    edges : Cuts
        The edges between the cells.
    quantities : mapping
        The training samples of each client.

    Raises
    ------
    Paused
        If nobody's counts can be.
    """
    doubts = dict[str, str]()
    for name, counts in counted.items():
        most = MORE * quantities[name] + BESIDES
        rows = np.add.reduceat(counts.astype(np.float64), edges.offsets[:-1])
        if (rows > most).any():
            doubts[name] = f"`counts` are of {rows.max():.6g} rows; the client said {quantities[name]}"
    if len(doubts) == len(counted):
        raise Paused(f"nobody's rows can be counted: {reasons(doubts)}")
    if doubts:
        warnings.warn(f"thresholds are made without the rows of {reasons(doubts)}", FedcollabWarning, stacklevel=4)
    return {name: counts for name, counts in counted.items() if name not in doubts}


def _how(session: Session) -> Growing:
    """Return how a session's trees are grown."""
    assert session.growing is not None
    return session.growing


def thresholds(session: Session) -> Message:
    """Return the agreed thresholds as a message has them; nothing where the model has no trees."""
    if session.growing is None:
        return {}
    cuts = agreed_cuts(session)
    return {"cuts": cuts.values, "ends": cuts.ends}


def boost_round(number: int, session: Session) -> dict[str, float]:
    """Grow one round's trees in every coalition that still trains.

    Parameters
    ----------
    number : int
        The round.
    session : Session
        The training; its servers' weights are replaced.

    Returns
    -------
    dict
        The training loss before the round of each client that took part.
    """
    cuts, how, losses = agreed_cuts(session), _how(session), dict[str, float]()
    chosen = {coalition: session.participants(number, coalition) for coalition in session.active}
    models = {coalition: [session.servers[coalition]["w"].numpy().copy()] for coalition in chosen}
    pooled = can_pool(session, chosen)
    base = [(0, 0)] if number == 1 else []  # asked for before the first round
    for step, level in [*base, *((number, level) for level in range(how.shape.depth))]:
        wanted = _wanted(models, step, level, cuts, how)
        if not wanted:
            break
        sums, measured = pooled_sums(session, wanted) if pooled else _asked(session, chosen, wanted)
        _grow(models, step, level, sums, cuts, how, session.setting.lr)
        losses |= measured if step else {}
    for coalition, (w,) in models.items():
        session.servers[coalition] = {**session.servers[coalition], "w": torch.from_numpy(w)}
    return losses


def _asked(
    session: Session, chosen: Mapping[int, Sequence[str]], wanted: Mapping[int, Message]
) -> tuple[dict[int, list[Sums]], dict[str, float]]:
    """Return the sums of the clients of each coalition that answer, and their losses; arguments as in `pooled`."""
    sent = {name: wanted[k] for k, names in chosen.items() if k in wanted for name in names}
    answers = session.call(train_trees, next(iter(wanted.values()))["round"], sent) if sent else {}
    losses = {name: float(answer["loss"][0]) for name, answer in answers.items() if "loss" in answer}
    return {k: [answers[name]["sums"] for name in chosen[k] if name in answers] for k in wanted}, losses


def _wanted(models: Models, number: int, level: int, cuts: Cuts, how: Growing) -> dict[int, Message]:
    """Return what the clients of each coalition are asked: the sums of a level's open nodes, where it has any.

    Parameters
    ----------
    models : mapping
        The flat weights of each coalition's models.
    number : int
        The round; 0 asks for the sums that base scores follow from.
    level : int
        The level.
    cuts : Cuts
        The thresholds.
    how : Growing
        How trees are grown.
    """
    return {
        k: {"w": np.stack(each), "round": number, "level": level, "cuts": cuts.values, "ends": cuts.ends}
        for k, each in models.items()
        if sum(_open(each, number, level, how))
    }


def _open(models: Sequence[Weights], number: int, level: int, how: Growing) -> list[int]:
    """Return how many nodes of a level each model has open; arguments as in `_wanted`."""
    return [len(open_nodes(Forest.of(w, how.shape), max(0, number - 1), level)) for w in models]


def _grow(
    models: Models, number: int, level: int, sums: Mapping[int, Sequence[Sums]], cuts: Cuts, how: Growing, eta: float
) -> None:
    """Grow one level of each coalition's models, or set their base scores (round 0), in place.

    Parameters
    ----------
    models, number, level, cuts, how
        As in `_wanted`.
    sums : mapping
        What the clients of each coalition answered; a coalition of which none did stays as it is.
    eta : float
        The step size.
    """
    for coalition, replies in sums.items():
        if not replies:
            continue
        each = models[coalition]
        parts = np.split(_total(replies), np.cumsum(_open(each, number, level, how))[:-1])
        for w, part in zip(each, parts, strict=True):
            forest = Forest.of(w, how.shape)
            if number:
                grow_level(forest, number - 1, level, part, cuts, how, eta)
            else:
                set_base(forest, part, cuts, how.shape.classes)


def _total(sums: Sequence[Sums]) -> Sums:
    """Return the sum over clients, in order of name."""
    total = sums[0].copy()
    for part in sums[1:]:
        total += part
    return total


def boost_folds(
    session: Session, grouping: Grouping, ceiling: int, alone: Mapping[str, Sequence[int]] | None = None
) -> FoldRounds:
    """Grow trees for all folds, as a generator that yields each call's messages and is sent the answers.

    Parameters
    ----------
    session, grouping, ceiling, alone
        As in `stopping.fold_rounds`.

    Returns
    -------
    dict of arrays
        As in `stopping.fold_rounds`, of one kind of model.
    """
    grouping.start(session)
    how, cuts = _how(session), agreed_cuts(session)
    models = {k: [server["w"].numpy().copy() for _ in range(FOLDS)] for k, server in enumerate(session.servers)}
    curves: dict[str, list[Any]] = {name: [] for name in asked(session)}
    for number in range(ceiling + 2):  # round 0 gives base scores, the last message only measures
        grows = 0 < number <= ceiling
        for level in range(how.shape.depth if grows else 1):
            wanted = _wanted(models, number, level, cuts, how)
            if not wanted:
                break
            sent = _fold_messages(session, wanted, curves, ceiling, alone or {})
            if not sent:
                return as_arrays(curves)
            layers = [session.completed(train_trees_folds, number, sent)]
            try:
                (answer,) = yield FoldCall(number, ceiling, layers, curves, train_trees_folds)
            except Paused as error:
                stop_if_refused(session, sent, error, ceiling)
                return as_arrays(curves)
            replies = session.received(number, answer)
            _note_measures(curves, replies)
            if number <= ceiling:
                summed = {name: reply["sums"] for name, reply in replies.items() if "sums" in reply}
                sums = {k: [summed[name] for name in session.members(k) if name in summed] for k in wanted}
                _grow(models, number, level, sums, cuts, how, session.setting.lr)
        measured = {session.assignment[name] for name, curve in curves.items() if len(curve) == number}
        models = {coalition: each for coalition, each in models.items() if coalition in measured}
        if not models:
            break
    return as_arrays(curves)


def _fold_messages(
    session: Session,
    wanted: Mapping[int, Message],
    curves: Mapping[str, Sequence[Any]],
    ceiling: int,
    alone: Mapping[str, Sequence[int]],
) -> dict[str, Message]:
    """Return what each client is sent: it sums where it takes part in the round, and measures before the first level.

    Parameters
    ----------
    session : Session
        The training.
    wanted : mapping
        What the clients of each coalition are asked.
    curves : mapping
        What each client has measured; one that lacks a round is not asked any more.
    ceiling, alone
        As in `stopping.fold_rounds`.
    """
    sent: dict[str, Message] = {}
    for coalition, fields in wanted.items():
        number, level = fields["round"], fields["level"]
        members = session.members(coalition)
        training = () if number > ceiling else session.participants(number, coalition) if number else members
        measure = number > 0 and not level
        for name in members:
            known = name in curves and len(curves[name]) == number - measure
            if known and (name in training or measure):
                sent[name] = {**fields, "folds": FOLDS, "train": name in training, "measure": measure}
                sent[name] |= {"alone": list(alone[name])} if name in alone else {}
    return sent


def _note_measures(curves: dict[str, list[Any]], replies: Mapping[str, Message]) -> None:
    """Add what clients measured to their curves; those whose folds are no use have none any more."""
    for name, reply in replies.items():
        if "unfit" in reply:
            del curves[name]
        elif "held_out" in reply:
            curves[name].append(reply["held_out"])
