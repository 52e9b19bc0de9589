"""How different are two clients' data, without moving data, and how sure are we?"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
