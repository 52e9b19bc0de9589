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

from fedcollab.errors import InputError
from fedcollab.seeds import generator

if TYPE_CHECKING:
    from fedcollab.clients import ClientData

PROGRAM = [sys.executable, "-c", "from fedcollab.cli import main; main()"]
LABEL = "disease"
LIMIT = 1800.0  # seconds for one command
HOSPITALS = ("north", "south", "east", "west")  # where the heart-disease tables are not on this machine
MAGNIFIED = ("east", "west")
MAGNIFICATION = 1.5


@click.command(epilog="Example:  fedcollab federation demo && open runs/federation/report.html")
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("runs/federation"), show_default=True, help="Folder."
)
@click.option("--rounds", default=3, show_default=True, help="Rounds of training, each of five local epochs.")
@click.option("--seed", default=0, show_default=True, help="Everything random is derived from it.")
def demo(out: Path, rounds: int, seed: int) -> None:
    """All stages between real processes on this machine: four hospitals, TLS, authenticated silos."""
    from fedcollab.runtime.flower import processes

    if out.exists() and any(out.iterdir()) and not (out / "federation" / "federation.toml").exists():
        raise InputError(f"`--out` (={str(out)!r}) is not empty and holds no federation; give another folder")
    _clear(out)
    names = _write_silos(out, seed)
    started = []
    try:
        _say("The coordinator makes a federation: certificates, and an invitation for the silos.")
        _run(out, "federation", "init", "federation", "--port", str(processes.free_port()))
        _say("Each silo's administrator writes three lines and makes a key; the public one goes to the coordinator.")
        for name in names:
            own = ["--name", name, "--data", f"silos/{name}/patients.csv", "--label", LABEL]
            own += ["--invitation", "federation/invitation.toml", "--folder", f"silos/{name}"]
            _run(out, "silo", "init", *own, quiet=name != names[0])
            _run(out, "federation", "admit", "federation", f"silos/{name}/{name}.pub", quiet=name != names[0])
        _run(out, "federation", "start", "federation")
        for name in names:
            _show(f"fedcollab silo start silos/{name}/silo.toml &")
            line = [*PROGRAM, "silo", "start", str((out / "silos" / name / "silo.toml").absolute())]
            pid = processes.start(line, out / "silos" / name / "log", os.environ)
            started.append((pid, processes.born(pid)))
        _say("Who should train with whom? The silos' data stay where they are.")
        _run(out, "estimate", "--on", "federation", "--seed", str(seed), "-o", "distances.json")
        _run(out, "solve", "distances.json", "--C", "10", "-o", "collaboration.json")
        _say("The partners look at the report and agree. Then each coalition trains; alone, for comparison.")
        how = ["--model", "logistic", "--rounds", str(rounds), "--local-epochs", "5", "--seed", str(seed)]
        for way, coalitions in (("local", "local"), ("coalitions", "collaboration.json")):
            _run(out, "train", "--on", "federation", "--coalitions", coalitions, *how, "-o", f"training/{way}")
        _run(out, "federation", "status", "federation")
        _run(out, "report", ".")
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # another Ctrl-C must not leave processes behind
        _run(out, "federation", "stop", "federation", check=False)
        for pid, since in started:
            processes.stop(pid, since, grace=3)
    click.echo(f"\nReport: {out / 'report.html'}    what each silo kept: {out / 'silos'}/NAME/state")


def _write_silos(out: Path, seed: int) -> list[str]:
    """Write one table per hospital, each in a folder of its own, and return the hospitals' names."""
    from fedcollab.scenarios.data import place
    from fedcollab.scenarios.hospitals import heart_clients

    if place("heart"):
        clients = list(heart_clients(test=0))
    else:
        click.echo(
            "The heart-disease tables are not here (`fedcollab data get heart`); instead, scikit-learn's breast-cancer "
            f"table is dealt\nto four hospitals, of which {' and '.join(MAGNIFIED)} look through a microscope that "
            f"magnifies {MAGNIFICATION:g} times as much."
        )
        clients = breast_cancer_clients(seed)
    for client in clients:
        _write(client, out / "silos" / client.name)
    return [client.name for client in clients]


def breast_cancer_clients(seed: int = 0) -> list[ClientData]:
    """Deal scikit-learn's breast-cancer table to four hospitals whose microscopes differ.

    Each has 142 or 143 of the 569 patients, more than a silo's default limits ask for. Two hospitals measure lengths
    `MAGNIFICATION` times and areas `MAGNIFICATION` squared times as large as the other two.

    Parameters
    ----------
    seed : int, default 0
        Decides which patients each hospital has.

    Returns
    -------
    list of ClientData
        The hospitals, each with a table of 30 numbers per patient; label 1 means malignant.
    """
    from sklearn.datasets import load_breast_cancer

    from fedcollab.clients import ClientData

    data = load_breast_cancer(as_frame=True)
    order = generator(seed, "federation demo").permutation(len(data.target))
    hospitals = []
    for position, name in enumerate(HOSPITALS):
        rows = order[position :: len(HOSPITALS)]
        table = data.data.iloc[rows].reset_index(drop=True)
        if name in MAGNIFIED:
            for column in table.columns:
                if "radius" in column or "perimeter" in column:
                    table[column] *= MAGNIFICATION
                elif "area" in column:
                    table[column] *= MAGNIFICATION**2
        hospitals.append(ClientData(name, table, 1 - data.target.to_numpy()[rows]))
    return hospitals


def _write(client: ClientData, folder: Path) -> None:
    """Write a hospital's table as `patients.csv`."""
    folder.mkdir(parents=True, exist_ok=True)
    table = client.x.copy()
    for column in table.columns:
        if table[column].dtype == object:  # codes without an order: as words, so that CSV keeps them apart from numbers
            table[column] = [None if value is None else f"{column} {value}" for value in table[column]]
    table.assign(**{LABEL: client.y}).to_csv(folder / "patients.csv", index=False)


def _run(out: Path, *arguments: str, quiet: bool = False, check: bool = True) -> None:
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
    click.echo(f"\n{text}")


def _show(line: str) -> None:
    click.echo(f"$ {line}")


def _clear(out: Path) -> None:
    """Start over: what an earlier demo left."""
    import shutil

    if (out / "federation" / "federation.toml").exists():
        from fedcollab.runtime.flower.federation import Federation

        Federation.read(out / "federation").stop()
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
