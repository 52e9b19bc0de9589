"""Stage 3: a federated algorithm inside each coalition."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
