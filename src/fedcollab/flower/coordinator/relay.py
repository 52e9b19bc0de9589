"""A federation as a Runtime, from anywhere on the coordinator's machine.

    with connect_federation("hospitals") as runtime: ...

starts a Flower run, waits for its ServerApp to connect, and sends every call through it. The stages do not know the
difference: what works with clients in memory works with silos far away.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any
from uuid import uuid4

from fedcollab.errors import InputError, Paused
from fedcollab.flower.channel import Channel, ChannelClosed, Parts
from fedcollab.flower.coordinator.folder import FederationFolder
from fedcollab.flower.coordinator.stage_note import WAITING, StageNote, noted_stage
from fedcollab.flower.keys import private_files
from fedcollab.flower.remote import DEADLINE, PATIENCE, Found, RemoteRuntime, Returned
from fedcollab.progress import watched
from fedcollab.wire.absence import Policy

START = 300.0  # seconds for the run's ServerApp to connect
MARGIN = 60.0  # seconds beyond a call's deadline, for the answer to come through
LOOK = 2.0  # seconds between two looks whether the coordinator's processes still run
ENDED = "the SuperLink or its gate has ended; start it again with `fedcollab federation start`"
RUN_ENDED = "the Flower run has ended (superlink.log in the federation's folder says why)"


class RelayRuntime(RemoteRuntime):
    """Silos behind a ServerApp at the other end of a channel.

    Parameters
    ----------
    channel : Channel
        The connection to the ServerApp.
    names : list of str, optional
        The silos to work with; default: those that are connected now.
    deadline : float
        Seconds for one call; who has not answered by then is absent.
    patience : float
        Seconds to wait for the named silos to connect; who has not by then is left out, if a quorum has.
    policy : Policy, optional
        How often to ask again, and how many answers are enough.
    journal : Path, optional
        The folder where absences are listed from the beginning, silos that did not connect included.
    running : callable
        Tells whether the coordinator's processes run; where they have ended, no answer is waited for.
    note : StageNote, optional
        Is told whom the runtime waits for.

    Raises
    ------
    InputError
        If the run does not answer, or fewer than two silos are connected.
    Paused
        If fewer of the named silos are connected than the policy's quorum, or the run or the coordinator's processes
        end.
    """

    def __init__(
        self,
        channel: Channel,
        *,
        names: list[str] | None = None,
        deadline: float = DEADLINE,
        patience: float = PATIENCE,
        policy: Policy | None = None,
        journal: Path | None = None,
        running: Callable[[], bool] = lambda: True,
        note: StageNote | None = None,
    ) -> None:
        self._channel, self._limit, self._running = channel, deadline + MARGIN, running
        self._note_stage = note
        wanted = {"names": names, "deadline": deadline, "patience": patience}
        welcome, _ = self._ask_app(wanted, {}, patience + self._limit)
        if "error" in welcome:
            raise InputError(welcome["error"])
        policy = policy or Policy(deadline=deadline)
        super().__init__(names, Found(**welcome), patience, policy, journal)

    def _exchange(self, action: str, sent: dict[str, bytes]) -> Returned:
        if self._note_stage is not None and self.asked is not None:
            self._note_stage.ask(self.asked)
        header, contents = self._ask_app({"action": action}, sent, self._limit)
        returned = Returned(contents, **header)
        if self._note_stage is not None:
            self._note_stage.wait_for(sorted(returned.silent))
        return returned

    def _ask_app(self, header: dict[str, Any], contents: dict[str, bytes], limit: float) -> Parts:
        """Send one message to the ServerApp and return its answer; on the way it tells who has not answered yet."""
        end = time.monotonic() + limit
        try:
            self._channel.send(header, contents)
            while True:
                try:
                    answer, replies = self._channel.receive(min(LOOK, max(0.0, end - time.monotonic())))
                except TimeoutError:
                    if not self._running():
                        raise Paused(ENDED) from None
                    if time.monotonic() > end:
                        raise InputError(f"the Flower run has not answered in {limit:.0f} s") from None
                    continue
                if WAITING not in answer:
                    return answer, replies
                if self._note_stage is not None:
                    self._note_stage.wait_for(answer[WAITING])
        except ChannelClosed:
            raise Paused(RUN_ENDED if self._running() else ENDED) from None


@contextmanager
def connect_federation(
    folder: str | Path,
    *,
    names: list[str] | None = None,
    deadline: float | None = None,
    patience: float | None = None,
    journal: Path | None = None,
) -> Iterator[RelayRuntime]:
    """Start one Flower run over a federation, as a Runtime; the run ends with the block.

    Parameters
    ----------
    folder : str or Path
        The federation's folder; `fedcollab federation start` must have been given.
    names : list of str, optional
        The silos to work with; default: all that are admitted, or in an insecure federation all connected.
    deadline : float, optional
        Seconds for one round; default: what federation.toml says.
    patience : float, optional
        Seconds for silos to connect; default: what federation.toml says.
    journal : Path, optional
        The folder where absences are listed from the beginning, silos that did not connect included.

    Returns
    -------
    context manager
        It gives a `Runtime` for the block.

    Raises
    ------
    InputError
        If the federation does not run, or fewer than two silos are connected.
    Paused
        If fewer silos are connected than the quorum in federation.toml.

    Examples
    --------
    >>> with connect_federation("hospitals") as runtime:  # doctest: +SKIP
    ...     fedcollab.estimate_distances(runtime)
    """
    federation = FederationFolder.read(folder)
    with (
        noted_stage(federation.folder) as note,
        listen(federation.folder / "calls", federation.run) as channel,
        watched(note.progress),
    ):
        yield RelayRuntime(
            channel,
            names=names or federation.admitted or None,
            deadline=deadline or federation.deadline,
            patience=patience or federation.patience,
            policy=federation.policy,
            journal=journal,
            running=lambda: federation.running,
            note=note,
        )


connect = connect_federation


@contextmanager
def listen(notes: Path, run: Callable[[str], object]) -> Iterator[Channel]:
    """Start a run and wait for its ServerApp to connect.

    The run is told a name; a note of that name says where the socket is, and the key with which both ends prove that
    they have read it. The socket is in a folder of its own with a path short enough for every system. Both, note and
    folder, are open to their owner alone.

    Parameters
    ----------
    notes : Path
        The folder for the note.
    run : callable
        Starts the run; called with the note's name.

    Returns
    -------
    context manager
        It gives the `Channel` to the ServerApp for the block.

    Raises
    ------
    InputError
        If no ServerApp connects in time, or another program does.
    """
    caller, key = uuid4().hex, os.urandom(32)
    note = notes / caller
    notes.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="fedcollab-") as private,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server,
    ):
        address = os.path.join(private, "call")
        server.bind(address)
        server.listen(1)
        server.settimeout(START)
        try:
            with private_files():
                note.write_text(json.dumps({"address": address, "key": key.hex()}))
            run(caller)
            connection = Connection(server.accept()[0].detach())
            deliver_challenge(connection, key)
            answer_challenge(connection, key)
        except TimeoutError:
            raise InputError(f"the Flower run has not started in {START:.0f} s; see superlink.log") from None
        except (AuthenticationError, EOFError):
            raise InputError("another program than the Flower run has connected to this command") from None
        finally:
            note.unlink(missing_ok=True)
        with closing(Channel(connection)) as channel:
            yield channel
