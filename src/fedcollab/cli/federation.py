"""`fedcollab federation`: the coordinator's side of a real federation over Flower."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click

from fedcollab import flower
from fedcollab.cli import options
from fedcollab.errors import InputError

#: seconds between two looks: at who is connected, and at what commands are doing
SILOS_EVERY, STAGES_EVERY = 30.0, 0.5

LATER = {"demo": "fedcollab.cli.federation_demo:demo", "plan": "fedcollab.cli.federation_plan:plan"}
_folder = click.argument("folder", type=click.Path(path_type=Path))


@click.group(
    cls=options.with_later_commands(LATER),
    epilog="""\b
Example:
  fedcollab federation init hospitals --host coordinator.example.org
  fedcollab federation admit hospitals north.pub
  fedcollab federation start hospitals
  fedcollab estimate --on hospitals -o runs/hospitals/distances.json""",
)
def federation() -> None:
    """Coordinate silos that are elsewhere: TLS, authenticated silos, the same stages with `--on FOLDER`."""


@federation.command(epilog="Example:  fedcollab federation init hospitals --host coordinator.example.org --port 8443")
@_folder
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Name or address by which the silos reach this machine."
)
@click.option("--port", default=8000, show_default=True, help="Port that the silos connect to.")
@click.option("--insecure", is_flag=True, help="No TLS, and any silo is let in. For experiments on one machine only.")
@options.json
def init(folder: Path, host: str, port: int, insecure: bool, as_json: bool) -> None:
    """Make a federation's folder: the Flower app, certificates, and an invitation for the silos."""
    made = flower.FederationFolder.init(folder, host, port, secure=not insecure)
    invitation = str(folder / "invitation.toml")
    lines = [f"Made {folder}/ (see its README.md)", f"Send {invitation} to the silos; nothing in it is secret."]
    if made.secure:
        lines += [f"They send back a public key each:  fedcollab federation admit {folder} NAME.pub"]
    lines += [f"Then:  fedcollab federation start {folder}"]
    _print({"folder": str(folder), "invitation": invitation, "secure": made.secure}, lines, as_json)


@federation.command(epilog="Example:  fedcollab federation admit hospitals north.pub")
@_folder
@click.argument("key", type=click.Path(path_type=Path))
@click.option("--name", help="The silo's name.  [default: the file's name]")
@options.json
def admit(folder: Path, key: Path, name: str | None, as_json: bool) -> None:
    """Let a silo in, by its public key. Check with its administrator that the key is theirs."""
    name = name or key.stem
    flower.FederationFolder.read(folder).admit(key, name)
    _print({"admitted": name}, [f"`{name}` is admitted."], as_json)


@federation.command(epilog="Example:  fedcollab federation expel hospitals north")
@_folder
@click.argument("name")
@options.json
def expel(folder: Path, name: str, as_json: bool) -> None:
    """Take a silo's admission back: its key is refused from now on; if the federation runs, at once."""
    flower.FederationFolder.read(folder).expel(name)
    _print({"expelled": name}, [f"`{name}` is expelled; its key is in expelled/."], as_json)


@federation.command(epilog="Example:  fedcollab federation renew hospitals")
@_folder
@options.json
def renew(folder: Path, as_json: bool) -> None:
    """Make the coordinator's certificate anew, with the same authority: silos need do nothing. Stop it before."""
    opened = flower.FederationFolder.read(folder)
    opened.renew()
    _print({"valid_until": opened.ends()}, [f"Valid until {opened.ends()}; start the federation again."], as_json)


@federation.command(epilog="Example:  fedcollab federation start hospitals")
@_folder
@options.json
def start(folder: Path, as_json: bool) -> None:
    """Start Flower's SuperLink in the background; silos can connect."""
    opened = flower.FederationFolder.read(folder)
    opened.start()
    address = f"{opened.host}:{opened.port}"
    for line in opened.warnings():
        click.echo(f"fedcollab: {line}", err=True)
    lines = [f"`{opened.name}` runs at {address}; log: {folder / 'superlink.log'}"]
    lines += [f"Who is connected:  fedcollab federation status {folder}"]
    _print({"running": True, "address": address}, lines, as_json)


