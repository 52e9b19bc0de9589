"""`run`, `join`, `leave` and `train` over Flower, each killed at a random moment and run again: the same bytes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


pytestmark = pytest.mark.faults


@pytest.fixture
def kills() -> Any:
    """The program; its full run is `python tools/kills.py`, see docs/reliability.md."""
    spec = importlib.util.spec_from_file_location("fedcollab_kills", ROOT / "tools" / "kills.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fedcollab_kills"] = module
    spec.loader.exec_module(module)
    return module


def test_three_kills(kills: Any, tmp_path: Path) -> None:
    made = kills.trials(tmp_path, 3, 25, ["run", "join", "leave"])
    assert [trial.command for trial in made] == ["run", "join", "leave"]
    assert [trial.outcome for trial in made] == ["same bytes"] * 3


def test_a_kill_of_a_training_over_flower(kills: Any, tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    (made,) = kills.trials(tmp_path, 1, 25, ["train"])
    assert (made.command, made.outcome) == ("train", "same bytes")
