"""The one round loop: every coalition trains, independently, in the same rounds. The server side sees replies alone.

    grouping.before -> broadcast -> local training -> aggregate -> grouping.after -> metrics

Fixed coalitions are the default `Grouping`; the clustered baselines override its hooks and share everything else.
"""

from __future__ import annotations

import json
import math
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
from fedcollab.training.checkpoint import Snapshot
from fedcollab.training.descend import Setting
from fedcollab.training.hooks import Algorithm, State, average
from fedcollab.training.models import Network
from fedcollab.wire.message import Message
from fedcollab.wire.runtime import Runtime

Replies = dict[str, State]
Measures = dict[str, NDArray[np.float64]]
Best = dict[int, tuple[float, Tensor]]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """By client: measures of its coalition's model, measures of its own model, and its own model."""

    measures: Measures = field(default_factory=dict)
    personal: Measures = field(default_factory=dict)
    kept: dict[str, NDArray[np.float32]] = field(default_factory=dict)


@dataclass(eq=False)
class Session:
    """What a run works with: the federation, the algorithm, the initial weights, and who is in which coalition.

    servers      each coalition's state on the server
    assignment   each client's coalition, a position in `servers`
    stopped      coalitions that train no more, and why
    failures     (round, client, why) for each client that did not answer
    seen         the last round that counts for each client that took part: its state then is what it goes on from
    training     what tells this training from others, so that no client goes on from another's state
    """

    runtime: Runtime
    setting: Setting
    algorithm: Algorithm
    network: Network
    quantities: Mapping[str, int]
    participation: float = 1.0
    training: str = ""
    servers: list[State] = field(default_factory=list)
    assignment: dict[str, int] = field(default_factory=dict)
    stopped: dict[int, str] = field(default_factory=dict)
    failures: list[tuple[int, str, str]] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.initial = self.network.initial()
        self._text = json.dumps(asdict(self.setting))

    def initials(self, count: int, stage: str) -> list[Tensor]:
        """Weights from different seeds; the first are those that every other method starts from."""
        drawn = (seeds.derive(self.setting.seed, stage, k) for k in range(1, count))
        return [self.initial, *(Network(self.network.text, seed=seed).initial() for seed in drawn)]

    @property
    def names(self) -> tuple[str, ...]:
        """The clients, in order of name."""
        return self.runtime.names

    @property
    def active(self) -> list[int]:
        """Coalitions that have clients and still train."""
        return sorted(set(self.assignment.values()) - set(self.stopped))

    @property
    def done(self) -> bool:
        """Whether every coalition has stopped."""
        return not self.active

    def members(self, coalition: int) -> list[str]:
        """The clients of a coalition, in order of name."""
        return [name for name in self.names if self.assignment[name] == coalition]

    def shares(self, names: Sequence[str]) -> list[float]:
        """Weights by quantity that sum to 1."""
        total = sum(self.quantities[name] for name in names)
        return [self.quantities[name] / total for name in names]

    def weights(self) -> Tensor:
        """The model of every coalition, [coalitions, P]."""
        return torch.stack([server["w"] for server in self.servers])

    def train(self, number: int, sent: Mapping[str, State]) -> tuple[Replies, dict[str, float], dict[str, str]]:
        """Local training of the named clients: replies and losses, and for whom they are not finite."""
        answers = self._call("train", number, {name: _arrays(state) for name, state in sent.items()})
        spoilt = {name: answer["diverged"] for name, answer in answers.items() if not answer["finite"]}
        good = {name: answer for name, answer in answers.items() if name not in spoilt}
        self.seen |= dict.fromkeys(good, number)
        losses = {name: float(answer["loss"][0]) for name, answer in good.items()}
        plain = ("loss", "finite")
        replies = {
            name: {key: _tensor(value) for key, value in answer.items() if key not in plain}
            for name, answer in good.items()
        }
        return replies, losses, spoilt

    def evaluate(self, number: int, *, keep: bool = False) -> Evaluation:
        """Every client's measures of its coalition's model and of its own, and with `keep` the latter's weights.

        Where models stay with the clients, `keep` has each keep its own (and its coalition's) for itself instead.
        """
        stays = self.runtime.models_stay
        extra = {"personal": self.algorithm.personalises, "keep": keep and not stays, "stay": keep and stays}
        sent = {
            name: {**_arrays(self.algorithm.broadcast(self.servers[self.assignment[name]])), **extra}
            for name in self.names
        }
        answers = self._call("evaluate", number, sent)
        measures = {name: answer["measures"] for name, answer in answers.items()}
        own = {name: a["personal_measures"] for name, a in answers.items() if "personal_measures" in a}
        return Evaluation(measures, own, {name: a["personal"] for name, a in answers.items() if "personal" in a})

    def losses(self, number: int) -> dict[str, NDArray[np.float64]]:
        """Every client's training loss under every coalition's model."""
        models = self.weights().numpy()
        answers = self._call("losses", number, {name: {"models": models} for name in self.names})
        return {name: answer["losses"] for name, answer in answers.items()}

    def aggregate(self, coalition: int, replies: Replies) -> State:
        """A coalition's next state, from the replies of its clients."""
        names = sorted(replies)
        shares = self.shares(names)
        server = self.algorithm.aggregate(self.servers[coalition], [replies[name] for name in names], shares)
        if self.network.buffers:  # batch-norm statistics are averages, whatever the algorithm does to weights
            first = self.network.parameters
            mean = average([replies[name]["w"][first:] for name in names], shares)
            server = {**server, "w": torch.cat([server["w"][:first], mean])}
        return server

    def forget(self) -> None:
        """Have every client start afresh: its state is made anew when it next takes part."""
        self.seen.clear()

    def participants(self, number: int, coalition: int) -> list[str]:
        """Who takes part: a share of the coalition, at least one, drawn from (seed, round, client name)."""
        members = self.members(coalition)
        count = max(1, round(self.participation * len(members)))
        drawn = sorted(members, key=lambda name: seeds.derive(self.setting.seed, "participation", number, name))
        return sorted(drawn[:count])

    def _call(self, action: str, number: int, messages: Mapping[str, Message]) -> dict[str, Message]:
        """One call; a client that fails or does not answer is noted, and missing from the result."""
        common = {"setting": self._text, "round": number, "training": self.training}
        since = {name: {"since": self.seen[name]} if name in self.seen else {} for name in messages}
        with_whom = {name: {} if action == "losses" else {"coalition": self._partners(name)} for name in messages}
        sent = {name: {**common, **since[name], **with_whom[name], **message} for name, message in messages.items()}
        answers = self.runtime.call(action, sent, partial=True)
        for name, reason in self.runtime.absent.items():
            self._note(number, name, reason)
        return answers

    def _partners(self, name: str) -> list[str]:
        """Who is in a client's coalition, itself included; before there are coalitions, it alone."""
        return self.members(self.assignment[name]) if self.assignment else [name]

    def _note(self, number: int, name: str, reason: str) -> None:
        if all(name != known for _, known, _ in self.failures):
            text = f"round {number}: client `{name}` failed ({reason}); its coalition goes on without it"
            warnings.warn(text, FedcollabWarning, stacklevel=2)
        self.failures.append((number, name, reason))


