"""`fedcollab predict`: what each client's model says of the rows of a file."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedcollab import InputError, TrainingResult, load_model

from .conftest import type_in

OWN = ("--clients", "hospitals", "--label", "outcome", "--id", "patient")


def hospital(seed: int, flip: bool, rows: int = 80) -> pd.DataFrame:
    """A small table with missing values, and a label that `flip` turns round."""
    rng = np.random.default_rng(seed)
    ill = rng.integers(0, 2, rows)
    age = np.where(rng.random(rows) < 0.1, np.nan, rng.normal(50 + 15 * (ill != flip), 4).round(1))
    sex = rng.choice(["f", "m", None], rows)
    return pd.DataFrame(
        {"patient": [f"p{n}" for n in range(rows)], "age": age, "sex": sex, "outcome": np.where(ill, "yes", "no")}
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files of three clients and a run of them that has trained alone, and by Ditto in coalitions."""
    folder = tmp_path_factory.mktemp("predict")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (folder / "hospitals").mkdir()
        for seed, name in enumerate(["north", "south", "east"]):
            hospital(seed, name == "east").to_csv(f"hospitals/{name}.csv", index=False)
        short = ("--model", "logistic", "--rounds", 3, "--stopping", "none", "--quiet", "--lr", 0.5)
        how = ("--distance", "label", "--algorithm", "ditto", "--no-learning-curve", "--C", 5)
        type_in("run", *OWN, *short, *how, "-o", "run")
    return folder


@pytest.fixture
def run(trained: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(trained)
    return trained / "run"


def test_rows_get_the_answers_of_the_clients_own_model(run: Path, tmp_path: Path) -> None:
    table = pd.read_csv("hospitals/south.csv")
    wanted = load_model(run, client="south", which="personal").predict_proba(table)
    shared = load_model(run, client="south", which="last").predict_proba(table)
    assert np.abs(wanted - shared).max() > 1e-4, "Ditto's own model is another one than that of the coalition"
    shown = pd.read_csv(io.StringIO(type_in("predict", run, "--client", "south", "hospitals/south.csv").stdout))
    assert list(shown) == ["row", "patient", "predicted", "probability_no", "probability_yes"]
    np.testing.assert_array_equal(shown[["probability_no", "probability_yes"]].to_numpy(np.float32), wanted)
    assert shown["patient"].tolist() == table["patient"].tolist()
    assert shown["row"].tolist() == list(range(1, 81))
    assert (shown["predicted"] == np.where(wanted[:, 1] > wanted[:, 0], "yes", "no")).all()

    result = TrainingResult.load(run)
    alone = pd.DataFrame({"age": table["age"], "kind": 0, "sex": table["sex"]})[["sex", "kind", "age"]]
    alone.to_parquet(tmp_path / "new.parquet")
    out = tmp_path / "out.csv"
    told = type_in("predict", run, "--client", "south", tmp_path / "new.parquet", "-o", out).stdout
    assert told == f"The model of south (its own) predicted 80 rows: {out}\n"
    again = pd.read_csv(out)
    assert list(again) == ["row", "predicted", "probability_no", "probability_yes"], "no identifier in this file"
    np.testing.assert_array_equal(again["probability_yes"], shown["probability_yes"])
    assert result.personal


def test_the_measured_accuracy_is_that_of_these_answers(run: Path) -> None:
    """The rows that the silo held out, predicted through the command, give the accuracy that is reported."""
    from fedcollab.data import ClientData, Schema
    from fedcollab.data.split import with_test

    schema, result = Schema.load(run), TrainingResult.load(run)
    for place, name in enumerate(result.names):
        table = pd.read_csv(f"hospitals/{name}.csv")
        client = ClientData(name, table[["age", "sex"]], table["outcome"], groups=table["patient"])
        held = with_test(client, schema.test_share, schema.seed)
        held.x_test.to_csv("held.csv", index=False)
        answer = json.loads(type_in("predict", run, "--client", name, "held.csv", "--json").stdout)
        assert np.mean(np.array(answer["predicted"]) == held.y_test) == pytest.approx(result.reported[place])
        assert (answer["client"], answer["model"], answer["rows"]) == (name, "personal", len(held.y_test))


def test_another_way_of_training(run: Path) -> None:
    table = pd.read_csv("hospitals/east.csv")
    answer = json.loads(
        type_in("predict", run, "--client", "east", "hospitals/east.csv", "--way", "global", "--json").stdout
    )
    wanted = load_model(run / "training/global", client="east").predict_proba(table)
    np.testing.assert_array_equal(np.float32(answer["probability_yes"]), wanted[:, 1])


def test_a_strange_category_is_noted_and_its_row_is_answered(run: Path, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("age,sex\n50,x\n50,\n")
    done = type_in("predict", run, "--client", "north", tmp_path / "new.csv")
    assert "note: " in done.stderr
    assert "no client had in training ('x')" in done.stderr
    first, second = done.stdout.splitlines()[1:]
    assert first.split(",")[1:] == second.split(",")[1:], "it counts as none of the known ones, as a missing one does"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--client", "north", "nowhere.csv"), r"`nowhere.csv` does not exist"),
        (("--client", "nort", "hospitals/north.csv"), r"unknown --client 'nort'|`--client` \(='nort'\)|'nort'"),
        (("--client", "north", "hospitals/north.csv", "--way", "locally"), r"'locally'"),
    ],
)
def test_what_cannot_be_answered_is_one_line(run: Path, words: tuple[str, ...], line: str) -> None:
    with pytest.raises(InputError, match=line) as caught:
        type_in("predict", run, *words)
    assert "\n" not in str(caught.value)


def test_a_run_that_has_not_trained(run: Path, tmp_path: Path) -> None:
    type_in("estimate", *OWN, "--distance", "label", "--quiet", "-o", tmp_path / "distances.json")
    with pytest.raises(
        InputError, match=r"holds no training in coalitions \(--way coalitions\); see `fedcollab train`"
    ):
        type_in("predict", tmp_path, "--client", "north", "hospitals/north.csv")


def test_a_model_that_stayed_at_its_silo_is_not_replaced_by_another(run: Path, tmp_path: Path) -> None:
    result = TrainingResult.load(run)
    stayed = replace(result, models={"last": result.models["last"]})
    stayed.save(tmp_path / "training.json")
    with pytest.raises(
        InputError, match=r"own model of `north` stayed at its silo: there, `fedcollab silo predict FILE`"
    ):
        load_model(tmp_path, client="north")
    rows = pd.read_csv("hospitals/north.csv")
    shared = load_model(stayed, client="north", which="last").predict_proba(rows)
    np.testing.assert_array_equal(shared, load_model(run, client="north", which="last").predict_proba(rows))
