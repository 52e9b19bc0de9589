"""Coalitions: the bound, the objective, and a solver that is fast, certified, explained and constrained."""

from fedcollab.coalitions.collaboration import Collaboration
from fedcollab.coalitions.objective import objective
from fedcollab.coalitions.path import CPath, c_path
from fedcollab.coalitions.solve import solve

__all__ = ["CPath", "Collaboration", "c_path", "objective", "solve"]
