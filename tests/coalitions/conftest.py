"""The plain readings that benchmarks measure against are the oracles of these tests."""

import importlib.util
import sys
from pathlib import Path

import pytest

_file = Path(__file__).parents[2] / "benchmarks" / "reference.py"


@pytest.fixture(scope="session")
def reference():
    spec = importlib.util.spec_from_file_location("coalitions_reference", _file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
