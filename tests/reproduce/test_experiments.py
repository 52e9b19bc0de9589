"""A tiny version of every table and figure, end to end on the command line, so that none can rot."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fedcollab.cli import cli
from fedcollab.errors import InputError
from fedcollab.reproduce import EXPERIMENTS, Cells, Choices, Workspace, runner
from fedcollab.reproduce.cells import Scratch


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reproduce")


def run(*words: str) -> Any:
    done = CliRunner().invoke(cli, ["reproduce", *words, "--json"])
    if isinstance(done.exception, InputError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout) if done.stdout.strip() else None


needs_heart = pytest.mark.dataset("heart")  # what a tiny version cannot replace by digits
NEEDS = {"heart": needs_heart, "federations": pytest.mark.dataset("heart", "federations")}


@pytest.mark.parametrize("name", [pytest.param(n, marks=NEEDS.get(n, ())) for n in EXPERIMENTS])
def test_every_one_runs(name: str, folder: Path) -> None:
    [made] = run(name, "--tiny", "--jobs", "1", "--out", str(folder))
    assert made["tables"] or len(made["files"]) > 1
    assert made["reduced"]
    for path in made["files"]:
        content = Path(path).read_bytes()
        assert content
        if path.endswith(".png"):
            assert content.startswith(b"\x89PNG")
    if made["tables"]:
        with (folder / f"{name}.csv").open() as file:
            assert len(list(csv.DictReader(file))) == len(made["tables"])
    text = (folder / f"{name}.md").read_text()
    assert text.startswith(f"# {EXPERIMENTS[name].title}")


def test_table_1_has_every_row_beside_the_papers_figure(folder: Path) -> None:
    [made] = run("table-1", "--tiny", "--jobs", "1", "--out", str(folder), "--scenario", "label-shift")
    rows = [record for record in made["tables"] if record["measure"] == "Acc"]
    assert len(rows) == 15
    first = next(record for record in rows if record["method"] == "FedAvg + FedCollab")
    assert first["paper"] == 92.45
    assert first["difference"] == pytest.approx(first["ours"] - 92.45, abs=1e-3)


def test_coalitions_of_the_cells_are_the_solvers(folder: Path) -> None:
    """What FedCollab's cell trained is what solving the cell's distances gives."""
    import numpy as np

    from fedcollab import solve
    from fedcollab.reproduce.setups import tiny

    run("ablation", "--tiny", "--jobs", "1", "--out", str(folder))
    cells = folder / "cells" / "label-shift"
    found = json.loads((cells / "distances_s0.json").read_text())["result"]
    answer = solve(np.clip(found["raw"], 0, 1), found["quantities"], C=tiny()["label-shift"].C, names=found["names"])
    trained = [json.loads(path.read_text())["result"]["coalitions"] for path in cells.glob("fedavg_*_s0.json")]
    assert answer.coalitions in trained


def test_a_seed_of_training_and_a_baselines_options_reach_the_training(folder: Path) -> None:
    run("seed-spread", "table-2", "--tiny", "--jobs", "1", "--out", str(folder), "--scenario", "label-shift")

    def curve(name: str) -> list[float]:
        [path] = (folder / "cells" / "label-shift").glob(name)
        return json.loads(path.read_text())["result"]["curve"] + json.loads(path.read_text())["result"]["accuracy"]

    assert curve("fedavg_local_t1_r2_s0.json") != curve("fedavg_local_r2_s0.json")
    assert curve("fesem_centres-random_k4_r2_s0.json") != curve("fesem_k4_r2_s0.json")


def test_an_earlier_name_still_works(folder: Path) -> None:
    [old] = run("deals", "--tiny", "--jobs", "1", "--out", str(folder))
    [new] = run("seed-spread", "--tiny", "--jobs", "1", "--out", str(folder))
    assert old == new
    assert new["name"] == "seed-spread"


def test_more_seeds_extend_a_table(tmp_path: Path) -> None:
    words = ("ablation", "--tiny", "--jobs", "1", "--out", str(tmp_path))
    [one] = run(*words, "--seeds", "1")
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*_s0.json")}
    [two] = run(*words, "--seeds", "2")
    assert {record["seeds"] for record in one["tables"]} == {1}
    assert {record["seeds"] for record in two["tables"]} == {2}
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*_s0.json")} == kept


def test_processes_give_what_one_process_gives(folder: Path, tmp_path: Path) -> None:
    words = ("overview", "--tiny", "--out")
    run(*words, str(folder), "--jobs", "1")
    run(*words, str(tmp_path), "--jobs", "2")
    made = sorted(path.relative_to(tmp_path) for path in (tmp_path / "cells").rglob("*.json"))
    assert len(made) == 5
    for path in made:
        alone, pooled = (json.loads((root / path).read_text()) for root in (folder, tmp_path))
        assert alone["settings"] == pooled["settings"]
        for result in (alone["result"], pooled["result"]):
            result.pop("cost", None)  # seconds differ
        assert alone["result"] == pooled["result"]


@pytest.mark.parametrize("method", ["ditto", "ifca"])
def test_an_interrupted_cell_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """Stopped in round 4 of 6, then started again: that round and those left, and the result of an undisturbed run."""
    rounds: list[int] = []

    def progress(scratch: Scratch, done: int, total: int) -> None:
        rounds.append(done)
        if rounds == [1, 2, 3, 4]:
            raise KeyboardInterrupt

    def work(folder: str) -> dict[str, Any]:
        workspace = Workspace(Choices(size="tiny"), Cells(tmp_path / folder))
        coalitions = None if method == "ifca" else "global"
        cell = workspace.training_cell(workspace.setups["label-shift"], 0, method, coalitions, rounds=6)
        assert runner.compute_cell(tmp_path / folder, cell, False)
        result = workspace.get(cell)
        assert result is not None
        del result["cost"]["seconds"]
        return result

    calm = work("calm")
    monkeypatch.setattr(Scratch, "progress", progress)
    with pytest.raises(KeyboardInterrupt):
        work("disturbed")
    assert work("disturbed") == calm
    assert rounds == [1, 2, 3, 4, 4, 5, 6]
    assert not list((tmp_path / "disturbed" / ".unfinished").iterdir())


def test_docs_are_written_from_cells_alone(folder: Path, tmp_path: Path) -> None:
    run("quantities", "label-permutation", "ablation", "--tiny", "--jobs", "1", "--out", str(folder))
    (folder / "explanations.toml").write_text('[ablation]\nlabel-shift = "The digits are few."\n')
    before = sorted(folder.rglob("cells/*/*.json"))
    run("--write-docs", str(tmp_path), "--tiny", "--out", str(folder))
    text = (tmp_path / "results.md").read_text()
    assert "## quantities" in text
    assert "`fedcollab reproduce ablation`" in text
    assert "figures differ: The digits are few." in text
    assert sorted(folder.rglob("cells/*/*.json")) == before


def test_list_and_wrong_names() -> None:
    listed = run("--list")
    assert [row["name"] for row in listed] == list(EXPERIMENTS)
    with pytest.raises(InputError, match="did you mean 'table-1'"):
        run("table1")
    with pytest.raises(InputError, match="scenario"):
        run("table-1", "--scenario", "label")
    with pytest.raises(InputError, match=r"`scenario` \(=feature-shift\) must be one that ablation has: label-shift"):
        run("ablation", "--scenario", "feature-shift")
    with pytest.raises(InputError, match="methods"):
        run("table-1", "--methods", "fedagv")
