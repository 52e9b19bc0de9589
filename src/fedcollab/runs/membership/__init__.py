"""After the first day: clients come, go and change; the collaboration is kept up, explained and recorded."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
