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
from fedcollab.reproduce.cells import Cell, Cells

Plan = Callable[[], Iterable[Cell]]
Submit = Callable[[Cell], "Future[bool]"]
#: seconds between two looks at a cell that another command computes
PATIENCE = 1.0


def run(
    plan: Plan, cells: Cells, *, jobs: int, fresh: bool = False, progress: Progress, say: Callable[[str], None]
) -> None:
    """Compute every cell that `plan` names and `cells` lacks; with `fresh` also those that it has."""
    done: set[str] = set()
    flying: dict[Future[bool], Cell] = {}
    elsewhere: set[str] = set()
    with _workers(cells.folder, jobs, fresh) as submit:
        while True:
            wanted = {cell.name: cell for cell in plan()}
            done |= {name for name, cell in wanted.items() if not fresh and cells.get(cell) is not None}
            progress(len(done), len(wanted))
            running = {cell.name for cell in flying.values()}
            missing = [name for name in wanted if name not in done | running | elsewhere]
            for name in missing[: jobs - len(flying)]:
                flying[submit(wanted[name])] = wanted[name]
            if not flying:
                if not elsewhere - done:
                    return
                time.sleep(PATIENCE)
                for name in elsewhere & wanted.keys():
                    cells.forget(wanted[name])
                elsewhere.clear()
                continue
            finished, _ = wait(flying, return_when=FIRST_COMPLETED)
            for future in finished:
                cell = flying.pop(future)
                if future.result():
                    done.add(cell.name)
                    cells.forget(cell)
                    kept = cells.get(cell)
                    say(f"{cell.name}: {0 if kept is None else kept.seconds:.0f} s")
                else:
                    elsewhere.add(cell.name)


def work(folder: str, kind: str, name: str, settings: Mapping[str, Any], fresh: bool) -> bool:
    """Compute one cell and keep it; False where another process is at it."""
    from fedcollab.reproduce.compute import compute

    cells, cell = Cells(Path(folder)), Cell(kind, name, settings)
    with cells.claim(cell) as mine:
        if not mine:
            return False
        if fresh:
            cells.desk(cell).clear()
        if fresh or cells.get(cell) is None:
            desk = cells.desk(cell)
            result = compute(cell, desk)
            cells.put(cell, result, desk.seconds)
            desk.clear()
    return True


@contextmanager
def _workers(folder: Path, jobs: int, fresh: bool) -> Iterator[Submit]:
    """Something to hand cells to: this process for one job, else processes with one thread each."""
    if jobs == 1:

        def here(cell: Cell) -> Future[bool]:
            future: Future[bool] = Future()
            future.set_result(work(str(folder), cell.kind, cell.name, cell.settings, fresh))
            return future

        yield here
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin)
    try:
        yield lambda cell: pool.submit(work, str(folder), cell.kind, cell.name, cell.settings, fresh)
    except BaseException:
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """A worker: one thread, deaf to Ctrl-C (its parent ends it), and gone when its parent is gone."""
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
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
