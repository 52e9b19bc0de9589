"""What a silo insists on, whatever the server asks: its administrator's limits, a table of the silo's own TOML file.

    [limits]
    min_samples = 20                                  # the fewest samples that an update is made of
    min_coalition = 2                                 # the fewest clients to train with, this one included
    max_runs_per_day = 5                              # in UTC; 0: no limit
    require_privacy = { epsilon = 1.0, delta = 1e-5 } # differential privacy of each run, at least as strong
    actions = ["inspect", "describe", "spread", "prepare", "few-moments", "few-validate"]
    max_bytes = 1_000_000_000                         # of a message
    max_splits = 3                                    # hold-outs that servers may choose, where there is no test data
    secure_aggregation = true                         # updates leave under masks only (docs/secure-aggregation.md)

Every line may be missing. What each can and cannot do against a server that lies: docs/threats.md.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from fedcollab.errors import InputError, unknown

AtLeastOne = Annotated[int, Meta(ge=1)]


class Privacy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Differential privacy: the epsilon and delta that one run may spend at most.

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
    """

    min_samples: AtLeastOne = 10
    min_coalition: AtLeastOne = 1
    max_runs_per_day: Annotated[int, Meta(ge=0)] = 0
    require_privacy: Privacy | None = None
    actions: tuple[str, ...] | None = None
    max_bytes: AtLeastOne = 2_000_000_000
    max_splits: AtLeastOne = 10
    secure_aggregation: bool | Literal["everyone"] = False

    @property
    def fewest_partners(self) -> int:
        """How many clients a coalition must have at least: `min_coalition`, and three where updates are masked."""
        return max(self.min_coalition, 3 if self.secure_aggregation else 1)


NO_LIMITS = Limits(min_samples=1)  # in-process runtimes: whoever runs them holds the data of all clients anyway


def make_limits(table: Mapping[str, Any], actions: Collection[str]) -> Limits:
    """Read limits from a table of plain values; an unknown key is an error, so that a misspelt limit is never ignored.

    Parameters
    ----------
    table : mapping
        The `[limits]` of a silo's TOML file.
    actions : collection of str
        The names that `actions` may list.

    Returns
    -------
    Limits
        The limits.

    Raises
    ------
    InputError
        If the table has an unknown key or a value of another kind.
    """
    for key in table:
        if key not in Limits.__struct_fields__:
            raise InputError(unknown("limits", key, Limits.__struct_fields__))
    for key, value in table.items():
        try:
            msgspec.convert({key: value}, Limits)
        except msgspec.ValidationError as error:
            raise InputError(f"`limits {key}` (={value!r}): {str(error).split(' - at ')[0]}") from None
    limits = msgspec.convert(dict(table), Limits)
    for name in limits.actions or ():
        if name not in actions:
            raise InputError(unknown("limits actions", name, actions))
    return limits
