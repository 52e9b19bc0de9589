"""The cell cache: what is there is not computed again, what was made otherwise is, and two commands share the work."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fedcollab.errors import InputError
from fedcollab.progress import silent
from fedcollab.reproduce import runner
from fedcollab.reproduce.cells import Cell, Cells, Scratch

CALLS: list[int] = []


@pytest.fixture(autouse=True)
def doubling(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind of cell that doubles a number and notes that it was asked."""
    CALLS.clear()

    def doubled(settings: Mapping[str, Any], scratch: Scratch) -> dict[str, Any]:
        CALLS.append(settings["value"])
        return {"twice": 2 * settings["value"]}

    monkeypatch.setitem(runner.KINDS, "double", doubled)


def cell(value: int, name: str | None = None) -> Cell:
    return Cell("double", name or f"some/value_{value}", {"value": value})


def run(cells: Cells, *wanted: Cell, fresh: bool = False) -> list[str]:
    said: list[str] = []
    runner.compute_missing(lambda: list(wanted), cells, jobs=1, fresh=fresh, progress=silent, say=said.append)
    return said


def test_what_is_there_is_not_computed_again(tmp_path: Path) -> None:
    run(Cells(tmp_path), cell(1), cell(2))
    run(Cells(tmp_path), cell(1), cell(2), cell(3))
    assert CALLS == [1, 2, 3]
    record = Cells(tmp_path).get(cell(3))
    assert record is not None
    assert record.result == {"twice": 6}
    run(Cells(tmp_path), cell(1), fresh=True)
    assert CALLS == [1, 2, 3, 1]


def test_a_cell_with_other_settings_counts_as_absent(tmp_path: Path) -> None:
    run(Cells(tmp_path), cell(1, "same"))
    cells = Cells(tmp_path)
    assert cells.get(cell(2, "same")) is None
    run(cells, cell(2, "same"))
    record = cells.get(cell(2, "same"))
    assert record is not None
    assert record.result == {"twice": 4}


def test_the_plan_grows_with_what_is_known(tmp_path: Path) -> None:
    cells = Cells(tmp_path)

    def plan() -> Iterator[Cell]:
        yield cell(1)
        first = cells.get(cell(1))
        if first is not None:
            yield cell(first.result["twice"] + 10)

    runner.compute_missing(plan, cells, jobs=1, progress=silent, say=lambda line: None)
    assert CALLS == [1, 12]


def test_a_cell_that_another_process_computes_is_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "WAIT", 0.01)
    cells = Cells(tmp_path)
    with cells.claim(cell(1)) as mine:
        assert mine
        assert runner.compute_cell(tmp_path, cell(1), False) is False
        waiting = threading.Thread(target=run, args=(Cells(tmp_path), cell(1), cell(2)))
        waiting.start()
        while 2 not in CALLS and waiting.is_alive():
            time.sleep(0.01)
        cells.put(cell(1), {"twice": 2}, 0.0)
        waiting.join()
    assert CALLS == [2]


def test_a_file_cut_short_is_one_clear_line(tmp_path: Path) -> None:
    cells = Cells(tmp_path)
    cells.put(cell(1), {"twice": 2}, 0.5)
    path = cells.path(cell(1))
    content = json.loads(path.read_text())
    assert content["settings"] == {"kind": "double", "value": 1}
    path.write_text(path.read_text()[:40])
    with pytest.raises(InputError, match="not JSON"):
        Cells(tmp_path).get(cell(1))


def test_seconds_are_those_of_all_processes_that_worked_on_a_cell(tmp_path: Path) -> None:
    cells = Cells(tmp_path)
    scratch = cells.scratch(cell(1))
    scratch.progress(1, 2)
    (scratch.folder / "seconds").write_text("100.0")
    assert cells.scratch(cell(1)).seconds >= 100
    run(cells, cell(1))
    record = cells.get(cell(1))
    assert record is not None
    assert record.seconds >= 100
    assert not scratch.folder.exists()


@pytest.mark.parametrize("why", ["fresh", "other settings", "other code"])
def test_what_another_work_left_is_thrown_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    scratch = Cells(tmp_path).scratch(cell(1, "same"))
    scratch.progress(1, 2)
    (scratch.folder / "seconds").write_text("100.0")
    if why == "other code":
        monkeypatch.setattr("fedcollab.reproduce.cells._code", lambda: "changed")
    cells, wanted = Cells(tmp_path), cell(2 if why == "other settings" else 1, "same")
    run(cells, wanted, fresh=why == "fresh")
    record = cells.get(wanted)
    assert record is not None
    assert record.seconds < 100
