"""The one round loop: every coalition trains, independently, in the same rounds. The server side sees replies alone.

    grouping.before -> broadcast -> local training -> aggregate -> grouping.after -> metrics

Fixed coalitions are the default `Grouping`; the clustered baselines override its hooks and share everything else.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcollab import seeds
from fedcollab.errors import FedcollabWarning
from fedcollab.federation import Federation
from fedcollab.training import client
from fedcollab.training.averaging import blend
from fedcollab.training.checkpoint import Snapshot, Stopping
from fedcollab.training.descend import Setting
from fedcollab.training.hooks import Algorithm, State, average
from fedcollab.training.models import Network
from fedcollab.training.secure_rounds import SecureSums
from fedcollab.wire.action import Action
from fedcollab.wire.message import Message

Replies = dict[str, State]
Measures = dict[str, NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The measures of one evaluation, by client.

    Parameters
    ----------
    measures : dict of arrays
        Those of its coalition's model, in the order of `result.MEASURES`.
    personal : dict of arrays
        Those of its own model, where the algorithm personalises.
    kept : dict of arrays
        The flat weights of its own model, where they were asked for.
    """

    measures: Measures = field(default_factory=dict)
    personal: Measures = field(default_factory=dict)
    kept: dict[str, NDArray[np.float32]] = field(default_factory=dict)


