"""Everything that relies on Flower's internals, made for flwr 1.41 and 1.42; `tests/flower/test_compat.py` watches it.

A silo without `poll_faster` and `retry_activation` works, more slowly and with more restarts: they do nothing where a
later Flower has changed. A silo without `check_before_install` would run any code, so that one raises.
"""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module, metadata
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flwr.serverapp import Grid

VERSIONS = ("1.41", "1.42")  # of flwr, that all of this was made for

CLIENT_PROGRAM = "flwr-clientapp"  # what Flower's SuperExec starts at a silo for a message
#: what it would start for other kinds of runs, none of which a silo takes part in
OTHER_PROGRAMS = ("flwr-agentapp", "flwr-connector", "flwr-model", "flwr-serverapp", "flwr-simulation")

POLL_FACTOR = 6.0  # by how much a SuperNode's pauses are shortened
RETRY_PAUSE, RETRY_TIME = 3.0, 180.0  # seconds between two tries to connect, and of all tries
REFUSAL = (
    "The coordinator refuses this silo: its key is not registered there (`fedcollab federation admit`), or it was cut "
    f"off a moment ago and is taken to be still connected. Asking again for {RETRY_TIME:.0f} s."
)
REFUSED = 412  # HTTP: the SuperLink does not know this silo, or takes it to be connected
UNREADABLE = "its reply cannot be read"
MOST_REPLY = 2_000_000_000  # bytes of one reply: what a silo's limits allow a message to have, by default
PART, PARTS = 1 << 20, 1000  # a reply has no more parts than one for each MiB that it may have, and so many
SHARE = 0.75  # of what is left of a call's deadline that a reply may take to come in once it was announced


def load_program(name: str) -> Callable[[], Any]:
    """Load one of Flower's programs, to be called in this process.

    Parameters
    ----------
    name : str
        The name of the command, such as "flower-supernode".

    Returns
    -------
    callable
        The command's function; it reads `sys.argv`.
    """
    (entry,) = (each for each in metadata.entry_points(group="console_scripts") if each.name == name)
    program: Callable[[], Any] = entry.load()
    return program


def poll_faster() -> None:
    """Have a SuperNode in this process ask for messages every 0.5 s instead of every 3 s.

    flwr 1.41 and 1.42 have their pauses as numbers in `flwr.supernode.start_client_internal`, which calls
    `time.sleep`; that module's `time` is replaced by one that sleeps a sixth as long.
    """
    with contextlib.suppress(ImportError):
        module: Any = import_module("flwr.supernode.start_client_internal")
        if getattr(module, "time", None) is time:
            module.time = SimpleNamespace(**{**vars(time), "sleep": lambda pause: time.sleep(pause / POLL_FACTOR)})


def retry_activation() -> None:
    """Have a SuperNode in this process try to connect again while the SuperLink refuses it.

    A silo that was killed (SIGKILL, power) and is started again at once is refused by the SuperLink, which takes it to
    be connected until it has missed its heartbeats (about 42 s); a SuperNode of flwr 1.41 and 1.42 then ends. A silo
    that was never admitted gets the same answer, and gives up after `RETRY_TIME`.
    """
    with contextlib.suppress(ImportError, AttributeError):
        client: Any = import_module("flwr.supernode.fleet_http_client").FleetHttpClient
        client.ActivateNode = retried(client.ActivateNode)


