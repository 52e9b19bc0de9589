"""The examples run as they are; the Flower app is run by tests/federation, the first notebook by tests/report."""

from __future__ import annotations

import ast
import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from fedcollab.training import ALGORITHMS

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def run(name: str, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> dict[str, object]:
    """Run an example as a program and return its names."""
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    return runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_own_csv(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run("own_csv.py", monkeypatch)
    shown = capsys.readouterr().out
    assert "in its coalition" in shown
    code = [line for line in (EXAMPLES / "own_csv.py").read_text().split('"""')[2].splitlines() if line.strip()]
    assert len(code) <= 20


def test_matrix(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run("matrix.py", monkeypatch)
    assert "[['north', 'south'], ['east', 'west']] proven optimal" in capsys.readouterr().out


def test_own_model(monkeypatch: pytest.MonkeyPatch) -> None:
    space = run("own_model.py", monkeypatch)
    assert space["shared"].reported.mean() > 0.3  # type: ignore[attr-defined]


def test_own_algorithm(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        space = run("own_algorithm.py", monkeypatch)
        assert np.allclose(space["plain"].loss, space["same"].loss, atol=1e-4)  # type: ignore[attr-defined]
    finally:
        ALGORITHMS.pop("careful", None)


def test_the_study_notebook() -> None:
    content = json.loads((EXAMPLES / "study.ipynb").read_text(encoding="utf-8"))
    space: dict[str, object] = {}
    for cell in content["cells"]:
        if cell["cell_type"] == "code":
            assert not cell["outputs"]
            source = "".join(cell["source"]).replace("range(3)", "range(1)")  # one split is enough to see that it runs
            exec(compile(ast.parse(source), "study", "exec"), space)
    assert set(space["table"]["way"]) == {"alone", "everyone", "coalitions"}  # type: ignore[index]