@dataclass(eq=False)
class Grouping:
    """Who is in which coalition: fixed, as given. Baselines override the hooks.

    distances   N x N between clients in order of name, where the method has such a thing
    """

    method: ClassVar[str] = "fixed"
    coalitions: Sequence[Sequence[str]] = ()
    distances: NDArray[np.float64] | None = field(default=None, init=False)

    def options(self) -> dict[str, Any]:
        """What was chosen about how it groups: its fields that are numbers or words."""
        chosen = {known.name: getattr(self, known.name) for known in fields(self) if known.init}
        return {key: value for key, value in chosen.items() if isinstance(value, (bool, int, float, str))}

    def start(self, session: Session) -> None:
        """Set `session.servers` and `session.assignment`."""
        session.servers = [session.algorithm.server_init(session.initial) for _ in self.coalitions]
        session.assignment = {name: k for k, members in enumerate(self.coalitions) for name in members}

    def before(self, number: int, session: Session) -> None:
        """Before a round's broadcast."""

    def after(self, number: int, session: Session, old: Sequence[State], replies: Replies) -> None:
        """After a round's aggregation; `old` are the servers' states before it."""


@dataclass(frozen=True)
class Round:
    """What a round left: losses, and measures where it was evaluated."""

    number: int
    losses: Mapping[str, float]
    evaluation: Evaluation