def retried(activate: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that connects a SuperNode with more patience.

    Parameters
    ----------
    activate : callable
        Flower's function that connects a SuperNode.

    Returns
    -------
    callable
        The same, called again while it fails with HTTP status 412, for `RETRY_TIME` seconds at most.
    """

    def activate_or_retry(*arguments: Any) -> Any:
        end, told = time.monotonic() + RETRY_TIME, False
        while True:
            try:
                return activate(*arguments)
            except Exception as error:
                status = getattr(getattr(error, "response", None), "status_code", None)
                if status != REFUSED or time.monotonic() > end:
                    raise
            if not told:
                print(REFUSAL, file=sys.stderr, flush=True)
                told = True
            time.sleep(RETRY_PAUSE)

    return activate_or_retry


@contextlib.contextmanager
def limit_uploads(grid: Grid, end: float, most: int = MOST_REPLY) -> Iterator[None]:
    """Within the block, give up a reply of which a part never comes, that is too large, or that is none.

    A silo that dies while it sends has announced its reply; `pull_messages` of flwr 1.41 and 1.42 then waits two hours
    for the rest of it, in `pull_objects`. It takes one reply after the other, so only a share of the time that is left
    is given to each. It also takes all that a silo announces into memory, and fails for everybody where one silo's
    bytes are not a message: here such a reply becomes an error of its silo (`unreadable`).

    Parameters
    ----------
    grid : Grid
        Flower's grid. One without such a function (in memory, a reply is there or not) is left alone.
    end : float
        When to give up, in seconds of `time.monotonic`.
    most : int
        The most bytes of one reply.
    """
    module: Any = sys.modules[type(grid).__module__]
    pull = getattr(module, "pull_objects", None)
    if pull is None:
        yield
        return
    inflate, failure = module.inflate_object_from_contents, module.ObjectPullError
    made: dict[str, Any] = {}

    def pull_in_time(object_ids: list[str], pull_object_fn: Callable[[str], bytes], **options: Any) -> Any:
        taken = [0]  # bytes, by threads whose sum need not be exact

        def pull_one(name: str) -> bytes:
            if taken[0] > most:
                raise failure(name, f"{UNREADABLE}, it has more than {most} bytes")
            content = pull_object_fn(name)
            taken[0] += len(content)
            return content

        if len(object_ids) > most // PART + PARTS:
            raise failure(object_ids[-1], f"{UNREADABLE}, it has {len(object_ids)} parts")
        pulled = pull(object_ids, pull_one, **options, max_time=max(1.0, SHARE * (end - time.monotonic())))
        try:
            made[object_ids[-1]] = inflate(object_ids[-1], pulled)
            made[object_ids[-1]].metadata.__dict__, made[object_ids[-1]].has_error()
        except Exception as error:
            raise failure(object_ids[-1], f"{UNREADABLE} ({type(error).__name__})") from None
        return pulled

    module.pull_objects = pull_in_time
    module.inflate_object_from_contents = lambda name, _: made.pop(name)
    try:
        yield
    finally:
        module.pull_objects, module.inflate_object_from_contents = pull, inflate


def unreadable(reason: str) -> str:
    """Return why a reply that `limit_uploads` gave up cannot be read; empty if the error has another reason."""
    found = re.search(rf"{UNREADABLE}.*", reason)
    return found[0] if found else ""


def input_error_text(reason: str) -> str:
    """Return the text of an InputError that was raised in a silo's `flwr-clientapp`.

    Parameters
    ----------
    reason : str
        The reason in Flower's error message; flwr 1.41 and 1.42 put type and text of the exception into it.

    Returns
    -------
    str
        The text; empty if it was something else.

    Examples
    --------
    >>> input_error_text("<class 'fedcollab.errors.InputError'>:<'its disk is full'>")
    'its disk is full'
    """
    found = re.fullmatch(r"<class 'fedcollab\.errors\.InputError'>:<'(.*)'>", reason)
    return found[1] if found else ""


def check_before_install(check: Callable[[bytes], None]) -> None:
    """Have `flwr-clientapp` in this process install no app that was not checked.

    `flwr.supernode.runtime.run_clientapp` of flwr 1.41 and 1.42 calls its `install_from_fab` for every message, before
    it loads the app.

    Parameters
    ----------
    check : callable
        Called with the app (the bytes of its zip file); raises if the app must not be installed.

    Raises
    ------
    AttributeError, ImportError
        If Flower installs apps in another way, so that nothing would be checked.
    """
    program: Any = import_module("flwr.supernode.runtime.run_clientapp")
    install = program.install_from_fab

    def checked(content: bytes, *rest: Any, **more: Any) -> Any:
        check(content)
        return install(content, *rest, **more)

    program.install_from_fab = checked
