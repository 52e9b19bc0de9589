"""Data sets, and label, feature, concept and quantity shift made from them.

>>> from fedcollab import scenarios
>>> scenario = scenarios.make("label-shift", seed=0)        # doctest: +SKIP
>>> scenario.clients[0]                                     # doctest: +SKIP
ClientData('client-00', 2100 samples, 4 classes, features (1, 28, 28), 350 for testing)
"""

from __future__ import annotations

from fedcollab.scenarios.data import Images, images
from fedcollab.scenarios.file import load
from fedcollab.scenarios.hospitals import heart_clients
from fedcollab.scenarios.registry import SCENARIOS, make
from fedcollab.scenarios.scenario import Scenario

__all__ = ["SCENARIOS", "Images", "Scenario", "heart_clients", "images", "load", "make"]
