"""Real federations: declarations, rules, checks, refusals and splits, on made-up tables and on the real ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from fedcollab.cli import cli
from fedcollab.errors import InputError
from fedcollab.scenarios import federation_clients, federation_names, make
from fedcollab.scenarios.data import TABLES, federations, get, place
from fedcollab.scenarios.data.federations import tables
from fedcollab.scenarios.data.federations.rules import RULES, prepare
from fedcollab.seeds import generator

needs_federations = pytest.mark.dataset("federations")


def write_made_up(folder: Path, name: str = "made_up", clients: int = 3, rows: int = 60) -> Path:
    """Write a federation of two numbers, a category and a label; return the folder that FEDCOLLAB_DATA may name."""
    rng = np.random.default_rng(0)
    for client in range(clients):
        y = rng.integers(0, 2, rows)
        table = pd.DataFrame(rng.normal(0, 1, (rows, 2)) + np.outer(2 * y - 1, [1, 0]), columns=["a", "b"])
        table["kind"] = rng.choice(["NA", "no", ""], rows)
        (folder / "federations" / name).mkdir(parents=True, exist_ok=True)
        path = folder / "federations" / name / f"client{client:02d}.csv"
        table.assign(label=np.where(y == 1, "yes", "no")).to_csv(path, index=False)
    return folder


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with one made-up federation, and an empty cache."""
    monkeypatch.setenv("FEDCOLLAB_DATA", str(write_made_up(tmp_path / "data")))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "data" / "federations" / "made_up"


def one_line(*words: str) -> str:
    """Return the one line with which a command refuses."""
    done = CliRunner().invoke(cli, list(words))
    assert isinstance(done.exception, InputError)
    assert "\n" not in str(done.exception)
    return str(done.exception)


def test_every_table_is_declared_with_rule_or_reason() -> None:
    assert len(TABLES) == 16
    for name, table in TABLES.items():
        assert table.name == name
        assert all((table.source, table.client, table.label, table.licence, table.citation))
        assert bool(table.files) == (name in RULES) != bool(table.missing)
        assert len(table.digest) == 64


@needs_federations
@pytest.mark.parametrize("name", TABLES)
def test_the_prepared_tables_are_those_declared(name: str) -> None:
    federations.get(name)  # compares sizes and digest, and refuses other tables
    assert len(federations.find(name)) == TABLES[name].clients


@needs_federations
@pytest.mark.parametrize("name", ["loans_states", "exam_schools", "chile_regions"])
def test_splits_are_those_of_the_first_benchmarks(name: str) -> None:
    """The rows of the cells in results/: drawn as the benchmark drew them before it was a scenario."""
    files = federations.find(name)
    if len(files) > 20:
        files = [files[at] for at in sorted(generator(0, "clients", name).choice(len(files), 20, replace=False))]
    clients = federation_clients(name, 3)
    assert [client.name for client in clients] == [file.stem for file in files]
    for client, file in zip(clients[:3], files[:3], strict=True):
        table = pd.read_csv(file, dtype={"label": str}, keep_default_na=False, na_values=[""])
        order = generator(3, "split", file.stem).permutation(len(table))
        count = min(round(0.7 * len(table)), 400)
        rows = table.drop(columns="label").iloc[order[:count]].reset_index(drop=True)
        assert client.x.equals(rows)
        assert list(client.y_test) == list(table["label"].to_numpy()[order[count : count + 1000]])


@pytest.mark.usefixtures("made_up")
def test_a_federation_of_ones_own_is_a_scenario() -> None:
    assert "made_up" in federation_names()
    made = make("federation", dataset="made_up", seed=1, quantity=30, test=10, clients=2)
    assert [client.quantity for client in made.clients] == [30, 30]
    assert [len(client.y_test) for client in made.clients] == [10, 10]
    assert made.settings["dataset"] == "made_up"
    assert made.settings["classes"] == 2
    whole = make("federation", dataset="made_up", seed=1)
    assert [client.quantity for client in whole.clients] == [42, 42, 42]
    other = federation_clients("made_up", 2)
    assert not whole.clients[0].x.equals(other[0].x)
    assert "NA" in set(whole.clients[0].x["kind"])  # a category, not a missing value
    assert whole.clients[0].x["kind"].isna().any()
    with pytest.raises(InputError, match="`iid`"):
        make("federation", dataset="made_up", iid=True)
    with pytest.raises(InputError, match="`share`"):
        make("federation", dataset="made_up", share=2)
    with pytest.raises(InputError, match=r"`dataset` .*made_uq.* did you mean 'made_up'"):
        make("federation", dataset="made_uq")


