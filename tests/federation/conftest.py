"""A real federation on loopback for the whole session: a SuperLink and four silos, TLS, authenticated."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fedcollab.data import ClientData

pytest.importorskip("flwr")

from fedcollab.flower import processes
from fedcollab.flower.silo.state_store import StateStore

COMMAND = [sys.executable, "-c", "from fedcollab.cli import main; main()"]
LIMIT = 900.0  # seconds for a command, on a machine that is busy with other things too


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "federation" in Path(item.fspath).parts and "running" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.federation)
    # the test that stops the federation of all these files comes after all others
    items.sort(key=lambda item: item.name == "test_nothing_is_left_behind")


def fedcollab(*arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    """A command, as a user would type it."""
    line = [*COMMAND, *map(str, arguments)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=LIMIT, check=False)
    if check and done.returncode:
        raise AssertionError(f"{arguments} ended with {done.returncode}: {done.stderr}")
    return done


@functools.cache
def example_hash() -> str:
    """The SHA-256 of the example's app, as `flwr run` will send it."""
    from flwr.cli.build import build_fab_from_disk

    app = Path(__file__).parents[2] / "examples" / "flower-coalitions"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Flower's own
        return hashlib.sha256(build_fab_from_disk(app)).hexdigest()


def blobs(name: str, count: int, flip: bool) -> ClientData:
    """Two Gaussian classes in four dimensions; `flip` swaps the labels."""
    rng = np.random.default_rng(list(name.encode()))
    y = rng.integers(0, 2, count + 40)
    x = rng.normal(0, 1, (count + 40, 4)) + np.outer(2 * y - 1, [1.5, 0, 0, 0])
    y = 1 - y if flip else y
    return ClientData(name, x[:count], y[:count], x[count:], y[count:])


class Running:
    """A federation that runs, and its silos."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / "fed"
        sizes = {"north": 200, "south": 120, "east": 200, "west": 120}
        self.clients = [blobs(name, size, flip=name in ("east", "west")) for name, size in sizes.items()]
        self.silos: dict[str, processes.ProcessHandle] = {}

    def make(self) -> None:
        port = processes.free_port()
        fedcollab("federation", "init", self.folder, "--port", port)
        for client in self.clients:
            self.add(client)
            fedcollab("federation", "admit", self.folder, self.root / client.name / f"{client.name}.pub")
        fedcollab("federation", "start", self.folder)
        for client in self.clients:
            self.start_silo(client.name)

    def add(self, client: ClientData) -> None:
        """What a silo's administrator does."""
        folder = self.root / client.name
        client.save(folder / "secret-place.npz")
        invitation = self.folder / "invitation.toml"
        fedcollab(
            "silo", "init", "--name", client.name, "--data", folder / "secret-place.npz",
            "--invitation", invitation, "--folder", folder, "--preset", "open",
        )  # fmt: skip
        with (folder / "silo.toml").open("a") as config:  # beside fedcollab's own app, the example's may run
            # so that what Flower carries can be compared to the last digit with a runtime that has no limits; a silo
            # that checked updates without errors would find rows in some of them, by its key, and refuse to train on
            config.write("round_measures = false\nblur_updates = false\nmin_batch = 1\ncheck_training = false\n")
            config.write(f'[app]\nallow = ["{example_hash()}"]\n')

    def keys(self) -> dict[str, bytes]:
        """Return the silos' secret keys, by which runtimes in this process draw as the silos do."""
        return {client.name: StateStore(self.root / client.name / "state").key() for client in self.clients}

    def start_silo(self, name: str) -> None:
        line = [*COMMAND, "silo", "start", str(self.root / name / "silo.toml")]
        self.silos[name] = processes.start(line, self.root / name / "log", os.environ)

    def stop_silo(self, name: str) -> None:
        processes.stop(self.silos.pop(name), grace=60)

    def status(self) -> dict[str, str]:
        silos: dict[str, str] = json.loads(fedcollab("federation", "status", self.folder, "--json").stdout)["silos"]
        return silos

    def log(self, name: str) -> str:
        return (self.root / name / "log").read_text(errors="replace")

    def stop(self) -> None:
        fedcollab("federation", "stop", self.folder, check=False)
        for name in list(self.silos):
            self.stop_silo(name)


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    long = "folder-with-a-name-so-long-that-no-unix-socket-could-have-an-address-in-it-whatever-the-system-allows-for"
    federation = Running(tmp_path_factory.mktemp(long))
    try:
        federation.make()
        yield federation
    finally:
        federation.stop()


def wait_for(what: object, seconds: float = LIMIT) -> bool:
    """Whether a condition comes true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():  # type: ignore[operator]
            return True
        time.sleep(0.5)
    return False
