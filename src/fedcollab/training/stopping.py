"""How many rounds to train: chosen for each coalition on training rows that a model has not seen.

For each of K folds of the clients' training rows a model trains in every coalition on the rows outside the fold, all
folds in the same rounds. Before every round each client measures the models on the rows that they have not seen, and
sends one mean loss over all its rows. With l_i(t) that loss at client i after t rounds, m_i its rows, and l(t) the
mean over all clients,

    rounds of coalition S = argmin_t  (sum_{i in S} l_i(t) / |S|) m_S + POOLED l(t),      t = 1 ... ceiling

where both the mean over rounds and the last round's model are measured, and the better one is taken (the mean lags
behind while the loss still falls steeply). A coalition of few rows, whose own curve is mostly noise, follows the
curve of all; a large one follows its own. Then all rows train that long. Test rows are never looked at. With K = 2
the folds cost as much as one training of `ceiling` rounds.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcollab.errors import FedcollabWarning, Paused
from fedcollab.federation import Federation
from fedcollab.progress import Progress
from fedcollab.training import folds_client
from fedcollab.training.checkpoint import Stopping
from fedcollab.training.hooks import State
from fedcollab.training.rounds import Grouping, Replies, Session, arrays_of, seen_key, tensor_of
from fedcollab.wire.message import Message
from fedcollab.wire.runtime import Answered

FOLDS = 2
#: how many rows' worth of evidence the curve of all clients is, beside a coalition's own
POOLED = 500.0
#: the curves are averaged over so many rounds in a row, because single rounds go up and down
WINDOW = 5

Curve = NDArray[np.float64]


def choose_rounds(session: Session, grouping: Grouping, ceiling: int, progress: Progress) -> Stopping:
    """Train models for all folds, and choose the number of rounds of each coalition.

    Parameters
    ----------
    session : Session
        A session of its own, which trains nothing else.
    grouping : Grouping
        Who is in which coalition; the coalitions must be fixed.
    ceiling : int
        The most rounds that may be chosen.
    progress : callable
        Called with (round, ceiling).

    Returns
    -------
    Stopping
        The choice. Clients whose rows cannot be cut into folds have no say; where nobody has, every coalition trains
        up to the ceiling, with a warning if that is because silos refuse.

    Raises
    ------
    Paused
        If too few clients answer.
    """
    (measured,) = train_in_step(session.federation, [fold_rounds(session, grouping, ceiling)], progress)
    kinds = 2 if session.setting.averaging else 1
    curves = {name: table[:, :kinds, 0] for name, table in measured.items()}
    members = [session.members(coalition) for coalition in range(len(session.servers))]
    chosen = pick_rounds(curves, session.quantities, members, ceiling)
    rounds = {coalition: number for coalition, (number, _) in enumerate(chosen)}
    return Stopping(rounds, {coalition: kind == 0 for coalition, (_, kind) in enumerate(chosen)}, curves)


def train_in_step(
    federation: Federation, trainings: Sequence[FoldRounds], progress: Progress, drop: Drop | None = None
) -> list[dict[str, Curve]]:
    """Run several trainings of `fold_rounds` in step: their messages of one round are sent together.

    Parameters
    ----------
    federation : Federation
        The clients.
    trainings : sequence of generators
        What `fold_rounds` returned.
    progress : callable
        Called with (round, ceiling).
    drop : callable, optional
        Called after each round with the round and what each training that still runs has measured, by its position;
        returns the positions of those to end.

    Returns
    -------
    list of dict
        What each training measured.
    """
    results: list[dict[str, Curve]] = [{} for _ in trainings]
    waiting: dict[int, FoldCall] = {}

    def go_on(position: int, answers: list[Answered] | Paused | None) -> None:
        training = trainings[position]
        try:
            if isinstance(answers, Paused):
                waiting[position] = training.throw(answers)
            else:
                waiting[position] = next(training) if answers is None else training.send(answers)
        except StopIteration as end:
            results[position] = end.value

    for position in range(len(trainings)):
        go_on(position, None)
    while waiting:
        now, waiting = waiting, {}
        layers = [(position, messages) for position, call in now.items() for messages in call.layers]
        answered: dict[int, list[Answered]] = {position: [] for position in now}
        try:
            replies = federation.call_several(
                [(folds_client.train_folds, messages) for _, messages in layers], partial=True
            )
        except Paused as error:
            for position in now:
                go_on(position, error)
            continue
        for (position, _), reply in zip(layers, replies, strict=True):
            answered[position].append(reply)
        for position, call in now.items():
            progress(min(call.number, call.ceiling), call.ceiling)
            go_on(position, answered[position])
        if drop is not None and waiting:
            number = next(iter(waiting.values())).number - 1
            for position in drop(number, {each: call.measured for each, call in waiting.items()}):
                results[position] = _as_arrays(waiting.pop(position).measured)
                trainings[position].close()
    return results


@dataclass(frozen=True, eq=False)
class FoldCall:
    """The messages of one round of `fold_rounds`.

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
    """

    number: int
    ceiling: int
    layers: list[dict[str, Message]]
    measured: Mapping[str, list[Curve]]


Drop = Callable[[int, Mapping[int, Mapping[str, list[Curve]]]], Collection[int]]
FoldRounds = Generator[FoldCall, list[Answered], dict[str, Curve]]


def fold_rounds(
    session: Session,
    grouping: Grouping,
    ceiling: int,
    alone: Mapping[str, Sequence[int]] | None = None,
) -> FoldRounds:
    """Train models for all folds, as a generator that yields each round's messages and is sent the answers.

    Parameters
    ----------
    session, grouping, ceiling
        As in `choose_rounds`.
    alone : mapping, optional
        For each client the rounds and the kind of model that it would use alone; what is measured is compared with it
        (see `folds_client.FoldsMessage`).

    Returns
    -------
    dict of arrays
        For each client that was measured: after 0, 1, 2, ... rounds, for each kind of model, what `folds.COLUMNS`
        names.
    """
    grouping.start(session)
    models = {coalition: [server] * FOLDS for coalition, server in enumerate(session.servers)}
    curves: dict[str, list[Curve]] = {name: [] for name in asked(session)}
    if session.secure is not None:  # masks cancel over whole coalitions only: one with a client too small has no say
        models = {label: made for label, made in models.items() if set(session.members(label)) <= set(curves)}
    for number in range(1, ceiling + 2):  # the last message only measures
        training = {k: session.participants(number, k) for k in models}
        present = {k: [name for name in session.sources(k) if name in curves] for k in models}
        layers = []
        for layer, wanted in enumerate(session.layers(present)):
            sent = {}
            for name, coalition in wanted.items():
                if len(curves[name]) != number - 1 or (layer and (number > ceiling or name not in training[coalition])):
                    continue
                trains = name in training[coalition] and number <= ceiling
                sent[name] = _message(session, models[coalition], trains, ceiling < number)
                if layer:
                    sent[name]["measure"] = False
                elif alone is not None and name in alone:
                    sent[name]["alone"] = list(alone[name])
            layers.append(session.completed(folds_client.train_folds, number, sent, layer))
        if not layers[0]:
            break
        try:
            answered = yield FoldCall(number, ceiling, layers, curves)
        except Paused as error:
            if not _refused(session, layers[0]):
                raise
            text = f"{error}: the number of rounds is not chosen, all {ceiling} are trained (`stopping='none'`)"
            warnings.warn(text, FedcollabWarning, stacklevel=4)
            break
        answers = [session.received(number, each) for each in answered]
        for name, answer in answers[0].items():
            if "unfit" in answer:
                del curves[name]
                if session.secure is not None:
                    models.pop(session.assignment[name], None)
            else:
                curves[name].append(answer["held_out"])
        trained: dict[int, dict[str, Message]] = {coalition: {} for coalition in models}
        broken: set[int] = set()
        for layer, replies in enumerate(answers):
            for name, reply in replies.items():
                coalition = session.layers(present)[layer][name]
                if coalition not in models:
                    continue
                if not reply["finite"]:
                    broken.add(coalition)
                elif ("w" in reply or "masked" in reply) and name in curves:
                    trained[coalition][name] = reply
                    session.seen[seen_key(name, layer)] = number
        if session.secure is not None:
            given_up = {session.assignment[name] for name in layers[0]} - set(models) | broken
            updates = {name: reply for replies in trained.values() for name, reply in replies.items()}
            for name, mean in session.secure.means(layers[0], updates, given_up).items():
                trained[session.assignment[name]] = {name: mean}
        for coalition in list(models):
            answering = [name for name in session.members(coalition) if name in answers[0] and name in curves]
            if not answering or coalition in broken:
                del models[coalition]  # it diverged, or nobody answers: what was measured so far decides
            elif trained[coalition]:
                models[coalition] = [
                    session.aggregate(server, _states(trained[coalition], fold), number, coalition)
                    for fold, server in enumerate(models[coalition])
                ]
    return _as_arrays(curves)


def _as_arrays(curves: Mapping[str, list[Curve]]) -> dict[str, Curve]:
    """Return the curves of the clients that were measured after at least one round."""
    return {name: np.array(curve) for name, curve in curves.items() if len(curve) > 1}


def asked(session: Session) -> list[str]:
    """Return the clients whose rows outside every fold are as many as silos ask for at least."""
    least = max(session.federation.runtime.min_samples, 1)
    return [name for name in session.names if session.quantities[name] * (FOLDS - 1) // FOLDS >= least]


def pick_rounds(
    curves: Mapping[str, Curve], quantities: Mapping[str, int], coalitions: Sequence[Sequence[str]], ceiling: int
) -> list[tuple[int, int]]:
    """Return how many rounds each coalition should train, and which kind of model it should use.

    Parameters
    ----------
    curves : mapping of arrays
        The losses of each client that was measured, after 0, 1, 2, ... rounds, with one column for each kind of model;
        some may end earlier than others.
    quantities : mapping of int
        The rows of each client.
    coalitions : sequence of sequences of str
        The coalitions.
    ceiling : int
        What a coalition trains if nobody was measured.

    Returns
    -------
    list of (int, int)
        For each coalition its rounds, and the column of the kind of model with the lowest loss.

    Examples
    --------
    >>> import numpy as np
    >>> t = np.arange(21)[:, None]
    >>> curves = {"a": abs(t - 10), "b": 2 * (20 - t)}
    >>> pick_rounds(curves, {"a": 100_000, "b": 100_000, "c": 5}, [["a"], ["b"], ["c"]], 20)
    [(10, 0), (20, 0), (20, 0)]
    """
    everyone = _mean_curve(curves, curves)
    if everyone is None:
        return [(ceiling, 0) for _ in coalitions]
    chosen = []
    for members in coalitions:
        own = _mean_curve(curves, members)
        if own is None:
            chosen.append(_lowest(everyone))
            continue
        rows = sum(quantities[name] for name in members if name in curves)
        length = min(len(own), len(everyone))
        chosen.append(_lowest(rows * own[:length] + POOLED * everyone[:length]))
    return chosen


def _mean_curve(curves: Mapping[str, Curve], names: Sequence[str] | Mapping[str, Curve]) -> Curve | None:
    """Return the mean curve of those of the clients that were measured to the end, smoothed; None if nobody was.

    A curve counts up to the first loss that is not finite.
    """
    measured = [_finite_part(curves[name]) for name in names if name in curves]
    measured = [curve for curve in measured if len(curve) > 1]
    if not measured:
        return None
    longest = max(map(len, measured))
    mean = np.mean([curve for curve in measured if len(curve) == longest], axis=0)
    half = min(WINDOW, longest) // 2
    near = np.abs(np.subtract.outer(np.arange(longest), np.arange(longest))) <= half
    smoothed: Curve = near @ mean / near.sum(1, keepdims=True)
    return smoothed


def _finite_part(curve: Curve) -> Curve:
    """Return a curve up to the first row that has a value that is not finite."""
    broken = np.flatnonzero(~np.isfinite(curve).all(axis=1))
    return curve[: broken[0]] if len(broken) else curve


def _lowest(curve: Curve) -> tuple[int, int]:
    """Return the first round, from 1 on, with the lowest value, and the column that has it."""
    row, column = np.unravel_index(np.argmin(curve[1:]), curve[1:].shape)
    return 1 + int(row), int(column)


def _refused(session: Session, sent: Mapping[str, Message]) -> bool:
    """Return whether every client that is missing from the last call refused it, so that asking again is of no use."""
    missing = {name: session.federation.absent[name] for name in sent if name in session.federation.absent}
    noted = session.federation.runtime.absences[-len(missing) :] if missing else []
    return bool(noted) and all(each.kind == "refused" for each in noted)


def _message(session: Session, servers: Sequence[State], train: bool, last: bool) -> Message:
    """Return what a client is sent: what the algorithm broadcasts for each fold, stacked."""
    parts = [arrays_of(_broadcast(session, server)) for server in servers]
    stacked = {key: np.stack([part[key] for part in parts]) for key in parts[0]}
    return {**stacked, "folds": len(parts), "train": train, "last": last}


def _broadcast(session: Session, server: State) -> State:
    """Return what the algorithm broadcasts, and the mean over rounds, which is to be measured, if there is one."""
    sent = session.algorithm.broadcast(server)
    return {**sent, "mean": server.get("mean", server["w"])} if session.setting.averaging else sent


def _states(replies: Mapping[str, Message], fold: int) -> Replies:
    """Return the part of the replies that belongs to one fold."""
    return {
        name: {key: tensor_of(value[fold]) for key, value in reply.items() if key not in ("held_out", "finite")}
        for name, reply in replies.items()
    }
