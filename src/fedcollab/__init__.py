"""Who should train with whom? Five stages, each one sub-package, one command and one saved artefact.

    clients ──▶ distances ──▶ coalitions ──▶ training ──▶ report

`ClientData` holds what one client has. `estimate_distances` says how different every two clients' data are without
moving data. `solve` finds the coalitions that minimise a bound on every client's error; `c_path` shows how they change
with C. `train` runs a federated algorithm inside each coalition. `FedCollab` is the five stages in one object.

Nothing heavy is imported until it is used: a person with a distance matrix never waits for PyTorch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "ClientData": "fedcollab.data",
    "Collaboration": "fedcollab.coalitions",
    "Distances": "fedcollab.distances",
    "FedCollab": "fedcollab.runs.pipeline",
    "InputError": "fedcollab.errors",
    "TrainingResult": "fedcollab.training",
    "c_path": "fedcollab.coalitions",
    "estimate_distances": "fedcollab.distances",
    "load_model": "fedcollab.training",
    "objective": "fedcollab.coalitions",
    "place": "fedcollab.coalitions",
    "solve": "fedcollab.coalitions",
    "train": "fedcollab.training",
}
_MODULES = ("baselines", "metrics", "scenarios")

__all__ = [
    "ClientData",
    "Collaboration",
    "Distances",
    "FedCollab",
    "InputError",
    "TrainingResult",
    "baselines",
    "c_path",
    "estimate_distances",
    "load_model",
    "metrics",
    "objective",
    "place",
    "scenarios",
    "solve",
    "train",
]

if TYPE_CHECKING:
    from fedcollab import baselines, metrics, scenarios
    from fedcollab.coalitions.collaboration import Collaboration
    from fedcollab.coalitions.objective import objective
    from fedcollab.coalitions.path import c_path
    from fedcollab.coalitions.place import place
    from fedcollab.coalitions.solve import solve
    from fedcollab.data import ClientData
    from fedcollab.distances import Distances, estimate_distances
    from fedcollab.errors import InputError
    from fedcollab.runs.pipeline import FedCollab
    from fedcollab.training import TrainingResult, load_model, train


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"fedcollab.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'fedcollab' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
