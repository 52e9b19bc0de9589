"""A federation as a Runtime, from anywhere on the coordinator's machine: `with connect("hospitals") as federation: ...`

`connect` starts a Flower run, waits for its ServerApp to call back, and sends every call through it. The stages do not
know the difference: what works with clients in memory works with silos far away.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from fedcollab.errors import InputError
from fedcollab.flower.channel import Channel, Closed
from fedcollab.flower.grid import Returned
from fedcollab.wire.absence import Policy
from fedcollab.wire.message import Message, pack
from fedcollab.wire.runtime import Runtime

START = 300.0  # seconds for the run's ServerApp to call back
MARGIN = 60.0  # seconds beyond a call's deadline, for the answer to come through


class Relayed(Runtime):
    """Silos behind a ServerApp at the other end of a channel."""

    few_rounds = models_stay = lasting = True

    def __init__(
        self,
        channel: Channel,
        *,
        names: list[str] | None = None,
        deadline: float = 600.0,
        patience: float = 120.0,
        policy: Policy | None = None,
        journal: Path | None = None,
    ) -> None:
        self._channel, self._limit = channel, deadline + MARGIN
        channel.send({"names": names, "deadline": deadline, "patience": patience})
        welcome, _ = self._receive(patience + self._limit)
        if "error" in welcome:
            raise InputError(welcome["error"])
        found = welcome["names"]
        super().__init__(names or found, policy or Policy(deadline=deadline))
        if journal is not None:
            self.keep_journal(journal)
        if len(found) < 2:
            raise InputError(f"{len(found)} silo(s) are connected; at least 2 are needed")
        self.begin_without({name: f"not connected in {patience:.0f} s" for name in self.names if name not in found})
        self.messages = self.bytes_on_wire = 0

    def _call(self, action: str, messages: dict[str, Message]) -> dict[str, Message]:
        sent = {name: pack(message) for name, message in messages.items()}
        try:
            self._channel.send({"action": action}, sent)
        except Closed:
            raise InputError("the Flower run has ended; `fedcollab federation status` says more") from None
        about, contents = self._receive(self._limit)
        returned = Returned(contents, **about)
        self.absent = returned.silent
        self.messages += len(sent)
        self.bytes_on_wire += sum(map(len, [*sent.values(), *contents.values()]))
        return returned.messages()

    def _receive(self, timeout: float) -> tuple[dict[str, Any], dict[str, bytes]]:
        try:
            return self._channel.receive(timeout)
        except Closed:
            raise InputError("the Flower run has ended; `fedcollab federation status` says more") from None
        except TimeoutError:
            raise InputError(f"the Flower run has not answered in {timeout:.0f} s") from None


@contextmanager
def connect(
    folder: str | Path,
    *,
    names: list[str] | None = None,
    deadline: float | None = None,
    patience: float | None = None,
    journal: Path | None = None,
) -> Iterator[Relayed]:
    """One Flower run over a federation that is started, as a Runtime; the run ends with the block.

    names      the silos to work with; default: all that are admitted, or in an insecure federation all connected
    deadline   seconds for one round; default: what federation.toml says. So too `patience`, for silos to connect
    journal    the folder where absences are listed from the beginning, silos that did not connect included
    """
    from fedcollab.flower.federation import Federation

    federation = Federation.read(folder)
    wanted = names or federation.admitted or None
    with listen(federation.folder / "calls", federation.run) as channel:
        yield Relayed(
            channel,
            names=wanted,
            deadline=deadline or federation.deadline,
            patience=patience or federation.patience,
            policy=federation.policy,
            journal=journal,
        )


@contextmanager
def listen(notes: Path, run: Callable[[str], object]) -> Iterator[Channel]:
    """Have `run` start a run whose ServerApp calls back, and answer the call.

    The run knows a name; a note of that name says where the socket is. The socket is in a folder that nobody else may
    enter, with a path short enough for every system.
    """
    caller = uuid4().hex
    with tempfile.TemporaryDirectory(prefix="fedcollab-") as private:
        address = os.path.join(private, "call")
        note = notes / caller
        notes.mkdir(parents=True, exist_ok=True)
        note.write_text(address)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
                door.bind(address)
                door.listen(1)
                door.settimeout(START)
                run(caller)
                try:
                    line, _ = door.accept()
                except TimeoutError:
                    raise InputError(f"the Flower run has not started in {START:.0f} s; see superlink.log") from None
        finally:
            note.unlink(missing_ok=True)
        channel = Channel(line)
        try:
            yield channel
        finally:
            channel.close()
