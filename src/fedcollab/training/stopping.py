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

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedcollab.errors import Paused
from fedcollab.federation import Federation
from fedcollab.progress import Progress
from fedcollab.training import folds_client
from fedcollab.training.arrays import arrays_of, tensor_of
from fedcollab.training.checkpoint import Stopping
from fedcollab.training.fold_calls import FOLDS, FoldCall, FoldRounds, as_arrays, asked, stop_if_refused
from fedcollab.training.hooks import State
from fedcollab.training.rounds import Grouping
from fedcollab.training.session import Replies, Session, seen_key
from fedcollab.training.trees.boosting import boost_folds
from fedcollab.wire.calls import Answered
from fedcollab.wire.message import Message

#: how many rows' worth of evidence the curve of all clients is, beside a coalition's own
POOLED = 500.0
#: the curves are averaged over so many rounds in a row, because single rounds go up and down
WINDOW = 5

Curve = NDArray[np.float64]
Drop = Callable[[int, Mapping[int, Mapping[str, list[Curve]]]], Collection[int]]


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
    """
    results: list[dict[str, Curve]] = [{} for _ in trainings]
    waiting: dict[int, FoldCall] = {}
    looked_at = 0

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
                [(now[position].action, messages) for position, messages in layers], partial=True
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
        number = next((call.number for call in waiting.values()), 0) - 1
        if drop is not None and number > looked_at:
            looked_at = number
            for position in drop(number, {each: call.measured for each, call in waiting.items()}):
                results[position] = as_arrays(waiting.pop(position).measured)
                trainings[position].close()
    return results


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
    if session.growing is not None:
        return (yield from boost_folds(session, grouping, ceiling, alone))
    grouping.start(session)
    folds = _Folds(session, ceiling, alone or {})
    for number in range(1, ceiling + 2):  # the last message only measures
        layers = folds.messages(number)
        if not layers[0]:
            break
        try:
            answered = yield FoldCall(number, ceiling, layers, folds.curves, folds_client.train_folds)
        except Paused as error:
            stop_if_refused(session, layers[0], error, ceiling)
            break
        folds.take(number, layers[0], [session.received(number, each) for each in answered])
    return as_arrays(folds.curves)


@dataclass(eq=False)
class _Folds:
    """The models of all folds, of the coalitions that still train them, and what was measured so far.

    Parameters
    ----------
    session : Session
        The training.
    ceiling : int
        The last round that trains.
    alone : mapping
        As in `fold_rounds`.
    """

    session: Session
    ceiling: int
    alone: Mapping[str, Sequence[int]]
    models: dict[int, list[State]] = field(init=False)
    curves: dict[str, list[Curve]] = field(init=False)
    whose: list[dict[str, int]] = field(init=False, default_factory=list)  # for which coalition each client trains

    def __post_init__(self) -> None:
        self.models = {coalition: [server] * FOLDS for coalition, server in enumerate(self.session.servers)}
        self.curves = {name: [] for name in asked(self.session)}
        if (
            self.session.secure is not None
        ):  # masks cancel over whole coalitions only: one with a client too small is out
            members = {coalition: set(self.session.members(coalition)) for coalition in self.models}
            self.models = {
                coalition: each for coalition, each in self.models.items() if members[coalition] <= set(self.curves)
            }

    def messages(self, number: int) -> list[dict[str, Message]]:
        """Return the messages of a round, for each layer (see `Session.layers`)."""
        training = {k: self.session.participants(number, k) if number <= self.ceiling else [] for k in self.models}
        present = {k: [name for name in self.session.sources(k) if name in self.curves] for k in self.models}
        self.whose = self.session.layers(present)
        layers = []
        for layer, wanted in enumerate(self.whose):
            sent = {}
            for name, coalition in wanted.items():
                trains = name in training[coalition]
                if len(self.curves[name]) == number - 1 and (trains or not layer):
                    sent[name] = self._message(name, coalition, number, layer, trains)
            layers.append(self.session.completed(folds_client.train_folds, number, sent, layer))
        return layers

    def _message(self, name: str, coalition: int, number: int, layer: int, trains: bool) -> Message:
        """Return what one client is sent: what the algorithm broadcasts for each fold, stacked."""
        parts = [arrays_of(_broadcast(self.session, server)) for server in self.models[coalition]]
        message: Message = {key: np.stack([part[key] for part in parts]) for key in parts[0]}
        message |= {"folds": len(parts), "train": trains, "last": number > self.ceiling}
        if layer:
            message["measure"] = False
        elif name in self.alone:
            message["alone"] = list(self.alone[name])
        return message

    def take(self, number: int, sent: Mapping[str, Message], answers: Sequence[Mapping[str, Message]]) -> None:
        """Keep what the clients measured, and go on with the models that they trained.

        Parameters
        ----------
        number : int
            The round.
        sent : mapping
            The messages of the first layer.
        answers : sequence of mappings
            The replies of each layer.
        """
        for name, answer in answers[0].items():
            if "unfit" not in answer:
                self.curves[name].append(answer["held_out"])
                continue
            del self.curves[name]
            if self.session.secure is not None:
                self.models.pop(self.session.assignment[name], None)
        trained, broken = self._trained(number, answers)
        if self.session.secure is not None:
            given_up = {self.session.assignment[name] for name in sent} - set(self.models) | broken
            updates = {name: reply for replies in trained.values() for name, reply in replies.items()}
            for name, mean in self.session.secure.means(sent, updates, given_up).items():
                trained[self.session.assignment[name]] = {name: mean}
        for coalition in list(self.models):
            answering = [name for name in self.session.members(coalition) if name in answers[0] and name in self.curves]
            if not answering or coalition in broken:
                del self.models[coalition]  # it diverged, or nobody answers: what was measured so far decides
            elif trained[coalition]:
                self.models[coalition] = [
                    self.session.aggregate(server, _states(trained[coalition], fold), number, coalition)
                    for fold, server in enumerate(self.models[coalition])
                ]

    def _trained(
        self, number: int, answers: Sequence[Mapping[str, Message]]
    ) -> tuple[dict[int, dict[str, Message]], set[int]]:
        """Return the replies with trained models of each coalition, and the coalitions whose training diverged."""
        trained: dict[int, dict[str, Message]] = {coalition: {} for coalition in self.models}
        broken: set[int] = set()
        for layer, replies in enumerate(answers):
            for name, reply in replies.items():
                coalition = self.whose[layer][name]
                if coalition not in self.models:
                    continue
                if not reply["finite"]:
                    broken.add(coalition)
                elif ("w" in reply or "masked" in reply) and name in self.curves:
                    trained[coalition][name] = reply
                    self.session.seen[seen_key(name, layer)] = number
        return trained, broken


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
