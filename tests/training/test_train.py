"""Training as users call it: who trains with whom, what comes back, and what is left on disk."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from fedcollab.data import ClientData
from fedcollab.errors import InputError
from fedcollab.federation import federate
from fedcollab.training import TrainingResult, train
from fedcollab.training.history import History, line

SMALL = {"model_options": {"widths": [8]}, "rounds": 3, "lr": 0.1, "stopping": "none"}
TYPES = [["a", "b", "c"], ["d", "e", "f"]]


def test_result_is_in_the_order_of_clients(clients: list[ClientData]) -> None:
    result = train(clients[::-1], TYPES, **SMALL)
    assert result.names == ("f", "e", "d", "c", "b", "a")
    assert result.coalitions == [["f", "e", "d"], ["c", "b", "a"]]
    assert result.assignment.tolist() == [0, 0, 0, 1, 1, 1]
    assert result.accuracy.shape == result.loss.shape == result.auc.shape == result.balanced_accuracy.shape == (6,)
    assert result.personal_accuracy is None


def test_permuting_clients_changes_nothing(clients: list[ClientData]) -> None:
    first = train(clients, TYPES, "ditto", **SMALL)
    second = train(clients[::-1], [members[::-1] for members in TYPES[::-1]], "ditto", **SMALL)
    np.testing.assert_array_equal(first.accuracy, second.accuracy[::-1])
    np.testing.assert_array_equal(first.models["last"], second.models["last"][::-1])
    np.testing.assert_array_equal(first.models["personal"], second.models["personal"][::-1])


def test_one_coalition_of_everyone_is_global(clients: list[ClientData]) -> None:
    everyone = train(clients, [[client.name for client in clients]], **SMALL)
    np.testing.assert_array_equal(everyone.models["last"], train(clients, "global", **SMALL).models["last"])


def test_singletons_are_local(clients: list[ClientData]) -> None:
    alone = train(clients, [[client.name] for client in clients], **SMALL)
    for other in (train(clients, "local", **SMALL), train(clients, TYPES, "local", **SMALL)):
        np.testing.assert_array_equal(alone.models["last"], other.models["last"])
        assert other.coalitions == alone.coalitions


def test_coalitions_train_independently(clients: list[ClientData]) -> None:
    """A coalition's model does not depend on who else trains beside it."""
    both = train(clients, TYPES, **SMALL)
    split = train(clients, [["a", "b", "c"], ["d"], ["e", "f"]], **SMALL)
    np.testing.assert_allclose(both.models["last"][0], split.models["last"][0], atol=1e-6)


def test_seed_decides(clients: list[ClientData]) -> None:
    first, again = (train(clients, TYPES, seed=1, **SMALL) for _ in range(2))
    np.testing.assert_array_equal(first.models["last"], again.models["last"])
    assert not np.array_equal(first.models["last"], train(clients, TYPES, seed=2, **SMALL).models["last"])


def test_takes_an_object_with_coalitions_and_a_prepared_runtime(clients: list[ClientData]) -> None:
    runtime = federate(clients)
    result = train(runtime, SimpleNamespace(coalitions=TYPES), **SMALL)
    assert result.names == runtime.names
    np.testing.assert_array_equal(result.models["last"], train(clients, TYPES, **SMALL).models["last"])
    np.testing.assert_array_equal(result.models["last"], train(runtime, TYPES, **SMALL).models["last"])


def test_learns(clients: list[ClientData]) -> None:
    """Types with swapped labels: coalitions by type succeed where one model for everyone cannot."""
    together = train(clients, TYPES, model="logistic", rounds=20, lr=0.5)
    everyone = train(clients, "global", model="logistic", rounds=20, lr=0.5)
    assert together.accuracy.min() > 0.8
    assert everyone.accuracy.mean() < 0.7
    assert together.auc.min() > 0.9


def test_save_and_load(clients: list[ClientData], tmp_path) -> None:
    result = train(clients, TYPES, "ditto", evaluate_every=1, run_dir=tmp_path / "run", **SMALL)
    for path in (tmp_path / "run", tmp_path / "run" / "training.json"):
        read = TrainingResult.load(path)
        assert read.names == result.names
        assert read.coalitions == result.coalitions
        np.testing.assert_allclose(read.accuracy, result.accuracy)
        np.testing.assert_allclose(read.personal_accuracy, result.personal_accuracy)
        assert set(read.models) == {"last", "personal"}
        assert read.rounds == result.rounds == [3, 3]
        for which, rows in result.models.items():
            np.testing.assert_array_equal(read.models[which], rows)
        assert list(read.history) == list(result.history)
    assert not list(tmp_path.rglob("*.p*t")) + list(tmp_path.rglob("*.pkl"))


def test_metrics_are_streamed_as_lines_that_pandas_reads(clients: list[ClientData], tmp_path) -> None:
    result = train(clients, TYPES, "ditto", evaluate_every=2, run_dir=tmp_path, **SMALL)
    table = pd.read_json(tmp_path / "training.jsonl", lines=True)
    assert len(table) == 18
    assert {"round", "client", "coalition", "train_loss", "accuracy", "personal_accuracy"} <= set(table.columns)
    assert table[table["round"] == 1]["accuracy"].isna().all()
    assert table[table["round"] == 2]["accuracy"].notna().all()
    last = table[table["round"] == 3].set_index("client")["accuracy"]
    np.testing.assert_allclose(last[list(result.names)], result.accuracy)
    assert len(pd.DataFrame(result.history)) == 18


def test_damaged_files_are_named(clients: list[ClientData], tmp_path) -> None:
    train(clients, TYPES, run_dir=tmp_path, **SMALL)
    (tmp_path / "training.safetensors").write_bytes(b"no tensors")
    with pytest.raises(InputError, match=r"training\.safetensors.*cannot be read"):
        TrainingResult.load(tmp_path)
    (tmp_path / "training.safetensors").unlink()
    with pytest.raises(InputError, match=r"training\.safetensors.*does not exist"):
        TrainingResult.load(tmp_path)
    content = json.loads((tmp_path / "training.json").read_text())
    del content["layout"], content["content_sha256"]
    (tmp_path / "training.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="not a complete training file"):
        TrainingResult.load(tmp_path)


def test_partial_participation(clients: list[ClientData]) -> None:
    result = train(clients, TYPES, "scaffold", participation=0.34, evaluate_every=None, **SMALL | {"rounds": 6})
    trained = [row for row in result.history if row["train_loss"] is not None]
    assert len(trained) == 12
    assert len({row["client"] for row in trained}) > 2


def test_a_line_cut_within_a_letter_is_left_out(tmp_path: Path) -> None:
    """A process killed while it wrote: the name of the client ends half-way through its ü."""
    whole = line({"round": 1, "client": "Zürich", "coalition": 0})
    (tmp_path / "training.jsonl").write_bytes(whole + whole[: whole.index(b"\xc3") + 1])
    assert [row["client"] for row in History.read(tmp_path / "training.jsonl")] == ["Zürich"]