@dataclass(eq=False)
class Session:
    """The state of a training on the server.

    Parameters
    ----------
    federation : Federation
        The clients.
    setting : Setting
        What all clients have in common.
    algorithm : Algorithm
        The algorithm.
    network : Network
        The model, with its initial weights.
    quantities : mapping of int
        Each client's training samples.
    participation : float, default 1.0
        The share of each coalition that takes part in a round.
    training : str
        What tells this training from others, so that no client goes on from another's state.
    secure : SecureSums, optional
        Under secure aggregation, what adds up the masked replies of each coalition.
    servers : list of dict
        Each coalition's state on the server.
    assignment : dict
        Each client's coalition, a position in `servers`.
    stopped : dict
        Coalitions whose training broke off, and why.
    stopping : Stopping
        How long each coalition trains, and which of its models it uses.
    number : int
        The last round that has ended.
    failures : list of (round, client, why)
        Every time that a client did not answer.
    seen : dict
        The last round that counts for each client that took part: its state then is what it goes on from.
    """

    federation: Federation
    setting: Setting
    algorithm: Algorithm
    network: Network
    quantities: Mapping[str, int]
    participation: float = 1.0
    training: str = ""
    secure: SecureSums | None = None
    servers: list[State] = field(default_factory=list)
    assignment: dict[str, int] = field(default_factory=dict)
    stopped: dict[int, str] = field(default_factory=dict)
    stopping: Stopping = field(default_factory=Stopping)
    number: int = 0
    failures: list[tuple[int, str, str]] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.initial = self.network.initial()
        self._text = json.dumps(asdict(self.setting))

    def initials(self, count: int, stage: str) -> list[Tensor]:
        """Return `count` vectors of initial weights from different seeds; all other methods start from the first."""
        drawn = (seeds.derive(self.setting.seed, stage, k) for k in range(1, count))
        return [self.initial, *(Network(self.network.text, seed=seed).initial() for seed in drawn)]

    @property
    def names(self) -> tuple[str, ...]:
        """The clients, in order of name."""
        return self.federation.names

    @property
    def active(self) -> list[int]:
        """Coalitions that have clients and still train."""
        ended = {coalition for coalition, rounds in self.stopping.rounds.items() if rounds <= self.number}
        return sorted(set(self.assignment.values()) - set(self.stopped) - ended)

    @property
    def done(self) -> bool:
        """Whether every coalition has ended its training or broken it off."""
        return not self.active

    @property
    def personalises(self) -> bool:
        """Whether each client has a model of its own."""
        return self.algorithm.personalises or bool(self.setting.keep)

    def members(self, coalition: int) -> list[str]:
        """Return the clients of a coalition, in order of name."""
        return [name for name in self.names if self.assignment[name] == coalition]

    def shares(self, names: Sequence[str]) -> list[float]:
        """Return the share of each of these clients in their samples, which sum to 1."""
        total = sum(self.quantities[name] for name in names)
        return [self.quantities[name] / total for name in names]

    def uses_mean(self, coalition: int) -> bool:
        """Return whether a coalition uses the mean over rounds rather than the last round's model."""
        return "mean" in self.servers[coalition] and self.stopping.means.get(coalition, True)

    def model(self, coalition: int) -> Tensor:
        """Return the weights that a coalition uses."""
        return self.servers[coalition]["mean" if self.uses_mean(coalition) else "w"]

    def weights(self) -> Tensor:
        """Return the model of every coalition, [coalitions, P]."""
        return torch.stack([server["w"] for server in self.servers])

    def train(self, number: int, sent: Mapping[str, State]) -> Trained:
        """Train clients locally.

        Parameters
        ----------
        number : int
            The round.
        sent : mapping
            What each client that takes part is sent.

        Raises
        ------
        Paused
            If too few clients answer.
        """
        messages = self.complete(number, {name: arrays_of(state) for name, state in sent.items()}, masked=True)
        answers = self.send(client.train, number, messages)
        spoilt = {name: answer["diverged"] for name, answer in answers.items() if not answer["finite"]}
        good = {name: answer for name, answer in answers.items() if name not in spoilt}
        self.seen |= dict.fromkeys(good, number)
        losses = {name: float(answer["loss"][0]) for name, answer in good.items()}
        return Trained(messages, good, losses, spoilt)

    def combine(
        self, sent: Mapping[str, Message], answers: Mapping[str, Message], failed: Sequence[int] = ()
    ) -> dict[int, Combined]:
        """Return for each coalition what `aggregate` takes: its clients' replies and what each weighs.

        Under secure aggregation it is the weighted mean of the replies alone.

        Parameters
        ----------
        sent : mapping
            The whole message that each client was sent.
        answers : mapping
            The answer of each client that has an update.
        failed : sequence of int
            Coalitions whose round is given up, because an update of theirs is not finite.

        Raises
        ------
        Paused
            If, under secure aggregation, too few members of a coalition answer.
        """
        if self.secure is not None:
            means = self.secure.means(sent, answers, failed)
            return {coalition: Combined([mean], [1.0]) for coalition, mean in means.items()}
        combined = {}
        for coalition in sorted({self.assignment[name] for name in answers} - set(failed)):
            names = [name for name in self.members(coalition) if name in answers]
            combined[coalition] = Combined([reply_of(answers[name]) for name in names], self.shares(names))
        return combined

    def evaluate(self, number: int, *, keep: bool = False) -> Evaluation:
        """Test every client's coalition's model and, where the algorithm personalises, its own.

        Parameters
        ----------
        number : int
            The round.
        keep : bool, default False
            Ask for the weights of the personal models too. Where models stay with the clients, each client keeps the
            model that it would use instead.
        """
        stays = self.federation.runtime.models_stay
        extra = {"personal": self.personalises, "keep": keep and not stays, "stay": keep and stays}
        sent = {}
        for name in self.names:
            coalition = self.assignment[name]
            model = {**self.algorithm.broadcast(self.servers[coalition]), "w": self.model(coalition)}
            sent[name] = {**arrays_of(model), **extra, "mean": self.uses_mean(coalition)}
        answers = self.call(client.evaluate, number, sent)
        measures = {name: answer["measures"] for name, answer in answers.items()}
        own = {name: a["personal_measures"] for name, a in answers.items() if "personal_measures" in a}
        return Evaluation(measures, own, {name: a["personal"] for name, a in answers.items() if "personal" in a})

    def losses(self, number: int) -> dict[str, NDArray[np.float64]]:
        """Return every client's training loss under every coalition's model."""
        models = self.weights().numpy()
        answers = self.call(client.losses, number, {name: {"models": models} for name in self.names})
        return {name: answer["losses"] for name, answer in answers.items()}

    def aggregate(self, server: State, combined: Combined, number: int) -> State:
        """Return a coalition's next state, from its state and the replies of its clients, after a round."""
        before, replies, shares = server.get("mean"), combined.replies, combined.weights
        server = self.algorithm.aggregate(server, replies, shares)
        if self.network.buffers:  # batch-norm statistics are averages, whatever the algorithm does to weights
            first = self.network.parameters
            mean = average([reply["w"][first:] for reply in replies], shares)
            server = {**server, "w": torch.cat([server["w"][:first], mean])}
        averaging = self.setting.averaging
        return {**server, "mean": blend(before, server["w"], number, averaging)} if averaging else server

    def forget(self) -> None:
        """Make every client start with a new state when it next takes part."""
        self.seen.clear()

    def participants(self, number: int, coalition: int) -> list[str]:
        """Return who takes part: a share of the coalition, at least one, drawn from (seed, round, client name)."""
        members = self.members(coalition)
        count = max(1, round(self.participation * len(members)))
        drawn = sorted(members, key=lambda name: seeds.derive(self.setting.seed, "participation", number, name))
        return sorted(drawn[:count])

    def call(self, action: Action, number: int, messages: Mapping[str, Message]) -> dict[str, Message]:
        """Call clients; one that fails or does not answer is recorded in `failures` and missing from the result.

        Parameters
        ----------
        action : Action
            What to do.
        number : int
            The round.
        messages : mapping
            What each client is sent, beside the setting, the round and with whom it trains.
        """
        return self.send(action, number, self.complete(number, messages, named=action is not client.losses))

    def complete(
        self, number: int, messages: Mapping[str, Message], *, named: bool = True, masked: bool = False
    ) -> dict[str, Message]:
        """Return messages with the setting, the round and what else each client needs to know.

        Parameters
        ----------
        number : int
            The round.
        messages : mapping
            What each client is sent beside that.
        named : bool, default True
            Say with whom the client trains.
        masked : bool, default False
            Ask for masks, if the training is under secure aggregation.
        """
        common = {"setting": self._text, "round": number, "training": self.training}
        since = {name: {"since": self.seen[name]} if name in self.seen else {} for name in messages}
        with_whom = {name: {"coalition": self._partners(name)} if named else {} for name in messages}
        secure = {} if self.secure is None or not masked else self.secure.fields(list(messages))
        return {
            name: {**common, **since[name], **with_whom[name], **secure.get(name, {}), **message}
            for name, message in messages.items()
        }

    def send(self, action: Action, number: int, messages: Mapping[str, Message]) -> dict[str, Message]:
        """Call clients with complete messages; the rest is as in `call`."""
        answers = self.federation.call(action, messages, partial=True)
        for name, reason in self.federation.absent.items():
            self._note(number, name, reason)
        return answers

    def _partners(self, name: str) -> list[str]:
        """Return who is in a client's coalition, itself included; before there are coalitions, the client alone."""
        return self.members(self.assignment[name]) if self.assignment else [name]

    def _note(self, number: int, name: str, reason: str) -> None:
        """Record that a client failed; warn the first time."""
        if all(name != known for _, known, _ in self.failures):
            text = f"round {number}: client `{name}` failed ({reason}); its coalition goes on without it"
            warnings.warn(text, FedcollabWarning, stacklevel=2)
        self.failures.append((number, name, reason))


