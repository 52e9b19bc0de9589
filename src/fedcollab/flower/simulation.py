"""Flower's simulation as a runtime, for studies that outgrow one process: Ray runs the silos on all cores or machines.

    fedcollab.train(clients, coalitions, runtime="flower-simulation", ...)

The silos are the same ClientApp as in a real federation, with data and state in a folder of their own; the ServerApp is
the same too. A message costs tenths of a second instead of none: the in-process runtimes are faster as long as the
clients fit into one. Needs `pip install 'fedcollab[simulation]'`.
"""

from __future__ import annotations

import json
import sys
import tempfile
import weakref
from collections.abc import Iterable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

from fedcollab.data.client import ClientData
from fedcollab.errors import InputError
from fedcollab.flower import processes
from fedcollab.flower.config import SIMULATION
from fedcollab.flower.relay import Relayed, listen
from fedcollab.flower.server import CALLER, FOLDER
from fedcollab.wire.runtime import check_clients


class Simulation(Relayed):
    """Clients as simulated silos, in processes that end with this object (`close`) or with the program."""

    def __init__(self, clients: Iterable[ClientData], *, device: str = "cpu", cores: float = 1.0) -> None:
        if find_spec("ray") is None:
            raise InputError("`runtime` (='flower-simulation') needs Ray: pip install 'fedcollab[simulation]'")
        checked = check_clients(clients)
        stack = ExitStack()
        self.close = weakref.finalize(self, stack.close)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedcollab-simulation-")))
        for position, client in enumerate(checked):
            client.save(folder / str(position) / "data.npz")
            lines = [f"name = {json.dumps(client.name)}", 'data = "data.npz"', f"device = {json.dumps(device)}"]
            (folder / str(position) / "silo.toml").write_text("\n".join(lines) + "\n")

        def run(caller: str) -> None:
            known = {FOLDER: str(folder), SIMULATION: str(folder), CALLER: caller}
            line = [sys.executable, "-m", __name__, str(len(checked)), str(cores)]
            pid = processes.start(line, folder / "simulation.log", processes.environment(folder / "flwr", known))
            stack.callback(processes.stop, pid, processes.born(pid))

        channel = stack.enter_context(listen(folder / "calls", run))
        super().__init__(channel, names=[client.name for client in checked])


def main() -> None:
    """In a process of its own: simulate until the ServerApp ends."""
    from flwr.simulation import run_simulation

    from fedcollab.flower.client import app as client
    from fedcollab.flower.server import app as server

    silos, cores = int(sys.argv[1]), float(sys.argv[2])
    run_simulation(
        server_app=server,
        client_app=client,
        num_supernodes=silos,
        backend_config={"client_resources": {"num_cpus": cores, "num_gpus": 0.0}},
    )


if __name__ == "__main__":
    main()