@pytest.mark.usefixtures("made_up")
def test_a_run_takes_a_federation_by_name(tmp_path: Path) -> None:
    words = ["run", "federation:made_up", "--model", "logistic", "--rounds", "4", "--no-learning-curve", "--json"]
    done = CliRunner().invoke(cli, [*words, "-o", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["clients"] == ["client00", "client01", "client02"]
    assert "own files" in one_line("run", "federation:made_up", "--label", "x")
    assert "federation:loans_states" in one_line("run", "federatio")


def test_what_is_not_here_is_told_in_one_line(made_up: Path, tmp_path: Path) -> None:
    assert place("federations") is None
    with pytest.raises(InputError, match="run `fedcollab data get loans_states`"):
        federation_clients("loans_states")
    assert "prepared tables alone (which season" in one_line("data", "get", "baseball_teams")
    assert "Exam.csv (mlmRev::Exam)" in one_line("data", "get", "exam_schools", "--from", str(tmp_path))
    assert "must be a folder" in one_line("data", "get", "federations", "--from", str(tmp_path / "none"))
    assert "16 of 16 federations could not be got" in one_line("data", "get", "federations", "--from", str(tmp_path))
    (made_up / "client00.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="must have a column `label`"):
        federation_clients("made_up")
    made_up.rename(made_up.parent / "arrests_years")
    with pytest.raises(InputError, match="has 3 clients, expected 6"):
        federation_clients("arrests_years")


def test_the_list_shows_every_federation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDCOLLAB_DATA", str(tmp_path))
    rows = json.loads(CliRunner().invoke(cli, ["data", "list", "--json"]).stdout)
    shown = {row["name"]: row for row in rows}
    assert set(TABLES) <= set(shown)
    assert shown["chile_regions"]["label"].startswith("intended vote")
    assert shown["chile_regions"]["source"] == "carData::Chile"
    assert "label: intended vote" in CliRunner().invoke(cli, ["data", "list"]).stdout


def published_arrests(rows: int = 120) -> pd.DataFrame:
    """A small table with the columns of carData::Arrests, of the years 1997 and 1998, and ten rows of 1999."""
    rng = np.random.default_rng(1)
    table = {column: rng.choice(["Yes", "No"], rows) for column in ("released", "employed", "citizen")}
    table |= {"colour": rng.choice(["Black", "White"], rows), "sex": rng.choice(["Male", "Female"], rows)}
    years = np.repeat([1997, 1998, 1999], [rows // 2, rows - rows // 2 - 10, 10])
    return pd.DataFrame({"rownames": range(rows), **table, "age": 20, "checks": 1, "year": years})


def declare_arrests(monkeypatch: pytest.MonkeyPatch, frame: pd.DataFrame) -> None:
    """Declare arrests_years as what the rule makes of a table."""
    clients = prepare(RULES["arrests_years"], {"Arrests": frame})
    sizes = [len(table) for table in clients.values()]
    rows = (sum(sizes), min(sizes), float(np.median(sizes)), max(sizes))
    made = replace(TABLES["arrests_years"], clients=len(sizes), rows=rows, digest=tables.digest(clients))
    monkeypatch.setitem(tables.TABLES, "arrests_years", made)


def test_published_files_become_a_federation_or_are_refused(
    made_up: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = published_arrests()
    declare_arrests(monkeypatch, frame)
    frame.to_csv(tmp_path / "Arrests.csv", index=False)
    assert get("arrests_years", tmp_path).kind == "cache"
    assert [client.name for client in federation_clients("arrests_years")] == ["y1997", "y1998"]  # 1999: too few rows
    get("arrests_years")  # checked again
    taken = tmp_path / "cache" / "fedcollab" / "federations" / "arrests_years" / "y1997.csv"
    taken.write_text(taken.read_text().replace("Male", "Mala"))
    with pytest.raises(InputError, match="is not arrests_years as published: its content has digest"):
        get("arrests_years")
    frame.iloc[:-10].to_csv(tmp_path / "Arrests.csv", index=False)  # the rows of 1999 do not matter
    get("arrests_years", tmp_path)
    frame.iloc[5:].to_csv(tmp_path / "Arrests.csv", index=False)
    with pytest.raises(InputError, match=r"not arrests_years as published: rows 105, expected 110$"):
        get("arrests_years", tmp_path)
    frame.drop(columns="colour").to_csv(tmp_path / "Arrests.csv", index=False)
    with pytest.raises(InputError, match=r"has other tables than carData::Arrests as published: .*colour"):
        get("arrests_years", tmp_path)


def test_a_download_is_checked_too(made_up: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = published_arrests()
    declare_arrests(monkeypatch, frame)
    asked = []

    def download(url: str, target: Path, say: Any) -> None:
        asked.append(url)
        frame.to_csv(target, index=False)

    monkeypatch.setattr(tables, "download", download)
    get("arrests_years")
    assert asked == [f"{tables.ADDRESS}/carData/Arrests.csv"]
    assert federation_clients("arrests_years")[0].x.shape[1] == 6


def test_numbers_may_be_spelt_differently() -> None:
    one = {"a": pd.DataFrame({"x": [1, 2], "label": ["1", "2"]})}
    same = {"a": pd.DataFrame({"x": [1.0, 2.0 + 1e-15], "label": ["1", "2"]})}
    other = {"a": pd.DataFrame({"x": [1.0, 2.1], "label": ["1", "2"]})}
    assert tables.digest(one) == tables.digest(same) != tables.digest(other)


def test_large_clients_are_drawn_in_order() -> None:
    frame = pd.DataFrame({"x": range(100), "client": ["a"] * 80 + ["b"] * 20, "label": "l"})
    made = prepare(lambda frames: frames["t"], {"t": frame}, 30)
    assert [len(part) for part in made.values()] == [30, 20]
    assert made["a"]["x"].is_monotonic_increasing
    assert list(made["a"]["x"]) == list(prepare(lambda frames: frames["t"], {"t": frame}, 30)["a"]["x"])


def test_rules_that_do_more_than_pick_columns() -> None:
    weather = pd.DataFrame(
        {"city": "Oslo Fjord", "date": ["d1", "d2", "d3"], "month": 1, "events": ["Rain", None, "Fog , Snow"]}
        | dict.fromkeys(
            ("high_temp", "avg_temp", "low_temp", "high_dewpt", "avg_dewpt", "low_dewpt", "high_humidity"), 1
        )
        | dict.fromkeys(("avg_humidity", "low_humidity", "high_hg", "avg_hg", "low_hg", "avg_vis", "low_vis"), 1)
        | {"high_wind": 1, "avg_wind": 1}
    )
    made = RULES["weather_cities"]({"Weather": weather})
    assert list(made["label"]) == ["no", "yes"]  # of the next day; the last day has none
    assert list(made["client"]) == ["Oslo_Fjord"] * 2
    nsw = pd.DataFrame({c: [0, 0] for c in ("age", "educ", "black", "hisp", "marr", "nodeg", "re74", "re75")})
    nsw = nsw.assign(trt=[1, 0], re78=[0.0, 5.0])
    made = RULES["lalonde_cohorts"]({"nsw74demo": nsw, "psid1": nsw, "cps1": nsw})
    assert list(made["client"]) == ["nsw_treated", "nsw_control", "psid", "psid", "cps", "cps"]
    assert list(made["label"]) == ["yes", "no"] * 3
    common = {"age": 50, "meno": 1, "grade": 3, "nodes": 0, "pgr": 0, "er": 0, "hormon": 0}
    dutch = pd.DataFrame(
        {"year": 1990, "size": ">50", "recur": [1, 0, 0], "death": [0, 1, 0], "rtime": [100, 90, 300]}
        | {"dtime": [900, 731, 300]} | common
    )  # fmt: skip
    german = pd.DataFrame({"size": [20, 51], "rfstime": [2000, 10], "status": [0, 1]} | common)
    made = RULES["breast_cohorts"]({"rotterdam": dutch, "gbsg": german})
    # recurred at 100 days; died after two years; the one followed for 300 days is left out
    assert list(made["label"]) == ["yes", "no", "no", "yes"]
    assert list(made["size"]) == [">50", ">50", "<=20", ">50"]
