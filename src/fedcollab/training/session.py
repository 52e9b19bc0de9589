"""A training as the server sees it: who is in which coalition, what each has learnt, and how clients are asked.

A `Session` says who trains for which coalition, completes and sends the messages of a round, and turns the replies into
each coalition's next model. The loop over rounds is `training.rounds`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcollab import seeds
from fedcollab.errors import FedcollabWarning
from fedcollab.federation import Federation
from fedcollab.training import client, evaluate_client
from fedcollab.training.arrays import arrays_of, tensor_of
from fedcollab.training.averaging import blend
from fedcollab.training.checkpoint import Stopping
from fedcollab.training.descend import Setting
from fedcollab.training.hooks import Algorithm, State, average
from fedcollab.training.models import Network
from fedcollab.training.secure_rounds import SecureSums
from fedcollab.training.trees.forest import Growing, growing_of
from fedcollab.wire.action import Action
from fedcollab.wire.calls import Answered
from fedcollab.wire.message import Message

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
        Those of its coalition's model, in the order of `Scores.measures`.
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
    own_from : dict
        For clients whose own parameters (`keep`) go on from the model that they use: of which training that is.
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
    own_from: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.initial = self.network.initial()
        self.text = self.setting.to_json()

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
    def growing(self) -> Growing | None:
        """How trees are grown, where the model is one of trees."""
        return growing_of(self.setting.model)

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
        answers = self.call(evaluate_client.evaluate, number, sent)
        measures = {name: answer["measures"] for name, answer in answers.items()}
        own = {name: a["personal_measures"] for name, a in answers.items() if "personal_measures" in a}
        return Evaluation(measures, own, {name: a["personal"] for name, a in answers.items() if "personal" in a})

    def losses(self, number: int) -> dict[str, NDArray[np.float64]]:
        """Return every client's training loss under every coalition's model."""
        models = self.weights().numpy()
        answers = self.call(evaluate_client.losses, number, {name: {"models": models} for name in self.names})
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
        with_whom = {
            name: {} if action is evaluate_client.losses else {"coalition": self._partners(name)} for name in messages
        }
        secure: dict[str, Message] = {}
        if self.secure is not None and action.name in UPDATES:
            secure = self.secure.fields([name for name in messages if messages[name].get("train", True)])
        own: dict[str, Message] = {}
        if action in (client.train, evaluate_client.evaluate):
            own = {name: {"own_from": training} for name, training in self.own_from.items()}
        return {
            name: {**common, **since[name], **with_whom[name], **secure.get(name, {}), **own.get(name, {}), **message}
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


def seen_key(name: str, layer: int) -> str:
    """Return under which key a session remembers the last round that counts for a client in a layer."""
    return f"{name}\x1f{layer}" if layer else name
