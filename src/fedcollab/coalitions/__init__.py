"""Coalitions: the bound, the objective, and a solver that is fast, certified, explained and constrained."""

from fedcollab.coalitions.collaboration import Collaboration
from fedcollab.coalitions.objective import objective
from fedcollab.coalitions.path import CPath, c_path
from fedcollab.coalitions.place import Placement, place
from fedcollab.coalitions.solve import solve
from fedcollab.coalitions.stability import Stability, rationality, stability

__all__ = [
    "CPath",
    "Collaboration",
    "Placement",
    "Stability",
    "c_path",
    "objective",
    "place",
    "rationality",
    "solve",
    "stability",
]
