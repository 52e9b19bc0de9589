"""A guarded silo that a hostile coordinator asks questions, and how much of its rows the answers give away.

The statistic of every attack is a count: of the silo's 48 training rows (or of the values of a column), how many are
matched by a guess of the attacker's, in every column within `NEAR` standard deviations (`NEAR_VALUE` for one column).
Chance is the share of 2,040 strangers, rows of the same distribution that no silo has, that the same guesses match. An
attack has beaten chance if so many matches or more would come about less than once in a thousand times:

    P(X >= matches) < BEYOND,       X ~ Binomial(rows, (matched strangers + 1) / (strangers + 1))

With `secure_aggregation` in the silo's limits updates leave under masks: the coordinator then trains the silo together
with two honest partners whose keys the silo was given, sends all three the same crafted weights, and attacks the sum.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.stats import binom

import fedcollab.advice.sums
import fedcollab.distances.estimate
import fedcollab.inspection.profile
import fedcollab.training.compare_client
import fedcollab.training.evaluate_client
import fedcollab.training.folds_client  # noqa: F401  (these declare the actions)
from fedcollab.data import ClientData, Schema
from fedcollab.federation import federate
from fedcollab.secure import keys, member
from fedcollab.secure.server import Group, unpack_mean
from fedcollab.silo.guard import Guard
from fedcollab.training.losses import choose_loss
from fedcollab.training.models import Network, size_of
from fedcollab.wire import Wire
from fedcollab.wire.limits import Limits
from fedcollab.wire.message import Message, pack, unpack
from fedcollab.wire.silo import Silo

NEAR, NEAR_VALUE = 0.03, 0.003  # standard deviations within which a guess of a row, or of one value, counts as right
BEYOND = 1e-3  # a result is beyond chance if chance gives as much less often than this
NEVER = 1e-6  # the chance of what cannot come about by chance
NAME, PARTNERS = "clinic", ("north", "south")
KEY = b"a key that only the silo knows!!"
COLUMNS = ("age", "pressure", "glucose", "weight", "pulse")
TABLES = 34  # of strangers, 60 rows each

Floats = NDArray[np.float64]


class Refusal(Exception):
    """Raised where the silo does not answer what the attacker asked."""


def patients(seed: int, count: int = 60, name: str = NAME) -> ClientData:
    """Return a table of patients: no two of the same age, four measured columns, two outcomes."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"age": rng.permutation(np.arange(20, 20 + count))})
    for column, mean, spread in (("pressure", 130, 15), ("glucose", 6, 1.5), ("weight", 75, 12), ("pulse", 70, 9)):
        table[column] = rng.normal(mean, spread, count)
    risk = (table["glucose"] - 6) / 1.5 + (table["age"] - 50) / 20
    return ClientData(name, table, (risk + rng.normal(size=count) > 0).astype(int))


Table = Callable[..., ClientData]


@lru_cache(maxsize=1000)
def _stranger_table(table: Table, schema: str, place: int) -> Floats:
    made: Floats = Schema.from_json(schema).features(table(100 + place).x).astype(np.float64)
    made.setflags(write=False)
    return made


@lru_cache(maxsize=10)
def _honest_schema(table: Table) -> Schema:
    """Return the schema that the silo and another one agree on."""
    return federate(Wire([table(1), table(2, name="other")])).schema


