"""Look at the data first: what is wrong with a federation's data, from aggregates alone, before any distance."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
