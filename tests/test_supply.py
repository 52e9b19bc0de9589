"""No network at import or run time beyond what was asked for: the stages run where sockets are denied."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).parents[1]
DENIED = [sys.executable, str(ROOT / "tools" / "no_network.py")]


def without_network(*arguments: str) -> str:
    done = subprocess.run([*DENIED, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_stages_without_a_network(tmp_path: Path) -> None:
    (tmp_path / "clients").mkdir()
    for index in range(4):
        rng = np.random.default_rng(index)
        y = rng.integers(0, 2, 60)
        table = pd.DataFrame(rng.normal(0, 1, (60, 3)) + y[:, None], columns=["age", "dose", "weight"])
        table["ill"] = y if index < 2 else 1 - y
        table.to_csv(tmp_path / "clients" / f"c{index}.csv", index=False)
    run = str(tmp_path / "run")
    without_network(
        "run", "--clients", str(tmp_path / "clients"), "--label", "ill", "--rounds", "2", "--out", run, "--quiet"
    )
    without_network("report", run, "--quiet")
    without_network("explain", run)
    assert (tmp_path / "run" / "report.html").is_file()


@pytest.mark.slow
def test_the_demo_without_a_network(tmp_path: Path) -> None:
    """`tools/wheel.sh`, a step of `.ci/run`, does the same from the built wheel."""
    assert json.loads(without_network("demo", "--quiet", "--json", "--out", str(tmp_path / "demo")))
    assert (tmp_path / "demo" / "report.html").is_file()


def test_a_command_that_wants_the_network_is_noticed(tmp_path: Path) -> None:
    """The denial itself: a federation that would start needs sockets."""
    program = "import runpy, socket; runpy.run_path(__import__('sys').argv[1])['deny'](); socket.socket().bind(('', 0))"
    done = subprocess.run(
        [sys.executable, "-c", program, str(ROOT / "tools" / "no_network.py")], capture_output=True, check=False
    )
    assert b"AssertionError: fedcollab wanted the network" in done.stderr
