"""Coalitions: the bound, the objective, and a solver that is fast, certified, explained and constrained.

Begin with `objective` (what is minimised) and `solve`, which calls `solver` and returns a `Collaboration`. NumPy alone.

`path`, `evidence`          the best partition for every C, and which C to take; is a split more than noise?
`weights`                   weights of one's own, client by client, instead of coalitions
`constraints`, `inputs`, `tables`    what a user may ask for and hand over
`explain`, `stability`      why, and how sure
`place`                     a client that comes later
`bound`                     the paper's error bounds as functions
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
