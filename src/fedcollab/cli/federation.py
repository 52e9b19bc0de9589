"""`fedcollab federation`: the coordinator's side of a real federation over Flower."""

from __future__ import annotations

from pathlib import Path

import click

from fedcollab.cli import options

LATER = {"demo": "fedcollab.cli.federation_demo:demo"}
_folder = click.argument("folder", type=click.Path(path_type=Path))
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output, for programs.")


@click.group(
    cls=options.grown(LATER),
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
    from fedcollab.flower.federation import Federation

    made = Federation.init(folder, host, port, secure=not insecure)
    if as_json:
        options.print_json(
            {"folder": str(folder), "invitation": str(folder / "invitation.toml"), "secure": made.secure}
        )
        return
    click.echo(f"Made {folder}/ (see its README.md)")
    click.echo(f"Send {folder / 'invitation.toml'} to the silos; nothing in it is secret.")
    if made.secure:
        click.echo(f"They send back a public key each:  fedcollab federation admit {folder} NAME.pub")
    click.echo(f"Then:  fedcollab federation start {folder}")


@federation.command(epilog="Example:  fedcollab federation admit hospitals north.pub")
@_folder
@click.argument("key", type=click.Path(path_type=Path))
@click.option("--name", help="The silo's name.  [default: the file's name]")
@_json
def admit(folder: Path, key: Path, name: str | None, as_json: bool) -> None:
    """Let a silo in, by its public key. Check with its administrator that the key is theirs."""
    from fedcollab.flower.federation import Federation

    name = name or key.stem
    Federation.read(folder).admit(key, name)
    options.print_json({"admitted": name}) if as_json else click.echo(f"`{name}` is admitted.")


@federation.command(epilog="Example:  fedcollab federation start hospitals")
@_folder
@_json
def start(folder: Path, as_json: bool) -> None:
    """Start Flower's SuperLink in the background; silos can connect."""
    from fedcollab.flower.federation import Federation

    opened = Federation.read(folder)
    opened.start()
    if as_json:
        options.print_json({"running": True, "address": f"{opened.host}:{opened.port}"})
        return
    click.echo(f"`{opened.name}` runs at {opened.host}:{opened.port}; log: {folder / 'superlink.log'}")
    click.echo(f"Who is there:  fedcollab federation status {folder}")


@federation.command(epilog="Example:  fedcollab federation status hospitals --json")
@_folder
@_json
def status(folder: Path, as_json: bool) -> None:
    """Whether it runs, and which silos are connected."""
    from fedcollab.flower.federation import Federation

    found = Federation.read(folder).status()
    if as_json:
        options.print_json(found)
        return
    secure = "TLS, authenticated silos" if found["secure"] else "INSECURE"
    click.echo(f"{found['name']}  {found['address']}  {secure}  {'running' if found['running'] else 'stopped'}")
    for name, state in sorted(found["silos"].items()):
        click.echo(f"  {name:<20} {state}")


@federation.command(epilog="Example:  fedcollab federation stop hospitals")
@_folder
@_json
def stop(folder: Path, as_json: bool) -> None:
    """Stop the SuperLink and all that it started; silos keep waiting for it to come back."""
    from fedcollab.flower.federation import Federation

    stopped = Federation.read(folder).stop()
    if as_json:
        options.print_json({"stopped": stopped})
    else:
        click.echo("Stopped." if stopped else "It was not running.")