@federation.command(
    epilog="""\b
Examples:
  fedcollab federation status hospitals --json
  fedcollab federation status hospitals --watch"""
)
@_folder
@click.option("--watch", is_flag=True, help="Go on showing it, until Ctrl-C: silos, stage, round, who is late.")
@click.option("--seconds", type=float, help="Of --watch: for how long.  [default: until Ctrl-C]")
@options.json
def status(folder: Path, watch: bool, seconds: float | None, as_json: bool) -> None:
    """Show whether it runs, which silos are connected, and what commands are doing with them.

    With --watch and --json it prints one line of JSON whenever something has changed.
    """
    if seconds is not None and not watch:
        raise InputError(f"`--seconds` (={seconds:g}) goes with --watch")
    opened = flower.FederationFolder.read(folder)
    if not watch:
        found = {**_status(opened), "stages": flower.current_stages(opened.folder)}
        _print(found, _status_lines(found), as_json)
        return
    end = None if seconds is None else time.monotonic() + seconds
    with contextlib.suppress(KeyboardInterrupt):
        _watch_status(opened, end, as_json=as_json)


def _status(opened: flower.FederationFolder) -> dict[str, Any]:
    """Return the state of a federation, also where it is stopped, or its SuperLink dies, while it is asked."""
    try:
        return opened.status()
    except InputError:
        if opened.running:
            raise
        return opened.status()


def _watch_status(opened: flower.FederationFolder, end: float | None, *, as_json: bool) -> None:
    """Show what a federation is doing until a point in time.

    Asking the SuperLink for its silos starts a program that takes a second or more, so that is done seldom, and in a
    thread; what commands note is a small file, which is read meanwhile.

    Parameters
    ----------
    opened : FederationFolder
        The federation.
    end : float or None
        When to stop, in seconds of `time.monotonic`; None: never.
    as_json : bool
        Whether to print lines of JSON instead.
    """
    found, asked, shown = _status(opened), time.monotonic(), ""
    asking: Future[dict[str, Any]] | None = None
    with ThreadPoolExecutor(max_workers=1) as thread:
        while True:
            if asking is not None and asking.done():
                found, asked, asking = asking.result(), time.monotonic(), None
            if asking is None and (time.monotonic() - asked >= SILOS_EVERY or found["running"] != opened.running):
                asking = thread.submit(_status, opened)
            current = {**found, "stages": flower.current_stages(opened.folder)}
            line = json.dumps(current)
            if sys.stdout.isatty() and not as_json:
                click.clear()
                click.echo("\n".join(_status_lines(current)))
            elif line != shown:
                click.echo(line if as_json else "\n".join([*_status_lines(current), ""]))
            shown = line
            if end is not None and time.monotonic() >= end:
                return
            time.sleep(STAGES_EVERY)


def _status_lines(found: dict[str, Any]) -> list[str]:
    """Return the state of a federation in words."""
    secure = "TLS, authenticated silos" if found["secure"] else "INSECURE"
    lines = [f"{found['name']}  {found['address']}  {secure}  {'running' if found['running'] else 'stopped'}"]
    late = {name for note in found["stages"] for name in note["waiting"]}
    for name, state in sorted(found["silos"].items()):
        lines.append(f"  {name:<20} {state}{'  has not answered yet' * (name in late)}")
    for note in found["stages"]:
        lines += flower.stage_lines(note, time.time())
    return [*lines, *found["warnings"]]


@federation.command(epilog="Example:  fedcollab federation stop hospitals")
@_folder
@options.json
def stop(folder: Path, as_json: bool) -> None:
    """Stop the SuperLink and all that it started; silos keep waiting for it to come back."""
    stopped = flower.FederationFolder.read(folder).stop()
    _print({"stopped": stopped}, ["Stopped." if stopped else "It was not running."], as_json)


def _print(content: dict[str, Any], lines: list[str], as_json: bool) -> None:
    """Print what a command did: as JSON for programs, or as lines for people."""
    options.print_json(content) if as_json else click.echo("\n".join(lines))
