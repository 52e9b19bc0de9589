"""`fedcollab federation demo` on a machine without data sets: the whole story, and no process left behind."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import psutil
import pytest

from .conftest import COMMAND, LIMIT


def processes_with(key: str, value: str) -> list[str]:
    """Return the commands of all living processes that have this variable in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(key) == value:
                found.append(" ".join(process.cmdline()))
        except psutil.Error:  # it ended meanwhile, or is another user's
            continue
    return found


@pytest.mark.federation
def test_the_demo_needs_no_data_set_and_ends_all_its_processes(tmp_path: Path) -> None:
    out, empty = tmp_path / "demo", tmp_path / "empty"
    empty.mkdir()
    environment = {**os.environ, "FEDCOLLAB_DATA": str(empty), "XDG_CACHE_HOME": str(empty)}
    command = [*COMMAND, "federation", "demo", "--out", str(out), "--rounds", "1"]
    started = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )
    assert processes_with("FEDCOLLAB_DATA", str(empty))
    shown, failed = started.communicate(timeout=LIMIT)
    assert started.returncode == 0, shown + failed
    assert "four post offices" in shown
    assert json.loads((out / "collaboration.json").read_text())["coalitions"] == [["east", "west"], ["north", "south"]]
    assert (out / "report.html").stat().st_size > 10_000
    assert processes_with("FEDCOLLAB_DATA", str(empty)) == []
