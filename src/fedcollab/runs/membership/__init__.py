"""Clients come, go and change after the first day: the collaboration is kept up to date, explained and recorded."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
