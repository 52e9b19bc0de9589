"""`fedcollab export`: all figures of every client, and the models for plain PyTorch."""

from __future__ import annotations

from pathlib import Path

import click

from fedcollab import files, report, runs, training
from fedcollab.cli import options
from fedcollab.cli.predicting import result_of
from fedcollab.data.tables import csv_text
from fedcollab.errors import InputError


@click.command(
    epilog="""\b
Examples:
  fedcollab export runs/hospitals --to exported
  fedcollab export runs/hospitals --to exported --pt --way local"""
)
@click.argument("run_dir", type=click.Path(path_type=Path))
@click.option(
    "-o", "--out", "--to", "folder", required=True, type=click.Path(path_type=Path), help="A new or an empty folder."
)
@options.way("Whose models")
@click.option("--pt", is_flag=True, help="Models as .pt files too, for torch.load(..., weights_only=True).")
@options.json
def export(run_dir: Path, folder: Path, way: str, pt: bool, as_json: bool) -> None:
    """Take figures and models elsewhere: clients.csv with a row a client, and each model for plain PyTorch.

    Each model is a state_dict (.safetensors) beside a small .json file that says its layers, how the columns of a table
    become its inputs, and its classes. docs/howto/use-the-models.md reads one back in a few lines without fedcollab.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"`--to` (={str(folder)!r}) is not an empty folder; give a new one")
    run = runs.Run.open(run_dir)
    found = result_of(run, way) if way != "coalitions" or run.results() else None
    models = {} if found is None else training.export_models(found, folder / "models", pt=pt)
    table = folder / "clients.csv"
    columns = report.client_columns(report.read_run(run_dir), models or None)
    files.write_bytes(table, csv_text(columns).encode(), private=True)
    notes = []
    if found is None:
        notes.append("nothing is trained yet, so that there are no models")
    elif not models:
        notes.append("the clients' own models stayed at their silos: there, `fedcollab silo predict` uses them")
    written = sorted({f"models/{name}" for name in models.values()})
    if as_json:
        options.print_json({"clients": str(table), "models": written, "notes": notes})
        return
    click.echo(f"{table}: {len(columns['client'])} clients, {len(columns)} columns")
    if written:
        count = "1 model" if len(written) == 1 else f"{len(written)} models"
        click.echo(f"{folder / 'models'}: {count} of the training {runs.WAYS[way]}")
    for note in notes:
        click.echo(f"note: {note}", err=True)
