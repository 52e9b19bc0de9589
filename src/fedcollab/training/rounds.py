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
from fedcollab.wire.runtime import Answered

#: the actions whose replies are updates, unless their message says that nothing is trained
UPDATES = ("train", "train-folds")

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
    source_weights : dict
        What each client weighs in a coalition's model, for coalitions that learn from clients outside of them too
        (own weights); any other coalition learns from its members, who weigh by their samples.
    stopped : dict
        Coalitions whose training broke off, and why.
    stopping : Stopping
        How long each coalition trains, and which of its models it uses.
    number : int
        The last round that has ended.
    failures : list of (round, client, why)
        Every time that a client did not answer.
    seen : dict
        The last round that counts for each client that took part (and layer, see `layers`): its state then is what it
        goes on from.
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
    source_weights: dict[int, dict[str, float]] = field(default_factory=dict)
    stopped: dict[int, str] = field(default_factory=dict)
    stopping: Stopping = field(default_factory=Stopping)
    number: int = 0
    failures: list[tuple[int, str, str]] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.initial = self.network.initial()
        self.text = json.dumps(asdict(self.setting))

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

    def sources(self, coalition: int) -> list[str]:
        """Return the clients that a coalition's model learns from, in order of name: its members, unless weights say.

        A client with the weight 0 is none of them.
        """
        if coalition not in self.source_weights:
            return self.members(coalition)
        return [name for name in self.names if self.source_weights[coalition].get(name, 0.0) > 0]

    def shares(self, names: Sequence[str], coalition: int) -> list[float]:
        """Return what each of these clients weighs in a coalition's model; the weights sum to 1."""
        weights = self.source_weights.get(coalition, self.quantities)
        total = sum(weights[name] for name in names)
        return [weights[name] / total for name in names]

    def layers(self, coalitions: Mapping[int, Sequence[str]]) -> list[dict[str, int]]:
        """Return who trains for which coalition, in layers such that a client trains one model in each.

        Layer 0 holds every client's own coalition; there are others only where coalitions learn from clients outside of
        them. The layers of a client are the same in every round.

        Parameters
        ----------
        coalitions : mapping
            The clients that train for each coalition in this round.
        """
        wanted: dict[str, list[int]] = {}
        for name in self.names:
            own = self.assignment[name]
            wanted[name] = [own, *(k for k in sorted(self.source_weights) if k != own and name in self.sources(k))]
        layers = [
            {name: order[layer] for name, order in wanted.items() if layer < len(order)}
            for layer in range(max(map(len, wanted.values())))
        ]
        return [{name: k for name, k in layer.items() if name in coalitions.get(k, ())} for layer in layers]

    def uses_mean(self, coalition: int) -> bool:
        """Return whether a coalition uses the mean over rounds rather than the last round's model."""
        return "mean" in self.servers[coalition] and self.stopping.means.get(coalition, True)

    def model(self, coalition: int) -> Tensor:
        """Return the weights that a coalition uses."""
        return self.servers[coalition]["mean" if self.uses_mean(coalition) else "w"]

    def weights(self) -> Tensor:
        """Return the model of every coalition, [coalitions, P]."""
        return torch.stack([server["w"] for server in self.servers])

    def train(
        self, number: int, sent: Sequence[Mapping[str, State]]
    ) -> list[tuple[Replies, dict[str, float], dict[str, str]]]:
        """Train clients locally.

        Parameters
        ----------
        number : int
            The round.
        sent : sequence of mappings
            What each client that takes part is sent, for each layer.

        Returns
        -------
        list of tuples
            For each layer: replies and losses by client, and for clients whose weights or loss are not finite what
            diverged. Under secure aggregation each coalition has one reply, the mean of its members'.
        """
        messages = [{name: arrays_of(state) for name, state in layer.items()} for layer in sent]
        complete = [self.completed(client.train, number, each, layer) for layer, each in enumerate(messages)]
        answers = self._send(client.train, number, complete)
        return [self._trained(number, layer, complete[layer], answered) for layer, answered in enumerate(answers)]

    def _trained(
        self, number: int, layer: int, sent: Mapping[str, Message], answers: Mapping[str, Message]
    ) -> tuple[Replies, dict[str, float], dict[str, str]]:
        """Return replies, losses and what diverged, of the clients that answered in one layer."""
        spoilt = {name: answer["diverged"] for name, answer in answers.items() if not answer["finite"]}
        good = {name: answer for name, answer in answers.items() if name not in spoilt}
        self.seen |= {seen_key(name, layer): number for name in good}
        losses = {name: float(answer["loss"][0]) for name, answer in good.items()}
        if self.secure is not None:
            good = self.secure.means(sent, good, {self.assignment[name] for name in spoilt})
        plain = ("loss", "finite")
        replies = {
            name: {key: tensor_of(value) for key, value in answer.items() if key not in plain}
            for name, answer in good.items()
        }
        return replies, losses, spoilt

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

    def aggregate(self, server: State, replies: Replies, number: int, coalition: int) -> State:
        """Return a coalition's next state, from its state and the replies of its clients, after a round."""
        before = server.get("mean")
        names = sorted(replies)
        shares = self.shares(names, coalition)
        server = self.algorithm.aggregate(server, [replies[name] for name in names], shares)
        if self.network.buffers:  # batch-norm statistics are averages, whatever the algorithm does to weights
            first = self.network.parameters
            mean = average([replies[name]["w"][first:] for name in names], shares)
            server = {**server, "w": torch.cat([server["w"][:first], mean])}
        averaging = self.setting.averaging
        return {**server, "mean": blend(before, server["w"], number, averaging)} if averaging else server

    def forget(self) -> None:
        """Make every client start with a new state when it next takes part."""
        self.seen.clear()

    def participants(self, number: int, coalition: int) -> list[str]:
        """Return who takes part: a share of its clients, at least one, drawn from (seed, round, client name)."""
        members = self.sources(coalition)
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
        return self.call_layers(action, number, [messages])[0]

    def call_layers(
        self, action: Action, number: int, layers: Sequence[Mapping[str, Message]]
    ) -> list[dict[str, Message]]:
        """Call clients with several messages each, in one round; the rest as in `call`.

        Parameters
        ----------
        action : Action
            What to do.
        number : int
            The round.
        layers : sequence of mappings
            What each client is sent in each layer.
        """
        sent = [self.completed(action, number, messages, layer) for layer, messages in enumerate(layers)]
        return self._send(action, number, sent)

    def _send(self, action: Action, number: int, sent: Sequence[Mapping[str, Message]]) -> list[dict[str, Message]]:
        """Call clients with complete messages for each layer, and record who did not answer."""
        answered = self.federation.call_several([(action, messages) for messages in sent], partial=True)
        return [self.received(number, answers) for answers in answered]

    def completed(
        self, action: Action, number: int, messages: Mapping[str, Message], layer: int = 0
    ) -> dict[str, Message]:
        """Return messages with the setting, the round, with whom the client trains, and what it goes on from.

        Under secure aggregation messages that ask for an update have what its masks need.

        Parameters
        ----------
        action, number, messages
            As in `call`.
        layer : int
            Which layer they are.
        """
        common: Message = {"setting": self.text, "round": number, "training": self.training}
        if layer:
            common["layer"] = layer
        seen = {name: self.seen.get(seen_key(name, layer)) for name in messages}
        since = {name: {} if last is None else {"since": last} for name, last in seen.items()}
        with_whom = {name: {} if action is client.losses else {"coalition": self._partners(name)} for name in messages}
        secure: dict[str, Message] = {}
        if self.secure is not None and action.name in UPDATES:
            secure = self.secure.fields([name for name in messages if messages[name].get("train", True)])
        return {
            name: {**common, **since[name], **with_whom[name], **secure.get(name, {}), **message}
            for name, message in messages.items()
        }

    def received(self, number: int, answered: Answered) -> dict[str, Message]:
        """Return the answers of a call, after recording in `failures` who did not answer."""
        for name, reason in answered.absent.items():
            self._note(number, name, reason)
        return answered.replies

    def _partners(self, name: str) -> list[str]:
        """Return with whom a client trains, itself included; before there are coalitions, the client alone."""
        if self.source_weights:  # its updates go into the models of clients outside of its coalition too
            shared = [self.sources(k) for k in self.source_weights]
            return sorted({name, *(each for names in shared if name in names for each in names)})
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
    source_weights : mapping
        For a coalition (its position) that learns from clients outside of it too: what each client weighs, by name.

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
    session.stopped, session.failures = dict(snapshot.stopped), list(snapshot.failures)
    session.seen, grouping.distances = dict(snapshot.seen), snapshot.distances
    session.federation.runtime.restore(snapshot.states)
    if session.secure is not None:
        session.secure.restore(snapshot.secure)


def _one_round(number: int, session: Session, grouping: Grouping) -> dict[str, float]:
    """Run one round: broadcast, local training, aggregation; return the training losses by client."""
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


def seen_key(name: str, layer: int) -> str:
    """Return under which key a session remembers the last round that counts for a client in a layer."""
    return f"{name}\x1f{layer}" if layer else name


def arrays_of(state: State) -> Message:
    """Return tensors as NumPy arrays, for a message."""
    return {key: value.numpy() for key, value in state.items()}


def tensor_of(value: NDArray[Any]) -> Tensor:
    """Return an array as a tensor, copied if it is read-only."""
    return torch.from_numpy(value if value.flags.writeable else value.copy())
