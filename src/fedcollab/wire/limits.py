"""What a silo insists on, whatever the server asks: its administrator's limits, a table of the silo's own TOML file.

    [limits]
    preset = "usual"                                  # "cautious", "usual" or "open"; other lines change it
    min_samples = 20                                  # the fewest samples that an update is made of
    min_test = 20                                     # the fewest test samples that a measure is made of
    min_batch = 16                                    # the fewest samples of a training step
    min_coalition = 2                                 # the fewest clients to train with, this one included
    require_plan = true                               # serve approved plans, and nothing else
    max_models = 100                                  # models that may be asked about, in one plan
    max_repeats = 7                                   # ways of cutting the samples into folds, in one plan
    max_rounds = 200                                  # updates computed from samples, in one plan
    max_schemas = 2                                   # schemas that are taken over, in one plan
    max_runs_per_day = 5                              # in UTC; 0: no limit
    require_privacy = { epsilon = 1.0, delta = 1e-5 } # differential privacy of each plan, at least as strong
    actions = ["inspect", "describe", "spread", "prepare", "few-moments", "few-validate"]
    max_bytes = 1_000_000_000                         # of a message
    max_splits = 3                                    # hold-outs that servers may choose, where there is no test data
    secure_aggregation = true                         # updates leave under masks only (docs/secure-aggregation.md)

Every line may be missing. Without an approved plan the budgets (`max_models` to `max_schemas`) hold for each day. What
each can and cannot do against a server that lies: docs/threats.md.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from fedcollab.errors import InputError, choose, unknown

AtLeastOne = Annotated[int, Meta(ge=1)]


class Privacy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Differential privacy: the epsilon and delta that one plan (without a plan: one day) may spend at most.

    Parameters
    ----------
    epsilon : float
        Above 0; smaller is more private.
    delta : float
        Above 0 and at most 0.5.
    """

    epsilon: Annotated[float, Meta(gt=0, le=sys.float_info.max)]
    delta: Annotated[float, Meta(gt=0, le=0.5)] = 1e-5

    def __str__(self) -> str:
        return f"epsilon {self.epsilon:g}, delta {self.delta:g}"


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A silo's limits; the defaults are those of a silo without a `[limits]` table.

    Parameters
    ----------
    min_samples : int
        The fewest samples that a number sent may be made of.
    min_coalition : int
        The fewest clients to train with, this one included.
    max_runs_per_day : int
        How many runs the silo takes part in on one day (UTC); 0: no limit.
    require_privacy : Privacy or None
        The differential privacy that every run must have at least.
    actions : tuple of str or None
        The actions that the silo carries out; None: all.
    max_bytes : int
        The largest message.
    max_splits : int
        How many test splits servers may choose over time, where the silo brings no test data.
    secure_aggregation : bool or "everyone"
        Whether the silo refuses to send an update that is not masked; "everyone": also one whose sum could be formed
        without some of the coalition.
    min_test : int
        The fewest test samples that a measure may be made of.
    min_batch : int
        The fewest samples of a step of training; a shorter rest of an epoch joins the batch before it.
    require_plan : bool
        Whether the silo serves approved plans only.
    max_models, max_repeats, max_rounds, max_schemas : int
        The budget of one plan (without a plan: of one day): models and thresholds asked about, ways of cutting the
        samples into folds, updates computed from samples, schemas taken over.
    round_measures : bool
        Whether accuracies and losses are rounded to what the number of samples can mean, and values have errors before
        they are summed (see `silo.rounding`).
    blur_updates : bool
        Whether models are trained on displaced rows (see `training.displaced`), and updates get an error of half their
        standard error (see `training.blur`).
    updates_for_distances : bool
        Whether distance methods that send updates of models which the server chooses (`cross`, `hypothesis`,
        `published`) are served without an approved plan that names them.
    check_training : bool
        Whether training must start and go on as honest training does (see `training.honest`).
    """

    min_samples: AtLeastOne = 10
    min_coalition: AtLeastOne = 1
    max_runs_per_day: Annotated[int, Meta(ge=0)] = 0
    require_privacy: Privacy | None = None
    actions: tuple[str, ...] | None = None
    max_bytes: AtLeastOne = 2_000_000_000
    max_splits: AtLeastOne = 10
    secure_aggregation: bool | Literal["everyone"] = False
    min_test: AtLeastOne = 10
    min_batch: AtLeastOne = 8
    require_plan: bool = False
    max_models: AtLeastOne = 300
    max_repeats: AtLeastOne = 8
    max_rounds: AtLeastOne = 1250  # an advice takes 808 with the defaults, a training with own weights 1212
    max_schemas: AtLeastOne = 10
    round_measures: bool = True
    blur_updates: bool = True
    updates_for_distances: bool = False
    check_training: bool = True

    @property
    def fewest_partners(self) -> int:
        """How many clients a coalition must have at least: `min_coalition`, and three where updates are masked."""
        return max(self.min_coalition, 3 if self.secure_aggregation else 1)

    @property
    def budget(self) -> dict[str, int]:
        """What one plan may spend at most, by kind (see `wire.action.SPENDS`)."""
        return {
            "models": self.max_models,
            "repeats": self.max_repeats,
            "rounds": self.max_rounds,
            "schemas": self.max_schemas,
        }


#: in-process runtimes: whoever runs them holds the data of all clients anyway
NO_LIMITS = Limits(
    min_samples=1,
    min_test=1,
    min_batch=1,
    round_measures=False,
    blur_updates=False,
    updates_for_distances=True,
    check_training=False,
)

#: where a silo's administrator may begin: `preset = "..."` in the table `[limits]`
PRESETS: dict[str, dict[str, Any]] = {
    "cautious": {
        "min_samples": 20,
        "min_test": 20,
        "min_batch": 16,
        "min_coalition": 3,
        "require_plan": True,
        "max_models": 100,
        "max_repeats": 7,  # a look by `few-round` with an advice takes six
        "max_rounds": 300,  # an advice on six candidates of 36 rounds, or a training of 149
        "max_schemas": 2,
        "max_splits": 2,
        "max_runs_per_day": 20,
    },
    "usual": {"require_plan": True},
    "open": {
        "max_models": 3000,
        "max_repeats": 100,
        "max_rounds": 20_000,
        "max_schemas": 100,
        "updates_for_distances": True,
    },
}


def make_limits(table: Mapping[str, Any], actions: Collection[str]) -> Limits:
    """Read limits from a table of plain values; an unknown key is an error, so that a misspelt limit is never ignored.

    Parameters
    ----------
    table : mapping
        The `[limits]` of a silo's TOML file: a `preset`, and single limits that differ from it.
    actions : collection of str
        The names that `actions` may list.

    Raises
    ------
    InputError
        If the table has an unknown key or a value of another kind.
    """
    table = dict(table)
    preset = table.pop("preset", None)
    if preset is not None:
        begun: dict[str, Any] = choose("limits preset", preset, PRESETS)
        table = {**begun, **table}
    for key in table:
        if key not in Limits.__struct_fields__:
            raise InputError(unknown("limits", key, ("preset", *Limits.__struct_fields__)))
    for key, value in table.items():
        try:
            msgspec.convert({key: value}, Limits)
        except msgspec.ValidationError as error:
            raise InputError(f"`limits {key}` (={value!r}): {str(error).split(' - at ')[0]}") from None
    limits = msgspec.convert(table, Limits)
    for name in limits.actions or ():
        if name not in actions:
            raise InputError(unknown("limits actions", name, actions))
    return limits
