"""Frozen encoders: images as feature vectors, made at each client and never transmitted.

Begin with `encoder` (what one is, and where they are registered); `encoding` is what a federation agrees on, `features`
keeps what was encoded, and `efficientnet` and `resnet` are the two that come with fedcollab.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
