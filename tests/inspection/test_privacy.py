"""What leaves a silo in a data check: counts, moments and checksums of at least the limit of rows, and no value."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcollab
from fedcollab import Inspection
from fedcollab.data import ClientData
from fedcollab.errors import Paused
from fedcollab.flower.envelope import Envelope
from fedcollab.flower.silo.client_app import reply_to
from fedcollab.flower.silo.config import SiloConfig
from fedcollab.flower.silo.state_store import StateStore
from fedcollab.silo.guard import Guard
from fedcollab.wire import Vectorised, Wire
from fedcollab.wire.action import Action
from fedcollab.wire.limits import Limits, Privacy
from fedcollab.wire.message import Message, pack, unpack
from fedcollab.wire.silo import Silo

from .conftest import Tables, as_clients, write_tables

pytestmark = pytest.mark.dataset("heart")

LIMIT = 10
KEY = "0123456789abcdef" * 2


class Guarded(Wire):
    """A wire runtime whose silos are guarded; `heard` is all that crossed the line."""

    def __init__(self, clients: list[ClientData], folder: Path, **limits: Any) -> None:
        super().__init__(clients)
        self.limits = Limits(**{"min_samples": LIMIT, **limits})
        self.folder = folder
        self.heard: list[tuple[str, str, Message, bytes]] = []

    def _serve(self, action: Action, name: str, content: bytes) -> bytes:
        kept = {key: unpack(value) for key, value in self._state[name].items()}
        silo = Silo(self._data[name], kept, limits=self.limits)
        served = Guard.at(self.folder / name, self.limits).serve(action.name, content, silo)
        self.heard.append((action.name, name, unpack(served.content), served.content))
        if served.done:
            self._state[name] = {key: pack(value) for key, value in silo.state.items()}
        return served.content


@pytest.fixture
def secrets(heart: Tables) -> Tables:
    """The hospitals, where few rows have a value, a category or a label that must not be seen."""
    for name, table in heart.items():
        table["marker"] = np.where(np.arange(len(table)) < 4, 7654.321, np.nan)
        table.loc[table.index[:3], "cp"] = f"rare-{name}"
        table.loc[table.index[:3], "label"] = f"secret-{name}"
        table.loc[table.index[5], "trestbps"] = 98765.4321
    return heart


def test_nothing_of_few_rows_leaves(secrets: Tables, tmp_path: Path) -> None:
    runtime = Guarded(as_clients(secrets), tmp_path)
    found = fedcollab.inspect(runtime)
    assert {action for action, *_ in runtime.heard} == {"inspect"}
    assert len(runtime.heard) == 4, "every client is asked once"
    for _, name, reply, content in runtime.heard:
        for text in (f"rare-{name}", f"secret-{name}", "7654.3", "98765.4", "98765"):
            assert text.encode() not in content
        assert all(count >= LIMIT for count in reply["labels"].values())
        assert reply["rare_labels"] >= 1
        for column in reply["columns"]:
            assert all(count >= LIMIT for count in column["categories"].values())
            if column["present"] < LIMIT:
                silent = {key for key, value in column.items() if value} - {"name", "kind", "present"}
                assert silent == set(), column["name"]
        assert not any(isinstance(value, np.ndarray) for value in reply.values())
    saved = tmp_path / "inspection.json"
    found.save(saved)
    assert not re.search(r"rare-|secret-|7654\.3|98765|checksum", saved.read_text())
    assert set(Inspection.load(saved).profiles) == set(secrets)


def look_at(client: ClientData, **limits: Any) -> Message:
    wire = Wire([client, ClientData("other", client.x, client.y)])
    silo = Silo(client, limits=Limits(**{"min_samples": LIMIT, **limits}))
    assert wire.names
    return unpack(pack(fedcollab.inspection.profile.look({"test_share": 0.2, "seed": 0, "key": KEY}, silo)))


def test_a_reply_is_the_same_whatever_the_order_of_rows_and_no_longer_with_more_of_them(heart: Tables) -> None:
    """Each client brings its test split, so that the order decides about nothing else."""
    (client,) = (each for each in as_clients(heart) if each.name == "va")
    tests = (client.x.iloc[:20], client.y[:20])
    plain = ClientData("va", client.x, client.y, *tests)
    order = np.random.default_rng(0).permutation(client.quantity)
    mixed = ClientData("va", client.x.iloc[order], client.y[order], *tests)
    assert look_at(plain) == look_at(mixed)
    many = np.tile(np.arange(client.quantity), 20)
    longer = look_at(ClientData("va", client.x.iloc[many], client.y[many], *tests))
    assert len(pack(longer)) < 1.2 * len(pack(look_at(plain)))


def test_checksums_cannot_be_compared_from_one_check_to_the_next(heart: Tables, tmp_path: Path) -> None:
    runtime = Guarded(as_clients(heart), tmp_path)
    for _ in range(2):
        fedcollab.inspect(runtime)
    sums = [reply["checksum"] for _, name, reply, _ in runtime.heard if name == "va"]
    assert len(set(sums)) == 2


def test_limits_are_kept(heart: Tables, tmp_path: Path) -> None:
    with pytest.raises(Paused, match="this silo asks for at least 1000"):
        fedcollab.inspect(Guarded(as_clients(heart), tmp_path / "a", min_samples=1000))
    with pytest.raises(Paused, match="does not do 'inspect'"):
        fedcollab.inspect(Guarded(as_clients(heart), tmp_path / "b", actions=("describe",)))
    part = fedcollab.inspect(Guarded(as_clients(heart), tmp_path / "c", min_samples=120))
    assert [(each.client, each.kind) for each in part.warnings if each.kind == "no-answer"] == [
        ("switzerland", "no-answer")
    ]
    runtime = Guarded(as_clients(heart), tmp_path / "d", max_splits=1)
    fedcollab.inspect(runtime, seed=0)
    with pytest.raises(Paused, match="has answered for 1 test splits"):
        fedcollab.inspect(runtime, seed=1)


def test_flaws_are_found_under_limits_too(heart: Tables, tmp_path: Path) -> None:
    """Switzerland has too few blood sugars to say anything about them; numbers of patients are seen all the same."""
    for name, table in heart.items():
        heart[name] = table.assign(fbs=np.arange(len(table)), patient=np.arange(len(table)))
    heart["switzerland"]["fbs"] = heart["switzerland"]["fbs"].where(np.arange(len(heart["switzerland"])) < 40)
    found = fedcollab.inspect(Guarded(as_clients(heart), tmp_path, min_samples=50))
    assert {each.column for each in found.errors if each.kind == "identifier"} == {"fbs", "patient"}


def test_a_silo_with_differential_privacy_sends_no_predictions(heart: Tables) -> None:
    (client,) = (each for each in as_clients(heart) if each.name == "va")
    private = look_at(client, require_privacy=Privacy(1.0))
    assert {column["skill"] for column in private["columns"]} == {None}
    assert any(column["skill"] is not None for column in look_at(client)["columns"])


def test_runtimes_agree(secrets: Tables, tmp_path: Path) -> None:
    clients = as_clients(secrets)
    plain = fedcollab.inspect(Vectorised(clients))
    wire = fedcollab.inspect(Wire(clients))
    assert wire.findings == plain.findings
    assert wire.profiles == plain.profiles
    open_handed = fedcollab.inspect(Guarded(clients, tmp_path, min_samples=1, round_measures=False))
    assert open_handed.profiles == plain.profiles


def test_a_silo_over_flower_gives_the_same_answer(heart: Tables, tmp_path: Path) -> None:
    write_tables(heart, tmp_path)
    (tmp_path / "silo.toml").write_text('name = "va"\ndata = "va.csv"\nlabel = "label"\n')
    config = SiloConfig.read(tmp_path / "silo.toml")
    message = {"test_share": 0.2, "seed": 0, "key": KEY}
    answer = reply_to(Envelope("inspect", "va", "1", pack(message)), config, "1")
    silo = Silo(config.check_data(), limits=Limits(), key=StateStore(config.state).key())
    assert unpack(answer.content) == unpack(pack(fedcollab.inspection.profile.look(message, silo)))