def run_rounds(
    session: Session,
    grouping: Grouping,
    rounds: int,
    *,
    evaluate_every: int | None,
    early_stop: int | None,
    watch: Callable[[Session, Round], None],
    keep: Callable[[Snapshot], None] | None = None,
    resumed: Snapshot | None = None,
) -> tuple[Best, Evaluation]:
    """Train; return each coalition's best model by mean accuracy over its clients, and the last evaluation.

    `watch` sees every round, `keep` all that it leaves; `resumed` is a round to go on from. `early_stop` ends a
    coalition after so many evaluations without a better mean accuracy.
    """
    best: Best = {}
    waited: dict[int, int] = {}
    number, last, evaluation = 0, False, Evaluation()
    if resumed is None:
        grouping.start(session)
    else:
        number, best, waited = resumed.number, dict(resumed.best), dict(resumed.waited)
        _restore(session, grouping, resumed)
    while number < rounds and not session.done:
        number += 1
        grouping.before(number, session)
        losses = _one_round(number, session, grouping)
        last = number == rounds or session.done
        evaluation = Evaluation()
        if last or (evaluate_every and number % evaluate_every == 0):
            evaluation = session.evaluate(number, keep=last)
            _judge(number, session, evaluation, best, waited, early_stop)
        watch(session, Round(number, losses, evaluation))
        if keep is not None:
            keep(_snapshot(number, session, grouping, best, waited))
    return best, evaluation if last else session.evaluate(number, keep=True)


def _snapshot(number: int, session: Session, grouping: Grouping, best: Best, waited: dict[int, int]) -> Snapshot:
    """All that a round leaves; values are replaced as training goes on, never changed, so that no copy is needed."""
    return Snapshot(
        number,
        list(session.servers),
        dict(session.assignment),
        dict(session.stopped),
        list(session.failures),
        dict(session.seen),
        dict(best),
        dict(waited),
        grouping.distances,
        session.runtime.states(),
    )


def _restore(session: Session, grouping: Grouping, snapshot: Snapshot) -> None:
    session.servers, session.assignment = list(snapshot.servers), dict(snapshot.assignment)
    session.stopped, session.failures = dict(snapshot.stopped), list(snapshot.failures)
    session.seen, grouping.distances = dict(snapshot.seen), snapshot.distances
    session.runtime.restore(snapshot.states)


def _judge(
    number: int,
    session: Session,
    evaluation: Evaluation,
    best: Best,
    waited: dict[int, int],
    patience: int | None,
) -> None:
    """Keep what is best so far, and stop coalitions that have not improved for long."""
    for coalition in session.active:
        scores = [evaluation.measures[name][0] for name in session.members(coalition) if name in evaluation.measures]
        score = float(np.mean(scores)) if scores else -math.inf
        if coalition not in best or score > best[coalition][0]:
            best[coalition], waited[coalition] = (score, session.servers[coalition]["w"]), 0
            continue
        waited[coalition] += 1
        if patience is not None and waited[coalition] >= patience:
            session.stopped[coalition] = f"round {number}: no better accuracy in {patience} evaluations"


def _one_round(number: int, session: Session, grouping: Grouping) -> dict[str, float]:
    chosen = {coalition: session.participants(number, coalition) for coalition in session.active}
    messages = {coalition: session.algorithm.broadcast(session.servers[coalition]) for coalition in chosen}
    sent = {name: messages[coalition] for coalition, names in chosen.items() for name in names}
    replies, losses, spoilt = session.train(number, sent)
    old = list(session.servers)
    for coalition, names in chosen.items():
        bad = [name for name in names if name in spoilt]
        present = [name for name in names if name in replies]
        if bad:
            session.stopped[coalition] = reason = (
                f"round {number}: the training loss or the weights of client `{bad[0]}` became NaN or infinite "
                f"({spoilt[bad[0]]}); the model of round {number - 1} is kept"
            )
            warnings.warn(f"coalition of `{bad[0]}` stopped in {reason}", FedcollabWarning, stacklevel=4)
        elif present:
            session.servers[coalition] = session.aggregate(coalition, {name: replies[name] for name in present})
    grouping.after(number, session, old, replies)
    return losses


def _arrays(state: State) -> Message:
    return {key: value.numpy() for key, value in state.items()}


def _tensor(value: NDArray[Any]) -> Tensor:
    return torch.from_numpy(value if value.flags.writeable else value.copy())
