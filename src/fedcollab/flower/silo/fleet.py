"""A silo's end of Flower's Fleet API: what `flower-supernode` asks a SuperLink for, without its other two processes.

Flower's SuperNode serves a web API on the silo's own machine, through which a second process (SuperExec) starts a third
one for every message. Here the same calls are made with Flower's own client, and the message goes to a worker of ours
(`worker.py`). Made for flwr 1.41 and 1.42; `tests/flower/test_compat.py` watches what it relies on.

Every call is signed with the silo's key and the time of day. The SuperLink refuses what is signed in its future or long
ago, so a clock that is off has an error of its own.
"""

from __future__ import annotations

import datetime
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, TypeVar

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.proto.fab_pb2 import GetFabRequest
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
    UnregisterNodeFleetRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    Message,
    ObjectTree,
    PullObjectRequest,
    PushObjectRequest,
)
from flwr.proto.node_pb2 import Node
from flwr.proto.run_pb2 import GetRunRequest, Run
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient

from fedcollab.errors import InputError
from fedcollab.flower.silo.signing import Signing

HEARTBEAT = 15.0  # seconds that this silo promises between two signs of life; Flower's own nodes: 30
PART = 0.1  # seconds before asking again for a part of a message that its sender has not uploaded yet
PARTS = 180.0  # seconds for all parts of a message, as long as the SuperLink lets its sender take
AHEAD, BEHIND = 4.0, 300.0  # seconds by which a silo's clock may be off before the SuperLink refuses its signatures
PAUSES = (1.0, 10.0)  # seconds between two tries to reach a coordinator that does not answer: the first, the longest
UNREACHED = {502, 503, 504}  # HTTP: the gate is there, the SuperLink is not
REFUSED, OVER, UNKNOWN = 412, 403, 401  # HTTP: not registered or taken to be connected; run over; not this node's key

T = TypeVar("T")


class RunOver(Exception):
    """The run that a message belongs to has ended; nobody waits for the answer."""


class Unknown(Exception):
    """The SuperLink does not know this node, as after its restart; it must be connected again."""


class Refused(Exception):
    """The SuperLink does not let this silo connect: its key is not registered, or it is taken to be connected."""


@dataclass(frozen=True)
class Received:
    """A message for this silo, in the form in which it travels.

    Attributes
    ----------
    message : Message
        Its metadata.
    tree : ObjectTree
        The names of its parts.
    """

    message: Message
    tree: ObjectTree

    @property
    def run(self) -> int:
        """Flower's id of the run."""
        return int(self.message.metadata.run_id)


