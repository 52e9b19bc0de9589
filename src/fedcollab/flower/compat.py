"""What the coordinator relies on of Flower's internals; silos rely on those in `silo/fleet.py` and `silo/messages.py`.

Made for flwr 1.41 and 1.42; `tests/flower/test_compat.py` watches all three.
"""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flwr.serverapp import Grid

VERSIONS = ("1.41", "1.42")  # of flwr, that all of this was made for

BACKOFF = 0.1  # seconds before a part of a reply that is still being uploaded is asked for again; Flower's: 1
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
        limit = max(1.0, SHARE * (end - time.monotonic()))
        pulled = pull(object_ids, pull_one, **options, max_time=limit, initial_backoff=BACKOFF)
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
