"""A run on files with a numeric target: all stages, what the pages say, and clients that come, change and leave."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from fedcollab import ClientData, InputError
from fedcollab.cli import cli
from fedcollab.runs import FedCollab, Run


def table(seed: int, sign: float = 1.0, rows: int = 120) -> pd.DataFrame:
    """Return a client's rows: minutes of a walk, by distance, slope and ground."""
    rng = np.random.default_rng(seed)
    km, slope = rng.gamma(4.0, 1.0, rows), rng.normal(size=rows)
    ground = rng.choice(["path", "road"], rows)
    minutes = 12 * km + sign * 15 * slope + 4 * (ground == "path") + rng.normal(0, 2, rows)
    return pd.DataFrame({"km": km, "slope": slope, "ground": ground, "minutes": minutes.round(1)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("walks")
    for seed, (name, sign) in enumerate({"alps": 1, "andes": 1, "rhine": -1, "tiber": -1}.items()):
        table(seed, sign).to_csv(made / f"{name}.csv", index=False)
    return made


@pytest.fixture(scope="module")
def run_dir(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "walks"
    asked = ["run", "--clients", str(folder), "--label", "minutes", "--model", "logistic", "--rounds", "20"]
    done = CliRunner().invoke(cli, [*asked, "--quiet", "-o", str(out)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    for words in ("R²", "RMSE", "MAE", "mean of the target", "points of R²"):
        assert words in done.output
    for words in ("accuracy", "log loss", "AUC", "most frequent"):
        assert words not in done.output
    return out


def test_a_run_tells_all_in_the_words_of_the_task(run_dir: Path) -> None:
    page = (run_dir / "report.html").read_text()
    visible = page[: page.index("<script")] if "<script" in page else page
    assert "R²" in page
    assert "RMSE" in page
    assert "Balanced accuracy" not in visible
    assert "minutes" in Run(run_dir).config()["settings"]["label"]
    trained = json.loads((run_dir / "training" / "coalitions" / "training.json").read_text())
    assert set(trained["measures"]) == {"r2", "loss", "rmse", "mae", "loss_stderr", "samples"}


def test_the_planted_halves_are_advised(run_dir: Path) -> None:
    advice = Run(run_dir).advice()
    assert advice is not None
    assert {frozenset(members) for members in advice.coalitions} in (
        {frozenset({"alps", "andes"}), frozenset({"rhine", "tiber"})},
        {frozenset({name}) for name in advice.names},
    )


@pytest.mark.parametrize("way", ["explain", "report"])
def test_later_commands_go_on(run_dir: Path, way: str) -> None:
    done = CliRunner().invoke(cli, [way, str(run_dir)], catch_exceptions=False)
    assert done.exit_code == 0, done.output


def test_a_task_contradicts_a_text_label_in_one_line(folder: Path, tmp_path: Path) -> None:
    arguments = [
        "run",
        "--clients",
        str(folder),
        "--label",
        "ground",
        "--task",
        "regression",
        "-o",
        str(tmp_path / "r"),
    ]
    done = CliRunner().invoke(cli, arguments)
    assert isinstance(done.exception, InputError)
    assert "has text as labels" in str(done.exception)


def test_a_task_and_a_loss_can_be_given(folder: Path, tmp_path: Path) -> None:
    arguments = [
        "train",
        "--clients",
        str(folder),
        "--label",
        "minutes",
        "--coalitions",
        "local",
        "--model",
        "logistic",
    ]
    more = ["--task", "regression", "--loss", "absolute", "--rounds", "3", "--quiet", "-o", str(tmp_path / "t")]
    done = CliRunner().invoke(cli, [*arguments, *more], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "t" / "training.json").read_text())["model"]["loss"] == "absolute"


def test_clients_join_and_a_run_goes_on(tmp_path: Path) -> None:
    def client(name: str, seed: int, sign: float) -> ClientData:
        rows = table(seed, sign, 80)
        return ClientData(name, rows.drop(columns="minutes"), rows["minutes"])

    clients = [client("alps", 0, 1), client("andes", 1, 1), client("rhine", 2, -1), client("tiber", 3, -1)]
    pipeline = FedCollab(C=5.0, model="logistic", run_dir=tmp_path / "run")
    fitted = pipeline.fit(clients)
    fitted.train(rounds=6)
    fitted.train(way="local", rounds=6)
    joining = fitted.join(client("dolomites", 9, 1))
    assert joining.training is not None
    assert joining.training.task == "regression"
    assert joining.training.model["loss"] == "squared"
    members = next(group for group in joining.collaboration.coalitions if "dolomites" in group)
    assert not {"rhine", "tiber"} & set(members)
    assert "R²" in str(joining) or "log loss" not in str(joining)
    again = FedCollab(C=5.0, model="logistic", run_dir=tmp_path / "again", task="regression")
    assert again.fit(clients).federation.schema.task == "regression"
