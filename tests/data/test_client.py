"""ClientData: what it takes, what it refuses and in which words."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedcollab.data import ClientData
from fedcollab.data.client import list_clients
from fedcollab.errors import InputError
from fedcollab.runs import FedCollab

X = [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]


def test_takes_arrays_frames_and_tensors() -> None:
    from_list = ClientData("a", X, ["u", "v", "u"])
    from_array = ClientData("a", np.array(X), np.array([0, 1, 0]))
    from_tensor = ClientData("a", torch.tensor(X), torch.tensor([0, 1, 0]))
    from_frame = ClientData("a", pd.DataFrame(X, columns=["p", "q"]), pd.Series([0, 1, 0]))
    assert from_list.quantity == from_array.quantity == from_tensor.quantity == from_frame.quantity == 3
    np.testing.assert_array_equal(from_array.x, from_tensor.x)
    assert list(from_frame.x.columns) == ["p", "q"]
    assert from_list.y.tolist() == ["u", "v", "u"]


def test_takes_torch_data_sets() -> None:
    dataset = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor([0, 1, 0]))
    client = ClientData.from_torch("a", dataset, test=dataset)
    np.testing.assert_array_equal(client.x, np.array(X))
    assert client.y_test.tolist() == [0, 1, 0]


class Stream(torch.utils.data.IterableDataset):
    """A data set that can only be iterated over."""

    def __iter__(self):
        return iter(zip(X, [0, 1, 0], strict=True))


class MeasuredStream(Stream):
    """One that also knows its length."""

    def __len__(self) -> int:
        return 3


@pytest.mark.parametrize("stream", [Stream(), MeasuredStream()])
def test_a_torch_data_set_without_an_index_is_refused_with_the_way_out(stream: Stream) -> None:
    with pytest.raises(InputError, match=r"Stream\) must have a length and an index; .*give list\(dataset\)"):
        ClientData.from_torch("a", stream)
    assert ClientData.from_torch("a", list(stream)).y.tolist() == [0, 1, 0]


def test_labels_of_a_torch_data_set_are_not_cut() -> None:
    halves = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor([0.5, 1.0, 0.25]))
    assert ClientData.from_torch("a", halves).y.tolist() == [0.5, 1.0, 0.25]
    whole = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor([[1.0], [0.0], [2.0]]))
    assert ClientData.from_torch("a", whole).y.tolist() == [1, 0, 2]
    words = list(zip(X, ["ill", "well", "ill"], strict=True))
    assert ClientData.from_torch("a", words).y.tolist() == ["ill", "well", "ill"]


@pytest.mark.parametrize(
    ("samples", "line"),
    [
        ([1, 2, 3], r"must hold \(features, label\) pairs"),
        ([], "`dataset` is empty"),
        ([([1.0], 0), ([1.0, 2.0], 1)], r"features of shapes \(1,\) and \(2,\)"),
        ([([1.0], [0, 1]), ([2.0], [1, 0])], "labels of 2 values"),
    ],
)
def test_torch_data_sets_that_cannot_be_used(samples: list, line: str) -> None:
    with pytest.raises(InputError, match=line):
        ClientData.from_torch("a", samples)


def test_a_mapping_holds_clients_by_name() -> None:
    given = ClientData("north", X, [0, 1, 0])
    pair, split = (X, [0, 1, 1]), (X, [0, 1, 1], X, [1, 1, 0])
    clients = list_clients({"north": given, "south": pair, "east": split})
    assert clients[0] is given
    assert [client.name for client in clients] == ["north", "south", "east"]
    assert clients[2].y_test.tolist() == [1, 1, 0]
    assert [client.name for client in list_clients(iter([given]))] == ["north"]


@pytest.mark.parametrize(
    ("clients", "line"),
    [
        ({"south": ClientData("north", X, [0, 1, 0])}, r"the client 'north' under the name 'south'"),
        ({"north": pd.DataFrame(X)}, r"a DataFrame under the name 'north'; which column is the label\?"),
        ({"north": np.array(X)}, r"a ndarray under the name 'north'; expected ClientData, or features and labels"),
        ({"north": (X,)}, r"expected ClientData, or features and labels"),
        ({3: (X, [0, 1, 0])}, r"`name` \(=3\) must be a non-empty string"),
    ],
)
def test_a_mapping_of_other_things_is_one_clear_line(clients: dict, line: str) -> None:
    with pytest.raises(InputError, match=line) as error:
        FedCollab().fit(clients)
    assert "\n" not in str(error.value)


def test_input_is_copied_and_then_frozen() -> None:
    x = np.array(X)
    client = ClientData("a", x, [0, 1, 0])
    x[0, 0] = 99.0
    assert client.x[0, 0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        client.x[0, 0] = 1.0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("", X, [0, 1, 0]), "`name` (='') must be a non-empty string"),
        (("a", X, [0, 1]), "`x` has 3 rows and `y` has 2"),
        (("a", [[1.0]], [0]), "has 1 training sample(s); at least 2"),
        (("a", [[1.0], [np.nan]], [0, 1]), "1 NaN or infinite value(s)"),
        (("a", [[1.0], [np.inf]], [0, 1]), "1 NaN or infinite value(s)"),
        (("a", [["x"], ["y"]], [0, 1]), "expected numbers, or a pandas DataFrame"),
        (("a", np.zeros((0, 2)), []), "is empty"),
        (("a", X, [0.5, 1.0, float("nan")]), "1 missing or infinite label(s)"),
        (("a", X, [0, np.nan, 1]), "1 missing or infinite label(s)"),
        (("a", X, ["u", None, "v"]), "1 missing label(s)"),
        (("a", X, [1, "one", 2]), "mixes numbers and text"),
        (("a", X, [[0], [1], [0]]), "expected one label a sample"),
        (("a", X, [0, 1, 0], X), "`x_test` and `y_test` must be given together"),
        (("a", X, [0, 1, 0], [[1.0]], [0]), "expected (2,) as in `x`"),
        (("a", pd.DataFrame({"p": [1.0, np.inf]}), [0, 1]), "column `p` has infinite values"),
        (("a", [[1.0], [-1e60]], [0, 1]), "`x` has a number beyond 1e+36"),
        (("a", X, [0.5, 1e200, 0.25]), "`y` has a number beyond 1e+36"),
        (("a", pd.DataFrame({"p": [1.0, 1e37]}), [0, 1]), "`x`: column `p` has a number beyond 1e+36"),
        (("a", pd.DataFrame([[1, 2], [3, 4]], columns=["p", "p"]), [0, 1]), "repeated columns: p"),
    ],
)
def test_bad_input_is_one_clear_line(arguments: tuple[object, ...], line: str) -> None:
    with pytest.raises(InputError) as caught:
        ClientData(*arguments)  # type: ignore[arg-type]
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.lists(st.one_of(st.none(), st.text(max_size=3)), min_size=2, max_size=6))
def test_a_table_survives_saving(texts: list[str | None]) -> None:
    import tempfile
    from pathlib import Path

    texts = [None if text is None or "\x00" in text else text for text in texts]
    frame = pd.DataFrame({"number": np.arange(len(texts)) / 3, "text": pd.Series(texts, dtype=object)})
    client = ClientData("ä/b", frame, np.arange(len(texts)) % 2, frame, np.arange(len(texts)) % 2)
    with tempfile.TemporaryDirectory() as folder:
        client.save(Path(folder) / "c.npz")
        loaded = ClientData.load(Path(folder) / "c.npz")
    assert loaded.name == "ä/b"
    assert loaded.x["number"].tolist() == frame["number"].tolist()
    assert [None if pd.isna(text) else text for text in loaded.x_test["text"]] == texts


def test_object_arrays_are_refused_when_loading(tmp_path) -> None:
    np.savez(tmp_path / "evil.npz", x=np.array([{}], dtype=object), y=np.array([0]))
    with pytest.raises(InputError, match="cannot be read as NPZ"):
        ClientData.load(tmp_path / "evil.npz")
