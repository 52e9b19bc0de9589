"""Damaged, hostile and huge files: read, or refused with one line; never a traceback, never out of memory."""

from __future__ import annotations

import base64
import importlib
import io
import json
import os
import sys
import zipfile
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from fedcollab import files
from fedcollab.advice import Advice
from fedcollab.coalitions import Collaboration, CPath
from fedcollab.coalitions.tables import read_quantities
from fedcollab.data import ClientData, tables
from fedcollab.data.own import load_own, read_columns, read_label_map
from fedcollab.data.read import read_client, read_clients
from fedcollab.data.rows import fit_rows
from fedcollab.data.schema import Column, Schema
from fedcollab.distances import Distances
from fedcollab.errors import InputError
from fedcollab.flower.keys import read_public_key
from fedcollab.inspection import Inspection, inspect
from fedcollab.parsing import parse_json
from fedcollab.runs import Run
from fedcollab.scenarios.file import load as load_scenario
from fedcollab.training import TrainingResult, load_model, train
from fedcollab.wire.absence import FILE as ABSENCES
from fedcollab.wire.absence import read as read_absences

READERS = (
    "checkpoint", "commands", "csv", "history", "json", "matrix", "message", "npz", "parquet", "plan", "rows",
    "rows-npz", "rows-parquet", "run", "safetensors", "silo", "toml",
)  # fmt: skip


