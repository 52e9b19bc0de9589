"""People's own files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedcollab.data import ClientData, read_client, read_clients
from fedcollab.data.read import Reading, read_folder
from fedcollab.errors import InputError

TABLE = "age,sex,ill\n50,m,yes\n61,?,no\n,f,yes\n70,m,no\n"


def write(folder: Path, **files: str) -> Path:
    for name, content in files.items():
        (folder / f"{name.replace('__', '.')}.csv").write_text(content)
    return folder


def test_every_kind_of_file(tmp_path: Path) -> None:
    write(tmp_path, north=TABLE, north__test=TABLE)
    pd.read_csv(tmp_path / "north.csv").to_parquet(tmp_path / "south.parquet")
    north, south = read_clients(tmp_path, "ill")
    assert (north.name, south.name) == ("north", "south")
    assert north.quantity == 4
    assert north.y_test.tolist() == ["yes", "no", "yes", "no"]
    assert north.x["sex"].isna().sum() == 1
    assert south.x_test is None
    assert south.x["age"].isna().sum() == 1


def test_npz_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        np.savez(tmp_path / f"{name}.npz", x=np.zeros((4, 3)), y=np.arange(4) % 2)
    assert [client.name for client in read_clients(tmp_path)] == ["a", "b"]
    ClientData("other", np.zeros((4, 3)), [0, 1, 0, 1]).save(tmp_path / "c.npz")
    assert read_clients(tmp_path)[2].name == "c", "the file's name is the client's name"


def test_a_reason_that_many_files_share_is_given_once(tmp_path: Path) -> None:
    write(tmp_path, **dict.fromkeys("abcdef", TABLE), g="age,well\n1,2\n", h="")
    folder = read_folder(tmp_path, Reading("Ill"), strict=False)
    assert len(folder.unreadable) == 8
    line = folder.refusal
    assert line.startswith("8 files cannot be used: `--label` (='Ill') is not a column of `")
    assert line.count("columns: age, sex, ill") == 1
    assert "columns: age, sex, ill (the same of b, c, d, ...: 5 more); " in line
    assert line.endswith(f"columns: age, well; `{tmp_path / 'h.csv'}` is empty")
    (tmp_path / "h.csv").write_text(TABLE)
    assert read_folder(write(tmp_path, h=""), Reading("ill"), strict=False).refusal.startswith("2 files")
    (tmp_path / "h.csv").unlink()
    one = read_folder(tmp_path, Reading("ill"), strict=False)
    assert one.refusal == one.unreadable["g"]


def test_columns_can_be_dropped(tmp_path: Path) -> None:
    (client,) = read_clients(write(tmp_path, a=TABLE), "ill", drop=["sex"])
    assert list(client.x.columns) == ["age"]
    with pytest.raises(InputError, match="is the label column"):
        read_clients(tmp_path, "ill", drop=["ill"])
    (tmp_path / "a.csv").write_bytes("stra\u00dfe,ill\n1,yes\n2,no\n".encode("latin-1"))
    with pytest.raises(InputError, match="not UTF-8"):
        read_clients(tmp_path, "ill")


def test_columns_to_drop_may_come_from_a_generator_and_be_in_one_file_only(tmp_path: Path) -> None:
    write(tmp_path, a=TABLE, b=TABLE.replace("sex,", "town,"))
    a, b = read_clients(tmp_path, "ill", drop=(name for name in ("sex",)))
    assert (list(a.x.columns), list(b.x.columns)) == (["age"], ["age", "town"])
    with pytest.raises(InputError, match="`--drop` \\(='weight'\\) is not a column of any file"):
        read_clients(tmp_path, "ill", drop=["weight"])
    with pytest.raises(InputError, match="`--drop` \\(='sex'\\) is not a column of"):
        read_client(tmp_path / "b.csv", "ill", drop=["sex"])
    assert list(read_client(tmp_path / "b.csv", "ill", drop=["sex"], lenient=True).x.columns) == ["age", "town"]


def test_columns_in_another_order_get_that_of_the_first_file(tmp_path: Path) -> None:
    write(tmp_path, a=TABLE, b="ill,sex,age\nyes,m,50\nno,f,40\n")
    a, b = read_clients(tmp_path, "ill")
    assert list(a.x.columns) == list(b.x.columns) == ["age", "sex"]
    assert b.x["age"].tolist() == [50, 40]


def test_test_splits_of_other_kinds_of_files(tmp_path: Path) -> None:
    """A table's test split as NPZ, and an NPZ file's as another NPZ file."""
    write(tmp_path, north=TABLE)
    held = pd.DataFrame({"age": [1.0, 2.0], "sex": ["m", "f"]})
    ClientData("held", held, ["yes", "no"]).save(tmp_path / "north.test.npz")
    np.savez(tmp_path / "south.npz", x=np.zeros((4, 3)), y=np.arange(4) % 2)
    np.savez(tmp_path / "south.test.npz", x=np.ones((2, 3)), y=np.arange(2))
    north, south = read_clients(tmp_path, "ill")
    assert north.x_test["age"].tolist() == [1, 2]
    assert north.y_test.tolist() == ["yes", "no"]
    assert south.x_test.tolist() == [[1, 1, 1]] * 2
    with_own = ClientData("south", np.zeros((4, 3)), [0, 1, 0, 1], np.zeros((2, 3)), [0, 1])
    with_own.save(tmp_path / "south.npz")
    with pytest.raises(InputError, match="holds a test split, and"):
        read_clients(tmp_path, "ill")
    np.savez(tmp_path / "north.test.npz", x=np.ones((2, 3)), y=np.arange(2))
    (tmp_path / "south.test.npz").unlink()
    with pytest.raises(InputError, match="`x_test` has features"):
        read_clients(tmp_path, "ill")
    write(tmp_path, north__test=TABLE)
    with pytest.raises(InputError, match="are both the test split of client `north`"):
        read_clients(tmp_path, "ill")


def test_labels_can_be_mapped_merged_and_swapped(tmp_path: Path) -> None:
    write(tmp_path, a=TABLE, b=TABLE.replace("yes", "Yes ").replace("no", "NO"))
    a, b = read_clients(tmp_path, "ill", merge_labels=True)
    assert a.y.tolist() == b.y.tolist() == ["yes", "no", "yes", "no"]
    a, b = read_clients(tmp_path, "ill", label_map={"yes": "no", "no": "yes", "Yes": "ja"})
    assert a.y.tolist() == ["no", "yes", "no", "yes"], "each label is replaced once"
    assert b.y.tolist() == ["ja", "NO", "ja", "NO"]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("", "is empty"),
        ("age,sex,ill\n", "has a header but no rows"),
        ("age,sex,ill\n50,m,yes\n", "has 1 training sample(s)"),
        ("age,sex\n50,m\n60,f\n", "`--label` (='ill') is not a column"),
        ("age,ill\n50,\n60,\n", "label column `ill` is empty"),
        ("age,ill\n50,1\n60,two\n", "mixes numbers and text"),
        ("age,ill\n50,0.25\n60,inf\n", "1 missing or infinite label(s)"),
        ("age,ill\n50,0.25\n60,\n", "column `ill` is empty in 1 of 2 rows, first in row 2 below the header"),
        ("ill\nyes\nno\n", "no column beside the label"),
        ('age,ill\n50,"1\n60,2\n', "cannot be read as CSV"),
        ("age,ill\n50,\n60,yes\n", "column `ill` is empty in 1 of 2 rows, first in row 1 below the header"),
        ("age,age,ill\n50,51,yes\n60,61,no\n", "repeated columns: age"),
        ("age|ill\n50|yes\n60|no\n", "commas, semicolons or tabs must stand between columns"),
        ("age;ill\n50;yes\n60;no\n70\n", "has 1 fields in line 4; its header has 2"),
        ('pay,ill\n"1,500",yes\n700,no\n', "column `pay` holds numbers with commas in them; write 1500 for 1,500"),
        ('age,ill\n50,"0,5"\n60,2\n', "column `ill` holds numbers with commas in them"),
        ("pay;ill\n1.500,5;yes\n1.700,25;no\n", "column `pay` holds numbers with commas in them"),
    ],
)
def test_bad_files_name_the_trouble(tmp_path: Path, content: str, line: str) -> None:
    with pytest.raises(InputError) as caught:
        read_clients(write(tmp_path, a=content), "ill")
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("mark", [";", "\t"])
def test_files_as_spreadsheets_write_them_where_the_comma_is_decimal(tmp_path: Path, mark: str) -> None:
    """Semicolons or tabs between fields, decimal commas: the same table as with commas and points."""
    plain = "age,dose,codes,town,ill\n50,0.5,1,x,yes\n61.5,,2,y,no\n62,-2,1,,yes\n"
    other = "age;dose;codes;town;ill\n50;0,5;1;x;yes\n61,5;;2;y;no\n62;-2;1;;yes\n".replace(";", mark)
    write(tmp_path, a=plain, b=other)
    a, b = read_clients(tmp_path, "ill")
    pd.testing.assert_frame_equal(a.x, b.x)
    assert a.y.tolist() == b.y.tolist()
    write(tmp_path, b='codes;ill\n"1,2,3";yes\n2;no\n'.replace(";", mark))
    assert read_clients(tmp_path, "ill")[1].x["codes"].tolist() == ["1,2,3", "2"], "several choices are no number"


def test_a_column_of_numbers_with_commas_can_be_left_out(tmp_path: Path) -> None:
    write(tmp_path, a='age,pay,ill\n50,"1,500",yes\n60,700,no\n')
    assert list(read_clients(tmp_path, "ill", drop=["pay"])[0].x.columns) == ["age"]


@pytest.mark.parametrize("name", ["b.xlsx", "b.XLS", "b.tsv", "b.dta"])
def test_a_table_that_cannot_be_read_leaves_no_client_out_unnoticed(tmp_path: Path, name: str) -> None:
    write(tmp_path, a=TABLE, c=TABLE)
    (tmp_path / name).write_bytes(b"PK")
    with pytest.raises(InputError, match=rf"{name}` must end in .csv, .parquet or .npz"):
        read_clients(tmp_path, "ill")
    write(tmp_path, b=TABLE)
    assert [client.name for client in read_clients(tmp_path, "ill")] == ["a", "b", "c"], "b.csv is what is meant"


def test_hidden_files_and_notes_are_no_clients(tmp_path: Path) -> None:
    write(tmp_path, a=TABLE)
    for name in ("._a.csv", ".a.csv.swp", "~$a.xlsx", "~$b.xlsx", "README.txt", "notes.md"):
        (tmp_path / name).write_bytes(b"\0\5\26")
    assert [client.name for client in read_clients(tmp_path, "ill")] == ["a"]


def test_bad_folders(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be a folder"):
        read_clients(tmp_path / "nowhere", "ill")
    with pytest.raises(InputError, match="holds no"):
        read_clients(tmp_path, "ill")
    write(tmp_path, a=TABLE, b__test=TABLE)
    with pytest.raises(InputError, match="no training file for client `b`"):
        read_clients(tmp_path, "ill")
    with pytest.raises(InputError, match="`--label` must name"):
        read_clients(write(tmp_path, b=TABLE))
    (tmp_path / "a.parquet").write_bytes(b"no parquet")
    with pytest.raises(InputError, match="more than one file for client `a`"):
        read_clients(tmp_path, "ill")
