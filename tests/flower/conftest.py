"""What tests of a silo share: one silo's folder, and a process that counts as part of a Flower run."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedcollab.data import ClientData
from fedcollab.flower.silo.config import CONFIG


@pytest.fixture
def inside_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Flower take this process for one of its run 1."""
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(f"flwr.supercore.task_identity.TaskIdentity.{name}", 1)


@pytest.fixture
def silo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a silo `north` that serves without plans, and that a ClientApp of this process finds."""
    ClientData("north", [[0.0], [1.0]] * 60, [0, 1] * 60).save(tmp_path / "secret-place.npz")
    (tmp_path / "silo.toml").write_text('name = "north"\ndata = "secret-place.npz"\n[limits]\npreset = "open"\n')
    monkeypatch.setenv(CONFIG, str(tmp_path / "silo.toml"))
    return tmp_path
