"""Clustered federated learning that FedCollab is compared to: IFCA, FedCluster, FeSEM and KMeans.

Each is a `Grouping`: it decides who is in which cluster, before or during training. Everything else (rounds, local
training, metrics, files) is `fedcollab.training`'s.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
