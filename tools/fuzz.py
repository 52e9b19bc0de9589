"""Feed every reader of fedcollab thousands of damaged files: each must be read, or refused with one clear line.

    python tools/fuzz.py                              100,000 inputs a reader (`make fuzz`)
    python tools/fuzz.py --inputs 1000 --reader npz   fewer, of one reader

Valid files of every kind are damaged at random: bits, bytes, numbers, parts; most also by their structure, so that the
damage lies behind what a parser alone would notice (`fuzz_damage.py`; the readers are in `fuzz_readers.py`). Anything
but `InputError` is a finding, as is an input that takes more than ten seconds of CPU time, or after which the process
has had a quarter of a gigabyte more memory than ever before. Findings are written to `--keep`, to be made into tests
(tests/test_fuzz.py). The same seed gives the same inputs.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fuzz_readers import Reader, readers

from fedcollab.errors import InputError

SECONDS = 10.0  # of CPU time that one input may take
PART = 5000  # inputs that a process takes at a time
OWN_FOLDER = ("run", "silo", "commands")  # readers that change a folder of their own: one process
MEMORY = 250.0  # megabytes by which one input may raise the most memory that the process has had
MEMORY_FOLDER = Path("/dev/shm")  # on a disk, writing and syncing the inputs takes most of the time


class Hung(BaseException):
    """Raised where one input takes too long."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `Hung` where the block takes more CPU time than this."""

    def ring(*_: Any) -> None:
        raise Hung

    before = signal.signal(signal.SIGVTALRM, ring)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def damaged(reader: Reader, places: range, seed: int) -> Iterator[tuple[str, bytes]]:
    """Yield some of the damaged files of a reader: their names and contents."""
    names = sorted(reader.seeds)
    for index in places:
        rng = np.random.default_rng([seed, index])
        name = names[index % len(names)]
        yield name, reader.damage(reader.seeds[name], rng)


def attempt(reader: Reader, path: Path) -> str:
    """Read one file; return "read", "refused", or else what went wrong."""
    before = megabytes()
    try:
        with warnings.catch_warnings(), time_limit(SECONDS):
            warnings.simplefilter("ignore")
            reader.read(path)
        outcome = "read"
    except InputError as error:
        outcome = "refused"
        if not str(error).strip() or "\n" in str(error):
            outcome = f"the refusal is not one line: {str(error)!r}"
    except (Exception, Hung) as error:
        outcome = where(error)
    more = megabytes() - before
    return f"{outcome}, with {more:.0f} MB more (memory)" if more > MEMORY else outcome


def megabytes() -> float:
    """Return the most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def where(error: BaseException) -> str:
    """Return what an error says, and the innermost line of fedcollab that it passed."""
    frames = traceback.extract_tb(error.__traceback__)
    inner = next((frame for frame in reversed(frames) if "fedcollab" in frame.filename), frames[-1])
    return f"{type(error).__name__}: {str(error)[:100]} ({Path(inner.filename).name}:{inner.lineno})"


KNOWN: dict[str, Reader] = {}  # of this process: others are forked from it


def feed(name: str, places: range, seed: int, keep: Path) -> tuple[Counter[str], float, float]:
    """Feed one reader some of its inputs; return what came of them, the CPU seconds and the most memory.

    Parameters
    ----------
    name : str
        The reader.
    places : range
        Which of its inputs.
    seed : int
        What they are drawn from.
    keep : Path
        Where findings are written: one of each place in the code.
    """
    counts, begun = Counter[str](), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        for file, content in damaged(KNOWN[name], places, seed):
            path = Path(folder) / file
            path.write_bytes(content)
            outcome = attempt(KNOWN[name], path)
            counts[outcome] += 1
            if outcome not in ("read", "refused") and counts[outcome] == 1:
                keep.mkdir(exist_ok=True)
                (keep / f"{name}-{places.start}-{len(counts)}-{file}").write_bytes(content)
                print(f"  {name}: {outcome}", file=sys.stderr, flush=True)
    return counts, time.process_time() - begun, megabytes()


def main() -> int:
    """Feed the readers, print a table of what came of it, and return 1 where there was a finding."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=100_000, help="inputs a reader")
    parser.add_argument("--reader", action="append", help="only this reader; may be repeated")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-findings"), help="where findings are written")
    given = parser.parse_args()
    failed = 0
    torch.set_num_threads(1)  # a process that is forked has none of the other threads, and would wait for them for ever
    if MEMORY_FOLDER.is_dir():
        tempfile.tempdir = str(MEMORY_FOLDER)
    with tempfile.TemporaryDirectory() as made:
        KNOWN.update(readers(Path(made)))
        wanted = given.reader or list(KNOWN)
        fork = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(given.jobs, fork) as pool, ProcessPoolExecutor(1, fork) as alone:
            parts = {
                name: [
                    (alone if name in OWN_FOLDER else pool).submit(
                        feed, name, range(first, min(first + PART, given.inputs)), given.seed, given.keep
                    )
                    for first in range(0, given.inputs, PART)
                ]
                for name in wanted
            }
            print(
                f"{'reader':12} {'inputs':>8} {'read':>8} {'refused':>8} {'findings':>8} {'CPU s':>8} {'memory MB':>10}"
            )
            for name in wanted:
                told = []
                for part in parts[name]:
                    told.append(part.result())
                    done, spent = sum(count.total() for count, _, _ in told), sum(spent for _, spent, _ in told)
                    print(f"  {name}: {done} of {given.inputs} in {spent:.0f} CPU s", file=sys.stderr, flush=True)
                counts = sum((count for count, _, _ in told), Counter[str]())
                wrong = counts.total() - counts["read"] - counts["refused"]
                shown = f"{counts['read']:8} {counts['refused']:8} {wrong:8} {sum(spent for _, spent, _ in told):8.0f}"
                print(f"{name:12} {counts.total():8} {shown} {max(most for *_, most in told):10.0f}", flush=True)
                failed += wrong
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
