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
    "Collaboration": "fedcollab.coalitions",
    "InputError": "fedcollab.errors",
    "c_path": "fedcollab.coalitions",
    "objective": "fedcollab.coalitions",
    "place": "fedcollab.coalitions",
    "solve": "fedcollab.coalitions",
}

__all__ = ["Collaboration", "InputError", "c_path", "objective", "place", "solve"]

if TYPE_CHECKING:
    from fedcollab.coalitions import Collaboration, c_path, objective, place, solve
    from fedcollab.errors import InputError


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fedcollab' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
