"""The ServerApp: carries a coordinator's calls to the silos, for as long as the command that started the run lives.

A stage's server side runs in that command (`fedcollab estimate --on ...`), where its files and its screen are; this
process only runs where Flower's Grid is. The run ends when the command closes the connection.
"""

from __future__ import annotations

import json
import os
from contextlib import closing, suppress
from multiprocessing.connection import Client
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedcollab.errors import InputError
from fedcollab.flower.channel import Channel, ChannelClosed
from fedcollab.flower.coordinator.folder import CALLER, FOLDER
from fedcollab.flower.coordinator.stage_note import WAITING, tell_waiting
from fedcollab.flower.grid import Exchange

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Connect to the command that started this run, and carry its calls until it closes the connection."""
    caller = context.run_config.get(CALLER) or os.environ[CALLER]
    note = json.loads((Path(os.environ[FOLDER]) / "calls" / Path(str(caller)).name).read_text())
    connection = Client(note["address"], "AF_UNIX", authkey=bytes.fromhex(note["key"]))
    with closing(Channel(connection)) as channel, suppress(ChannelClosed):
        carry(grid, channel)


def carry(grid: Grid, channel: Channel) -> None:
    """Answer the command's messages: first which silos it wants, then its calls.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        Flower's grid.
    channel : Channel
        The connection to the command.

    Raises
    ------
    ChannelClosed
        When the command has ended.
    """
    wanted, _ = channel.receive()
    exchange = Exchange(grid, wanted["deadline"])
    try:
        channel.send(exchange.find(wanted["names"], wanted["patience"])._asdict())
    except InputError as error:
        channel.send({"error": str(error)})
        return
    replies = tell_waiting(exchange, lambda names: channel.send({WAITING: names}))
    while True:
        header, contents = channel.receive()
        replies.clear()
        returned = exchange(header["action"], contents)
        channel.send({"silent": returned.silent, "failed": returned.failed}, returned.contents)
