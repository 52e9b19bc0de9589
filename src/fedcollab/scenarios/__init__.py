"""Data sets, and label, feature, concept and quantity shift made from them.

>>> from fedcollab import scenarios
>>> scenario = scenarios.make("label-shift", seed=0)        # doctest: +SKIP
>>> scenario.clients[0]                                     # doctest: +SKIP
ClientData('client-00', 2100 samples, 4 classes, features (1, 28, 28), 350 for testing)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
