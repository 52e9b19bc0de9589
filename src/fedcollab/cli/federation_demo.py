"""`fedcollab federation demo`: a coordinator and four silos on one machine, each its own process, by real commands."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fedcollab import flower, scenarios
from fedcollab.cli import options
from fedcollab.data import ClientData
from fedcollab.errors import InputError
from fedcollab.seeds import generator

if TYPE_CHECKING:
    import pandas as pd

PROGRAM = [sys.executable, "-c", "from fedcollab.cli import main; main()"]
LABEL = "disease"
LIMIT = 1800.0  # seconds for one command
POST_OFFICES = ("north", "south", "east", "west")  # the silos where the heart-disease tables are not on this machine
UPSIDE_DOWN = ("east", "west")
IMAGES = 150  # that each post office trains on


@click.command(epilog="Example:  fedcollab federation demo && open runs/federation/report.html")
@options.out("Folder.", default=Path("runs/federation"), show_default=True)
@click.option("--rounds", default=3, show_default=True, help="Rounds of training, each of five local epochs.")
@options.seed
def demo(out: Path, rounds: int, seed: int) -> None:
    """All stages between real processes on this machine: four silos, TLS, authentication."""
    if out.exists() and any(out.iterdir()) and not (out / "federation" / "federation.toml").exists():
        raise InputError(f"`--out` (={str(out)!r}) is not empty and holds no federation; give another folder")
    _clear(out)
    silos = _write_silos(out, seed)
    names = list(silos)
    started = []
    try:
        _say("The coordinator makes a federation: certificates, and an invitation for the silos.")
        _run(out, "federation", "init", "federation", "--port", str(flower.processes.free_port()))
        _say("Each silo's administrator writes three lines and makes a key; the public one goes to the coordinator.")
        for name in names:
            own = ["--name", name, *silos[name]]
            own += ["--invitation", "federation/invitation.toml", "--folder", f"silos/{name}"]
            _run(out, "silo", "init", *own, quiet=name != names[0])
            _run(out, "federation", "admit", "federation", f"silos/{name}/{name}.pub", quiet=name != names[0])
        _run(out, "federation", "start", "federation")
        for name in names:
            _show(f"fedcollab silo start silos/{name}/silo.toml &")
            line = [*PROGRAM, "silo", "start", str((out / "silos" / name / "silo.toml").absolute())]
            started.append(flower.processes.start(line, out / "silos" / name / "log", os.environ))
        _say("The coordinator says what it will ask: a look at the data first. Each administrator reads it and agrees.")
        how = ["--model", "logistic", "--rounds", str(rounds), "--local-epochs", "5"]
        _plan(out, names, "look")
        _say("Who should train with whom? The silos' data stay where they are.")
        _run(out, "estimate", "--on", "federation", "--seed", str(seed), "-o", "distances.json")
        _run(out, "solve", "distances.json", "--C", "10", "-o", "collaboration.json")
        _say("The partners look at the report and agree. Then each coalition trains; alone, for comparison.")
        _plan(out, names, "train", *how, "--alone", "--coalitions", "collaboration.json")
        how += ["--seed", str(seed)]
        for way, coalitions in (("local", "local"), ("coalitions", "collaboration.json")):
            _run(out, "train", "--on", "federation", "--coalitions", coalitions, *how, "-o", f"training/{way}")
        _run(out, "federation", "status", "federation")
        _run(out, "report", ".")
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # another Ctrl-C must not leave processes behind
        _run(out, "federation", "stop", "federation", check=False)
        for handle in started:
            flower.processes.stop(handle, grace=3)
    click.echo(f"\nReport: {out / 'report.html'}    what each silo kept: {out / 'silos'}/NAME/state")


def _plan(out: Path, names: list[str], kind: str, *more: str) -> None:
    """Make a plan, and approve it at every silo; the first administrator's review is shown."""
    _run(out, "federation", "plan", "federation", kind, *more, "-o", f"{kind}.json")
    _run(out, "silo", "review", f"{kind}.json", "--config", f"silos/{names[0]}/silo.toml")
    for name in names:
        own = ["--config", f"silos/{name}/silo.toml", "-o", f"silos/{name}/{kind}.approval.json"]
        _run(out, "silo", "approve", f"{kind}.json", *own, quiet=name != names[0])


