"""`fedcollab export`: figures as they were measured, and models that plain PyTorch reads."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from fedcollab import Advice, ClientData, InputError, TrainingResult, load_model, scenarios, train
from fedcollab.report import read_run
from fedcollab.training import export_models
from fedcollab.training.exporting import layers_of

from .conftest import type_in

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "use-the-models.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's files in `hospitals`, and a run with an advice that has trained by Ditto, exported."""
    made = tmp_path_factory.mktemp("export")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        scenarios.write_example("hospitals")
        own = (
            "--clients",
            "hospitals",
            "--label",
            "outcome",
            "--model",
            "logistic",
            "--rounds",
            3,
            "--quiet",
            "--distance",
            "label",
        )
        type_in("run", *own, "-o", "run", "--no-learning-curve")
        type_in("train", *own[:-2], "--coalitions", "run", "--algorithm", "ditto", "-o", "run")
        type_in("export", "run", "--to", "exported", "--pt")
    return made


def test_the_example_of_the_page_gives_the_same_predictions_without_fedcollab(folder: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    program = "import sys\nsys.modules['fedcollab'] = None\n" + block + "\nnp.save('seen.npy', probabilities)\n"
    subprocess.run([sys.executable, "-c", program], cwd=folder, check=True, timeout=120, capture_output=True)
    table = pd.read_csv(folder / "hospitals" / "plain-west.csv")
    wanted = load_model(folder / "run", client="plain-west").predict_proba(table)
    np.testing.assert_allclose(np.load(folder / "seen.npy"), wanted, rtol=0, atol=1e-6)
    assert np.ptp(wanted) > 0.1


def test_every_figure_of_every_client_is_in_the_table(folder: Path) -> None:
    table = pd.read_csv(folder / "exported" / "clients.csv").set_index("client")
    run, advice = read_run(folder / "run"), Advice.load(folder / "run")
    assert run.judgement is not None
    assert list(table.index) == list(run.names)
    for way, result in run.results.items():
        for place, name in enumerate(result.names):
            for key, values in result.used.items():
                shown = table.at[name, "test_rows" if key == "samples" else f"{way}_{key}"]
                assert shown == pytest.approx(values[place], nan_ok=True), (way, key)
            assert table.at[name, f"{way}_rounds"] == result.rounds[result.assignment[place]]
    for over in ("local", "global"):
        gain = run.judgement.gain("coalitions", over)
        for part in ("stderr", "low", "high"):
            np.testing.assert_array_equal(table[f"coalitions_gain_over_{over}_{part}"], getattr(gain, part))
        difference = table["coalitions_accuracy"] - table[f"{over}_accuracy"]
        np.testing.assert_allclose(table[f"coalitions_gain_over_{over}"], difference, atol=1e-12)
        assert table[f"coalitions_gain_over_{over}_verdict"].tolist() == gain.verdicts
        loss = table[f"{over}_loss"] - table["coalitions_loss"]
        np.testing.assert_allclose(table[f"coalitions_loss_gain_over_{over}"], loss, atol=1e-6)  # compared in float32
    for name, gain in advice.gains.items():
        assert table.at[name, "expected_accuracy_gain"] == gain.accuracy.mean
        assert table.at[name, "expected_loss_gain_probability"] == gain.loss.probability
    assert set(table["coalitions_algorithm"]) == {"Ditto"}
    assert run.collaboration is not None
    for name in run.names:
        mates = set(table.index[table["coalition"] == table.at[name, "coalition"]])
        assert [mates] == [set(group) for group in run.collaboration.coalitions if name in group]
        assert table.at[name, "coalition_clients"] == len(mates)


def test_pt_files_hold_the_same_tensors_and_need_no_unpickling(folder: Path) -> None:
    files = sorted((folder / "exported" / "models").glob("*.safetensors"))
    assert {file.stem for file in files} == set(read_run(folder / "run").names), "Ditto gives each client its own"
    for file in files:
        one, other = load_file(file), torch.load(file.with_suffix(".pt"), weights_only=True)
        assert one.keys() == other.keys()
        assert all(torch.equal(value, other[key]) for key, value in one.items())
        assert json.loads(file.with_suffix(".json").read_text())["clients"] == [file.stem]


def test_what_cannot_be_exported_is_one_line(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"`--to` .* is not an empty folder"):
        type_in("export", folder / "run", "--to", folder / "exported")
    with pytest.raises(InputError, match=r"does not exist; expected a run directory"):
        type_in("export", tmp_path / "none", "--to", tmp_path / "exported")
    assert not (tmp_path / "exported").exists()


def test_own_models_that_stayed_are_told_of_and_not_replaced(folder: Path, tmp_path: Path) -> None:
    result = TrainingResult.load(folder / "run")
    assert export_models(replace(result, models={"last": result.models["last"]}), tmp_path) == {}
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_trainings_has_figures_alone(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    own = ("--clients", "hospitals", "--label", "outcome", "--distance", "label", "--quiet")
    type_in("estimate", *own, "-o", tmp_path / "run" / "distances.json")
    done = type_in("export", tmp_path / "run", "--to", tmp_path / "out", "--json")
    assert json.loads(done.stdout)["models"] == []
    with (tmp_path / "out" / "clients.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [list(row) for row in rows] == [["client", "training_rows"]] * 7
    assert [row["client"] for row in rows] == sorted(path.stem for path in Path("hospitals").glob("*.csv"))


class Backwards(nn.Sequential):
    """A stack that is no plain one: it adds its input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = super().forward(x) + x.mean()
        return scores


def normed(shape: Any, classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(shape[0], 5, bias=False), nn.BatchNorm1d(5), nn.LeakyReLU(0.3), nn.Linear(5, classes)
    )


def skewed(shape: Any, classes: int) -> nn.Module:
    return Backwards(nn.Linear(shape[0], classes))


@pytest.mark.parametrize("model", ["logistic", "mlp", "cnn", "resnet18", normed, skewed])
def test_every_model_reads_back(model: Any, tmp_path: Path) -> None:
    """Built from its description, or as the user's own module, with all that a state_dict holds (strictly)."""
    rng = np.random.default_rng(0)
    images = model in ("cnn", "resnet18")
    x = rng.normal(3, 2, (24, 2, 18, 18) if images else (24, 6)).astype(np.float32)
    clients = {name: (x + place, np.arange(24) % 2) for place, name in enumerate(("a/b", ".."))}
    settings: dict[str, Any] = {"rounds": 1, "stopping": "none", "batch_size": 8}
    settings |= {"model_options": {"weights": "none"}} if model == "resnet18" else {}
    result = train([ClientData(name, *each) for name, each in clients.items()], "global", model=model, **settings)
    assert export_models(result, tmp_path) == {"a/b": "coalition-1", "..": "coalition-1"}
    about = json.loads((tmp_path / "coalition-1.json").read_text())
    own = {"resnet18": load_model(result, client="..").module, skewed: Backwards(nn.Linear(6, 2))}
    assert (about["layers"] is None) == (model in own)
    if model in own:
        module = own[model]
    else:
        module = nn.Sequential(*(getattr(nn, each["kind"])(**each["arguments"]) for each in about["layers"]))
    module.load_state_dict(load_file(tmp_path / "coalition-1.safetensors"))
    inputs = (x - np.array(about["inputs"]["mean"])) / np.array(about["inputs"]["std"])
    with torch.no_grad():
        scores = module.eval()(torch.tensor(inputs, dtype=torch.float32))
    wanted = load_model(result, client="a/b").predict_proba(x)
    np.testing.assert_allclose(torch.softmax(scores, 1).numpy(), wanted, atol=2e-5)


def test_a_numeric_target_reads_back_in_its_units(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(5, 3, (40, 2))
    clients = [
        ClientData(name, x[part], 1000 + 50 * x[part, 0] + 0.5)
        for name, part in (("a", slice(20)), ("b", slice(20, 40)))
    ]
    result = train(clients, "global", model="mlp", rounds=2, stopping="none")
    export_models(result, tmp_path)
    about = json.loads((tmp_path / "coalition-1.json").read_text())
    module = nn.Sequential(*(getattr(nn, each["kind"])(**each["arguments"]) for each in about["layers"]))
    module.load_state_dict(load_file(tmp_path / "coalition-1.safetensors"))
    inputs = (x - np.array(about["inputs"]["mean"])) / np.array(about["inputs"]["std"])
    with torch.no_grad():
        outputs = module(torch.tensor(inputs, dtype=torch.float32)).numpy()[:, 0]
    model = load_model(result, client="b")
    np.testing.assert_allclose(
        outputs * about["target"]["scale"] + about["target"]["mean"], model.predict(x), rtol=1e-5
    )
    assert about["classes"] == []
    assert list(model.answers(x)) == ["predicted"]
    assert 1000 < model.predict(x).mean() < 1500


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_trees_read_back_in_the_library(classes: int, tmp_path: Path) -> None:
    xgboost = pytest.importorskip("xgboost", reason="the extra `trees` is not installed")
    rng = np.random.default_rng(0)
    x = rng.normal(5, 3, (80, 2))
    y = np.arange(80) % classes if classes else 7 * x[:, 0] + 0.5
    clients = [ClientData("a", x, y), ClientData("b", x + 1, y)]
    result = train(clients, "global", model="xgboost", rounds=3, stopping="none")
    assert export_models(result, tmp_path, pt=True) == dict.fromkeys("ab", "coalition-1")
    assert {path.name for path in tmp_path.iterdir()} == {"coalition-1.json", "coalition-1.xgboost.json"}
    about = json.loads((tmp_path / "coalition-1.json").read_text())
    inputs = (x - np.array(about["inputs"]["mean"])) / np.array(about["inputs"]["std"])
    booster = xgboost.Booster(model_file=tmp_path / "coalition-1.xgboost.json")
    found = booster.predict(xgboost.DMatrix(inputs.astype(np.float32)))
    model = load_model(result, client="a")
    if classes == 2:  # the library gives the probability of the second class
        np.testing.assert_allclose(found, model.predict_proba(x)[:, 1], atol=1e-5)
    elif classes:
        np.testing.assert_allclose(found, model.predict_proba(x), atol=1e-5)
    else:
        units = found * about["target"]["scale"] + about["target"]["mean"]
        np.testing.assert_allclose(units, model.predict(x), rtol=1e-4)


def test_names_of_clients_are_names_of_files_in_the_folder(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(24, 2))
    clients = [ClientData(name, x, np.arange(24) % 2) for name in ("a/b", "..", "north west")]
    result = train(clients, "global", "ditto", "logistic", rounds=1, stopping="none")
    names = export_models(result, tmp_path / "models")
    assert names == {"a/b": "a%2Fb", "..": "..", "north west": "north west"}
    assert {path.parent for path in tmp_path.rglob("*.json")} == {tmp_path / "models"}
    assert len(list((tmp_path / "models").iterdir())) == 6


def test_layers_whose_arguments_are_not_known_are_not_described() -> None:
    assert layers_of(nn.Sequential(nn.Sequential(nn.Linear(2, 2))), (2,)) is None
    assert layers_of(nn.Linear(2, 2), (2,)) is None
