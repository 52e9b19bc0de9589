"""Clients come, go and change after the first day: the collaboration is kept up to date, explained and recorded.

Begin with `state` (what a run knows at one moment); `joining`, `leaving` and `changes` go from one to the next,
`regroup` says whether to solve anew, `retraining` trains what changed, and `history` writes it down. `answers` checks
that all clients answered that a change needs.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