def _write_silos(out: Path, seed: int) -> dict[str, list[str]]:
    """Write each silo's data into a folder of its own; return the options of `silo init` for that data, by silo."""
    silos = {}
    if scenarios.data.place("heart"):
        for client in scenarios.heart_clients(test=0):
            folder = out / "silos" / client.name
            folder.mkdir(parents=True, exist_ok=True)
            _table(client).to_csv(folder / "patients.csv", index=False)
            silos[client.name] = ["--data", f"silos/{client.name}/patients.csv", "--label", LABEL]
        return silos
    click.echo(
        "The heart-disease tables are not here (`fedcollab data get heart`): instead of hospitals, four post offices "
        f"read\nhandwritten digits; the scanners of {' and '.join(UPSIDE_DOWN)} turn them upside down."
    )
    for client in post_offices(seed):
        client.save(out / "silos" / client.name / "digits.npz")
        silos[client.name] = ["--data", f"silos/{client.name}/digits.npz"]
    return silos


def post_offices(seed: int = 0) -> list[ClientData]:
    """Distribute the handwritten digits of scikit-learn to four post offices, two of which see them upside down.

    Each trains on 150 images (a silo's default limits ask for 50: ten in each of five folds) and tests on 300 others.

    Parameters
    ----------
    seed : int, default 0
        Decides which images each post office has.

    Returns
    -------
    list of ClientData
        The post offices, with images of 8 x 8 pixels between 0 and 1.
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = generator(seed, "federation demo").permutation(len(digits.target))
    offices = []
    for position, name in enumerate(POST_OFFICES):
        rows = order[position :: len(POST_OFFICES)]
        images, labels = digits.images[rows] / 16, digits.target[rows]
        if name in UPSIDE_DOWN:
            images = images[:, ::-1, ::-1]
        offices.append(ClientData(name, images[:IMAGES], labels[:IMAGES], images[IMAGES:], labels[IMAGES:]))
    return offices


def _table(client: ClientData) -> pd.DataFrame:
    """Join features and labels to one table that a CSV file can hold."""
    table: pd.DataFrame = client.x.copy()
    for column in table.columns:
        if table[column].dtype == object:  # codes without an order: as words, so that CSV keeps them apart from numbers
            table[column] = [None if value is None else f"{column} {value}" for value in table[column]]
    return table.assign(**{LABEL: client.y})


def _run(out: Path, *arguments: str, quiet: bool = False, check: bool = True) -> None:
    """Run one `fedcollab` command in the demo's folder; `quiet` does not print it, `check` raises if it fails."""
    if not quiet:
        _show(shlex.join(["fedcollab", *arguments]))
    try:
        done = subprocess.run(
            [*PROGRAM, *arguments], cwd=out, stdout=subprocess.DEVNULL if quiet else None, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"`fedcollab {arguments[0]}` took longer than {LIMIT:.0f} s") from None
    if check and done.returncode:
        raise InputError(
            f"`{shlex.join(['fedcollab', *arguments])}` failed; see above and {out}/federation/superlink.log"
        )


def _say(text: str) -> None:
    """Print a sentence of the demo after an empty line."""
    click.echo(f"\n{text}")


def _show(line: str) -> None:
    """Print a command as it would be typed."""
    click.echo(f"$ {line}")


def _clear(out: Path) -> None:
    """Stop and remove what an earlier demo left, and make the folder."""
    import shutil

    if (out / "federation" / "federation.toml").exists():
        flower.FederationFolder.read(out / "federation").stop()
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