@dataclass(eq=False)
class Grouping:
    """Who is in which coalition: fixed, as given. Clustered baselines override the hooks.

    Parameters
    ----------
    coalitions : sequence of sequences of str
        The coalitions.

    Attributes
    ----------
    method : str
        The name of the method.
    distances : array, optional
        N x N between clients in order of name, where the method has such a thing.
    """

    method: ClassVar[str] = "fixed"
    coalitions: Sequence[Sequence[str]] = ()
    distances: NDArray[np.float64] | None = field(default=None, init=False)

    def options(self) -> dict[str, Any]:
        """Return the settings of the grouping: its fields that are numbers, texts or booleans."""
        chosen = {known.name: getattr(self, known.name) for known in fields(self) if known.init}
        return {key: value for key, value in chosen.items() if isinstance(value, (bool, int, float, str))}

    def start(self, session: Session) -> None:
        """Set `session.servers` and `session.assignment` before the first round."""
        session.servers = [session.algorithm.server_init(session.initial) for _ in self.coalitions]
        session.assignment = {name: k for k, members in enumerate(self.coalitions) for name in members}

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


@dataclass(frozen=True, eq=False)
class Combined:
    """What a coalition's replies come to: single ones with their weights, or their mean alone with weight 1."""

    replies: Sequence[State]
    weights: Sequence[float]


