"""A guarded silo that a hostile coordinator asks questions, and how much of its rows the answers give away.

The statistic of every attack is a share: of the silo's 48 training rows (or of the values of a column), how many are
matched by a guess of the attacker's, in every column within `NEAR` standard deviations (`NEAR_VALUE` for one column).
Chance is the same share for 48 strangers, rows of the same distribution that no silo has.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import fedcollab.distances.estimate
import fedcollab.inspection.profile
import fedcollab.training.compare_client
import fedcollab.training.folds  # noqa: F401  (these declare the actions)
from fedcollab.data import ClientData, Schema
from fedcollab.federation import federate
from fedcollab.silo.guard import Guard
from fedcollab.training.models import Network, size_of
from fedcollab.wire import Wire
from fedcollab.wire.limits import Limits
from fedcollab.wire.message import Message, pack, unpack
from fedcollab.wire.silo import Silo

NEAR, NEAR_VALUE = 0.03, 0.003  # standard deviations within which a guess of a row, or of one value, counts as right
NAME = "clinic"
KEY = b"a key that only the silo knows!!"
COLUMNS = ("age", "pressure", "glucose", "weight", "pulse")

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


class Target:
    """A silo under its guard, and what the attacker knows: its name, its number of rows, and its answers.

    Parameters
    ----------
    folder : Path
        For the silo's log.
    limits : Limits
        The silo's limits.
    """

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.data, self.limits = patients(1), limits
        self.guard = Guard.at(folder, limits)
        self.silo = Silo(self.data, limits=limits, key=KEY)
        self.messages, self.refusals = 0, list[str]()
        honest = federate(Wire([self.data, patients(2, name="other")]))
        self.schema = honest.schema

    def ask(self, action: str, message: Message, run: str = "1") -> Message:
        """Return the silo's answer; raise `Refusal` if it gives none."""
        self.messages += 1
        before = dict(self.silo.state)
        served = self.guard.serve(action, pack(message), self.silo, run=run)
        reply = unpack(served.content)
        if not served.done:
            self.silo.state.clear()
            self.silo.state.update(before)
            self.refusals.append(f"{action}: {reply.get('refused', reply.get('error'))}")
            raise Refusal(self.refusals[-1])
        return reply

    def prepare(self, schema: Schema | str | None = None) -> Schema:
        """Have the silo apply a schema; the one that honest clients agree on if none is given, which it must accept."""
        made = schema if isinstance(schema, str) else (schema or self.schema).to_json()
        try:
            self.ask("prepare", {"schema": made})
        except Refusal as error:
            if schema is None:
                raise RuntimeError(f"an honest schema is refused: {error}") from None
            raise
        return Schema.from_json(made)

    def setting(self, **changed: Any) -> str:
        """Return the setting of a training of logistic regression, but for what is changed."""
        options = changed.pop("model_options", {})
        model = Network.describe(changed.pop("model", "logistic"), options, self.schema.shape, 2)
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
        """Return the weights that the silo sends back after a round of training with an invented partner."""
        padded = np.zeros(size_of(json.loads(setting)["model"]), dtype=np.float32)
        padded[: len(w)] = w
        message = {"setting": setting, "round": number, "w": padded, "coalition": [NAME, "ghost"], **more}
        reply: NDArray[np.float32] = self.ask("train", message)["w"]
        return reply[: len(w)] - padded[: len(w)]

    @property
    def rows(self) -> Floats:
        """The silo's prepared training rows."""
        return (self.silo.arrays if "prepare" in self.silo.state else self.schema.apply(self.data)).x.astype(np.float64)

    @property
    def strangers(self) -> Floats:
        """As many rows that no silo has."""
        return self.schema.features(patients(3, 400).x).astype(np.float64)[:: 400 // 48][:48]


@dataclass(frozen=True)
class Recovered:
    """How much of the silo's data an attack found: the share of what there is, the same by chance, and two rows."""

    share: float
    chance: float
    messages: int
    margin: float = 2 / 48

    def __str__(self) -> str:
        return f"{self.share:.0%} in {self.messages} message(s), by chance {self.chance:.0%}"


Attack = Callable[[Target], Recovered]


def matched(guesses: Any, truth: Floats) -> float:
    """Return the share of the true rows, or values, that some guess matches in every column."""
    guesses = np.asarray(guesses, dtype=np.float64)
    if guesses.size == 0:
        return 0.0
    near = NEAR_VALUE if truth.ndim == 1 else NEAR
    if truth.ndim == 1:
        guesses, truth = guesses.reshape(-1, 1), truth.reshape(-1, 1)
    guesses = guesses[np.isfinite(guesses).all(axis=1)]
    if len(guesses) == 0:
        return 0.0
    gaps = np.abs(truth[:, None] - guesses[None]).max(axis=2)
    return float((gaps.min(axis=1) < near).mean())


def judge(target: Target, guesses: Any, column: int | None = None, truth: Floats | None = None) -> Recovered:
    """Return how many of the silo's rows, or of the values of one column, the guesses match, and how many by chance."""
    truth = target.rows if truth is None else truth
    strangers = target.strangers[: len(truth)]
    if column is not None:
        truth, strangers = truth[:, column], strangers[:, column]
    return Recovered(matched(guesses, truth), matched(guesses, strangers), target.messages, 2 / len(truth))
