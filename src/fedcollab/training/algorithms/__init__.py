"""The algorithms, one a file, each overriding only the hook that makes it different."""

from __future__ import annotations

from fedcollab.training.algorithms.ditto import Ditto
from fedcollab.training.algorithms.fedadam import FedAdam
from fedcollab.training.algorithms.fedavg import FedAvg
from fedcollab.training.algorithms.fednova import FedNova
from fedcollab.training.algorithms.fedprox import FedProx
from fedcollab.training.algorithms.finetune import Finetune
from fedcollab.training.algorithms.local import Local
from fedcollab.training.algorithms.own_intercept import OwnIntercept
from fedcollab.training.algorithms.own_weights import OwnWeights
from fedcollab.training.algorithms.perfedavg import PerFedAvg
from fedcollab.training.algorithms.pfedme import PFedMe
from fedcollab.training.algorithms.scaffold import Scaffold
from fedcollab.training.hooks import ALGORITHMS, Algorithm, make_algorithm, register

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Ditto",
    "FedAdam",
    "FedAvg",
    "FedNova",
    "FedProx",
    "Finetune",
    "Local",
    "OwnIntercept",
    "OwnWeights",
    "PFedMe",
    "PerFedAvg",
    "Scaffold",
    "make_algorithm",
    "register",
]
