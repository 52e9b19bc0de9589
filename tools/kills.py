"""Kill fedcollab at random moments and run the same command again: the folder must end with the same bytes.

    python tools/kills.py                 30 kills over `run`, `join`, `leave` and `train` over Flower
    python tools/kills.py --kills 3 --seed 1 --commands run join leave

A folder of small clients is made; `run`, then `join`, then `leave` are carried out undisturbed, and every state
between is kept; so is a training over a federation on this machine (SuperLink and silos as processes, TLS, admitted
keys). For each trial one of the commands starts from the state before it, is ended by the system at a random moment of
its work (as by SIGKILL: at once, and nothing in it can handle that), and is started again. The folder is then compared
with the undisturbed one, file by file. Dates, the seconds that a training took, and checksums of files that hold these
are left out of the comparison: what the checksums are of is compared itself.

Commands are forked from one process that has everything imported, so that the moments fall into their work and not into
imports. A moment is a share of the CPU time that the command takes undisturbed, whatever else the machine does; of
`train` over Flower, which waits for other processes, it is one of the time that passes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pkgutil
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd

DATE = re.compile(rb"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2})?(\+\d{2}:\d{2})?)?")
STAMP = re.compile(rb"[0-9a-f]{64}")
SECONDS = re.compile(rb'"seconds": [0-9.e-]+|seconds</dt><dd>[0-9. a-z]+')
PROGRAM = [sys.executable, "-c", "from fedcollab.cli import main; main()"]
ALREADY = "the run has a client"
GONE = "must be one of"
BEFORE = {"run": None, "join": "run", "leave": "join", "train": None}  # the command whose state each starts from


@dataclass(frozen=True)
class Trial:
    """One kill.

    Parameters
    ----------
    command : str
        The command that was killed.
    after : float
        The moment: seconds of its CPU time; of `train` those since its start.
    files : int
        How many files the folder had when it was killed.
    outcome : str
        "same bytes", or what differs.
    """

    command: str
    after: float
    files: int
    outcome: str


def make_clients(folder: Path, rounds: int = 6) -> dict[str, list[str]]:
    """Write the files of seven clients, and return the arguments of each command."""
    (folder / "clients").mkdir(parents=True)
    for index, name in enumerate(("a", "b", "c", "d", "e", "f", "newcomer")):
        rng = np.random.default_rng(index)
        y = rng.integers(0, 2, 80)
        x = rng.normal(0, 1, (80, 4)) + np.outer(2 * y - 1, [1.5, 0, 0, 0])
        table = pd.DataFrame(x, columns=["age", "dose", "weight", "height"]).round(3)
        table["ill"] = y if index % 2 else 1 - y
        where = folder / "clients" if name != "newcomer" else folder
        table.to_csv(where / f"{name}.csv", index=False)
    run = str(folder / "run")
    fast = ["--model", "logistic", "--rounds", str(rounds), "--C", "5"]
    lasting = ["--model", "logistic", "--rounds", "4", "--stopping", "none"]
    return {
        "run": ["run", "--clients", str(folder / "clients"), "--label", "ill", "--out", run, "--quiet", *fast],
        "join": ["join", run, "--client", str(folder / "newcomer.csv"), "--quiet"],
        "leave": ["leave", run, "--client", "b", "--quiet"],
        "train": [
            "train",
            "--on",
            str(folder / "federation"),
            "--coalitions",
            "global",
            "-o",
            run,
            "--quiet",
            *lasting,
        ],
    }


@contextlib.contextmanager
def federation(folder: Path) -> Iterator[None]:
    """Run a federation of three of the clients, each a silo of its own process, until the block ends."""
    from fedcollab.flower import FederationFolder, init_silo, processes

    made = FederationFolder.init(folder / "federation", "127.0.0.1", processes.free_port())
    silos = []
    try:
        for name in ("a", "b", "c"):
            own = folder / "silos" / name
            invitation = made.folder / "invitation.toml"
            config, key = init_silo(own, name, folder / "clients" / f"{name}.csv", "ill", invitation)
            assert key is not None
            made.admit(key, name)
            silos.append(([*PROGRAM, "silo", "start", str(config)], own / "log"))
        made.start()
        handles = [processes.start(line, log, os.environ) for line, log in silos]
        try:
            yield
        finally:
            for handle in handles:
                processes.stop(handle)
    finally:
        made.stop()


#: what the commands import: packages whose every module is loaded before the first command
PRELOADED = ("cli", "runs", "inspection", "distances", "coalitions", "training", "advice", "report", "federation")


def nursery() -> None:
    """Import everything once; then fork a process for each command that comes in, and say how it ended."""
    import fedcollab

    for package in PRELOADED:
        for module in pkgutil.walk_packages([str(Path(fedcollab.__path__[0]) / package)], f"fedcollab.{package}."):
            import_module(module.name)
    from fedcollab.cli import main as program

    for line in sys.stdin:
        arguments, log, most_cpu, most_seconds = json.loads(line)
        begun = time.monotonic()
        pid = os.fork()
        if pid == 0:
            os.setsid()
            written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for source, target in ((os.open(os.devnull, os.O_RDWR), 0), (written, 1), (written, 2)):
                os.dup2(source, target)
            for timer, most in ((signal.ITIMER_PROF, most_cpu), (signal.ITIMER_REAL, most_seconds)):
                signal.setitimer(timer, most or 0)  # the system ends the process at once: nothing handles the signal
            sys.argv, code = ["fedcollab", *arguments], 70  # of a traceback
            try:
                program()
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 0
            except BaseException as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _, status, used = os.wait4(pid, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # and all that it started
        cpu, seconds = used.ru_utime + used.ru_stime, time.monotonic() - begun
        print(json.dumps([os.waitstatus_to_exitcode(status), cpu, seconds]), flush=True)


@dataclass(frozen=True)
class Done:
    """A command that has ended.

    Parameters
    ----------
    code : int
        Its exit code; that of a killed one is negative.
    text : str
        What it wrote.
    cpu, seconds : float
        The CPU time that it took, and the time.
    """

    code: int
    text: str
    cpu: float
    seconds: float


class Commands:
    """The process that commands are forked from.

    Parameters
    ----------
    folder : Path
        Where what they write is kept.
    """

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        line = [sys.executable, __file__, "--nursery"]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def close(self) -> None:
        """End the process."""
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self.process.wait()

    def carry_out(self, arguments: list[str], most_cpu: float | None = None, most_seconds: float | None = None) -> Done:
        """Run a command to its end, or kill it when it has taken so much CPU time, or time."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        asked = [arguments, str(self.log), most_cpu, most_seconds]
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        code, cpu, seconds = json.loads(self.process.stdout.readline())
        return Done(code, self.log.read_text(errors="replace"), cpu, seconds)


