"""What was typed, as the stages take it: settings with their defaults, checked before anything is computed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from fedcollab import distances, runs, training
from fedcollab.errors import InputError, choose, number
from fedcollab.training import defaults

if TYPE_CHECKING:
    from fedcollab.runs import FedCollab, Run


def take_measuring(settings: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of `measuring` from the settings, and return them as options of `estimate_distances`."""
    epsilon, delta = settings.pop("privacy_epsilon"), settings.pop("privacy_delta")
    if delta is not None and epsilon is None:
        raise InputError(f"`--privacy-delta` (={delta}) goes with --privacy-epsilon, which was not given")
    given = {key: settings.pop(key) for key in ("min_samples", "folds", "label_counts")}
    taken: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if epsilon is not None:
        taken["privacy"] = {"epsilon": epsilon, **({} if delta is None else {"delta": delta})}
    return taken


def take_constraints(settings: dict[str, Any], *, named: bool = True) -> dict[str, Any]:
    """Remove the options of `constraints` from the settings, and return them as options of `solve`.

    Parameters
    ----------
    settings : dict
        The options of a command.
    named : bool
        Whether the clients have names; else they are called by position.
    """
    taken = {key: settings.pop(key) for key in ("must_link", "cannot_link", "min_size", "max_size")}
    for key in ("must_link", "cannot_link"):
        groups = [[part.strip() for part in text.split(",")] for text in taken[key]]
        taken[key] = [[int(part) if not named and part.isdigit() else part for part in group] for group in groups]
    return taken


def limited(constraints: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constraints without those that limit nothing."""
    free = {"must_link": [], "cannot_link": [], "min_size": 1, "max_size": None}
    return {key: value for key, value in constraints.items() if value != free[key]}


def take_pairs(settings: dict[str, Any], option: str) -> dict[str, Any]:
    """Remove an option of KEY=VALUE pairs from the settings, and return its values by key.

    Parameters
    ----------
    settings : dict
        The options of a command.
    option : str
        The option's name there.

    Returns
    -------
    dict
        Numbers, lists, true and false as such; everything else as text.

    Raises
    ------
    InputError
        If there is no `=`.

    Examples
    --------
    >>> take_pairs({"model_option": ("widths=[64, 32]", "kind=small")}, "model_option")
    {'widths': [64, 32], 'kind': 'small'}
    """
    taken = {}
    for text in settings.pop(option):
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise InputError(f"`--{option.replace('_', '-')}` (={text!r}) must be KEY=VALUE, such as mu=0.1")
        try:
            taken[key.strip()] = json.loads(value)
        except ValueError:
            taken[key.strip()] = value.strip()
    return taken


def with_defaults(settings: dict[str, Any], brought: dict[str, Any]) -> dict[str, Any]:
    """Return settings where what was typed comes first, then what a scenario brings, then the defaults.

    A task and a loss that were left to the data are left out.

    Parameters
    ----------
    settings : dict
        The options of the command.
    brought : dict
        The settings of a scenario.
    """
    context = click.get_current_context()
    merged = {"scale": brought.get("scale", "auto")}
    for key, value in settings.items():
        typed = context.get_parameter_source(key) == click.core.ParameterSource.COMMANDLINE
        merged[key] = value if typed else brought.get(key, value)
    left = {"task": "auto", "loss": None}
    return {key: value for key, value in merged.items() if key not in left or value != left[key]}


def check_settings(settings: Mapping[str, Any]) -> None:
    """Check names and numbers of the settings before anything is computed or written.

    Parameters
    ----------
    settings : mapping
        The options of `estimation` and `training`.

    Raises
    ------
    InputError
        If a name is unknown or a number is out of range.
    """
    choose("distance", settings["distance"], distances.METHODS)
    training.make_algorithm(settings["algorithm"] or defaults.ALGORITHM, settings.get("algorithm_options"))
    choose("model", settings["model"], {"auto": None, **training.MODELS})
    number("lr", settings["lr"], above=0)
    number("weight_decay", settings.get("weight_decay", 0.0), at_least=0)
    number("averaging", settings.get("averaging") or 0.0, at_least=0, at_most=0.99)
    for option in ("rounds", "batch_size", "local_epochs"):
        number(option, settings[option], at_least=1, whole=True)


def training_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return those options of a command that say how clients take their steps, for `advise` and `train`."""
    keys = ("rounds", "lr", "batch_size", "local_epochs", "optimizer", "weight_decay", "loss")
    return {key: settings[key] for key in keys if key in settings}


def advises(C: float | str, settings: Mapping[str, Any]) -> bool:
    """Return whether a command asks for an advice: no C, no algorithm and no layers that stay were given.

    Pilots choose their rounds on held-out rows, so that `--stopping none` asks for none either; and they send updates
    of nested groups, which secure aggregation rules out.
    """
    plain = settings["algorithm"] is None and not settings.get("keep") and settings["model"] != "auto"
    plain = plain and settings.get("secure_aggregation", "none") == "none"
    return C == "auto" and plain and settings.get("stopping", defaults.STOPPING) == defaults.STOPPING


def pipeline_of(C: float | str, settings: Mapping[str, Any], *, quiet: bool, run_dir: Run | None = None) -> FedCollab:
    """Return the stages with the settings of a command.

    Parameters
    ----------
    C : float or "auto"
        As in `FedCollab`.
    settings : mapping
        The options of `estimation` and `training`.
    quiet : bool
        No progress bars.
    run_dir : Run, optional
        Where stages leave their artefacts.
    """
    return runs.FedCollab(
        C=C,
        distance_options=settings.get("distance_options", {}),
        solve_options=settings.get("solve_options", {}),
        model_options=settings.get("model_options", {}),
        encoder=settings.get("encoder", "none"),
        quiet=quiet,
        run_dir=run_dir,
        task=settings.get("task"),
        **{key: settings[key] for key in ("distance", "model", "scale", "missing_indicators", "test_share", "seed")},
    )
