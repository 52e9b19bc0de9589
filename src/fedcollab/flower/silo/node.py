"""A silo as a node of Flower's: it asks for messages, has them answered by the worker, and sends the answers.

One message at a time. It asks again soon after a message, since in a training the next one is near, and less often the
longer nothing comes. A coordinator that does not answer is waited for; one that was started again and has forgotten
this silo's connection is connected to again.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Protocol

import httpx
from flwr.proto.message_pb2 import Message, ObjectTree
from flwr.proto.run_pb2 import Run

from fedcollab.errors import InputError
from fedcollab.files import write_bytes
from fedcollab.flower.channel import ChannelClosed
from fedcollab.flower.keys import private_files
from fedcollab.flower.protocol import WORKER_DIED
from fedcollab.flower.silo.config import Invitation, SiloConfig
from fedcollab.flower.silo.fleet import Fleet, Received, Refused, RunOver, Unknown, say
from fedcollab.flower.silo.messages import PART, pack_error

RETRY_PAUSE, RETRY_TIME = 3.0, 180.0  # seconds between two tries to be let in, and of all tries
REFUSAL = (
    "the coordinator refuses this silo: its key is not registered there (`fedcollab federation admit`), or it was cut "
    f"off a moment ago and is taken to be still connected. Asking again for {RETRY_TIME:.0f} s."
)
FIRST, LONGEST, GROWTH = 0.1, 2.0, 1.25  # seconds between two questions for messages, and how fast they grow
KEPT = 8  # runs of which app and state are kept
APART = 1.0  # seconds of absence by which the coordinator notices that an earlier process of this silo's has died
ERROR_PAUSE = 5.0  # seconds after an error that is not understood
REST = 300.0  # seconds without a message after which the worker is ended; the next message starts another one


class Answers(Protocol):
    """What answers messages: the worker."""

    def ask(self, header: dict[str, str], contents: dict[str, bytes]) -> dict[str, bytes]:
        """Answer a message; raise ChannelClosed if the worker died over it."""

    def stop(self) -> None:
        """End the worker until the next message."""


class Node:
    """A silo's node.

    Parameters
    ----------
    config : SiloConfig
        The silo's config.
    worker : Answers
        What answers messages.
    """

    def __init__(self, config: SiloConfig, worker: Answers) -> None:
        invitation = Invitation.read(config.invitation)
        certificate = invitation.certificate
        self.config, self.worker = config, worker
        self.fleet = Fleet(
            invitation.address,
            None if certificate is None else certificate.encode(),
            None if certificate is None else config.key,
        )
        self._earlier = config.state / "flwr" / "node"
        self._runs: OrderedDict[int, tuple[Run, bytes]] = OrderedDict()
        self._states: OrderedDict[int, bytes] = OrderedDict()

    def carry(self) -> None:
        """Connect, and carry messages until the process is ended.

        Raises
        ------
        InputError
            If the coordinator does not let the silo in, or the silo's clock is off.
        """
        try:
            self._connect()
            self.fleet.keep_alive()
            pause, last = FIRST, time.monotonic()
            while True:
                if self._next():
                    pause, last = FIRST, time.monotonic()
                else:
                    if time.monotonic() - last > REST:
                        self.worker.stop()
                    time.sleep(pause)
                    pause = min(GROWTH * pause, LONGEST)
        finally:
            self.fleet.close()
            self._earlier.unlink(missing_ok=True)

    def _next(self) -> bool:
        """Answer the next message, if there is one; return whether there was."""
        try:
            received = self.fleet.pull()
            if received is None:
                return False
            self._answer(received)
        except RunOver:
            say("a run has ended; its message is left alone")
        except TimeoutError as error:
            say(f"{error}; it is left alone")
        except Unknown:
            say("the coordinator knows this connection no more (started again, or silo expelled); connecting again")
            self._connect()
        except InputError:  # a ValueError too, which is for good: see `carry`
            raise
        except (httpx.HTTPError, ValueError) as error:
            say(f"{type(error).__name__}: {error}; going on")
            time.sleep(ERROR_PAUSE)
        return True

    def _answer(self, received: Received) -> None:
        """Have one message answered, and send the answer."""
        if received.run not in self._runs:
            self._runs[received.run] = self.fleet.run(received.run)
            while len(self._runs) > KEPT:
                self._runs.popitem(last=False)
        run, fab = self._runs[received.run]
        message = received.message.SerializeToString()
        contents = {"message": message, "tree": received.tree.SerializeToString()}
        contents |= {"run": run.SerializeToString(), "fab": fab}
        if run.series_id in self._states:
            contents["state"] = self._states[run.series_id]
        contents |= {PART + name: part for name, part in self.fleet.parts(received).items()}
        begun = time.monotonic()
        try:
            answer = self.worker.ask({"name": self.config.name}, contents)
        except ChannelClosed:
            say("the worker died over a message; the next one starts another")
            answer = pack_error(InputError(WORKER_DIED), message)
        del contents
        if "state" in answer:
            self._states[run.series_id] = answer["state"]
            while len(self._states) > KEPT:
                self._states.popitem(last=False)
        parts = {name.removeprefix(PART): part for name, part in answer.items() if name.startswith(PART)}
        reply, tree = Message.FromString(answer["message"]), ObjectTree.FromString(answer["tree"])
        self.fleet.push(reply, tree, parts, time.monotonic() - begun)

    def _connect(self) -> None:
        """Connect, with patience where an earlier process of this silo's is taken to be connected still."""
        end, told = time.monotonic() + RETRY_TIME, False
        self._depart_as_before()
        while True:
            try:
                node = self.fleet.connect()
                break
            except Refused:
                if time.monotonic() > end:
                    raise InputError(REFUSAL.partition(" Asking")[0]) from None
            if not told:
                say(REFUSAL)
                told = True
            time.sleep(RETRY_PAUSE)
        say(f"connected as node {node}")
        try:
            with private_files():
                write_bytes(self._earlier, str(node).encode())
        except InputError as error:  # a full disk: if it is killed, its next process waits to be let in
            say(str(error))

    def _depart_as_before(self) -> None:
        """Sign off for an earlier process of this silo's that was killed, so that nobody waits for its answer."""
        try:
            earlier = int(self._earlier.read_text())
        except (OSError, ValueError):
            return
        if self.fleet.disconnect(earlier):
            time.sleep(APART)
