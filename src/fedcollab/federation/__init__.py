"""The clients of one run: the schema that they agreed on, and the description that each gave of its data."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
