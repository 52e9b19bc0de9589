"""The experiments by name, in the order in which `fedcollab reproduce --list` shows them."""

from __future__ import annotations

from fedcollab.errors import choose
from fedcollab.reproduce import table_1, table_2
from fedcollab.reproduce.ablation import Ablation
from fedcollab.reproduce.clusters import Clusters
from fedcollab.reproduce.complexity import Complexity
from fedcollab.reproduce.convergence import Convergence
from fedcollab.reproduce.distances import DistanceMatrices
from fedcollab.reproduce.effect_of_c import EffectOfC
from fedcollab.reproduce.experiment import Experiment
from fedcollab.reproduce.federations import Federations
from fedcollab.reproduce.heart import Heart
from fedcollab.reproduce.label_distribution import LabelDistribution
from fedcollab.reproduce.label_permutation import LabelPermutation
from fedcollab.reproduce.new_client import NewClient
from fedcollab.reproduce.overview import Overview
from fedcollab.reproduce.quantities import Quantities
from fedcollab.reproduce.seed_spread import SeedSpread
from fedcollab.reproduce.two_client import TwoClient

EXPERIMENTS: dict[str, Experiment] = {
    made.name: made
    for made in (
        table_1.Table1(),
        table_2.Table2(),
        Clusters(),
        SeedSpread(),
        Ablation(),
        Complexity(),
        Quantities(),
        TwoClient(),
        LabelDistribution(),
        LabelPermutation(),
        DistanceMatrices(),
        EffectOfC(),
        NewClient(),
        Convergence(),
        Overview(),
        Heart(),
        Federations(),
    )
}
#: names that experiments had earlier
EARLIER = {"deals": "seed-spread"}
#: the methods of the tables of accuracies, by the name that `--methods` takes
METHODS = {"local": "Local training", **table_1.NAMES, **table_2.NAMES}


def find(name: str) -> Experiment:
    """Return an experiment by its name, or by one that it had earlier.

    Parameters
    ----------
    name : str
        One of `EXPERIMENTS`.

    Returns
    -------
    Experiment

    Raises
    ------
    InputError
        If there is no such experiment; the message lists those there are.

    Examples
    --------
    >>> find("deals").name
    'seed-spread'
    """
    return choose("name", EARLIER.get(name, name), EXPERIMENTS)