@dataclass(frozen=True, eq=False)
class Trained:
    """What local training left.

    Parameters
    ----------
    sent : dict
        The whole message that each client was sent.
    answers : dict
        The answer of each client that has an update.
    losses : dict
        The mean training loss of each client.
    spoilt : dict
        What diverged at clients whose weights or loss are not finite.
    """

    sent: dict[str, Message]
    answers: dict[str, Message]
    losses: dict[str, float]
    spoilt: dict[str, str]

    @property
    def replies(self) -> Replies:
        """The update of each client, as tensors."""
        return {name: reply_of(answer) for name, answer in self.answers.items()}


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
    session.stopped, session.failures = dict(snapshot.stopped), list(snapshot.failures)
    session.seen, grouping.distances = dict(snapshot.seen), snapshot.distances
    session.federation.runtime.restore(snapshot.states)
    if session.secure is not None:
        session.secure.restore(snapshot.secure)


def _one_round(number: int, session: Session, grouping: Grouping) -> dict[str, float]:
    """Run one round: broadcast, local training, aggregation; return the training losses by client."""
    chosen = {coalition: session.participants(number, coalition) for coalition in session.active}
    messages = {coalition: session.algorithm.broadcast(session.servers[coalition]) for coalition in chosen}
    sent = {name: messages[coalition] for coalition, names in chosen.items() for name in names}
    trained = session.train(number, sent)
    combined = session.combine(trained.sent, trained.answers, [session.assignment[name] for name in trained.spoilt])
    old = list(session.servers)
    for coalition, names in chosen.items():
        bad = [name for name in names if name in trained.spoilt]
        if bad:
            session.stopped[coalition] = reason = (
                f"round {number}: the training loss or the weights of client `{bad[0]}` became NaN or infinite "
                f"({trained.spoilt[bad[0]]}); the model of round {number - 1} is kept"
            )
            warnings.warn(f"coalition of `{bad[0]}` stopped in {reason}", FedcollabWarning, stacklevel=4)
        elif coalition in combined:
            session.servers[coalition] = session.aggregate(session.servers[coalition], combined[coalition], number)
    grouping.after(number, session, old, {} if session.secure is not None else trained.replies)
    return trained.losses


def arrays_of(state: State) -> Message:
    """Return tensors as NumPy arrays, for a message."""
    return {key: value.numpy() for key, value in state.items()}


def reply_of(answer: Message) -> State:
    """Return the arrays of an answer that are part of an update, as tensors."""
    measured = ("loss", "held_out")
    arrays = {key: value for key, value in answer.items() if isinstance(value, np.ndarray) and key not in measured}
    return {key: tensor_of(value) for key, value in arrays.items()}


def tensor_of(value: NDArray[Any]) -> Tensor:
    """Return an array as a tensor, copied if it is read-only."""
    return torch.from_numpy(value if value.flags.writeable else value.copy())
