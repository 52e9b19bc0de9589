"""Data sets, and label, feature, concept and quantity shift made from them.

>>> from fedcollab import scenarios
>>> scenario = scenarios.make("label-shift", seed=0)        # doctest: +SKIP
>>> scenario.clients[0]                                     # doctest: +SKIP
ClientData('client-00', 2100 samples, 4 classes, features (1, 28, 28), 350 for testing)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcollab.lazy import lazily

if TYPE_CHECKING:
    from fedcollab.scenarios.concept import paper_permutations
    from fedcollab.scenarios.data import Images, images
    from fedcollab.scenarios.file import load
    from fedcollab.scenarios.hospitals import heart_clients
    from fedcollab.scenarios.registry import SCENARIOS, SETTINGS, make
    from fedcollab.scenarios.scenario import Scenario

__all__ = [
    "SCENARIOS",
    "SETTINGS",
    "Images",
    "Scenario",
    "heart_clients",
    "images",
    "load",
    "make",
    "paper_permutations",
]

__getattr__ = lazily(
    __name__,
    {
        "Images": "data",
        "SCENARIOS": "registry",
        "SETTINGS": "registry",
        "Scenario": "scenario",
        "heart_clients": "hospitals",
        "images": "data",
        "load": "file",
        "make": "registry",
        "paper_permutations": "concept",
    },
)
