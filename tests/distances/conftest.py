"""The plain loops of the benchmarks serve as oracles; small clients of planted types."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from fedcollab.data import ClientData

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="session")
def plain() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return import_module("distances_reference")
    finally:
        sys.path.remove(str(BENCHMARKS))


def labelled(name: str, count: int, share: tuple[float, ...], *, features: int = 30, seed: int = 0) -> ClientData:
    """Classes with their own means in `features` dimensions; labels drawn from `share`."""
    rng = np.random.default_rng([seed, *name.encode()])
    y = rng.choice(len(share), size=count, p=share)
    centres = np.random.default_rng(7).normal(0, 1, (len(share), features))
    x = centres[y] + rng.normal(0, 1, (count, features))
    return ClientData(name, x, y, x[:5] + 1, y[:5])


@pytest.fixture
def mixed() -> list[ClientData]:
    """Three labels; a, b have labels 0 and 1, c has 1 and 2; sizes 40, 14, 23; more features than training samples."""
    return [
        labelled("a", 40, (0.5, 0.5, 0.0)),
        labelled("b", 14, (0.5, 0.5, 0.0)),
        labelled("c", 23, (0.0, 0.5, 0.5)),
    ]
