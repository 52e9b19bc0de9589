"""Keys and certificates that end: warnings before, renewal, and a silo that is expelled."""

from __future__ import annotations

import contextlib
import datetime
import os
import socket
import ssl
import stat
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("cryptography")
pytest.importorskip("msgspec")

from cryptography import x509

from fedcollab.data import ClientData
from fedcollab.errors import InputError
from fedcollab.files import write_bytes
from fedcollab.flower import FederationFolder, keys
from fedcollab.flower.coordinator import certificates, folder
from fedcollab.flower.silo import fleet
from fedcollab.flower.silo.config import SiloConfig, init_silo, renewal_warnings
from fedcollab.training import train


@pytest.fixture
def federation(tmp_path: Path) -> FederationFolder:
    return FederationFolder.init(tmp_path / "fed", "127.0.0.1", 9000)


def test_a_certificate_is_renewed_by_the_same_authority(
    federation: FederationFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = federation.folder / "keys"
    before = {name: (folder / name).read_bytes() for name in ("ca.crt", "ca.key", "server.crt", "server.key")}
    assert federation.warnings() == []
    monkeypatch.setattr(certificates, "DAYS", 31)
    federation.renew()
    (line,) = [line for line in federation.warnings() if "coordinator's certificate ends in 30 days" in line]
    assert "fedcollab federation renew" in line
    monkeypatch.undo()
    federation.renew()
    assert federation.warnings() == []
    after = {name: (folder / name).read_bytes() for name in before}
    assert [name for name in before if before[name] != after[name]] == ["server.crt", "server.key"]
    authority, server = (x509.load_pem_x509_certificate(after[name]) for name in ("ca.crt", "server.crt"))
    server.verify_directly_issued_by(authority)
    assert server.not_valid_after_utc > datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=700)
    assert authority.not_valid_after_utc > server.not_valid_after_utc
    assert all(stat.S_IMODE((folder / name).stat().st_mode) == 0o600 for name in ("ca.key", "server.key"))


@pytest.mark.parametrize(
    ("begins", "days", "told"), [(0, -0.02, "has ended"), (1, 9, "not valid yet"), (0, 9, "not that of the invitation")]
)
def test_a_certificate_that_is_refused_is_told_with_its_reason(
    federation: FederationFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begins: int, days: float, told: str
) -> None:
    """By silos; and at the coordinator, where Flower's commands fail too and do not say why."""

    later = SimpleNamespace(now=lambda zone: datetime.datetime.now(zone) + datetime.timedelta(days=begins))
    clock = SimpleNamespace(datetime=later, timedelta=datetime.timedelta, UTC=datetime.UTC)
    monkeypatch.setattr(certificates, "DAYS", days)
    monkeypatch.setattr(certificates, "datetime", clock)
    federation.renew()
    monkeypatch.undo()
    other = FederationFolder.init(tmp_path / "other", "127.0.0.1", 9001)
    trusted = (other if told.startswith("not that") else federation).folder / "keys" / "ca.crt"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(federation.folder / "keys" / "server.crt", federation.folder / "keys" / "server.key")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def shake_hands() -> None:
            with contextlib.suppress(OSError):
                context.wrap_socket(server.accept()[0], server_side=True).close()

        thread = threading.Thread(target=shake_hands)
        thread.start()
        keys.make_silo_key(tmp_path / "north.key", "north")
        link = fleet.Fleet(f"127.0.0.1:{server.getsockname()[1]}", trusted.read_bytes(), tmp_path / "north.key")
        with pytest.raises(InputError, match=told):
            link.connect()
        thread.join()
    if told == "has ended":

        def run_flwr(calls: object, env: object) -> None:
            raise InputError("`flwr supernode list` failed: Connection to the SuperLink is unavailable")

        monkeypatch.setattr(folder, "run_flwr", run_flwr)
        with pytest.raises(InputError, match=r"certificate ended 1 days ago .* renew .*; `flwr supernode list` failed"):
            federation.flwr(["supernode", "list"])


def test_a_silos_key_is_renewed(federation: FederationFolder, tmp_path: Path) -> None:
    ClientData("north", np.zeros((4, 2)), [0, 1, 0, 1]).save(tmp_path / "north" / "data.npz")
    invitation = federation.folder / "invitation.toml"
    path, public = init_silo(tmp_path / "north", "north", tmp_path / "north" / "data.npz", None, invitation)
    assert public is not None
    federation.admit(public, "north")
    config = SiloConfig.read(path)
    assert renewal_warnings(config) == []
    old = time.time() - 800 * 86_400
    os.utime(config.key, (old, old))
    assert "should have been renewed 70 days ago" in renewal_warnings(config)[0]
    before = keys.fingerprint(public.read_bytes())
    renewed = keys.renew_silo_key(config.key, config.name)
    assert keys.fingerprint(renewed.read_bytes()) != before
    assert renewal_warnings(config) == []
    with pytest.raises(InputError, match="renewed today already"):
        keys.renew_silo_key(config.key, config.name)
    with pytest.raises(InputError, match="with another key is admitted already"):
        federation.admit(renewed, "north")
    federation.expel("north")
    assert federation.admitted == []
    federation.admit(renewed, "north")
    assert federation.admitted == ["north"]
    with pytest.raises(InputError, match="no silo `south` is admitted; there are north"):
        federation.expel("south")


def test_models_and_private_files_are_for_their_owner_alone(clients: list[ClientData], tmp_path: Path) -> None:
    train(clients, "global", rounds=1, model="logistic", run_dir=tmp_path)
    models = list(tmp_path.rglob("*.safetensors"))
    assert models
    assert {stat.S_IMODE(path.stat().st_mode) for path in models} == {0o600}
    write_bytes(tmp_path / "open.txt", b"")
    assert stat.S_IMODE((tmp_path / "open.txt").stat().st_mode) & 0o044
