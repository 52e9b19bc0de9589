"""Plans: what a coordinator says it will ask, so that a silo's administrator can agree to that and to nothing else.

A study begins with two. `look` comes first: data check, schema, distances by the methods that it names, advice with so
many candidates. `train` comes when the partners have seen the report: one model, one algorithm, batch size, step size,
rounds, and the partners by their keys. When clients come or change there are two more: `join` lets one named newcomer
be compared with each partner, and one coalition train on with it from the model that it has; `check` lets the distances
of silos whose data changed be measured again and, where it says how, the coalitions train on. Every plan has a budget.
A plan is a JSON file; its digest is its name:

    digest = SHA-256 of the plan's fields as JSON, keys in order, without spaces

A silo with approved plans looks up for every message which plan and which step it belongs to; with `require_plan` in
its limits it refuses the rest. An action belongs to a plan by the `step` that it declares (`wire.action.Step`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from fedcollab.errors import InputError
from fedcollab.files import write_bytes
from fedcollab.parsing import read_json_file
from fedcollab.wire.action import ACTIONS, SPENDS, Action, Step
from fedcollab.wire.message import Message
from fedcollab.wire.silo import Agreed

Whole = Annotated[int, Meta(ge=0)]
Above0 = Annotated[float, Meta(gt=0)]

#: which actions a distance method uses, by how their names begin
METHODS = {
    "few-round": "few-",
    "cross": "cross-",
    "hypothesis": "cross-",
    "published": "published-",
    "prototype": "prototype-",
    "label": "",
}
#: the actions that train models of trees, and those that train any other
TREES, WEIGHTS = ("count-rows", "train-trees", "train-trees-folds"), ("train", "train-folds", "losses")
#: how the names of actions begin that send updates of models which the server chooses
UPDATES = ("cross-", "published-")
#: the steps of each kind of plan
STEPS = {
    "look": (Step.CHECK, Step.SCHEMA, Step.DISTANCES, Step.ADVICE, Step.ROUNDS),
    "train": (Step.SCHEMA, Step.ROUNDS, Step.TRAINING, Step.TESTING),
    "join": (Step.CHECK, Step.SCHEMA, Step.DISTANCES, Step.ROUNDS, Step.TRAINING, Step.TESTING),
    "check": (Step.SCHEMA, Step.DISTANCES, Step.ROUNDS, Step.TRAINING, Step.TESTING),
}
#: what models are trained with where a plan does not say: for classes, and for a numeric target
LOSSES = ("cross-entropy", "squared")
#: the steps that a look with candidates has
CANDIDATES = (Step.ADVICE, Step.ROUNDS)
#: the steps that a plan has only if it says how models are trained
TRAINS = (Step.ROUNDS, Step.TRAINING, Step.TESTING)


class Training(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a plan trains: every message must ask for this, and for nothing else.

    Parameters
    ----------
    model, algorithm : str
        By name, as in `fedcollab.train`.
    batch_size, rounds, local_epochs : int
        As in `fedcollab.train`; `rounds` is the most that may be trained.
    lr : float
        The step size.
    secure_aggregation : bool
        Whether updates must be masked, so that the coordinator sees sums over a coalition alone.
    model_options : dict
        The model's options, as in `fedcollab.train`.
    options : dict or None
        All options of the algorithm; None leaves them open, as a look does, whose candidates differ in them.
    optimizer : str
        What takes a local step, "sgd" or "adam".
    weight_decay : float
        By how much weights shrink a step.
    loss : str or None
        What models are trained with; None: cross-entropy, or squared for a numeric target.
    """

    model: str
    algorithm: str
    batch_size: Annotated[int, Meta(ge=1)]
    rounds: Annotated[int, Meta(ge=1)]
    lr: Above0
    local_epochs: Annotated[int, Meta(ge=1)] = 1
    secure_aggregation: bool = False
    model_options: dict[str, Any] = {}
    options: dict[str, Any] | None = None
    optimizer: str = "sgd"
    weight_decay: Annotated[float, Meta(ge=0)] = 0.0
    loss: str | None = None


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a coordinator will ask of a silo.

    Parameters
    ----------
    study : str
        The name of the study; its plans share it.
    kind : str
        "look", "train", "join" or "check".
    partners : dict of str to str
        The silos that take part: name and fingerprint of the public key (empty in an insecure federation).
    budget : dict of str to int
        What may be spent, by the keys of `wire.action.SPENDS`.
    methods : tuple of str
        The distance methods of a look, a join or a check.
    candidates : int
        How many candidates the advice may train on folds; 0: none.
    training : Training or None
        How a plan trains; in a look, how candidates are trained, whatever their algorithm.
    coalitions : tuple of tuple of str
        Who trains with whom, in a plan that trains; empty: any of the partners.
    starts : tuple of str
        SHA-256 of weights that training may start from, beside those drawn from its seed.
    comparison_alone : bool
        Whether the silo may also train alone, for comparison; in a join plan, whether the newcomer may.
    purpose : str
        What the study is for, in the coordinator's words.
    newcomer : str
        In a join plan, the silo that joins: every coalition that trains has it as a member.
    """

    study: Annotated[str, Meta(min_length=1, max_length=200)]
    kind: Literal["look", "train", "join", "check"]
    partners: dict[str, str]
    budget: dict[str, Whole]
    methods: tuple[str, ...] = ()
    candidates: Whole = 0
    training: Training | None = None
    coalitions: tuple[tuple[str, ...], ...] = ()
    starts: tuple[str, ...] = ()
    comparison_alone: bool = False
    purpose: Annotated[str, Meta(max_length=2000)] = ""
    newcomer: str = ""

    @property
    def digest(self) -> str:
        """The plan's digest, which is its name in the log."""
        fields = msgspec.to_builtins(self)
        if self.training is not None and self.training.loss is None:  # as plans were before there were losses
            del fields["training"]["loss"]
        if not self.newcomer:  # plans that were approved before there were newcomers keep their digest
            del fields["newcomer"]
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def agreed(self) -> Agreed:
        """What a silo needs to know of the plan while it does what a message asks."""
        masked = self.training is not None and self.training.secure_aggregation
        return Agreed(self.digest, self.starts, masked, self.partners)

    def allowed(self, limits: Mapping[str, int]) -> dict[str, int]:
        """Return what may be spent: what the plan says, and no more than the silo's own limits."""
        return {kind: min(self.budget.get(kind, 0), limits[kind]) for kind in SPENDS}

    def part(self, action: Action) -> str:
        """Return the words for the step that an action is in this plan."""
        return f"{self.kind}: {action.step.value}"

    def objection(self, action: Action, message: Message, name: str) -> str | None:
        """Return why a message is not part of this plan, or None if it is.

        Parameters
        ----------
        action : Action
            What the server asks for.
        message : dict
            The message.
        name : str
            The silo's own name.

        Returns
        -------
        str or None
            The reason, for the refusal.
        """
        if action.step not in STEPS[self.kind]:
            return f"the plan ({self.kind}) has no {action.step.value}"
        if action.step is Step.CHECK and self.newcomer not in ("", name):
            return f"the plan has a data check of {self.newcomer!r} alone"
        if action.step is Step.DISTANCES:
            begins = [METHODS[method] for method in self.methods if METHODS[method]]
            if not action.name.startswith(tuple(begins)) or not begins:
                return f"the plan's distance methods are {', '.join(self.methods) or 'none'}"
        if action.step in CANDIDATES and self.kind == "look" and not self.candidates:
            return "the plan has no candidates to train"
        if action.step in TRAINS and self.training is None:
            return "the plan trains no model"
        if "setting" in message:
            return self._training_objection(message, name) or self._masks_objection(action, message, name)
        return self._coalition_objection(message, name) if "coalition" in message else None

    def _masks_objection(self, action: Action, message: Message, name: str) -> str | None:
        """Return why an update must not leave as it is, where the plan says that updates are masked."""
        updates = action.step in (Step.ROUNDS, Step.TRAINING) and "w" in message and message.get("train", True)
        masked = "group" in message or set(message.get("coalition", ())) == {name}
        if self.training is not None and self.training.secure_aggregation and updates and not masked:
            return "the plan's updates are masked (secure aggregation), the message asks for one that is not"
        return None

    def _training_objection(self, message: Message, name: str) -> str | None:
        """Return what differs between a message's setting and the plan's training, or None."""
        wanted = self.training
        if wanted is None:
            return "the plan trains no model"
        try:
            setting = json.loads(message["setting"])
            described = json.loads(setting["model"])
            found = {
                "model": described["name"],
                "model options": described["options"],
                "loss": described.get("loss", LOSSES[0]),
                "batch size": setting["batch_size"],
                "local epochs": setting["epochs"],
                "optimiser": setting["optimizer"],
                "algorithm": setting["algorithm"],
                "algorithm options": setting["options"],
            }
            numbers = {"step size": float(setting["lr"]), "weight decay": float(setting["weight_decay"])}
        except (ValueError, TypeError, KeyError, RecursionError):
            return "the setting cannot be read"
        open_loss = wanted.loss is None and found["loss"] in LOSSES  # which of the two follows from the data
        expected = {
            "loss": found["loss"] if open_loss else wanted.loss or " or ".join(LOSSES),
            "model": wanted.model,
            "model options": wanted.model_options,
            "batch size": wanted.batch_size,
            "local epochs": wanted.local_epochs,
            "optimiser": wanted.optimizer,
        }
        alone = found["algorithm"] == "local" and self.comparison_alone
        if self.kind != "look" and not alone:  # candidates of a look differ in who trains with whom, and how
            expected["algorithm"] = wanted.algorithm
            if wanted.options is not None:
                expected["algorithm options"] = wanted.options
        for what, there in expected.items():
            if found[what] != there:
                return f"the plan's {what} is {there}, the message's {found[what]}"
        for what, there in (("step size", wanted.lr), ("weight decay", wanted.weight_decay)):
            if abs(numbers[what] - there) > 1e-9 * there:
                return f"the plan's {what} is {there:g}, the message's {numbers[what]:g}"
        rounds = message["round"] if "round" in message else message["rounds"]  # one round, or all of them alone
        if rounds > wanted.rounds + 1:
            return f"the plan has {wanted.rounds} rounds"
        return self._coalition_objection(message, name)

    def _coalition_objection(self, message: Message, name: str) -> str | None:
        """Return why the plan does not allow training with these clients, or None."""
        members = set(message.get("coalition", [name]))
        if self.kind == "join" and self.newcomer not in members:
            return f"the plan trains no coalition without {self.newcomer!r}"
        if members == {name}:
            return None if self.comparison_alone or "coalition" not in message else "the plan trains nobody alone"
        if not members <= set(self.partners):
            return f"the plan has no partner {sorted(members - set(self.partners))[0][:40]!r}"
        if self.coalitions and self.kind != "look" and not any(members <= set(group) for group in self.coalitions):
            return "the plan has other coalitions"
        return None

    def save(self, path: str | Path) -> None:
        """Write the plan as a JSON file, for the silos' administrators; InputError if they could not read it."""
        try:
            read_plan(msgspec.to_builtins(self))
        except ValueError as error:
            raise InputError(f"the plan cannot be used: {error}") from None
        text = json.dumps(msgspec.to_builtins(self), indent=1, ensure_ascii=False)
        write_bytes(path, (text + "\n").encode())

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read a plan that `save` wrote.

        Parameters
        ----------
        path : str or Path
            The file.

        Returns
        -------
        Plan
            The plan.

        Raises
        ------
        InputError
            If the file does not exist or is no plan.
        """
        try:
            return read_plan(read_json_file(path, "a plan (`fedcollab federation plan` makes one)"))
        except InputError:
            raise
        except ValueError as error:
            raise InputError(f"`{path}` cannot be read as a plan: {error}") from None


@dataclass(frozen=True)
class Approved:
    """A plan that a silo's administrator has approved.

    Parameters
    ----------
    plan : Plan
        The plan.
    approved : str
        When, in UTC.
    """

    plan: Plan
    approved: str


def read_plan(content: Any) -> Plan:
    """Return a plan from plain values.

    Parameters
    ----------
    content : object
        What a plan's JSON holds.

    Returns
    -------
    Plan
        The plan.

    Raises
    ------
    ValueError
        If a field is missing, unknown or wrong.
    """
    _check_texts(content)
    plan = msgspec.convert(content, Plan)
    for method in plan.methods:
        if method not in METHODS:
            raise ValueError(f"unknown distance method {method!r}; expected {', '.join(METHODS)}")
    for kind in plan.budget:
        if kind not in SPENDS:
            raise ValueError(f"unknown budget {kind!r}; expected {', '.join(SPENDS)}")
    if plan.kind == "train" and plan.training is None:
        raise ValueError("a train plan must say how it trains (`training`)")
    if (plan.kind == "join") != bool(plan.newcomer) or (plan.newcomer and plan.newcomer not in plan.partners):
        raise ValueError("a join plan, and no other, must name one of the partners as the `newcomer`")
    return plan


def _check_texts(content: Any) -> None:
    """Refuse a plan with text that could make its review look like another one: line breaks, commands to a terminal."""
    if isinstance(content, str) and not content.isprintable():
        raise ValueError(f"{content[:40]!r} has line breaks, or characters that cannot be shown")
    if isinstance(content, Mapping):
        content = [*content, *content.values()]
    for each in content if isinstance(content, (list, tuple)) else ():
        _check_texts(each)


def total_cost(entries: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the sum of what entries of a silo's log have cost, by kind.

    Parameters
    ----------
    entries : iterable of mapping
        Entries of the log; those of earlier versions have no cost.

    Returns
    -------
    dict
        Amounts by the keys of `wire.action.SPENDS`.
    """
    summed = dict.fromkeys(SPENDS, 0)
    for entry in entries:
        for kind, amount in (entry.get("cost") or {}).items():
            if kind in summed:
                summed[kind] += int(amount)
    return summed


def actions_of(plan: Plan) -> list[Action]:
    """Return the actions that a plan may ask for, in order of their steps and names."""
    steps = STEPS[plan.kind]
    begins = tuple(METHODS[method] for method in plan.methods if METHODS[method])
    found = []
    for action in ACTIONS.values():
        if action.step not in steps:
            continue
        if action.step is Step.DISTANCES and not (begins and action.name.startswith(begins)):
            continue
        if action.step in CANDIDATES and plan.kind == "look" and not plan.candidates:
            continue
        if action.step in TRAINS and plan.training is None:
            continue
        if plan.training is not None and action.name in (WEIGHTS if plan.training.model == "xgboost" else TREES):
            continue
        found.append(action)
    return sorted(found, key=lambda action: (steps.index(action.step), action.name))
