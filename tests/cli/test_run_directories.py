"""A run directory is taken wherever one of its files is; `run` takes constraints and options, and checks them first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcollab
from fedcollab import Advice, ClientData, Collaboration, Distances, InputError, TrainingResult, files
from fedcollab.coalitions import CPath
from fedcollab.data import Schema

from .conftest import type_in


def said(*words: object) -> str:
    """Run a command and return what it printed."""
    return type_in(*words).stdout


def save_clients(folder: Path, **sizes: int) -> Path:
    """Write NPZ files of two types of clients: those whose name begins with `b` have the labels swapped."""
    folder.mkdir()
    for name, size in sizes.items():
        rng = np.random.default_rng([7, *name.encode()])
        y = rng.integers(0, 2, size)
        x = rng.normal(0, 1, (size, 3)) + 2 * np.outer(2 * y - 1, [1, 0, 0])
        ClientData(name, x, 1 - y if name.startswith("b") else y).save(folder / f"{name}.npz")
    return folder


@pytest.fixture
def sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return save_clients(tmp_path / "sites", a1=120, a2=120, b1=120, b2=120)


SHORT = ("--distance", "label", "--model", "logistic", "--rounds", "2", "--quiet")


def test_the_stages_one_at_a_time_in_one_run_directory(sites: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    said("estimate", "--clients", sites, "--quiet", "-o", run / "distances.json")
    assert "2 coalitions" in said("solve", run, "-o", run)
    assert "a1" in said("explain", run)
    assert said("explain", run, "--client", "a1") == said("explain", run / "collaboration.json", "--client", "a1")
    assert said("path", run) == said("path", run / "distances.json")
    for coalitions in ("local", run):
        said("train", "--clients", sites, "--coalitions", coalitions, "--rounds", "2", "--quiet", "-o", run)
    assert {path.name for path in (run / "training").iterdir() if path.is_dir()} == {"local", "coalitions"}
    said("report", run)
    page = (run / "report.html").read_text()
    assert 'scope="row">in coalitions<' in page, "the report shows what was trained stage by stage"
    rows = ClientData.load(sites / "a1.npz").x[:5]
    model = fedcollab.load_model(run, client="a1")
    assert np.array_equal(
        model.predict_proba(rows), fedcollab.load_model(run / "training/coalitions", client="a1").predict_proba(rows)
    )
    assert Distances.load(run).names == Distances.load(run / "distances.json").names
    assert Collaboration.load(run).coalitions == Collaboration.load(run / "collaboration.json").coalitions
    assert TrainingResult.load(run).coalitions == TrainingResult.load(run / "training" / "coalitions").coalitions


def test_a_run_of_all_stages_is_opened_by_its_folder(sites: Path, tmp_path: Path) -> None:
    shown = said("run", "--clients", sites, *SHORT, "-o", "run")
    assert "Next:    fedcollab explain run\n" in shown
    assert "probability" in said("explain", "run").splitlines()[1]
    run = tmp_path / "run"
    told, bound = said("explain", "run", "--client", "a1").split("\n\nBy the bound, before anything is trained:\n")
    advice = Advice.load(run)
    assert told == advice.explain("a1")
    assert bound.startswith("a1 (96 samples) trains ")
    expected = json.loads(said("explain", "run", "--client", "a1", "--json"))["expected"]
    assert expected == json.loads(files.dumps(advice.as_dict()["gains"]["a1"]))
    assert Schema.load(run) == Schema.load(run / "schema.json")
    assert len(CPath.load(run)) == len(CPath.load(run / "path.json"))
    said("estimate", "--clients", sites, "--quiet", "-o", run)
    with pytest.raises(InputError, match=r"was made of other distances than distances.json"):
        said("explain", run)


def test_a_folder_without_the_file_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no collaboration.json"):
        said("explain", tmp_path)
    with pytest.raises(InputError, match=r"holds no distances.json"):
        said("solve", tmp_path)
    with pytest.raises(InputError, match=r"training.json` does not exist"):
        fedcollab.load_model(tmp_path)


def test_a_schema_file_that_holds_a_number(tmp_path: Path) -> None:
    for text in ("3", "null", "[]", '"x"'):
        (tmp_path / "schema.json").write_text(text)
        with pytest.raises(InputError, match=r"cannot be read as a schema: it holds .* expected an object"):
            Schema.load(tmp_path / "schema.json")


def asked_for(sites: Path, *words: str) -> dict[str, Any]:
    return json.loads(said("run", "--clients", sites, *SHORT, "--json", "--fresh", "-o", "run", *words))


def test_run_takes_the_constraints_of_solve(sites: Path, tmp_path: Path) -> None:
    def together(answer: dict[str, Any], *names: str) -> bool:
        return any(set(names) <= set(members) for members in answer["coalitions"])

    assert together(asked_for(sites, "--must-link", "a1,b2"), "a1", "b2")
    assert not together(asked_for(sites, "--cannot-link", "a1, a2"), "a1", "a2")
    assert all(len(members) >= 2 for members in asked_for(sites, "--min-size", "2")["coalitions"])
    answer = asked_for(sites, "--max-size", "1")
    assert answer["coalitions"] == [["a1"], ["a2"], ["b1"], ["b2"]]
    saved = Collaboration.load(tmp_path / "run")
    assert saved.constraints.max_size == 1
    with pytest.raises(InputError, match=r"holds a run with other settings \(solve_options\)"):
        said("run", "--clients", sites, *SHORT, "-o", "run", "--max-size", "2")


def test_the_learning_curve_can_be_left_out_and_added(sites: Path, tmp_path: Path) -> None:
    assert asked_for(sites, "--no-learning-curve")["learning_curve"] is None
    curve = tmp_path / "run" / "training" / "learning_curve.json"
    assert not curve.exists()
    answer = json.loads(said("run", "--clients", sites, *SHORT, "--json", "-o", "run"))
    assert answer["learning_curve"]["clients"] == ["a1", "a2", "b1", "b2"]
    assert curve.exists()


def test_run_and_train_take_options_of_algorithm_and_model(sites: Path, tmp_path: Path) -> None:
    words = ("--algorithm", "fedprox", "--algorithm-option", "mu=0.5", "--model-option", "widths=[7]")
    asked_for(sites, *words, "--model", "mlp")
    trained = TrainingResult.load(tmp_path / "run")
    assert trained.settings["options"]["mu"] == 0.5
    assert trained.model["options"] == {"widths": [7]}
    alone = TrainingResult.load(tmp_path / "run" / "training" / "local")
    assert alone.method == "fedavg"
    assert alone.model["options"] == {"widths": [7]}
    said("train", "--clients", sites, "--coalitions", "global", "--rounds", "1", *words, "--quiet", "-o", "t")
    assert TrainingResult.load(tmp_path / "t").settings["options"]["mu"] == 0.5


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--must-link", "a1,c9"), r"`must_link` \(='c9'\) must be one of the clients: a1, a2, b1, b2"),
        (("--min-size", "9"), r"`min_size` \(=9\) must be at most the number of clients \(4\)"),
        (("--algorithm", "fedprox", "--algorithm-option", "nu=1"), r"nu.*mu"),
        (("--model-option", "width=3"), r"width"),
        (("--model", "cnn"), r"model 'cnn' needs images of at least 18 x 18"),
    ],
)
def test_what_does_not_suit_the_clients_is_refused_before_the_first_stage(
    sites: Path, tmp_path: Path, words: tuple[str, ...], line: str
) -> None:
    with pytest.raises(InputError, match=line) as refused:
        said("run", "--clients", sites, "--model", "mlp", "-o", "run", "--quiet", *words)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_the_model_is_checked_in_python_before_anything_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    images = [ClientData(name, rng.random((40, 1, 8, 8)), rng.integers(0, 2, 40)) for name in ("a", "b")]

    def never(*_: object, **__: object) -> None:
        raise AssertionError("distances were estimated for a model that cannot be trained")

    monkeypatch.setattr("fedcollab.distances.estimate_distances", never)
    with pytest.raises(InputError, match=r"needs images of at least 18 x 18 .* the clients have"):
        fedcollab.FedCollab(model="cnn").fit(images)
    with pytest.raises(InputError, match=r"needs images of at least 18 x 18 .* the clients have"):
        fedcollab.train(images, "local", model="cnn")
    with pytest.raises(InputError, match=r"`solve_options` \(='max_sise'\).*did you mean 'max_size'"):
        fedcollab.FedCollab(solve_options={"max_sise": 2})


def test_the_settings_model_is_what_fit_trains(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    clients = [ClientData(name, rng.random((40, 3)), rng.integers(0, 2, 40)) for name in ("a", "b")]
    fitted = fedcollab.FedCollab(distance="label", model="mlp", model_options={"widths": [5]}).fit(clients)
    assert fitted.train(rounds=1).model["options"] == {"widths": [5]}
    assert fitted.train(model="logistic", rounds=1).model["name"] == "logistic"
    auto = fedcollab.FedCollab(distance="label", model="auto", run_dir=tmp_path / "auto").fit(clients)
    assert auto.train(rounds=2).model["name"] in ("logistic", "mlp")
    assert len(repr(fitted)) < 80
    assert "clients=2" in repr(fitted)
