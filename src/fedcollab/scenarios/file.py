"""Scenario files: TOML with a table [scenario] (what to make) and a table [settings] (how to train on it).

[scenario]
name = "label-shift"        # and what `make` takes: dataset, seed, iid, clients, quantity, test, ...

[settings]                  # each overrides the paper's
rounds = 50
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from fedcollab.errors import InputError, choose, number, unknown
from fedcollab.parsing import parse_toml
from fedcollab.scenarios.registry import SCENARIOS, make
from fedcollab.scenarios.scenario import Scenario

TABLES = ("scenario", "settings")
TEXTS = ("algorithm", "encoder", "loss", "model", "stopping", "task")
WHOLE = ("batch_size", "local_epochs", "rounds")
POSITIVE = ("C", "discriminator_lr", "lr")


def load(path: str | Path) -> Scenario:
    """Make the scenario that a TOML file describes.

    Parameters
    ----------
    path : str or Path
        The file, with a table [scenario] and, if wanted, a table [settings].

    Returns
    -------
    Scenario

    Raises
    ------
    InputError
        If the file cannot be read, or has an unknown or wrong entry.

    Examples
    --------
    >>> clients = load("experiments/digits.toml").clients  # doctest: +SKIP
    """
    path = Path(path)
    content = parse_toml(path, "a scenario file (TOML)")
    try:
        return from_tables(content)
    except InputError as error:
        raise InputError(f"`{path}`: {error}") from None


def from_tables(content: dict[str, Any]) -> Scenario:
    """Make the scenario of a parsed file."""
    for table, values in content.items():
        if table not in TABLES:
            raise InputError(unknown("table", table, TABLES))
        if not isinstance(values, dict):
            raise InputError(f"`{table}` (={values!r}) must be a table")
    if "name" not in content.get("scenario", {}):
        raise InputError(f"the table [scenario] must have a `name`, one of: {', '.join(sorted(SCENARIOS))}")
    wanted = dict(content["scenario"])
    recipe = choose("name", wanted.pop("name"), SCENARIOS)
    keys = [*recipe.options(), "dataset", "iid", "seed"]
    for key in wanted:
        if key not in keys:
            raise InputError(unknown("key of [scenario]", key, ["name", *keys]))
    if not isinstance(wanted.get("dataset", ""), str):
        raise InputError(f"`dataset` (={wanted['dataset']!r}) must be a name")
    settings = check_settings(content.get("settings", {}))
    scenario = make(content["scenario"]["name"], **wanted)
    return replace(scenario, settings={**scenario.settings, **settings})


def check_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings, checked for their types; names are checked by the stage that uses them."""
    checked: dict[str, Any] = {}
    for key, value in settings.items():
        if key in TEXTS:
            if not isinstance(value, str) or not value:
                raise InputError(f"`{key}` (={value!r}) must be a name")
            checked[key] = value
        elif key in WHOLE:
            checked[key] = int(number(key, value, at_least=1, whole=True))
        elif key == "C" and value == "auto":
            checked[key] = value
        elif key in POSITIVE:
            checked[key] = number(key, value, above=0)
        else:
            raise InputError(unknown("key of [settings]", key, [*TEXTS, *WHOLE, *POSITIVE]))
    return checked
