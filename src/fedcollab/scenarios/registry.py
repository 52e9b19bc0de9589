"""Scenarios by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any

from fedcollab.errors import InputError, choose, number, unknown
from fedcollab.scenarios.concept import concept_shift
from fedcollab.scenarios.data import Images, images
from fedcollab.scenarios.dirichlet import dirichlet
from fedcollab.scenarios.feature import feature_shift
from fedcollab.scenarios.hospitals import hospitals, tables
from fedcollab.scenarios.label import label_shift
from fedcollab.scenarios.scenario import Scenario
from fedcollab.scenarios.two_clients import two_clients


@dataclass(frozen=True)
class Recipe:
    """How a scenario is built, the data set it is built from unless another is named, and settings of its own."""

    build: Callable[..., Scenario]
    dataset: str
    read: Callable[[str], Any] = images
    settings: dict[str, Any] = field(default_factory=dict)

    def options(self) -> list[str]:
        """What may be set, beside the seed, the data set and `iid`."""
        return sorted(set(signature(self.build).parameters) - {"data", "seed", "iid"})


SCENARIOS: dict[str, Recipe] = {
    "concept-shift": Recipe(concept_shift, "cifar-100"),
    # Label shift in small. With these sizes the bound's best coalitions are 0-4, 5-9, 10-19 for C from 2.04 to 3.52.
    "digits": Recipe(label_shift, "digits", settings={"rounds": 50, "C": 2.7}),
    "dirichlet": Recipe(dirichlet, "fashion-mnist"),
    "feature-shift": Recipe(feature_shift, "cifar-10"),
    "heart": Recipe(hospitals, "heart", tables),
    "label-shift": Recipe(label_shift, "fashion-mnist"),
    "two-client": Recipe(two_clients, "fashion-mnist"),
}


def make(
    name: str, *, seed: int = 0, iid: bool = False, dataset: str | Images | None = None, **options: Any
) -> Scenario:
    """Make a scenario by name.

    name        one of `SCENARIOS`
    seed        decides which samples each client gets; the same seed gives the same scenario
    iid         draw each client's labels independently from its mix, instead of the mix rounded to whole samples
    dataset     a data set's name (see `fedcollab data list`), or your own `Images`
    options     what the scenario lets you set: clients, quantity, test, and its own
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
