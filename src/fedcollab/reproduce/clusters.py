"""Beyond the paper: the clustered algorithms by their number of clusters, which the paper does not give."""

from __future__ import annotations

from fedcollab.reproduce.accuracy import FEDCOLLAB, AccuracyTable, Method
from fedcollab.reproduce.table_2 import NAMES

NUMBERS = (2, 3, 4, 5)


class Clusters(AccuracyTable):
    """IFCA, FeSEM and KMeans with 2 to 5 clusters; FedCluster finds its own number, up to the limit.

    KMeans also after long training alone (100 rounds, or all where there are fewer): the paper does not say how long.
    """

    name = "clusters"
    title = "Clustered federated learning by the number of clusters"
    place = "not in it (its numbers of clusters are unpublished; Table 2 takes 4)"
    time = "4 h (label shift 50 min)"
    rows = (
        *(Method(key, f"{label}, K = {k}", key, None, k=k) for key, label in NAMES.items() for k in NUMBERS),
        Method("kmeans", "KMeans, long alone, K = 4", "kmeans", None, k=4, options=(("local_rounds", 100),)),
        FEDCOLLAB,
    )
    shows_coalitions = True
