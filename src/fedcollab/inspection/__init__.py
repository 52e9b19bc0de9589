"""Look at the data first: what is wrong with a federation's data, from aggregates alone, before any distance.

Begin with `check`: it asks every client for one `profile`, and collects what `columns`, `labels`, `tables` and `target`
find in them. `result` holds the findings; `differences` says which columns tell two clients apart.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
