"""What a silo insists on, whatever the server asks: its administrator's floors, a table of the silo's own TOML file.

    [floors]
    min_samples = 20                                  # the fewest samples that an update is made of
    min_coalition = 2                                 # the fewest clients to train with, this one included
    max_runs_per_day = 5                              # in UTC; 0: no limit
    require_privacy = { epsilon = 1.0, delta = 1e-5 } # differential privacy of each run, at least as strong
    actions = ["describe", "spread", "prepare", "few-moments", "few-validate"]
    max_bytes = 1_000_000_000                         # of a message
    max_splits = 3                                    # hold-outs that servers may choose, where there is no test data

Every line may be missing. What each can and cannot do against a server that lies: docs/threats.md.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fedcollab.errors import InputError, number, unknown


@dataclass(frozen=True)
class Privacy:
    """(epsilon, delta): a run may spend this much and no more."""

    epsilon: float
    delta: float = 1e-5

    def __str__(self) -> str:
        return f"epsilon {self.epsilon:g}, delta {self.delta:g}"


@dataclass(frozen=True)
class Floors:
    """See above; the defaults are those of a silo without a `[floors]` table."""

    min_samples: int = 10
    min_coalition: int = 1
    max_runs_per_day: int = 0
    require_privacy: Privacy | None = None
    actions: tuple[str, ...] | None = None
    max_bytes: int = 2_000_000_000
    max_splits: int = 10


NO_FLOORS = Floors(min_samples=1)  # in-process runtimes: whoever runs them holds the data of all clients anyway


def read_floors(path: str | Path) -> Floors:
    """The `[floors]` of a silo's TOML file."""
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"`{path}` does not exist; expected a TOML file") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"`{path}` cannot be read: {error}") from None
    return make_floors(content.get("floors", {}))


def make_floors(table: Mapping[str, Any]) -> Floors:
    """From a table of plain values, checked: a floor that is misspelt must not be a floor that is missing."""
    from fedcollab.wire.action import ACTIONS

    known = [field.name for field in fields(Floors)]
    found: dict[str, Any] = dict(table)
    for key, value in table.items():
        if key not in known:
            raise InputError(unknown("floors", key, known))
        if key in ("min_samples", "min_coalition", "max_bytes", "max_splits"):
            found[key] = int(number(f"floors {key}", value, at_least=1, whole=True))
        elif key == "max_runs_per_day":
            found[key] = int(number(f"floors {key}", value, at_least=0, whole=True))
        elif key == "require_privacy":
            found[key] = _privacy(value)
        else:
            if not isinstance(value, list):
                raise InputError(f"`floors actions` (={value!r}) must be a list of names")
            strange = next((action for action in value if action not in ACTIONS), None)
            if strange is not None:
                raise InputError(unknown("floors actions", strange, ACTIONS))
            found[key] = tuple(value)
    return Floors(**found)


def _privacy(value: Any) -> Privacy:
    if not isinstance(value, Mapping) or "epsilon" not in value or set(value) - {"epsilon", "delta"}:
        raise InputError(f"`floors require_privacy` (={value!r}) must be {{ epsilon = ..., delta = ... }}")
    return Privacy(
        number("floors require_privacy epsilon", value["epsilon"], above=0),
        number("floors require_privacy delta", value.get("delta", 1e-5), above=0, at_most=0.5),
    )
