"""The commands: masks asked for on the command line, coalitions of three, refusals in one line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from fedcollab import Collaboration, TrainingResult
from fedcollab.cli import cli
from fedcollab.data import ClientData
from fedcollab.errors import InputError
from fedcollab.runs import Run

SHORT = ("--distance", "label", "--model", "logistic", "--rounds", "2", "--quiet", "--no-learning-curve")


def typed(*words: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words])


@pytest.fixture
def sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six clients of three types, two of each."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "sites"
    folder.mkdir()
    for place, name in enumerate(("a1", "a2", "b1", "b2", "c1", "c2")):
        rng = np.random.default_rng(place)
        y = (rng.random(120) < (0.1, 0.5, 0.9)[place // 2]).astype(int)
        x = rng.normal(0, 1, (120, 3)) + 2 * np.outer(2 * y - 1, [1, 0, 0])
        ClientData(name, x, y).save(folder / f"{name}.npz")
    return folder


def test_run_makes_coalitions_of_three_and_trains_them_under_masks(sites: Path) -> None:
    plain = typed("run", "--clients", sites, "--C", "1", *SHORT, "-o", "plain")
    assert plain.exit_code == 0, plain.output
    assert min(map(len, Collaboration.load(Path("plain")).coalitions)) < 3
    secure = typed("run", "--clients", sites, "--C", "1", *SHORT, "-o", "run", "--secure-aggregation", "everyone")
    assert secure.exit_code == 0, secure.output
    assert min(map(len, Collaboration.load(Path("run")).coalitions)) >= 3
    trained = {way: TrainingResult.load(Path("run/training") / way).settings for way in ("coalitions", "local")}
    assert trained["coalitions"]["secure_aggregation"] == "everyone"
    assert "secure_aggregation" not in trained["local"]  # nothing is added up


def test_train_refuses_small_coalitions_in_one_line(sites: Path) -> None:
    masks = ("--secure-aggregation", "dropouts")
    with pytest.raises(InputError, match=r"the coalition a1 has 1 member\(s\); secure aggregation needs at least 3"):
        CliRunner().invoke(
            cli,
            ["train", "--clients", str(sites), "--coalitions", "local", "-o", "t", *masks],
            catch_exceptions=False,
        )
    unknown = typed("train", "--clients", sites, "--coalitions", "global", "-o", "t", "--secure-aggregation", "on")
    assert isinstance(unknown.exception, InputError)
    assert "everyone" in str(unknown.exception)


def test_solve_takes_the_size_that_a_run_has_noted(sites: Path) -> None:
    assert (
        typed("estimate", "--clients", sites, "--distance", "label", "--quiet", "-o", "run/distances.json").exit_code
        == 0
    )
    noted = {name: {"quantity": 96, "min_coalition": 3} for name in ("a1", "a2", "b1", "b2", "c1", "c2")}
    assert min(map(len, json.loads(typed("solve", "run", "--C", "1", "--json").stdout)["coalitions"])) < 3
    Run("run").write_config({"clients": noted})
    answer = typed("solve", "run", "--C", "1", "--json")
    assert answer.exit_code == 0, answer.output
    assert min(map(len, json.loads(answer.stdout)["coalitions"])) >= 3