@pytest.fixture(scope="session")
def fuzz(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModuleType, dict[str, Any]]:
    """Return tools/fuzz.py and its readers."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
    module = importlib.import_module("fuzz")
    return module, module.readers(tmp_path_factory.mktemp("valid"))


@pytest.mark.parametrize("name", READERS)
def test_a_thousand_damaged_files_of_each_reader(fuzz: Any, tmp_path: Path, name: str) -> None:
    module, readers = fuzz
    assert sorted(readers) == sorted(READERS)
    outcomes = []
    for file, content in module.damaged(readers[name], range(1000), seed=25):
        (tmp_path / file).write_bytes(content)
        outcomes.append(module.attempt(readers[name], tmp_path / file))
    assert set(outcomes) == {"read", "refused"}


@pytest.mark.parametrize("name", READERS)
def test_undamaged_files_are_read(fuzz: Any, tmp_path: Path, name: str) -> None:
    """Else the fuzzer would only ever see refusals."""
    _, readers = fuzz
    for file, content in readers[name].seeds.items():
        (tmp_path / file).write_bytes(content)
        readers[name].read(tmp_path / file)
    assert readers[name].seeds


def test_an_advice_whose_candidate_lacks_a_client(fuzz: Any, tmp_path: Path) -> None:
    content = json.loads(fuzz[1]["json"].seeds["advice.json"])
    content["candidates"][content["chosen"]].update(kind="everyone", coalitions=[content["names"][:-1]])
    path = tmp_path / "advice.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="the coalitions that are advised lack a client"):
        Advice.load(path)


@settings(max_examples=200)
@given(content=st.binary(max_size=300), name=st.sampled_from(READERS))
def test_any_bytes_at_all(fuzz: Any, tmp_path_factory: pytest.TempPathFactory, content: bytes, name: str) -> None:
    module, readers = fuzz
    for file in readers[name].seeds:
        path = tmp_path_factory.getbasetemp() / file
        path.write_bytes(content)
        assert module.attempt(readers[name], path) in ("read", "refused")


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=300)
@given(data=st.data(), value=PLAIN)
def test_any_value_in_place_of_any_field(
    fuzz: Any, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, value: Any
) -> None:
    module, readers = fuzz
    file = data.draw(st.sampled_from(sorted(readers["json"].seeds)))
    content = json.loads(readers["json"].seeds[file])
    content[data.draw(st.sampled_from(sorted(content)))] = value
    path = tmp_path_factory.getbasetemp() / file
    path.write_text(json.dumps(content), encoding="utf-8", errors="surrogatepass")
    assert module.attempt(readers["json"], path) in ("read", "refused")


# What the fuzzer and the attack that issue 25 describes have found, one by one.


def _npz(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def _npy(values: Any, shape: str | None = None) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asarray(values), allow_pickle=False)
    content = buffer.getvalue()
    if shape is None:
        return content
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


def test_an_npz_that_declares_800_gigabytes(tmp_path: Path) -> None:
    path = _npz(tmp_path / "a.npz", {"x.npy": _npy([], "(100000000000,)"), "y.npy": _npy([0, 1])})
    with pytest.raises(InputError, match=r"array `x.npy` claims shape \(100000000000,\), but has \d+ bytes"):
        ClientData.load(path)


def test_an_npz_that_unpacks_to_ten_gigabytes(tmp_path: Path) -> None:
    """The directory of the archive says what it unpacks to; one that lies is cut off there, and fails its checksum."""
    path = _npz(tmp_path / "a.npz", {"x.npy": _npy(np.zeros(10)), "y.npy": _npy([0, 1])})
    content = path.read_bytes()
    at = content.index(b"PK\x01\x02") + 24
    path.write_bytes(content[:at] + (2**32 - 2).to_bytes(4, "little") + content[at + 4 :])
    with pytest.raises(InputError, match="would unpack to more than 4 GiB"):
        ClientData.load(path)


def test_text_of_characters_that_do_not_exist(tmp_path: Path) -> None:
    name = np.array(["abc"])
    broken = _npy(name).replace("abc".encode("utf-32-le"), b"\xff" * 12)
    path = _npz(tmp_path / "a.npz", {"x.npy": _npy(np.eye(2)), "y.npy": _npy([0, 1]), "name.npy": broken})
    with pytest.raises(InputError, match="array `name` holds characters that do not exist"):
        ClientData.load(path)


def test_deep_json_and_toml(tmp_path: Path) -> None:
    path = tmp_path / "distances.json"
    path.write_text("[" * 100_000)
    with pytest.raises(InputError, match="nested more than 100 levels deep"):
        Distances.load(path)
    path.write_text('{"fedcollab": "distances", "format": 1, "names": ["' + "[" * 1000 + '"], "raw": 1}')
    with pytest.raises(InputError, match="must have `quantities`"):  # brackets in a text are no nesting
        Distances.load(path)
    path.write_text('{"fedcollab": "distances", "format": ' + "1" * 5000 + "}")
    with pytest.raises(InputError, match="is not JSON"):
        Distances.load(path)
    scenario = tmp_path / "s.toml"
    scenario.write_text("a = " + "[" * 100_000)
    with pytest.raises(InputError, match="is not TOML: it is nested too deep"):
        load_scenario(scenario)
    scenario.write_text(".".join(["a"] * 100_000) + " = 1")
    with pytest.raises(InputError, match="a key of more than 50 parts"):
        load_scenario(scenario)
    scenario.write_text("x = '" + "a" * (1 << 20) + "'")
    with pytest.raises(InputError, match="it has more than 1 MiB"):
        load_scenario(scenario)
    assert load_own(scenario) is None  # whoever reads it as a scenario says what is wrong


@pytest.mark.parametrize("name", ["label-shift", "feature-shift", "concept-shift", "dirichlet", "digits"])
def test_ten_million_clients_in_a_scenario(tmp_path: Path, name: str) -> None:
    path = tmp_path / "s.toml"
    path.write_text(f'[scenario]\nname = "{name}"\ndataset = "digits"\nclients = 10000000\nquantity = 5\ntest = 2\n')
    with pytest.raises(
        InputError, match=r"`clients` \(=10000000\) must be a whole number of at least .* at most 10000"
    ):
        load_scenario(path)


@pytest.mark.parametrize("name", ["label-shift", "concept-shift", "digits"])
def test_thousands_of_clients_in_a_scenario(fuzz: Any, tmp_path: Path, name: str) -> None:
    """Too many for the data set: refused, and not after the distances of all of them, label by label, filled 3 GB."""
    path = tmp_path / "s.toml"
    path.write_text(f'[scenario]\nname = "{name}"\ndataset = "digits"\nclients = 4000\nquantity = 5\ntest = 2\n')
    before = fuzz[0].megabytes()
    with pytest.raises(InputError, match=r"but the data set has|`clients`|`dataset`"):
        load_scenario(path)
    assert fuzz[0].megabytes() - before < 1000


def test_a_table_as_wide_as_genomes(tmp_path: Path) -> None:
    """50,000 columns are read (once this took minutes: quadratic); more than 100,000 are refused by their header."""
    wide = tmp_path / "wide.csv"
    columns = [f"g{i}" for i in range(50_000)]
    rows = [",".join([str(row + 0.5)] * 50_000 + [str(row % 2)]) for row in range(3)]
    wide.write_text("\n".join([",".join([*columns, "label"]), *rows]) + "\n")
    assert len(read_client(wide, "label").x.columns) == 50_000
    wide.write_text(",".join(f"g{i}" for i in range(100_001)) + "\n")
    with pytest.raises(InputError, match="has 100,001 columns; a table may have at most 100,000"):
        read_client(wide, "label")
    wide.write_text("a,b,a,label\n1,2,3,0\n")
    with pytest.raises(InputError, match="has repeated columns: a"):
        read_client(wide, "label")


def test_a_label_of_hundreds_of_digits(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"a,label\n1,{'9' * 400}\n2,0\n")
    with pytest.raises(InputError, match="labels of hundreds of digits"):
        read_client(path, "label")


@pytest.mark.parametrize("field", ["x" * (3 << 20), "1" * (3 << 20), '"' + "x,\n" * (1 << 20) + '"'])
def test_a_field_of_megabytes(tmp_path: Path, field: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"a,label\n{field},1\n2,0\n")
    with pytest.raises(InputError, match="a field of more than 1048576 bytes"):
        read_client(path, "label")


def test_a_device_or_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    for path in ("/dev/zero", tmp_path):
        with pytest.raises(InputError, match="cannot be read: it is a"):
            load_scenario(path)
        with pytest.raises(InputError, match="cannot be read"):
            files.read_json(path, "distances")


def test_bytes_that_are_no_text_in_parquet(tmp_path: Path) -> None:
    """pandas reads them, and fails where the column is used."""
    path = tmp_path / "a.parquet"
    parts = [None, *map(pyarrow.py_buffer, (np.array([0, 1, 2], dtype=np.int32).tobytes(), b"a\xff"))]
    column = pyarrow.Array.from_buffers(pyarrow.string(), 2, parts)
    parquet.write_table(pyarrow.table({"a": column, "label": [0, 1]}), path)
    with pytest.raises(InputError, match=r"cannot be read as Parquet: .*UTF8"):
        tables.read_table(path)


def test_a_data_check_of_clients_without_rows(tmp_path: Path) -> None:
    path = tmp_path / "inspection.json"
    clients = [ClientData(name, np.eye(12), np.arange(12) % 2) for name in "ab"]
    inspect(clients).save(path)
    assert Inspection.load(path).names == ("a", "b")
    for quantity in (0, 0.5, -1):
        content = json.loads(path.read_text())
        content["profiles"]["a"]["quantity"] = quantity
        del content["content_sha256"]
        (tmp_path / "other.json").write_text(json.dumps(content))
        with pytest.raises(InputError, match="`quantity`: Expected `int`"):
            Inspection.load(tmp_path / "other.json")


def test_columns_of_lists_in_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pd.DataFrame({"a": [[1], [2, 3]], "label": [0, 1]}).to_parquet(path)
    with pytest.raises(InputError, match="column `a`"):
        read_client(path, "label")


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (pd.DataFrame({"a": [1, 2], "label": [0, 1], "label ": [1, 0]}), "has repeated columns: label"),
        (pd.DataFrame({"a": [1, 2], "label": [date(2026, 1, 1)] * 2}), "labels of type date; expected numbers or text"),
        (pd.DataFrame({"a": [1, 2], "label": [b"x", b"y"]}), "column `label` is of type binary"),
        (pd.DataFrame({"a": [1, 2], "label": pd.to_datetime(["2026-01-01"] * 2)}), "labels of type datetime64"),
    ],
)
def test_labels_that_are_none_in_parquet(tmp_path: Path, table: pd.DataFrame, why: str) -> None:
    path = tmp_path / "a.parquet"
    table.to_parquet(path)
    with pytest.raises(InputError, match=why):
        read_client(path, "label")


def test_a_key_whose_point_is_compressed(tmp_path: Path) -> None:
    """A form of keys that the library for them does not know, and says so by an error of its own kind."""
    point = ec.generate_private_key(ec.SECP384R1()).public_key()
    form = (serialization.Encoding.X962, serialization.PublicFormat.CompressedPoint)
    parts = (b"ecdsa-sha2-nistp384", b"nistp384", point.public_bytes(*form))
    content = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    path = tmp_path / "b.pub"
    path.write_bytes(parts[0] + b" " + base64.b64encode(content))
    with pytest.raises(InputError, match=r"b\.pub` must be a silo's public key"):
        read_public_key(path)


@pytest.mark.parametrize(
    ("kind", "load", "change"),
    [
        ("collaboration", Collaboration.load, {"names": []}),
        ("collaboration", Collaboration.load, {"assignment": [-1, 0, 0, 0]}),
        ("collaboration", Collaboration.load, {"objective": 0}),
        ("path", CPath.load, {"segments": []}),
        ("path", CPath.load, {"limits": [1e308, 1.0]}),
        ("distances", Distances.load, {"raw": [[10**400]]}),
        ("distances", Distances.load, {"settings": 5}),
    ],
)
def test_artefacts_whose_fields_do_not_fit(
    fuzz: Any, tmp_path: Path, kind: str, load: Any, change: dict[str, Any]
) -> None:
    content = json.loads(fuzz[1]["json"].seeds[f"{kind}.json"])
    path = tmp_path / f"{kind}.json"
    path.write_text(json.dumps({**content, **change}))
    with pytest.raises(InputError, match=f"{kind}.json"):
        load(path)


def changed(content: dict[str, Any], where: str, value: Any) -> dict[str, Any]:
    """Return a JSON object with another value in one place, such as "model.shape"; "GONE" takes the place out."""
    place: Any = content
    *path, last = [int(part) if part.isdecimal() else part for part in where.split(".")]
    for part in path:
        place = place[part]
    place[last] = value
    if value == "GONE":
        del place[last]
    return content


@pytest.mark.parametrize(
    ("kind", "where", "value"),
    [
        ("training", "model.options", "GONE"),
        ("training", "model.options", 7),
        ("training", "model.classes", "GONE"),
        ("training", "model.shape", 10**60),
        ("training", "model.shape", [[["a"]]]),
        ("training", "model.shape", [4]),
        ("training", "model.loss", "squared"),
        ("training", "schema", {"shape": [3]}),
        ("training", "schema.classes", [0]),
        ("training", "schema.classes", [0, 0]),
        ("training", "schema.shape", 1.7e308),
        ("training", "schema.missing_indicators", 1),
        ("training", "schema.encoding", [0]),
        ("training", "schema.std", [float("nan")] * 3),
        ("training", "schema.std", [0.0] * 3),
        ("training", "schema.mean", ["1"]),
        ("training", "schema.test_share", -0.2),
        ("training", "schema.target", True),
        ("training", "schema.task", "regression"),
        ("training", "method", 2**31),
        ("training", "rounds", [4]),
        ("training", "settings", []),
        ("training", "cost", {"calls": "many"}),
        ("inspection", "profiles.a.labels", {"0": "a"}),
        ("inspection", "profiles.a.labels", {"0": 10**9}),
        ("inspection", "profiles.a.columns", ["age"]),
        ("inspection", "profiles.a", 5),
        ("schema", "std", [-1.0] * 3),
        ("schema", "shape", []),
    ],
)
def test_results_and_data_checks_that_contradict_themselves(
    fuzz: Any, tmp_path: Path, kind: str, where: str, value: Any
) -> None:
    """These ended predict, export, compare or explain in a traceback, or went unnoticed."""
    file = f"{kind}.json"
    (tmp_path / file).write_text(json.dumps(changed(json.loads(fuzz[1]["json"].seeds[file]), where, value)))
    with pytest.raises(InputError, match=file):
        fuzz[1]["json"].read(tmp_path / file)


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("columns.0.mean", "1"),
        ("columns.0.std", "GONE"),
        ("columns.0.std", 0),
        ("columns.0", [1, 2, 3]),
        ("columns.0.name", "town"),
        ("columns.1.categories", 0),
        ("columns.1.categories", "\x00"),
        ("columns.1.categories", ["oslo", "oslo"]),
        ("columns.1.categories", ["oslo"]),
    ],
)
def test_a_schema_whose_columns_do_not_make_samples(where: str, value: Any) -> None:
    columns = (Column("age", 50.0, 5.0), Column("town", categories=("oslo", "rome")))
    known = Schema((0, 1), (3,), columns).to_json()
    assert Schema.from_json(known).columns == columns
    with pytest.raises(InputError, match="it is not a schema"):
        Schema.from_json(json.dumps(changed(json.loads(known), where, value)))


@pytest.mark.parametrize("settings", [{"drop": 1.7e308}, {"seed": None}, {"label": ["ill"]}, []])
def test_settings_of_a_run_that_are_of_another_type(tmp_path: Path, settings: Any) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"fedcollab": "run", "format": 1, "settings": settings}))
    with pytest.raises(InputError, match=r"run\.json` is not a complete run file"):
        Run(tmp_path).config()


def small_trees() -> TrainingResult:
    """Return a training of trees on two features."""
    x = np.arange(40.0).reshape(20, 2) % 7
    made = [ClientData(name, x, np.arange(20) % 2, x[:4], np.arange(4) % 2) for name in "ab"]
    how: dict[str, Any] = {"model": "xgboost", "model_options": {"max_depth": 2, "min_child_weight": 0.0}}
    return train(made, "global", rounds=2, stopping="none", **how)


@pytest.mark.parametrize(("part", "value"), [("feature", 3.0), ("feature", -1.0), ("feature", 0.5)])
def test_trees_that_split_by_features_that_there_are_not(part: str, value: float) -> None:
    """Scoring used to end in a traceback, and a booster made from them may read outside of its rows."""
    result = small_trees()
    assert np.isfinite(load_model(result).predict_proba(np.zeros((3, 2)))).all()
    result.models["last"][0, 0] = value  # the feature of the first tree's root comes first
    with pytest.raises(InputError, match="split by features that there are not; it takes 2"):
        load_model(result)


def test_weights_that_are_no_numbers(tmp_path: Path) -> None:
    result = small_trees()
    result.models["last"][0, -1] = np.nan
    result.save(tmp_path / "training.json")
    with pytest.raises(InputError, match=r"training\.safetensors` .* not finite"):
        TrainingResult.load(tmp_path)


def test_a_model_that_would_take_all_memory(fuzz: Any) -> None:
    """A file of kilobytes names a model of 10^9 rounds of trees: refused before memory is taken for it."""
    result = small_trees()
    before = fuzz[0].megabytes()
    for options in ({"rounds": 10**9}, {"rounds": 2**62}, {"rounds": "2"}):
        with pytest.raises(InputError):
            load_model(replace(result, model={**result.model, "options": options}))
    assert fuzz[0].megabytes() - before < 250


def test_one_key_of_a_hundred_thousand_that_stands_twice(fuzz: Any) -> None:
    """20,000 keys used to take 9 seconds, four times as many sixteen times as long."""
    keys = ", ".join(f'"{number}": 0' for number in range(100_000))
    with fuzz[0].time_limit(5), pytest.raises(InputError, match="`99999` stands twice"):
        parse_json(f'{{{keys}, "99999": 1}}', "x", "an object")


@pytest.mark.parametrize(("end", "value"), [("c_high", 1e308), ("c_low", -1.0), ("c_low", "nan"), ("slope", "inf")])
def test_a_path_whose_intervals_do_not_follow_each_other(fuzz: Any, tmp_path: Path, end: str, value: Any) -> None:
    content = json.loads(fuzz[1]["json"].seeds["path.json"])
    content["segments"][0][end] = value
    path = tmp_path / "path.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"path.json` is not a complete path file"):
        CPath.load(path)


@pytest.mark.parametrize(
    "labels", [["1e25", "1e26"], [10**25, 10**26], [2.0**63, 2.0**64], [2**64 - 1, 2**63], ["9007199254740992", "3"]]
)
def test_labels_too_large_to_be_told_apart(labels: list[Any]) -> None:
    """They used to become one and the same class, and nobody was told."""
    with pytest.raises(InputError, match="cannot be told apart"):
        ClientData("a", np.eye(4), labels * 2)


def test_codes_with_underscores_are_no_numbers() -> None:
    assert ClientData("a", np.eye(4), ["1_0", "1_1", "2_0", "1_0"]).y.tolist() == ["1_0", "1_1", "2_0", "1_0"]


@pytest.mark.parametrize("kind", ["folder", "pipe", "link to nowhere", "link to itself", "device"])
def test_what_is_no_file_among_the_files_of_clients(tmp_path: Path, kind: str) -> None:
    """It used to be passed over: the federation was advised without that client, and nobody was told."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("x,label\n1,0\n2,1\n")
    place = tmp_path / "c.csv"
    make: dict[str, Any] = {
        "folder": place.mkdir,
        "pipe": lambda: os.mkfifo(place),
        "link to nowhere": lambda: place.symlink_to("nowhere.csv"),
        "link to itself": lambda: place.symlink_to("c.csv"),
        "device": lambda: place.symlink_to("/dev/zero"),
    }
    make[kind]()
    for read in (lambda: read_clients(tmp_path, "label"), lambda: read_client(place, "label")):
        with pytest.raises(InputError, match=r"c\.csv` (is a link that leads nowhere|cannot be read: it is a)"):
            read()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32"])
