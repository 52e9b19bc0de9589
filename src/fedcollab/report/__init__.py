"""Stage 5: what to show to the partners. A page from a run directory, its pictures as figures, a terminal."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
