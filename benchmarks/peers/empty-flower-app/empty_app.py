"""An empty Flower app: silos return the message that they were sent. Run by benchmarks/federation.py."""

from __future__ import annotations

import time
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

client = ClientApp()
server = ServerApp()
POLL = 0.3  # seconds, as fedcollab's; `send_and_receive` waits for 3


@client.query()
def answer(message: Message, context: Context) -> Message:
    """Return what was sent."""
    return Message(message.content, reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Send a small message to every node, and wait for all answers, again and again; then leave a file."""
    rounds, count = int(context.run_config["rounds"]), int(context.run_config["nodes"])
    while len(nodes := list(grid.get_node_ids())) < count:
        time.sleep(POLL)
    for number in range(rounds):
        content = RecordDict({"about": ConfigRecord({"round": number})})
        waiting = set(grid.push_messages([Message(content, node, "query", group_id=str(number)) for node in nodes]))
        while waiting:
            waiting -= {reply.metadata.reply_to_message_id for reply in grid.pull_messages(list(waiting))}
            if waiting:
                time.sleep(POLL)
    Path(str(context.run_config["done"])).touch()