def test_a_table_in_another_encoding(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x,label\n1,0\n2,1\n", encoding=encoding)
    with pytest.raises(InputError, match="it holds zero bytes, as UTF-16 does; save it as UTF-8"):
        read_client(path, "label")


def test_marks_at_the_beginning_of_text_files(tmp_path: Path) -> None:
    """Some editors write a byte order mark before UTF-8."""
    path = tmp_path / "a"
    path.write_text("\ufeffage\n", encoding="utf-8")
    assert read_columns(str(path)) == ("age",)
    path.write_text("\ufeffja,yes\n", encoding="utf-8")
    assert read_label_map(path) == {"ja": "yes"}
    path.write_text('\ufeff[data]\nclients = "x"\n', encoding="utf-8")
    assert load_own(path) is not None


def test_a_key_that_stands_twice(tmp_path: Path) -> None:
    path = tmp_path / "distances.json"
    path.write_text('{"fedcollab": "distances", "format": 1, "names": ["a"], "raw": [[0]], "raw": [[1]]}')
    with pytest.raises(InputError, match="`raw` stands twice in one object"):
        Distances.load(path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a,1\nb,2\na,99\n", "holds 'a' twice"),
        ("a,1\nb,2,9\n", "holds 'b,2,9'; expected a name and a number in every line"),
        ("x,y\n1,2\n", "has no quantity for 'a'"),
    ],
)
def test_quantities_that_say_two_things(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "m.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=why):
        read_quantities(path, ("a", "b"))


def test_quantities_below_their_names(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text("b,a\n1,2\n")
    assert read_quantities(path, ("a", "b")).tolist() == [2, 1]


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ("1,2,3,0\n1,2,4,1\n", "has 4 fields in line 2; its header has 3"),  # all columns used to be shifted by one
        ("0,1,2\n1,3\n", "has 2 fields in line 3; its header has 3"),  # as of a copy that was cut off
        ('0,"1,2"\n1,"3,4"\n', "has 2 fields in line 2; its header has 3"),
        ('0,1,2\n1,"3\n4",5,6\n', "has 4 fields in line 4; its header has 3"),
    ],
)
def test_rows_of_other_lengths_than_the_header(tmp_path: Path, rows: str, why: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text("label,a,b\n" + rows)
    with pytest.raises(InputError, match=why):
        read_client(path, "label")


def test_rows_in_which_blank_lines_and_quotes_stand(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('\nlabel,a\n\n0,"x\ny"\n   \n1,"x,y"\n\n')
    assert read_client(path, "label").x["a"].tolist() == ["x\ny", "x,y"]


def test_decimals_of_databases_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pd.DataFrame({"a": [Decimal("1.50"), None], "label": [Decimal(1), Decimal(2)]}).to_parquet(path)
    client = read_client(path, "label")
    assert client.x["a"].dtype == float
    assert client.x["a"].iloc[0] == 1.5
    assert client.y.tolist() == [1, 2]


@pytest.mark.parametrize("kind", ["dictionary", "prefixes", "numbers"])
def test_a_parquet_file_of_kilobytes_that_unpacks_to_gigabytes(
    fuzz: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """What is repeated takes no space in the file, and what its header says of its size leaves that out too."""
    path = tmp_path / "a.parquet"
    if kind == "numbers":
        monkeypatch.setattr(tables, "MOST_DATA", 4 * 2**20)
        zeros = pyarrow.array(np.zeros(300_000, dtype=np.int8))
        parquet.write_table(pyarrow.table({"a": zeros, "label": zeros}), path, compression="zstd")
    elif kind == "dictionary":
        text = pyarrow.DictionaryArray.from_arrays(pyarrow.array(np.zeros(20_000, dtype=np.int32)), ["x" * 100_000])
        parquet.write_table(pyarrow.table({"a": text, "label": np.arange(20_000) % 2}), path)
    else:
        part = pyarrow.table({"a": ["x" * 100_000] * 500, "label": np.arange(500) % 2})
        encoding = {"a": "DELTA_BYTE_ARRAY", "label": "PLAIN"}
        how: dict[str, Any] = {"use_dictionary": False, "compression": "zstd", "column_encoding": encoding}
        with parquet.ParquetWriter(path, part.schema, **how) as out:
            for _ in range(24):
                out.write_table(part)
    assert path.stat().st_size < 1 << 20
    before = fuzz[0].megabytes()
    with pytest.raises(InputError, match=r"would unpack to more than (4|0\.00390625) GiB"):
        read_client(path, "label")
    assert fuzz[0].megabytes() - before < 1000


def test_a_pipe_in_place_of_an_artefact_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "distances.json")
    with pytest.raises(InputError, match="it is a device"):
        files.digest(tmp_path / "distances.json")
    os.mkfifo(tmp_path / ABSENCES)
    assert read_absences(tmp_path) == []


def test_a_number_of_hundreds_of_digits_in_rows_to_predict_on(tmp_path: Path) -> None:
    schema = Schema((0, 1), (2,), (Column("age", 50.0, 5.0),))
    with pytest.raises(InputError, match="column `age` has a number of hundreds of digits"):
        fit_rows(pd.DataFrame({"age": pd.Series([10**400, 1], dtype=object)}), schema)


@pytest.mark.parametrize(
    ("arrays", "why"),
    [
        (
            {"x:a": np.zeros(2), "x:b": np.zeros(4)},
            "columns of different lengths",
        ),  # once filled up
        ({"x": np.zeros((4, 1)), "x:b": np.zeros(4)}, "holds an array `x` and a table"),
        ({"x": np.array([1, "a", None, 2], dtype=object)}, "array `x.npy` holds Python objects"),
    ],
)
def test_arrays_that_say_two_things(tmp_path: Path, arrays: dict[str, Any], why: str) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, y=np.array([0, 1, 0, 1]), **arrays)
    with pytest.raises(InputError, match=why):
        ClientData.load(path)


def test_an_npz_with_one_array_twice(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name, values in (("x.npy", np.eye(2)), ("y.npy", [0, 1]), ("x", np.ones((2, 2)))):
            archive.writestr(name, _npy(values))
    with pytest.raises(InputError, match="it has two arrays `x`"):
        ClientData.load(path)
