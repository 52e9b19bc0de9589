"""The ClientApp: what runs at a silo for every message. It opens the envelope, serves it and answers.

Whose silo this is stands in the silo's own config, which never leaves it; so do data and state.
"""

from __future__ import annotations

import os
import traceback

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedcollab.errors import InputError
from fedcollab.flower.config import CONFIG, SiloConfig, simulated
from fedcollab.flower.envelope import Answer, Envelope
from fedcollab.flower.grid import HELLO
from fedcollab.flower.shelf import Shelf
from fedcollab.silo.guard import Guard
from fedcollab.wire.limits import make_floors
from fedcollab.wire.silo import Silo

app = ClientApp()


@app.query()
def answer(message: Message, context: Context) -> Message:
    """One message, one answer; whatever goes wrong is told in a line, and the silo's state stays as it was."""
    name = ""
    try:
        config = simulated(context.node_config) or SiloConfig.read(os.environ[CONFIG])
        name = config.name
        reply = reply_to(Envelope.open(message.content), config, str(context.run_id))
    except InputError as error:
        reply = Answer(name, error=str(error))
    except Exception as error:  # its text may hold what must not leave: only the silo's own log gets it
        traceback.print_exc()
        reply = Answer(name, error=f"{type(error).__name__}; the silo's log says more")
    return Message(reply.records(), reply_to=message)


def reply_to(envelope: Envelope, config: SiloConfig, run: str) -> Answer:
    """Serve one envelope at this silo: what its floors forbid is refused, and everything is in its log."""
    if envelope.action == HELLO:
        return Answer(config.name)
    if envelope.name != config.name:
        raise InputError(f"the message is for `{envelope.name}`; this silo is `{config.name}`")
    shelf = Shelf(config.state)
    guard = Guard.at(config.state, make_floors(config.more.get("floors", {})))
    silo = Silo(config.read_data(), shelf, config.device, guard.floors, shelf.key())
    served = guard.serve(envelope.action, envelope.content, silo, run=run)
    if served.done:
        shelf.commit()
    return Answer(config.name, served.content)
