"""Kill fedcollab at random moments and run the same command again: the folder must end with the same bytes.

    python tools/kills.py                 30 kills over `run`, `join`, `leave` and `train` over Flower
    python tools/kills.py --kills 3 --seed 1 --commands run join leave

A folder of small clients is made; `run`, then `join`, then `leave` are carried out undisturbed, and every state
between is kept; so is a training over a federation on this machine (SuperLink and silos as processes, TLS, admitted
keys). For each trial one of the commands starts from the state before it, is killed with SIGKILL at a random moment of
its time, and is started again. The folder is then compared with the undisturbed one, file by file. Dates, the seconds
that a training took, and checksums of files that hold these are left out of the comparison: what the checksums are of
is compared itself.
"""

from __future__ import annotations

import argparse
import contextlib
import os
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
        The seconds after its start.
    files : int
        How many files the folder had when it was killed.
    outcome : str
        "same bytes", or what differs.
    """

    command: str
    after: float
    files: int
    outcome: str


def make_clients(folder: Path, rounds: int = 12) -> dict[str, list[str]]:
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


def carry_out(arguments: list[str]) -> tuple[int, str]:
    """Run a command to its end; return its exit code and what it wrote on standard error."""
    done = subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


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


def prepare(folder: Path, commands: dict[str, list[str]]) -> dict[str, float]:
    """Carry the commands out undisturbed and keep the state after each; return how long each takes."""
    takes = {}
    for name, arguments in commands.items():
        _state_before(folder, name)
        begun = time.monotonic()
        code, text = carry_out(arguments)
        takes[name] = time.monotonic() - begun
        if code:
            raise SystemExit(f"{name} failed undisturbed: {text}")
        shutil.copytree(folder / "run", folder / f"after-{name}")
    return takes


def _state_before(folder: Path, command: str) -> None:
    """Make the run directory what it is before a command."""
    shutil.rmtree(folder / "run", ignore_errors=True)
    if (before := BEFORE[command]) is not None:
        shutil.copytree(folder / f"after-{before}", folder / "run")


def kill_once(folder: Path, commands: dict[str, list[str]], command: str, after: float) -> Trial:
    """Start a command from the state before it, kill it, start it again, and compare the folder."""
    run = folder / "run"
    _state_before(folder, command)
    process = subprocess.Popen(
        [*PROGRAM, *commands[command]],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        process.wait(after)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    there = sum(1 for path in run.rglob("*") if path.is_file())
    code, text = carry_out(commands[command])
    if code == 2 and (ALREADY in text or GONE in text):  # it was recorded before the kill: only the page is old
        code, text = carry_out(["report", str(run), "--quiet"])
    outcome = (
        f"exit code {code}: {text.strip()}" if code else differing(content(run), content(folder / f"after-{command}"))
    )
    return Trial(command, after, there, outcome)


def trials(folder: Path, count: int, seed: int, chosen: Sequence[str] = tuple(BEFORE)) -> list[Trial]:
    """Kill so many times: the chosen commands in turn, each at a random moment of its time."""
    known = make_clients(folder)
    commands = {name: known[name] for name in BEFORE if name in chosen}
    rng, made = random.Random(seed), []
    with federation(folder) if "train" in chosen else contextlib.nullcontext():
        takes = prepare(folder, commands)
        for number in range(count):
            command = list(commands)[number % len(commands)]
            made.append(kill_once(folder, commands, command, rng.uniform(0.2, 1.0) * takes[command]))
            shown = made[-1]
            print(f"{number + 1:3} {command:6} {shown.after:6.2f} s {shown.files:3} files  {shown.outcome}", flush=True)
    return made


def main() -> int:
    """Kill, print a line for each trial, and return 1 where the bytes differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commands", nargs="+", choices=list(BEFORE), default=list(BEFORE))
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))  # not without ending the silos
    with tempfile.TemporaryDirectory() as folder:
        made = trials(Path(folder), given.kills, given.seed, given.commands)
    same = sum(trial.outcome == "same bytes" for trial in made)
    print(f"{same} of {len(made)} kills ended with the same bytes")
    return 0 if same == len(made) else 1


if __name__ == "__main__":
    sys.exit(main())
