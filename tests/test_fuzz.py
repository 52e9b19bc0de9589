"""Damaged, hostile and huge files: read, or refused with one line; never a traceback, never out of memory."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcollab import files
from fedcollab.coalitions import Collaboration, CPath
from fedcollab.data import ClientData
from fedcollab.data.own import load_own
from fedcollab.data.read import read_client
from fedcollab.distances import Distances
from fedcollab.errors import InputError
from fedcollab.scenarios.file import load as load_scenario

READERS = (
    "checkpoint", "csv", "history", "json", "matrix", "message", "npz", "parquet", "plan", "safetensors", "toml",
)  # fmt: skip


@pytest.fixture(scope="session")
def fuzz(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModuleType, dict[str, Any]]:
    """Return tools/fuzz.py and its readers."""
    place = Path(__file__).parents[1] / "tools" / "fuzz.py"
    spec = importlib.util.spec_from_file_location("fedcollab_fuzz", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fedcollab_fuzz"] = module
    spec.loader.exec_module(module)
    return module, module.readers(tmp_path_factory.mktemp("valid"))


@pytest.mark.parametrize("name", READERS)
def test_a_thousand_damaged_files_of_each_reader(fuzz: Any, tmp_path: Path, name: str) -> None:
    module, readers = fuzz
    assert sorted(readers) == sorted(READERS)
    outcomes = []
    for file, content in module.damaged(readers[name], 1000, seed=25):
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


def test_columns_of_lists_in_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pd.DataFrame({"a": [[1], [2, 3]], "label": [0, 1]}).to_parquet(path)
    with pytest.raises(InputError, match="column `a`"):
        read_client(path, "label")


@pytest.mark.parametrize(
    ("kind", "load", "change"),
    [
        ("collaboration", Collaboration.load, {"names": []}),
        ("collaboration", Collaboration.load, {"assignment": [-1, 0, 0, 0]}),
        ("collaboration", Collaboration.load, {"objective": 0}),
        ("path", CPath.load, {"segments": []}),
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
