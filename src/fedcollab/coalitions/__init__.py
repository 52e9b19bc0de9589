"""Coalitions: the bound, the objective, and a solver that is fast, certified, explained and constrained."""

from fedcollab.coalitions.collaboration import Collaboration
from fedcollab.coalitions.objective import objective
from fedcollab.coalitions.solve import solve

__all__ = ["Collaboration", "objective", "solve"]
