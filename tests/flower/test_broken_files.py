"""Files of silos and coordinators that were damaged, cut short by a kill, or written to deceive."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("msgspec")
pytest.importorskip("cryptography")

from cryptography.hazmat.primitives import serialization

from fedcollab.errors import InputError
from fedcollab.flower import keys
from fedcollab.flower.silo import state_store
from fedcollab.flower.silo.approvals import FOLDER, approved_plans
from fedcollab.flower.silo.config import SiloConfig, init_silo
from fedcollab.flower.silo.state_store import KEY, StateStore
from fedcollab.silo.audit import Audit
from fedcollab.silo.plans import Plan

PLAN = Plan("heart", "look", {"a": "", "b": ""}, {"models": 3}, methods=("few-round",), purpose="to find out")


def test_a_silos_own_key_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A silo that was killed between making the file and writing it used to divide its samples with an empty key."""

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(state_store.os, "link", killed)
        with pytest.raises(KeyboardInterrupt):
            StateStore(tmp_path).key()
    assert not (tmp_path / KEY).exists()
    key = StateStore(tmp_path).key()
    assert len(key) == 32
    assert StateStore(tmp_path).key() == key
    assert stat.S_IMODE((tmp_path / KEY).stat().st_mode) == 0o600
    (tmp_path / KEY).write_bytes(b"")
    with pytest.raises(InputError, match="has 0 bytes; a silo's key has 32"):
        StateStore(tmp_path).key()


def test_of_two_processes_the_first_key_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = state_store.os.link

    def late(source: Path, target: Path) -> None:
        Path(target).write_bytes(b"1" * 32)
        link(source, target)

    monkeypatch.setattr(state_store.os, "link", late)
    assert StateStore(tmp_path).key() == b"1" * 32
    assert [path.name for path in tmp_path.iterdir()] == [KEY]


@pytest.mark.parametrize(
    "purpose",
    ["fine.\n\nIts budget: nothing", "fine.\x1b[8m the rest of the review is hidden", "fine \u202e", "\ud800", "a\rb"],
)
def test_a_plan_cannot_forge_lines_of_its_review(tmp_path: Path, purpose: str) -> None:
    PLAN.save(tmp_path / "plan.json")
    content = json.loads((tmp_path / "plan.json").read_text())
    for changed in ({"purpose": purpose}, {"study": purpose}, {"partners": {"a": "", purpose: ""}}):
        (tmp_path / "plan.json").write_text(json.dumps({**content, **changed}))
        with pytest.raises(InputError, match="line breaks, or characters that cannot be shown") as refused:
            Plan.load(tmp_path / "plan.json")
        assert str(refused.value).isprintable()
    with pytest.raises(InputError, match="the plan cannot be used"):
        Plan("heart", "look", {"a": ""}, {}, purpose=purpose).save(tmp_path / "other.json")


def test_a_plan_that_is_nested_without_end(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("[" * 200_000)
    with pytest.raises(InputError, match="nested more than 100 levels deep"):
        Plan.load(tmp_path / "plan.json")


def test_a_broken_approval_stops_no_silo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,0\n2,1\n")
    path, _ = init_silo(tmp_path / "silo", "a", tmp_path / "a.csv", "y", None)
    config = SiloConfig.read(path)
    (config.state / FOLDER).mkdir(parents=True)
    for number, content in enumerate(("[" * 200_000, "[1]", '{"plan": 1}', "\x00", '{"plan": {}, "approved": []}')):
        (config.state / FOLDER / f"{number}.json").write_text(content)
    assert approved_plans(config) == []
    assert len(capsys.readouterr().err.splitlines()) == 5


def test_keys_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A private key with a passphrase, and a folder in place of a public key, used to end in a traceback."""

    def locked(*_: Any) -> None:  # what cryptography does, where bcrypt is installed
        raise TypeError("Key is password-protected, but password was not provided.")

    monkeypatch.setattr(serialization, "load_ssh_private_key", locked)
    (tmp_path / "a.key").write_bytes(b"")
    with pytest.raises(InputError, match="cannot be read as this silo's key"):
        keys.sign(tmp_path / "a.key", b"")
    with pytest.raises(InputError, match="cannot be read"):
        keys.read_public_key(tmp_path)


def test_lines_of_a_log_that_are_no_entries(tmp_path: Path) -> None:
    log = Audit(tmp_path / "audit.jsonl")
    log.path.write_text('{"time": 5, "previous": ""}\n' + "[" * 200_000 + '\n{"time": "", "previous": []}\n')
    assert log.entries() == list(log.since("")) == []
