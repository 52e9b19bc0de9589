"""Progress of anything that takes more than two seconds: a bar with rate and remaining time on a terminal.

A stage takes `progress`, a function of (done, total), and calls it as it goes; it does not know who listens.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[int, int], None]


def silent(done: int, total: int) -> None:
    """Nobody listens."""


@contextmanager
def bar(description: str, *, quiet: bool = False) -> Iterator[Progress]:
    """A progress bar on standard error; one line when done where that is not a terminal; nothing when quiet."""
    if quiet:
        yield silent
        return
    if not sys.stderr.isatty():
        started = time.perf_counter()
        yield silent
        print(f"{description}: {time.perf_counter() - started:.1f} s", file=sys.stderr)
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
        """Steps a second."""

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
