"""Progress of anything that takes more than two seconds: a bar with rate and remaining time on a terminal.

A stage takes `progress`, a function of (done, total), and calls it as it goes; it does not know who listens.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[int, int], None]
#: seconds below which a step gets no line of its own
LEAST = 0.05


def silent(done: int, total: int) -> None:
    """Ignore the progress: the callback of a caller that does not show any.

    Parameters
    ----------
    done, total : int
        How many steps are done, and how many there are.
    """


@contextmanager
def bar(description: str, *, quiet: bool = False) -> Iterator[Progress]:
    """Show progress on standard error: a bar on a terminal, elsewhere one line at the end, nothing if `quiet`.

    What took no time, such as a result that was read back, gets no line.

    Parameters
    ----------
    description : str
        What is being done.
    quiet : bool
        Whether to show nothing.

    Yields
    ------
    callable
        A function of (done, total) that updates the bar.
    """
    if quiet:
        yield silent
        return
    if not sys.stderr.isatty():
        started = time.perf_counter()
        yield silent
        took = time.perf_counter() - started
        if took >= LEAST:
            print(f"{description}: {took:.1f} s", file=sys.stderr)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        """The column that shows how many steps are done a second."""

        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:.1f}/s" if task.speed else "")

    columns = (
        TextColumn("{task.description:<24}"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as shown:
        task = shown.add_task(description, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)
