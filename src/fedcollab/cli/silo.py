"""`fedcollab silo`: one organisation's side of a real federation over Flower."""

from __future__ import annotations

from pathlib import Path

import click

from fedcollab import flower
from fedcollab.cli import options

#: commands of this group in files of their own: name -> module:attribute
LATER: dict[str, str] = {
    "log": "fedcollab.cli.silo_log:log",
    "predict": "fedcollab.cli.predicting:predict_here",
    **{name: f"fedcollab.cli.silo_plan:{name}" for name in ("review", "approve", "plans", "withdraw")},
}


@click.group(
    cls=options.with_later_commands(LATER),
    epilog="""\b
Example:
  fedcollab silo init --name north --data patients.csv --label outcome
  fedcollab silo start""",
)
def silo() -> None:
    """Take part with data that stays here: a config of three lines, a key, and `start`."""


@silo.command(epilog="Example:  fedcollab silo init --name north --data patients.csv --label outcome")
@click.option("--name", required=True, help="The name under which the coordinator knows this silo.")
@click.option("--data", required=True, type=click.Path(path_type=Path), help="CSV, Parquet or NPZ file; it stays here.")
@click.option("--label", help="The label column of CSV and Parquet files.")
@click.option("--invitation", type=click.Path(path_type=Path), help="What the coordinator sent.")
@click.option(
    "-o",
    "--out",
    "--folder",
    "folder",
    type=click.Path(path_type=Path),
    default=Path(),
    help="Where to write.  [default: this folder]",
)
@click.option(
    "--preset",
    type=click.Choice(["cautious", "usual", "open"]),
    default="usual",
    show_default=True,
    help="Limits to begin with: `cautious` and `usual` serve approved plans only, `open` any message within limits.",
)
@options.json
def init(
    name: str, data: Path, label: str | None, invitation: Path | None, folder: Path, preset: str, as_json: bool
) -> None:
    """Write silo.toml and make this silo's key pair."""
    config, public = flower.init_silo(folder, name, data, label, invitation, preset)
    if as_json:
        options.print_json({"config": str(config), "public_key": None if public is None else str(public)})
        return
    click.echo(f"Wrote {config}: name, data file, label column. Nothing of it but the name leaves this machine.")
    if public is not None:
        click.echo(f"Send {public} to the coordinator; {public.with_suffix('.key').name} is secret and stays here.")
    if preset != "open":
        click.echo(
            "The coordinator will send a plan:  fedcollab silo review PLAN  shows it,  silo approve PLAN  agrees."
        )
    click.echo(f"Then:  fedcollab silo start {config}")


@silo.command(epilog="Example:  fedcollab silo start silo.toml")
@click.argument("config", type=click.Path(path_type=Path), default=Path("silo.toml"))
def start(config: Path) -> None:
    """Connect to the coordinator and answer its messages, until interrupted."""
    read = flower.SiloConfig.read(config)
    click.echo(f"{read.check_data()!r} takes part; Ctrl-C ends it.", err=True)
    if not read.state.exists():
        click.echo(
            f"Its state folder, {read.state}, is new: nothing is known here of earlier plans and what they revealed. "
            "If this silo has taken part before, stop it and restore that folder.",
            err=True,
        )
    for line in flower.renewal_warnings(read):
        click.echo(f"fedcollab: {line}", err=True)
    flower.start_silo(config)


@silo.command(epilog="Example:  fedcollab silo renew silo.toml")
@click.argument("config", type=click.Path(path_type=Path), default=Path("silo.toml"))
@options.json
def renew(config: Path, as_json: bool) -> None:
    """Make this silo's key pair anew; the coordinator expels the old key and admits the new one."""
    own = flower.SiloConfig.read(config)
    public = flower.renew_silo_key(own.key, own.name)
    if as_json:
        options.print_json({"public_key": str(public)})
        return
    click.echo(
        f"Send {public} to the coordinator: `fedcollab federation expel`, then `admit`. The old key is kept beside."
    )
    click.echo("Plans were signed with the old key: approve those that go on again, then start the silo again.")