class Fleet:
    """The calls of one silo to a SuperLink.

    Parameters
    ----------
    address : str
        Host and port.
    certificate : bytes or None
        The federation's certificate authority; None for a federation without TLS.
    key : Path or None
        The silo's private key; None in a federation without certificates, where one is drawn for the session.
    """

    def __init__(self, address: str, certificate: bytes | None, key: Path | None) -> None:
        self._own = key is None
        private, public = generate_key_pairs() if key is None else _read_key(key)
        self._public = public_key_to_bytes(public)
        self._node: Node | None = None
        self._ended = threading.Event()
        self._client = FleetHttpClient.from_server_address(
            address,
            certificate is None,
            certificate,
            interceptors=[Signing(private, public)],
        )

    def connect(self) -> int:
        """Tell the SuperLink that this silo is there.

        Raises
        ------
        Refused
            If it does not admit the silo.
        InputError
            If the silo's clock is off, or its key is refused.
        """
        if self._own:
            with suppress(Refused):  # it is registered already
                self._call(self._client.RegisterNode, RegisterNodeFleetRequest(public_key=self._public))
        asked = ActivateNodeRequest(public_key=self._public, heartbeat_interval=HEARTBEAT)
        try:
            node: int = self._call(self._client.ActivateNode, asked).node_id
        except Unknown:
            raise InputError("the coordinator refuses this silo's signature; its key or its clock is wrong") from None
        self._node = Node(node_id=node)
        return node

    def disconnect(self, node: int | None = None) -> bool:
        """Tell the SuperLink that this silo leaves; an error is ignored.

        Parameters
        ----------
        node : int, optional
            The id of an earlier connection of this silo's; default: that of this one.

        Returns
        -------
        bool
            Whether it was connected.
        """
        node = node if node is not None else self._node.node_id if self._node else None
        if node is None:
            return False
        try:
            self._client.DeactivateNode(DeactivateNodeRequest(node_id=node))
            if self._own:
                self._client.UnregisterNode(UnregisterNodeFleetRequest(node_id=node))
        except (httpx.HTTPError, ValueError):
            return False
        return True

    def keep_alive(self) -> None:
        """Send signs of life from a thread of its own, until `close`."""

        def beat() -> None:
            while not self._ended.wait(HEARTBEAT * 0.6):
                if self._node is None:
                    continue
                asked = SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=HEARTBEAT)
                try:
                    self._client.SendNodeHeartbeat(asked)
                except (httpx.HTTPError, ValueError):  # the next call for messages finds out what is wrong
                    continue

        threading.Thread(target=beat, daemon=True, name="heartbeat").start()

    def pull(self) -> Received | None:
        """Ask for a message.

        Raises
        ------
        Unknown
            If the SuperLink does not know this connection.
        """
        answer = self._call(self._client.PullMessages, PullMessagesRequest(node=self._node))
        if not answer.messages_list:
            return None
        return Received(answer.messages_list[0], answer.message_object_trees[0])

    def parts(self, received: Received) -> dict[str, bytes]:
        """Fetch the parts of a message, and confirm that they are here.

        Parameters
        ----------
        received : Received
            The message.

        Raises
        ------
        RunOver
            If the run has ended meanwhile.
        TimeoutError
            If a part is missing for too long, or for good.
        """
        end, found = time.monotonic() + PARTS, dict[str, bytes]()
        for part in iterate_object_tree(received.tree):
            asked = PullObjectRequest(node=self._node, run_id=received.run, object_id=part.object_id)
            while not (answer := self._call(self._client.PullObject, asked)).object_available:
                if not answer.object_found or time.monotonic() > end:
                    raise TimeoutError("a part of a message is missing")
                time.sleep(PART)
            found[part.object_id] = answer.object_content
        done = ConfirmMessageReceivedRequest(
            node=self._node, run_id=received.run, message_object_id=received.message.metadata.message_id
        )
        self._call(self._client.ConfirmMessageReceived, done)
        return found

    def run(self, number: int) -> tuple[Run, bytes]:
        """Fetch what the SuperLink knows of a run, and its app.

        Parameters
        ----------
        number : int
            Flower's id of the run.

        Returns
        -------
        run : Run
            The run.
        fab : bytes
            The app, as a zip file.

        Raises
        ------
        RunOver
            If it has ended.
        """
        run: Run = self._call(self._client.GetRun, GetRunRequest(node=self._node, run_id=number)).run
        asked = GetFabRequest(node=self._node, hash_str=run.fab_hash, run_id=number)
        return run, bytes(self._call(self._client.GetFab, asked).fab.content)

    def push(self, message: Message, tree: ObjectTree, parts: Mapping[str, bytes], seconds: float) -> None:
        """Send an answer.

        Parameters
        ----------
        message, tree, parts
            The answer, in the form in which it travels.
        seconds : float
            How long the silo has worked on it.

        Raises
        ------
        RunOver
            If nobody waits for it any more.
        """
        asked = PushMessagesRequest(
            node=self._node, messages_list=[message], message_object_trees=[tree], clientapp_runtime_list=[seconds]
        )
        answer = self._call(self._client.PushMessages, asked)
        for name in answer.objects_to_push:
            pushed = PushObjectRequest(
                node=self._node,
                run_id=message.metadata.run_id,
                object_id=name,
                object_content=parts[name],
                session_id=answer.session_id,
            )
            if not self._call(self._client.PushObject, pushed).stored:
                raise RunOver

    def close(self) -> None:
        """Leave, and close the connection."""
        self._ended.set()
        self.disconnect()
        self._client.close()

    def _call(self, call: Callable[[Any], T], request: Any) -> T:
        """Make a call; while the coordinator does not answer, make it again."""
        pause, told = PAUSES[0], False
        while True:
            try:
                found = call(request)
            except httpx.HTTPStatusError as error:
                status = error.response.status_code
                if status not in UNREACHED:
                    raise _meaning(error, status) from None
            except httpx.TransportError as error:
                if "CERTIFICATE_VERIFY_FAILED" in str(error):
                    raise InputError(_untrusted(str(error))) from None
            else:
                if told:
                    say("the coordinator answers again")
                return found
            if not told:
                say("the coordinator does not answer; asking again until it does")
                told = True
            time.sleep(pause)
            pause = min(2 * pause, PAUSES[1])


def say(text: str) -> None:
    """Write a line to the silo's log.

    Parameters
    ----------
    text : str
        The line.
    """
    time_now = datetime.datetime.now(datetime.UTC)
    print(f"{time_now:%Y-%m-%d %H:%M:%S} fedcollab: {text}", file=sys.stderr, flush=True)


def clock_difference(response: httpx.Response) -> float | None:
    """Return by how many seconds this machine's clock is ahead of the one that answered.

    Parameters
    ----------
    response : httpx.Response
        An answer that has just come in.

    Returns
    -------
    float or None
        The difference, to about a second; None if the answer bears no date.
    """
    dates = response.headers.get_list("date")
    try:
        sent = parsedate_to_datetime(dates[0])
    except (IndexError, TypeError, ValueError):
        return None
    return (datetime.datetime.now(datetime.UTC) - sent).total_seconds()


def _untrusted(why: str) -> str:
    """Return what OpenSSL's reason for not trusting the coordinator's certificate means."""
    if "has expired" in why:
        return (
            "the coordinator's certificate has ended (the coordinator renews it with `fedcollab federation renew`), "
            "or this silo's clock is ahead: set it (NTP)"
        )
    if "not yet valid" in why:
        return "the coordinator's certificate is not valid yet by this silo's clock: set it (NTP)"
    return "the coordinator's certificate is not that of the invitation; ask for a new invitation"


def _meaning(error: httpx.HTTPStatusError, status: int) -> Exception:
    """Return the exception that an HTTP status stands for."""
    if status == OVER:
        return RunOver()
    if status == REFUSED:
        return Refused()
    if status != UNKNOWN:
        return error
    ahead = clock_difference(error.response)
    if ahead is not None and not -BEHIND < ahead < AHEAD:
        way = "ahead of" if ahead > 0 else "behind"
        return InputError(
            f"this silo's clock is {abs(ahead):.0f} s {way} the coordinator's, which therefore refuses its signatures: "
            "set the clock (NTP) and start the silo again"
        )
    return Unknown()


def _read_key(path: Path) -> tuple[ec.EllipticCurvePrivateKey, ec.EllipticCurvePublicKey]:
    """Return a silo's key pair; InputError if the file holds none."""
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"`{path}` cannot be read as the silo's private key: {error}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(f"`{path}` is not a key that `fedcollab silo init` made")
    return key, key.public_key()
