"""Progress of anything that takes more than two seconds: a bar with rate and remaining time on a terminal.

A stage takes `progress`, a function of (done, total), and calls it as it goes; it does not know who listens. Where
there is no terminal, as in a service's log, a stage that takes long gets a line with the time left every half minute.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[int, int], None]
#: a function of (stage, done, total), with `total` 0 before the stage knows it
Watcher = Callable[[str, int, int], None]
#: seconds below which a step gets no line of its own
LEAST = 0.05
#: seconds between two lines where there is no terminal
EVERY = 30.0

_watchers: list[Watcher] = []


def silent(done: int, total: int) -> None:
    """Ignore the progress: the callback of a caller that does not show any.

    Parameters
    ----------
    done, total : int
        How many steps are done, and how many there are.
    """


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Have a function told about every stage within the block, whether or not its progress is shown.

    Parameters
    ----------
    watcher : callable
        A function of (stage, done, total).
    """
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def duration(seconds: float) -> str:
    """Return a time span in words.

    Examples
    --------
    >>> duration(9), duration(89), duration(3700)
    ('9 s', '1 min 29 s', '1 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def time_left(done: int, total: int, took: float, before: int = 0) -> str:
    """Return in words how far a stage is, and how long the rest takes if it goes on like this.

    Parameters
    ----------
    done, total : int
        How many steps are done, and how many there are.
    took : float
        Seconds that the steps took.
    before : int
        How many of the steps were done before these seconds began: the first step often holds all preparations, and
        says little about the others.

    Examples
    --------
    >>> time_left(12, 50, 60.0)
    '12 of 50, about 3 min 10 s left'
    >>> time_left(1, 50, 60.0, before=1)
    '1 of 50'
    """
    if total <= 0:
        return "begun"
    if done <= before:
        return f"{done} of {total}"
    return f"{done} of {total}, about {duration(max(0.0, took / (done - before) * (total - done)))} left"


@contextmanager
def bar(description: str, *, quiet: bool = False) -> Iterator[Progress]:
    """Show progress on standard error: a bar on a terminal, elsewhere lines, nothing if `quiet`.

    Elsewhere there is one line at the end, and before that one every half minute. What took no time, such as a result
    that was read back, gets no line.

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
    for watcher in _watchers:
        watcher(description, 0, 0)
    with _shown(description, quiet) as show:

        def progress(done: int, total: int) -> None:
            show(done, total)
            for watcher in _watchers:
                watcher(description, done, total)

        yield progress if _watchers else show


@contextmanager
def _shown(description: str, quiet: bool) -> Iterator[Progress]:
    """Yield what shows the progress of a stage."""
    if quiet:
        yield silent
        return
    if not sys.stderr.isatty():
        started = last = time.perf_counter()
        first: tuple[int, float] | None = None  # how many steps were done when the first was, and when that was

        def line(done: int, total: int) -> None:
            nonlocal last, first
            now = time.perf_counter()
            if first is None and done > 0:
                first = (done, now)
            if now - last >= EVERY:
                last = now
                before, since = first or (0, started)
                print(f"{description}: {time_left(done, total, now - since, before)}", file=sys.stderr, flush=True)

        yield line
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
