"""Two cores, two clients (or batches) at once: threads that share out the work, each with PyTorch on one core.

PyTorch's own threads would split every small product, and spin while they wait for the next; threads of our own each
take whole clients. PyTorch releases the interpreter's lock inside its operations, so the threads do run side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TypeVar

import torch

T = TypeVar("T")
S = TypeVar("S")
_cores: ContextVar[int | None] = ContextVar("cores", default=None)


@contextmanager
def one_core_each() -> Iterator[None]:
    """Set PyTorch to one core a thread while the block runs, and put its own setting back at the end.

    `balance` then still shares work out over as many threads as PyTorch had cores before.
    """
    _keep_freed_memory()
    cores = torch.get_num_threads()
    token = _cores.set(_cores.get() or cores)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(cores)
        _cores.reset(token)


@cache
def _keep_freed_memory() -> None:
    """Have the C library keep up to 64 MB of freed memory: what a step of a CNN frees, the next one needs.

    Else glibc gives it back to the system after every step, and each page of it is made and zeroed anew in the next:
    40 % of the time. It keeps twice the size of the largest block that was ever freed, up to 64 MB; here it learns that
    size from a block that nobody writes to, which costs nothing. Elsewhere this has no effect.
    """
    torch.empty(31 << 20, dtype=torch.uint8)


def balance(work: Mapping[str, int]) -> list[list[str]]:
    """Share clients out over threads so that the threads finish together.

    Parameters
    ----------
    work : mapping of str to int
        The amount of work of each client.

    Returns
    -------
    list of list of str
        The clients of each thread: the largest first, each to the thread with the least work so far.
    """
    threads = max(1, min(_cores.get() or torch.get_num_threads(), len(work)))
    shares: list[list[str]] = [[] for _ in range(threads)]
    load = [0] * threads
    for name in sorted(work, key=lambda name: (-work[name], name)):
        least = load.index(min(load))
        shares[least].append(name)
        load[least] += work[name]
    return shares


def in_threads(work: Callable[[S], T], shares: Sequence[S]) -> list[T]:
    """Run a function on each share of the work, every share in a thread of its own with PyTorch on one core.

    Parameters
    ----------
    work : callable
        The function, called with one share.
    shares : sequence
        The shares of the work.
    """
    with one_core_each():
        if len(shares) == 1:
            return [work(shares[0])]
        with ThreadPoolExecutor(len(shares), initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(work, shares))
