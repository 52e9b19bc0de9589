"""Flower's simulation as a runtime, for studies that outgrow one process: Ray runs the silos on all cores or machines.

    fedcollab.train(clients, coalitions, runtime="flower-simulation", ...)

The silos are the same ClientApp as in a real federation, with data and state in a folder of their own; the ServerApp is
the same too. A message costs tenths of a second instead of none: the in-process runtimes are faster as long as the
clients fit into one. Needs `pip install 'fedcollab[simulation]'`.
"""

from __future__ import annotations

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
from fedcollab.flower.coordinator.folder import CALLER, FOLDER
from fedcollab.flower.coordinator.relay import RelayRuntime, listen
from fedcollab.flower.silo.config import SIMULATION, toml_text
from fedcollab.wire.runtime import check_clients

MAIN = "fedcollab.flower.simulation_main"


class Simulation(RelayRuntime):
    """Clients as simulated silos, in processes that end with this object (`close`) or with the program.

    Parameters
    ----------
    clients : iterable of ClientData
        The clients.
    device : str
        Where their models run.
    cores : float
        Processor cores for each client that works.

    Raises
    ------
    InputError
        If Ray is not installed, or the clients cannot be used.
    """

    def __init__(self, clients: Iterable[ClientData], *, device: str = "cpu", cores: float = 1.0) -> None:
        if find_spec("ray") is None:
            raise InputError("`runtime` (='flower-simulation') needs Ray: pip install 'fedcollab[simulation]'")
        checked = check_clients(clients)
        stack = ExitStack()
        self.close = weakref.finalize(self, stack.close)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedcollab-simulation-")))
        for position, client in enumerate(checked):
            client.save(folder / str(position) / "data.npz")
            config = f'name = {toml_text(client.name)}\ndata = "data.npz"\ndevice = {toml_text(device)}\n'
            config += "[limits]\nmin_test = 1\nmin_batch = 1\nround_measures = false\ncheck_training = false\n"
            (folder / str(position) / "silo.toml").write_text(config)

        def run(caller: str) -> None:
            known = {FOLDER: str(folder), SIMULATION: str(folder), CALLER: caller}
            line = [sys.executable, "-m", MAIN, str(len(checked)), str(cores)]
            env = processes.environment(folder / "flwr", known)
            stack.callback(processes.stop, processes.start(line, folder / "simulation.log", env))

        channel = stack.enter_context(listen(folder / "calls", run))
        super().__init__(channel, names=[client.name for client in checked])
