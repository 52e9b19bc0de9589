"""The one runner: computes the cells that an experiment needs, side by side on the cores there are.

What is needed is asked again whenever a cell is finished, since coalitions are known only when the distances are. Each
finished cell is on disk, and of one that trains the checkpoint of its last rounds: an interrupted command goes on from
there. (What comes before the rounds, such as KMeans' training alone, begins anew.)
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedcollab.progress import Progress
from fedcollab.reproduce import compute, convergence, heart, new_client
from fedcollab.reproduce.cells import Cell, Cells, Result, Scratch

#: what computes a cell of each kind, from its settings
KINDS: dict[str, Callable[[Mapping[str, Any], Scratch], Result]] = {
    "advice": heart.advise,
    "counts": compute.count_labels,
    "descents": convergence.compute,
    "distances": compute.estimate,
    "joining": new_client.compute,
    "partitions": heart.train_all,
    "training": compute.train,
}
Submit = Callable[[Cell], "Future[bool]"]
#: seconds between two looks at a cell that another command computes
WAIT = 1.0


def compute_missing(
    plan: Callable[[], Iterable[Cell]],
    cells: Cells,
    *,
    jobs: int,
    fresh: bool = False,
    progress: Progress,
    say: Callable[[str], None],
) -> None:
    """Compute every cell that is needed and not there.

    Parameters
    ----------
    plan : function
        Returns the cells that are needed, as far as they can be named yet; called again after every cell.
    cells : Cells
        Where cells are kept.
    jobs : int
        How many to compute at a time, one core each.
    fresh : bool
        Compute also those that are there.
    progress : function of (done, total)
        Called after every cell.
    say : function of str
        Called with one line for every cell that was computed.
    """
    done: set[str] = set()
    running: dict[Future[bool], Cell] = {}
    elsewhere: set[str] = set()  # computed by another process
    with _workers(cells.folder, jobs, fresh) as submit:
        while True:
            wanted = {cell.name: cell for cell in plan()}
            done |= {name for name, cell in wanted.items() if not fresh and cells.get(cell) is not None}
            progress(len(done), len(wanted))
            taken = done | elsewhere | {cell.name for cell in running.values()}
            for name in [name for name in wanted if name not in taken][: jobs - len(running)]:
                running[submit(wanted[name])] = wanted[name]
            if not running:
                if not elsewhere - done:
                    return
                time.sleep(WAIT)
                for name in elsewhere & wanted.keys():
                    cells.forget(wanted[name])
                elsewhere.clear()
                continue
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                cell = running.pop(future)
                if future.result():
                    done.add(cell.name)
                    cells.forget(cell)
                    record = cells.get(cell)
                    say(f"{cell.name}: {0 if record is None else record.seconds:.0f} s")
                else:
                    elsewhere.add(cell.name)


def compute_cell(folder: Path, cell: Cell, fresh: bool) -> bool:
    """Compute one cell and keep it in `folder`; return False if another process is computing it.

    With `fresh` it is computed even if it is there, and from the beginning.
    """
    cells = Cells(folder)
    with cells.claim(cell) as mine:
        if not mine:
            return False
        if fresh:
            cells.scratch(cell).clear()
        if fresh or cells.get(cell) is None:
            scratch = cells.scratch(cell)
            result = KINDS[cell.kind](cell.comparable(), scratch)
            cells.put(cell, result, scratch.seconds)
            scratch.clear()
    return True


@contextmanager
def _workers(folder: Path, jobs: int, fresh: bool) -> Iterator[Submit]:
    """Give a function to submit cells to.

    Parameters
    ----------
    folder : Path
        Where cells are kept.
    jobs : int
        With 1, cells are computed in this process; else in so many processes with one thread each.
    fresh : bool
        Compute also cells that are there.

    Yields
    ------
    function of Cell
        Returns a future: whether the cell was computed, or is left to another process.
    """
    if jobs == 1:

        def here(cell: Cell) -> Future[bool]:
            future: Future[bool] = Future()
            future.set_result(compute_cell(folder, cell, fresh))
            return future

        yield here
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin)
    try:
        yield lambda cell: pool.submit(compute_cell, folder, cell, fresh)
    except BaseException:
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """Start a worker: one thread, no reaction to Ctrl-C (its parent ends it), and gone when its parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(1)
    threadpool_limits(1)
    parent = multiprocessing.parent_process()
    if parent is not None:

        def watch() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=watch, daemon=True).start()


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
