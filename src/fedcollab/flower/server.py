"""The ServerApp: carries a coordinator's calls to the silos, for as long as the command that started the run lives.

A stage's server side runs in that command (`fedcollab estimate --on ...`), where its files and its screen are; this
process only stands where Flower's Grid is. The run ends when the command hangs up.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedcollab.errors import InputError
from fedcollab.flower.channel import Channel, Closed
from fedcollab.flower.grid import Exchange

FOLDER = "FEDCOLLAB_FEDERATION"  # where the coordinator's command left the address of its socket
CALLER = "caller"  # the name of that note: in the run's config, or in a simulation in the environment

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Call back the command that started this run, and carry its calls."""
    caller = context.run_config.get(CALLER) or os.environ[CALLER]
    note = Path(os.environ[FOLDER]) / "calls" / Path(str(caller)).name
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.settimeout(10)
    line.connect(note.read_text().strip())
    channel = Channel(line)
    try:
        carry(grid, channel)
    except Closed:
        pass  # the command has what it wanted, or was stopped
    finally:
        channel.close()


def carry(grid: Grid, channel: Channel) -> None:
    """Serve calls until the other end hangs up."""
    wanted, _ = channel.receive()
    exchange = Exchange(grid, wanted["deadline"])
    try:
        names = exchange.find(wanted["names"], wanted["patience"])
    except InputError as error:
        channel.send({"error": str(error)})
        return
    channel.send({"names": names})
    while True:
        about, contents = channel.receive()
        returned = exchange(about["action"], contents)
        channel.send({"silent": returned.silent, "failed": returned.failed}, returned.contents)
