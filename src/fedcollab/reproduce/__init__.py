"""Every table and figure of the paper by one command each: `fedcollab reproduce NAME`.

One file a table or figure, with only its difference in it. They share one cache of cells (`cells`), one runner
(`runner`), one way to set a scenario up (`setups`) and one to show a figure beside the paper's (`output`).
"""

from __future__ import annotations

from fedcollab.reproduce.ablation import Ablation
from fedcollab.reproduce.clusters import Clusters
from fedcollab.reproduce.complexity import Complexity
from fedcollab.reproduce.convergence import Convergence
from fedcollab.reproduce.deals import Deals
from fedcollab.reproduce.distances import DistanceMatrices
from fedcollab.reproduce.effect_of_c import EffectOfC
from fedcollab.reproduce.experiment import Experiment
from fedcollab.reproduce.heart import Heart
from fedcollab.reproduce.label_distribution import LabelDistribution
from fedcollab.reproduce.label_permutation import LabelPermutation
from fedcollab.reproduce.new_client import NewClient
from fedcollab.reproduce.overview import Overview
from fedcollab.reproduce.quantities import Quantities
from fedcollab.reproduce.table_1 import Table1
from fedcollab.reproduce.table_2 import Table2
from fedcollab.reproduce.two_client import TwoClient

__all__ = ["EXPERIMENTS", "Experiment"]

EXPERIMENTS: dict[str, Experiment] = {
    made.name: made
    for made in (
        Table1(),
        Table2(),
        Clusters(),
        Deals(),
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
    )
}
