"""`run`, `join` and `leave`, each killed once at a random moment: the same command again ends with the same bytes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_three_kills(tmp_path: Path) -> None:
    """The full run is `python tools/kills.py`; see docs/reliability.md."""
    spec = importlib.util.spec_from_file_location("fedcollab_kills", ROOT / "tools" / "kills.py")
    assert spec is not None
    assert spec.loader is not None
    kills = importlib.util.module_from_spec(spec)
    sys.modules["fedcollab_kills"] = kills
    spec.loader.exec_module(kills)
    made = kills.trials(tmp_path, 3, seed=25)
    assert [trial.command for trial in made] == ["run", "join", "leave"]
    assert [trial.outcome for trial in made] == ["same bytes"] * 3
