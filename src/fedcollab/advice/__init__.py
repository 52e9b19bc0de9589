"""Who should train with whom, how, and what each client will gain: measured before anyone commits."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
