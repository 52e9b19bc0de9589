"""`fedcollab inspect`, the check before `run` and `estimate`, and every way out of what it finds."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from fedcollab import Inspection
from fedcollab.cli import cli
from fedcollab.data import load_own, read_clients
from fedcollab.errors import InputError

from .conftest import Tables, write_tables

pytestmark = pytest.mark.dataset("heart")


def call(*arguments: Any, code: int = 0) -> Result:
    """Run a command; bad input is raised as `InputError`."""
    done = CliRunner().invoke(cli, [str(argument) for argument in arguments], catch_exceptions=True)
    if isinstance(done.exception, InputError):
        raise done.exception
    assert done.exit_code == code, (done.output, done.exception)
    return done


def refused(*arguments: Any) -> str:
    with pytest.raises(InputError) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


FAST = ("--model", "logistic", "--rounds", "2", "--json")


@pytest.fixture
def flawed(heart: Tables, tmp_path: Path) -> Path:
    """All at once: two spellings, patient numbers, a column that one lacks and one that only one has."""
    for place, (name, table) in enumerate(heart.items()):
        heart[name] = table.assign(patient_id=np.arange(len(table)) + 1000 * place)
        if place % 2:
            heart[name]["label"] = table["label"].str.title()
    heart["hungarian"] = heart["hungarian"].drop(columns="thalach")
    heart["va"] = heart["va"].assign(ward=np.random.default_rng(0).random(len(heart["va"])))
    return write_tables(heart, tmp_path / "hospitals")


def test_everything_is_told_at_once_and_run_refuses_it(flawed: Path, tmp_path: Path) -> None:
    own = ("--clients", flawed, "--label", "label")
    told = json.loads(call("inspect", *own, "--json", "-o", tmp_path / "i.json", code=3).stdout)
    errors = {
        (each["client"], each["column"], each["kind"]) for each in told["findings"] if each["severity"] == "error"
    }
    assert errors == {
        ("cleveland", "label", "label-spelling"),
        ("switzerland", "label", "label-spelling"),
        (None, "patient_id", "identifier"),
        ("hungarian", "thalach", "column-missing"),
        ("va", "ward", "column-extra"),
    }
    assert Inspection.load(tmp_path / "i.json").as_dict()["findings"] == told["findings"]
    shown = call("inspect", *own, code=3).stdout
    assert shown.startswith("4 things make any advice on these data unsafe.")
    assert "--merge-labels" in shown
    for command in (("run", "--out", tmp_path / "run"), ("estimate", "-o", tmp_path / "d.json")):
        line = refused(*command, *own)
        for way_out in ("--merge-labels", "--drop patient_id", "--columns common", "client hungarian"):
            assert way_out in line
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "d.json").exists()


def test_options_settle_it_and_the_answer_is_that_of_the_data_without_flaws(
    flawed: Path, heart: Tables, tmp_path: Path
) -> None:
    own = ("--clients", flawed, "--label", "label")
    ways_out = ("--drop", "patient_id", "--columns", "common", "--merge-labels")
    assert call("inspect", *own, *ways_out).stdout.startswith("Nothing makes the advice unsafe; 2 things are")
    found = json.loads(call("run", *own, *ways_out, *FAST, "--out", tmp_path / "run").stdout)
    assert {each["kind"] for each in found["findings"] if each["severity"] == "warning"} == {"missingness"}
    plain = {
        name: table.drop(columns=["patient_id", "thalach", "ward"], errors="ignore").assign(
            label=table["label"].str.title()
        )
        for name, table in heart.items()
    }
    clean = ("--clients", write_tables(plain, tmp_path / "clean"), "--label", "label")
    expected = json.loads(call("run", *clean, *FAST, "--out", tmp_path / "other").stdout)
    assert found["coalitions"] == expected["coalitions"]
    assert found["results"] == expected["results"]
    page = (tmp_path / "run" / "report.html").read_text()
    assert "missing in 100 % of the rows here" in page
    assert "cleveland and switzerland differ most in chol (1.00)" in page
    settings = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
    assert settings["label_map"] == {"no": "No", "yes": "Yes"}
    assert "thalach" not in settings["columns"]


def test_a_proposed_file_runs(flawed: Path, tmp_path: Path) -> None:
    target = tmp_path / "plans" / "hospitals.toml"
    call("inspect", "--clients", flawed, "--label", "label", "--write", target, code=3)
    own = load_own(target)
    assert own is not None
    assert own.reading.drop == ("patient_id",)
    assert own.reading.columns == "common"
    assert own.reading.merge_labels
    assert own.clients.resolve() == flawed.resolve()
    assert json.loads(call("inspect", target, "--json").stdout)["counts"]["error"] == 0
    target.write_text(target.read_text() + "\n[settings]\nmodel = 'logistic'\nrounds = 2\nseed = 4\ntest_share = 0.3\n")
    found = json.loads(call("run", target, "--json", "--out", tmp_path / "run").stdout)
    assert sorted(found["clients"]) == ["cleveland", "hungarian", "switzerland", "va"]
    settings = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
    assert [settings[key] for key in ("seed", "test_share", "model", "label")] == [4, 0.3, "logistic", "label"]
    assert "says how files are read" in refused("run", target, "--label", "label")
    told = call("explain", tmp_path / "run" / "collaboration.json", "--client", "va").stdout
    assert "va and hungarian differ most in" in told
    named = json.loads(call("explain", tmp_path / "run" / "collaboration.json", "--client", "va", "--json").stdout)
    assert set(named["differences"]) == {"cleveland", "hungarian", "switzerland"}


def test_patients_with_several_rows_are_proposed_as_groups(heart: Tables, tmp_path: Path) -> None:
    for place, (name, table) in enumerate(heart.items()):
        heart[name] = table.assign(patient_id=np.arange(len(table)) // 3 + 1000 * place)
    own = ("--clients", write_tables(heart, tmp_path / "in"), "--label", "label")
    call("inspect", *own, "--write", tmp_path / "h.toml", code=3)
    proposed = load_own(tmp_path / "h.toml")
    assert proposed is not None
    assert (proposed.reading.id_column, proposed.reading.drop) == ("patient_id", ())
    call("run", tmp_path / "h.toml", *FAST, "--out", tmp_path / "run")
    schema = json.loads((tmp_path / "run" / "schema.json").read_text())
    assert "patient_id" not in [column["name"] for column in schema["columns"]]
    assert json.loads((tmp_path / "run" / "run.json").read_text())["settings"]["id"] == "patient_id"


def test_a_newcomer_is_read_as_the_run_was(flawed: Path, heart: Tables, tmp_path: Path) -> None:
    own = ("--clients", flawed, "--label", "label")
    call("run", *own, "--drop", "patient_id", "--columns", "common", "--merge-labels", *FAST, "--out", tmp_path / "run")
    write_tables({"west": heart["cleveland"].drop(columns="patient_id").iloc[::2]}, tmp_path / "new")
    joined = call("join", tmp_path / "run", "--client", tmp_path / "new" / "west.csv", "--clients", flawed, "--json")
    assert json.loads(joined.stdout)["client"] == "west"


def test_identifiers_can_be_kept(heart: Tables, tmp_path: Path) -> None:
    """Only by saying so: a number that rises from row to row may be a measurement."""
    for name, table in heart.items():
        heart[name] = table.assign(patient_id=np.arange(len(table)))
    own = ("--clients", write_tables(heart, tmp_path / "in"), "--label", "label")
    assert "[--drop patient_id" in refused("estimate", *own, "-o", tmp_path / "d.json")
    kept = json.loads(call("estimate", *own, "--trust", "patient_id", "-o", tmp_path / "d.json", "--json").stdout)
    assert {each["severity"] for each in kept["findings"] if each["column"] == "patient_id"} == {"info"}
    assert (tmp_path / "inspection.json").is_file()
    shown = call("estimate", *own, "--drop", "patient_id", "-o", tmp_path / "e.json").stdout
    assert shown.startswith("The data check found what you should know:")


def test_label_maps_and_column_files(heart: Tables, tmp_path: Path) -> None:
    heart["va"] = heart["va"].assign(label=(heart["va"]["label"] == "yes").astype(int))
    own = ("--clients", write_tables(heart, tmp_path / "in"), "--label", "label")
    assert "[--label-map FILE" in refused("estimate", *own, "-o", tmp_path / "d.json")
    (tmp_path / "map.csv").write_text("from,to\n1,yes\n0.0,no\n")
    (tmp_path / "columns.txt").write_text("thalach\nage\n")
    more = ("--label-map", tmp_path / "map.csv", "--columns", tmp_path / "columns.txt")
    call("estimate", *own, *more, "-o", tmp_path / "d.json", "--json")
    clients = read_clients(tmp_path / "in", "label", columns=["thalach", "age"], label_map={"1": "yes", "0": "no"})
    assert {tuple(client.x.columns) for client in clients} == {("thalach", "age")}
    assert {label for client in clients for label in client.y} == {"yes", "no"}
    (tmp_path / "map.csv").write_text("1,yes,no\n")
    assert "line 1: expected two labels" in refused("inspect", *own, *more)
    assert "must be 'common' or a text file" in refused("inspect", *own, "--columns", tmp_path / "none.txt")


def test_classes_in_numbers_and_words_are_mapped_and_the_next_command_reads_them_so(
    heart: Tables, tmp_path: Path
) -> None:
    """Answers such as 0, 1 and "borderline", which surveys have."""
    for name, table in heart.items():
        codes = (table["label"] == "yes").astype(int).astype(str)
        heart[name] = table.assign(label=codes.where(np.arange(len(table)) % 9 > 0, "borderline"))
    own = ("--clients", write_tables(heart, tmp_path / "in"), "--label", "label")
    assert "write all classes as words (of files: --label-map FILE)" in refused("run", *own)
    (tmp_path / "map.csv").write_text("0,no\n1,yes\n")
    how = ("--label-map", tmp_path / "map.csv", "--drop", "age")
    shown = call("inspect", *own, *how, "--seed", "3", "-o", tmp_path / "i.json").stdout
    assert shlex.split(shown.rpartition("Next:    ")[2]) == [
        "fedcollab", "run", "--clients", str(own[1]), "--label", "label", "--drop", "age", "--label-map",
        str(tmp_path / "map.csv"), "--seed", "3",
    ]  # fmt: skip


def test_files_that_cannot_be_used_are_all_named(heart: Tables, tmp_path: Path) -> None:
    folder = write_tables(heart, tmp_path / "in")
    (folder / "east.csv").write_text("age,label\n1,\n2,yes\n")
    (folder / "west.csv").write_text("")
    own = ("--clients", folder, "--label", "label")
    told = json.loads(call("inspect", *own, "--json", code=3).stdout)
    broken = [each["client"] for each in told["findings"] if each["kind"] == "unreadable"]
    assert broken == ["east", "west"]
    line = refused("run", *own)
    assert line.startswith("2 files cannot be used: ")
    assert "label column `label` is empty in 1 of 2 rows" in line
    assert "west.csv` is empty" in line
    assert "Next:    mend the files, then: fedcollab inspect" in call("inspect", *own, code=3).stdout


def test_mistakes_in_an_own_data_file(flawed: Path, tmp_path: Path) -> None:
    file = tmp_path / "h.toml"
    for content, line in (
        ("[data]\nlabel = 'label'\n", "must have `clients`, a folder"),
        ("[data]\nclients = 'hospitals'\nlabels = 'label'\n", "did you mean 'label'"),
        ("[data]\nclients = 'hospitals'\nlabel = 3\n", "`label` (=3) must be the name of a column"),
        ("[data]\nclients = 'hospitals'\nlabel = 'label'\ndrop = 'age'\n", "`drop` (='age') must be a list"),
        ("[data]\nclients = 'hospitals'\nlabel = 'label'\nmerge_labels = 1\n", "must be true or false"),
        ("[data]\nclients = 'hospitals'\nlabel = 'label'\nlabel_map = 1\n", "must be a table of labels"),
        ("[data]\nclients = 'hospitals'\n[settings]\nround = 1\n", "did you mean 'rounds'"),
        ("[data]\nclients = 'hospitals'\nlabel = 'label'\n[settings]\nseed = -1\n", "`seed` (=-1)"),
        ("[data]\nclients = 'hospitals'\n[more]\n", "`table` (='more')"),
        ("data = 1\n", "must be a table"),
    ):
        file.write_text(content)
        assert line in refused("inspect", file), content
    file.write_text('[scenario]\nname = "digits"\n')
    assert "`--write` is for your own files" in refused("inspect", file, "--write", tmp_path / "proposed.toml")
    assert "are for your own files" in refused("inspect", file, "--merge-labels")
    assert json.loads(call("inspect", file, "--json").stdout)["counts"]["error"] == 0


def test_a_label_map_to_fill_in_is_shown_with_the_clients_own_labels(heart: Tables, tmp_path: Path) -> None:
    heart["hungarian"]["label"] = heart["hungarian"]["label"].replace({"no": "0", "yes": "1"})
    folder, target = write_tables(heart, tmp_path / "in"), tmp_path / "in.toml"
    told = call("inspect", "--clients", folder, "--label", "label", "--write", target, code=3).stdout
    assert "which label is which, then: fedcollab run" in " ".join(told.split())
    example = re.search(r'# say here which label is which, as in: ("0" = "(?:no|yes)")', target.read_text())
    assert example is not None
    assert f"comes without it: fedcollab run {target}" in refused("run", "--clients", target, "--label", "label")
