"""Scenarios by name, and how each is usually trained on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any

from fedcollab.errors import InputError, choose, number, unknown
from fedcollab.scenarios import concept, feature, federation, hospitals, label
from fedcollab.scenarios.data import Images, images
from fedcollab.scenarios.dirichlet import dirichlet
from fedcollab.scenarios.scenario import Scenario
from fedcollab.scenarios.two_clients import two_clients


@dataclass(frozen=True)
class Recipe:
    """How a scenario is built.

    Parameters
    ----------
    build : function
        Makes the scenario from a data set, a seed and options.
    dataset : str
        The data set that it is built from unless another is named.
    read : function
        Loads a data set by name.
    settings : dict
        Training settings that replace those of `build`.
    """

    build: Callable[..., Scenario]
    dataset: str
    read: Callable[[str], Any] = images
    settings: dict[str, Any] = field(default_factory=dict)

    def options(self) -> list[str]:
        """Return the names of the options that may be set, beside the seed, the data set and `iid`."""
        return sorted(set(signature(self.build).parameters) - {"data", "seed", "iid"})


SCENARIOS: dict[str, Recipe] = {
    "concept-shift": Recipe(concept.concept_shift, "cifar-100"),
    # Label shift in small. With these sizes the bound's best coalitions are 0-4, 5-9, 10-19 for C from 2.04 to 3.52.
    "digits": Recipe(label.label_shift, "digits", settings={"rounds": 50, "C": 2.7}),
    "dirichlet": Recipe(dirichlet, "fashion-mnist"),
    "feature-shift": Recipe(feature.feature_shift, "cifar-10"),
    "federation": Recipe(federation.federation, "loans_states", federation.read_federation),
    "heart": Recipe(hospitals.hospitals, "heart", hospitals.tables),
    "label-shift": Recipe(label.label_shift, "fashion-mnist"),
    "two-client": Recipe(two_clients, "fashion-mnist"),
}

#: how each scenario is trained on with its own data set: the paper's settings, and for the hospitals ours
SETTINGS: dict[str, dict[str, Any]] = {
    "concept-shift": concept.SETTINGS,
    "feature-shift": feature.SETTINGS,
    "federation": federation.SETTINGS,
    "heart": hospitals.SETTINGS,
    "label-shift": label.SETTINGS,
}


def make(
    name: str, *, seed: int = 0, iid: bool = False, dataset: str | Images | None = None, **options: Any
) -> Scenario:
    """Make a scenario by name.

    Parameters
    ----------
    name : str
        One of `SCENARIOS`.
    seed : int
        Decides which samples each client gets; the same seed gives the same scenario.
    iid : bool
        Draw each client's labels independently from its mix, instead of the mix rounded to whole samples.
    dataset : str or Images, optional
        A data set's name (see `fedcollab data list`), or your own `Images`; the scenario's own by default.
    **options
        What the scenario lets you set: clients, quantity, test, and its own.

    Returns
    -------
    Scenario

    Raises
    ------
    InputError
        If a name or an option is unknown or out of range, or the data set is not on this machine.

    Examples
    --------
    >>> make("digits", clients=4)
    Scenario('digits', 4 clients of 4 types, 42, 14 samples, seed 0)
    """
    recipe = choose("name", name, SCENARIOS)
    seed = int(number("seed", seed, whole=True, at_least=0))
    if not isinstance(iid, bool):
        raise InputError(f"`iid` (={iid!r}) must be true or false")
    for option in options:
        if option not in recipe.options():
            raise InputError(f"scenario {name}: {unknown('option', option, recipe.options())}")
    data = dataset if isinstance(dataset, Images) else recipe.read(recipe.dataset if dataset is None else dataset)
    scenario = recipe.build(data, seed=seed, iid=iid, **options)
    settings = {**scenario.settings, **recipe.settings}
    return replace(scenario, name=name, settings=settings, options={"iid": iid, **options})
