"""Table 2: clustered federated learning, and the coalitions that each method finds."""

from __future__ import annotations

from fedcollab.reproduce.accuracy import FEDCOLLAB, AccuracyTable, Method

NAMES = {"ifca": "IFCA", "fedcluster": "FedCluster", "fesem": "FeSEM", "kmeans": "KMeans"}


class Table2(AccuracyTable):
    """Four clustered algorithms beside FedCollab.

    FeSEM also from K random models: the paper calls its distances "highly random depending on the initialization".
    """

    name = "table-2"
    title = "Comparison with clustered federated learning"
    place = "Table 2, Section 5.3 (RQ2)"
    time = "2.5 h (label shift 20 min)"
    rows = (
        Method("ifca", "IFCA", "ifca", None),
        Method("fedcluster", "FedCluster", "fedcluster", None),
        Method("fesem", "FeSEM", "fesem", None),
        Method("fesem", "FeSEM, random centres", "fesem", None, options=(("centres", "random"),)),
        Method("kmeans", "KMeans", "kmeans", None),
        FEDCOLLAB,
    )
    shows_coalitions = True
