"""The program of a simulation, in a process of its own: `python -m fedcollab.flower.simulation_main SILOS CORES`."""

from __future__ import annotations

import sys

from flwr.simulation import run_simulation

from fedcollab.flower.coordinator import server_app
from fedcollab.flower.silo import client_app


def main() -> None:
    """Simulate silos until the ServerApp ends."""
    run_simulation(
        server_app=server_app.app,
        client_app=client_app.app,
        num_supernodes=int(sys.argv[1]),
        backend_config={"client_resources": {"num_cpus": float(sys.argv[2]), "num_gpus": 0.0}},
    )


if __name__ == "__main__":
    main()
