"""Coalitions: the bound, the objective, and a solver that is fast, certified, explained and constrained."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
