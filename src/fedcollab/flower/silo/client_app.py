"""The ClientApp: what runs at a silo for every message. It opens the envelope, serves it and answers.

Whose silo this is stands in the silo's own config, which never leaves it; so do data and state.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedcollab.errors import InputError
from fedcollab.files import locked
from fedcollab.flower import keys
from fedcollab.flower.envelope import Answer, Envelope
from fedcollab.flower.protocol import HELLO
from fedcollab.flower.silo.config import SIMULATION, SiloConfig, current_config
from fedcollab.flower.silo.messages import hide_paths
from fedcollab.flower.silo.serving import silo_guard
from fedcollab.flower.silo.state_store import StateStore
from fedcollab.wire.bundle import BUNDLE, join_parts, split_parts
from fedcollab.wire.silo import Silo

LOCK = "serving.lock"  # in the state folder: one message at a time
FULL = (errno.ENOSPC, errno.EDQUOT)
PARTNERS = "partners"  # the folder beside the silo's key with the public keys of other silos

app = ClientApp()


@app.query()
def answer(message: Message, context: Context) -> Message:
    """Answer one message; whatever goes wrong becomes one line in the answer, and the silo's state stays as it was."""
    name = ""
    try:
        config = current_config(context.node_config)
        name = config.name
        reply = reply_to(Envelope.open(message.content), config, str(context.run_id))
    except InputError as error:
        print(f"fedcollab: {error}", file=sys.stderr)
        reply = Answer(name, error=hide_paths(str(error)))
    except Exception as error:  # its text may hold what must not leave: only the silo's own log gets it
        traceback.print_exc()
        full = isinstance(error, OSError) and error.errno in FULL
        told = "its disk is full" if full else f"{type(error).__name__}; the silo's log says more"
        reply = Answer(name, error=told)
    return Message(reply.records(), reply_to=message)


def reply_to(envelope: Envelope, config: SiloConfig, run: str) -> Answer:
    """Serve one envelope at this silo: what its limits forbid is refused, and everything is in its log.

    Parameters
    ----------
    envelope : Envelope
        What the coordinator sent.
    config : SiloConfig
        The silo's config.
    run : str
        Flower's id of the run, for the log.

    Raises
    ------
    InputError
        If the message is for another silo, or the silo's config or data cannot be used.
    """
    if envelope.action == HELLO:
        return Answer(config.name)
    if envelope.name != config.name:
        raise InputError(f"the message is for `{envelope.name}`; this silo is `{config.name}`")
    with locked(config.state / LOCK):  # two runs at once would spend one budget twice, and reveal two lists of a round
        return _serve(envelope, config, run)


def _serve(envelope: Envelope, config: SiloConfig, run: str) -> Answer:
    """Serve an envelope that is for this silo, while no other process does; arguments as in `reply_to`."""
    state = StateStore(config.state)
    guard = silo_guard(config)
    key = b"" if SIMULATION in os.environ else state.key()  # simulated clients draw as those of the other runtimes do
    silo = Silo(
        config.read_data(),
        state,
        config.device,
        guard.limits,
        key,
        keys.read_identity(config.key),
        keys.read_partners(config.key.parent / PARTNERS),
    )
    if envelope.action != BUNDLE:
        served = guard.serve(envelope.action, envelope.content, silo, run=run)
        if served.done:
            state.commit()
        return Answer(config.name, served.content)
    parts = split_parts(envelope.content, guard.limits.max_bytes)
    replies = []
    for action, content in parts:
        before = state.snapshot()
        replies.append(guard.serve(action, content, silo, run=run))
        if not replies[-1].done:  # what a refused part has begun to keep is not kept with the others
            state.restore(before)
    if any(reply.done for reply in replies):
        state.commit()
    joined = [(action, reply.content) for (action, _), reply in zip(parts, replies, strict=True)]
    return Answer(config.name, join_parts(joined))
