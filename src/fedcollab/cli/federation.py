"""`fedcollab federation`: the coordinator's side of a real federation over Flower."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fedcollab import flower
from fedcollab.cli import options

LATER = {"demo": "fedcollab.cli.federation_demo:demo", "plan": "fedcollab.cli.federation_plan:plan"}
_folder = click.argument("folder", type=click.Path(path_type=Path))
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output, for programs.")


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
@_json
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
@_json
def admit(folder: Path, key: Path, name: str | None, as_json: bool) -> None:
    """Let a silo in, by its public key. Check with its administrator that the key is theirs."""
    name = name or key.stem
    flower.FederationFolder.read(folder).admit(key, name)
    _print({"admitted": name}, [f"`{name}` is admitted."], as_json)


@federation.command(epilog="Example:  fedcollab federation expel hospitals north")
@_folder
@click.argument("name")
@_json
def expel(folder: Path, name: str, as_json: bool) -> None:
    """Take a silo's admission back: its key is refused from now on; if the federation runs, at once."""
    flower.FederationFolder.read(folder).expel(name)
    _print({"expelled": name}, [f"`{name}` is expelled; its key is in expelled/."], as_json)


@federation.command(epilog="Example:  fedcollab federation renew hospitals")
@_folder
@_json
def renew(folder: Path, as_json: bool) -> None:
    """Make the coordinator's certificate anew, with the same authority: silos need do nothing. Stop it before."""
    opened = flower.FederationFolder.read(folder)
    opened.renew()
    _print({"valid_until": opened.ends()}, [f"Valid until {opened.ends()}; start the federation again."], as_json)


@federation.command(epilog="Example:  fedcollab federation start hospitals")
@_folder
@_json
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


@federation.command(epilog="Example:  fedcollab federation status hospitals --json")
@_folder
@_json
def status(folder: Path, as_json: bool) -> None:
    """Show whether it runs, and which silos are connected."""
    found = flower.FederationFolder.read(folder).status()
    secure = "TLS, authenticated silos" if found["secure"] else "INSECURE"
    lines = [f"{found['name']}  {found['address']}  {secure}  {'running' if found['running'] else 'stopped'}"]
    lines += [f"  {name:<20} {state}" for name, state in sorted(found["silos"].items())]
    lines += found["warnings"]
    _print(found, lines, as_json)


@federation.command(epilog="Example:  fedcollab federation stop hospitals")
@_folder
@_json
def stop(folder: Path, as_json: bool) -> None:
    """Stop the SuperLink and all that it started; silos keep waiting for it to come back."""
    stopped = flower.FederationFolder.read(folder).stop()
    _print({"stopped": stopped}, ["Stopped." if stopped else "It was not running."], as_json)


def _print(content: dict[str, Any], lines: list[str], as_json: bool) -> None:
    """Print what a command did: as JSON for programs, or as lines for people."""
    options.print_json(content) if as_json else click.echo("\n".join(lines))