class Target:
    """A silo under its guard, and what the attacker knows: its name, its number of rows, and its answers.

    Parameters
    ----------
    folder : Path
        For the silo's log.
    limits : Limits
        The silo's limits.
    table : callable
        Makes the silo's table from the seed 1, and those of its partners and of strangers from others.
    """

    def __init__(self, folder: Path, limits: Limits, table: Table = patients) -> None:
        self.data, self.limits, self.folder, self.table = table(1), limits, folder, table
        self.messages, self.refusals = 0, list[str]()
        self.schema = _honest_schema(table)
        tables = [self.data, *(table(10 + place, name=name) for place, name in enumerate(PARTNERS))]
        identities = {data.name: keys.draw_identity() for data in tables}
        public = {name: keys.public_of(identity) for name, identity in identities.items()}
        self.silos = {
            data.name: Silo(
                data,
                limits=limits,
                key=KEY,
                identity=identities[data.name],
                partners={name: key for name, key in public.items() if name != data.name},
            )
            for data in tables
        }
        self.guards = {name: Guard.at(folder / name, limits) for name in self.silos}
        self.silo = self.silos[NAME]
        self.group: Group | None = None
        self.training = ""

    def another_day(self, place: int) -> Target:
        """Return the same silo with its whole budget."""
        return Target(self.folder / str(place), self.limits, self.table)

    def ask(self, action: str, message: Message, run: str = "1", name: str = NAME) -> Message:
        """Return the answer of the silo (or of one of its partners); raise `Refusal` if it gives none."""
        self.messages += name == NAME
        silo = self.silos[name]
        before = dict(silo.state)
        served = self.guards[name].serve(action, pack(message), silo, run=run)
        reply = unpack(served.content)
        if not served.done:
            silo.state.clear()
            silo.state.update(before)
            self.refusals.append(f"{action}: {reply.get('refused', reply.get('error'))}")
            raise Refusal(self.refusals[-1])
        return reply

    def prepare(self, schema: Schema | str | None = None) -> Schema:
        """Have the silo apply a schema; the one that honest clients agree on if none is given, which it must accept."""
        made = schema if isinstance(schema, str) else (schema or self.schema).to_json()
        try:
            for name in self.silos if self.limits.secure_aggregation else (NAME,):
                self.ask("prepare", {"schema": made}, name=name)
        except Refusal as error:
            if schema is None:
                raise RuntimeError(f"an honest schema is refused: {error}") from None
            raise
        return Schema.from_json(made)

    def setting(self, **changed: Any) -> str:
        """Return the setting of a training of a linear model, but for what is changed."""
        options = changed.pop("model_options", {})
        loss = changed.pop("loss", None) or choose_loss(None, self.schema.task)
        model = Network.describe(
            changed.pop("model", "logistic"), options, self.schema.shape, self.schema.outputs, loss
        )
        plain = {
            "algorithm": "fedavg",
            "options": {},
            "model": model,
            "lr": 0.1,
            "batch_size": 64,
            "epochs": 1,
            "seed": 0,
        }
        return json.dumps({**plain, **changed})

    def train(self, setting: str, w: Any, number: int = 1, **more: Any) -> NDArray[np.float32]:
        """Return how weights move in a round of training: the silo's, or under masks the mean over the coalition."""
        padded = np.zeros(size_of(json.loads(setting)["model"]), dtype=np.float32)
        padded[: len(w)] = w
        reply: NDArray[np.float32] = self.update("train", {"setting": setting, "round": number, "w": padded, **more})[
            "w"
        ]
        return reply[: len(w)] - padded[: len(w)]

    def update(self, action: str, message: Message) -> Message:
        """Return the silo's answer to `train` or `train-folds`, with a partner that does not exist.

        Under masks the partners are honest, and the weights are the mean over the coalition: all that can be known.
        """
        if not self.limits.secure_aggregation:
            return self.ask(action, {"coalition": [NAME, "ghost"], **message})
        if self.group is None or self.training != message.get("training", ""):
            self.training = message.get("training", "")
            group = Group.of(sorted(self.silos), dropouts=False)
            asked = {"group": group.name, "coalition": group.members, "threshold": group.threshold}
            group.certificates = {
                name: self.ask("secure-keys", asked, name=name)["certificate"] for name in group.members
            }
            self.group = group
        members = self.group.members
        total = sum(len(silo.arrays.y) for silo in self.silos.values())
        shared = {"training": "", "coalition": members, "total": total, **message}
        sent = {name: {**shared, **self.group.fields(name)} for name in members}
        replies = {name: self.ask(action, sent[name], name=name) for name in (NAME, *PARTNERS)}
        if "masked" not in replies[NAME]:
            return replies[NAME]
        self.group.received(replies)
        masked = {name: reply["masked"] for name, reply in replies.items()}
        summed = self.group.add_up(member.context_of(sent[NAME]), masked, {})
        mean = unpack_mean(summed, replies[NAME]["layout"], 1.0)["w"]
        return {**replies[NAME], "w": (mean + message["w"]).astype(np.float32)}

    @property
    def rows(self) -> Floats:
        """The silo's prepared training rows."""
        return (self.silo.arrays if "prepare" in self.silo.state else self.schema.apply(self.data)).x.astype(np.float64)

    @property
    def strangers(self) -> Floats:
        """Rows that no silo has."""
        return np.concatenate(self.stranger_tables())

    def stranger_tables(self, count: int = TABLES) -> list[Floats]:
        """Return so many tables of 60 rows that no silo has."""
        text = self.schema.to_json()
        return [_stranger_table(self.table, text, place) for place in range(count)]


@dataclass(frozen=True)
class Recovered:
    """How much of the silo's data an attack found.

    Parameters
    ----------
    hits, of : int
        What it found, of how many.
    chance : float
        The chance with which each is found without knowing anything about the silo.
    messages : int
        How many messages it took.
    """

    hits: int
    of: int
    chance: float
    messages: int

    @property
    def by_chance(self) -> float:
        """How often chance finds as much."""
        return float(binom.sf(self.hits - 1, self.of, self.chance))

    @property
    def beyond_chance(self) -> bool:
        """Whether that is less often than `BEYOND`."""
        return self.by_chance < BEYOND

    def __str__(self) -> str:
        expected = f"{self.chance * self.of:.1f} by chance, P = {self.by_chance:.2g}"
        return f"{self.hits} of {self.of} in {self.messages} message(s) ({expected})"


Attack = Callable[[Target], Recovered]


def matches(guesses: Any, truth: Floats) -> NDArray[np.bool_]:
    """Return for each of the true rows, or values, whether some guess matches it in every column."""
    guesses = np.asarray(guesses, dtype=np.float64)
    nothing = np.zeros(len(truth), dtype=bool)
    if guesses.size == 0:
        return nothing
    near = NEAR_VALUE if truth.ndim == 1 else NEAR
    if truth.ndim == 1:
        guesses, truth = guesses.reshape(-1, 1), truth.reshape(-1, 1)
    guesses = guesses[np.isfinite(guesses).all(axis=1)]
    if len(guesses) == 0:
        return nothing
    found, _ = cKDTree(guesses).query(truth, p=np.inf, distance_upper_bound=near)
    return np.isfinite(found)


def chance_of(found: NDArray[np.bool_]) -> float:
    """Return the chance of a match from what was matched of strangers; never 0."""
    return float((found.sum() + 1) / (len(found) + 1))


def judge(target: Target, guesses: Any, column: int | None = None, truth: Floats | None = None) -> Recovered:
    """Return how many of the silo's rows, or of the values of one column, the guesses match, and how many by chance."""
    truth, strangers = target.rows if truth is None else truth, target.strangers
    if column is not None:
        truth, strangers = truth[:, column], strangers[:, column]
    hits = int(matches(guesses, truth).sum())
    return Recovered(hits, len(truth), chance_of(matches(guesses, strangers)), target.messages)