def content(folder: Path) -> dict[str, bytes]:
    """Return the files of a run directory by name, without what differs from day to day."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file():
            raw = path.read_bytes()
            if path.suffix in (".json", ".html"):
                raw = SECONDS.sub(b"", STAMP.sub(b"", DATE.sub(b"", raw)))
            found[name] = raw
    return found


def differing(found: dict[str, bytes], wanted: dict[str, bytes]) -> str:
    """Return "same bytes", or the names of the files that differ."""
    names = sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))
    return ", ".join(names) or "same bytes"


def prepare(folder: Path, commands: dict[str, list[str]], program: Commands) -> dict[str, Done]:
    """Carry the commands out undisturbed and keep the state after each; return what each took."""
    takes = {}
    for name, arguments in commands.items():
        _state_before(folder, name)
        takes[name] = program.carry_out(arguments)
        if takes[name].code:
            raise SystemExit(f"{name} failed undisturbed: {takes[name].text}")
        shutil.copytree(folder / "run", folder / f"after-{name}")
        print(f"{name}: {takes[name].cpu:.1f} s of CPU, {takes[name].seconds:.0f} s undisturbed", flush=True)
    return takes


def _state_before(folder: Path, command: str) -> None:
    """Make the run directory what it is before a command."""
    shutil.rmtree(folder / "run", ignore_errors=True)
    if (before := BEFORE[command]) is not None:
        shutil.copytree(folder / f"after-{before}", folder / "run")


def kill_once(
    folder: Path, commands: dict[str, list[str]], program: Commands, command: str, share: float, took: Done
) -> Trial:
    """Start a command from the state before it, kill it, start it again, and compare the folder."""
    run = folder / "run"
    _state_before(folder, command)
    if command == "train":
        after = share * took.seconds
        program.carry_out(commands[command], most_seconds=after)
    else:
        after = share * took.cpu
        program.carry_out(commands[command], most_cpu=after)
    there = sum(1 for path in run.rglob("*") if path.is_file())
    done = program.carry_out(commands[command])
    if done.code == 2 and (ALREADY in done.text or GONE in done.text):  # it was recorded: the page alone is old
        done = program.carry_out(["report", str(run), "--quiet"])
    outcome = (
        f"exit code {done.code}: {done.text.strip()}"
        if done.code
        else differing(content(run), content(folder / f"after-{command}"))
    )
    return Trial(command, after, there, outcome)


def trials(folder: Path, count: int, seed: int, chosen: Sequence[str] = tuple(BEFORE)) -> list[Trial]:
    """Kill so many times: the chosen commands in turn, each at a random moment of its work."""
    known = make_clients(folder)
    commands = {name: known[name] for name in BEFORE if name in chosen}
    rng, made = random.Random(seed), []
    around = federation(folder) if "train" in chosen else contextlib.nullcontext()
    with around, contextlib.closing(Commands(folder)) as program:
        takes = prepare(folder, commands, program)
        for number in range(count):
            command = list(commands)[number % len(commands)]
            made.append(kill_once(folder, commands, program, command, rng.random(), takes[command]))
            shown = made[-1]
            moment = f"{number + 1:3} {command:6} {shown.after:6.2f} s {shown.files:3} files"
            print(f"{moment}  {shown.outcome}", flush=True)
    return made


def main() -> int:
    """Kill, print a line for each trial, and return 1 where the bytes differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commands", nargs="+", choices=list(BEFORE), default=list(BEFORE))
    parser.add_argument("--nursery", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.nursery:
        nursery()
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))  # not without ending the silos
    with tempfile.TemporaryDirectory() as folder:
        made = trials(Path(folder), given.kills, given.seed, given.commands)
    same = sum(trial.outcome == "same bytes" for trial in made)
    print(f"{same} of {len(made)} kills ended with the same bytes")
    return 0 if same == len(made) else 1


if __name__ == "__main__":
    sys.exit(main())
