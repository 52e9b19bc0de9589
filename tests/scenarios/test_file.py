"""Scenario files: the examples load, and a mistake is told in one line."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from fedcollab.errors import InputError
from fedcollab.scenarios import SCENARIOS, load, make
from fedcollab.scenarios.file import check_settings

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@pytest.mark.parametrize(
    "name",
    [
        "digits",
        pytest.param("label-shift", marks=pytest.mark.dataset("fashion-mnist")),
        pytest.param("feature-shift", marks=pytest.mark.dataset("cifar-10")),
        pytest.param("concept-shift", marks=pytest.mark.dataset("cifar-100")),
    ],
)
def test_examples_say_what_the_scenario_does_anyway(name: str, tmp_path: Path) -> None:
    """With one client a type, which is quicker."""
    text = (EXPERIMENTS / f"{name}.toml").read_text()
    content = tomllib.loads(text)
    assert content["scenario"]["clients"] == 20
    dataset = content["scenario"].get("dataset", SCENARIOS[name].dataset)
    assert dataset == SCENARIOS[name].dataset
    fewer = tmp_path / "fewer.toml"
    fewer.write_text(text.replace("clients = 20", "clients = 4"))
    made, usual = load(fewer), make(name, clients=4)
    assert made.settings == usual.settings
    assert made.types == usual.types
    assert all((a.x == b.x).all() and (a.y == b.y).all() for a, b in zip(made.clients, usual.clients, strict=True))


def test_a_file_sets_options_and_settings(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        '[scenario]\nname = "digits"\nclients = 8\nseed = 4\niid = true\n[settings]\nrounds = 7\nC = "auto"\n'
    )
    made = load(path)
    assert len(made.clients) == 8
    assert made.seed == 4
    assert made.options == {"iid": True, "clients": 8}
    assert made.settings["rounds"] == 7
    assert made.settings["C"] == "auto"
    assert made.settings["lr"] == 0.1


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", r"the table \[scenario\] must have a `name`, one of: concept-shift, "),
        ("name = 'digits'", r"`table` \(='name'\) must be one of: scenario, settings"),
        ("scenario = 5", r"`scenario` \(=5\) must be a table"),
        ("[scenario]\nname = 'digit'", r"`name` \(='digit'\) must be one of: .*; did you mean 'digits'"),
        ("[scenario]\nname = ['digits']", r"`name` \(=\['digits'\]\) must be one of: "),
        ("[scenario]\nname = 'digits'\nclient = 3", r"`key of \[scenario\]` \(='client'\) .*did you mean 'clients'"),
        ("[scenario]\nname = 'digits'\ndataset = 3", r"`dataset` \(=3\) must be a name"),
        ("[scenario]\nname = 'digits'\nclients = 'all'", r"`clients` \(='all'\) must be a whole number"),
        (
            "[scenario]\nname = 'digits'\n[settings]\nround = 3",
            r"`key of \[settings\]` \(='round'\) must be one of: C,",
        ),
        (
            "[scenario]\nname = 'digits'\n[settings]\nrounds = 0",
            r"`rounds` \(=0\) must be a whole number of at least 1",
        ),
        ("[scenario]\nname = 'digits'\n[settings]\nmodel = 1", r"`model` \(=1\) must be a name"),
        ("[scenario\nname", "is not TOML: "),
    ],
)
def test_mistakes_are_told_in_one_line(tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=line) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing.toml` does not exist; expected a scenario file"):
        load(tmp_path / "nothing.toml")
    with pytest.raises(InputError, match="cannot be read"):
        load(tmp_path)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot be read"):
        load(tmp_path / "bytes.toml")


def test_every_paper_setting_may_be_set() -> None:
    settings = make("digits").settings
    changeable = {key: value for key, value in settings.items() if key not in ("dataset", "classes")}
    assert check_settings(changeable) == changeable
