"""`fedcollab predict` and `fedcollab silo predict`: what a trained model says of new rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedcollab import files, flower, runs, training
from fedcollab.cli import options
from fedcollab.cli.names import ClientName
from fedcollab.data.rows import Rows, read_rows
from fedcollab.data.tables import csv_text
from fedcollab.errors import InputError, unknown

if TYPE_CHECKING:
    from fedcollab.training import TrainedModel, TrainingResult

_file = click.argument("file", type=click.Path(path_type=Path))
_out = options.out("Write a CSV file, one line a row.  [default: print it]")


@click.command(
    epilog="""\b
Examples:
  fedcollab predict runs/hospitals --client plain-west new.csv
  fedcollab predict runs/hospitals --client plain-west new.csv -o predicted.csv
  fedcollab predict runs/hospitals --client plain-west --way local new.csv"""
)
@click.argument("run_dir", type=click.Path(path_type=Path))
@click.option("--client", required=True, type=ClientName("run_dir"), help="Whose model: its own one, if it has one.")
@_file
@options.way("Of which training")
@_out
@options.json
def predict(run_dir: Path, client: str, file: Path, way: str, out: Path | None, as_json: bool) -> None:
    """What does a client's model say of new rows? The predicted class of each, and the probability of every class.

    FILE is a CSV or Parquet table with the columns of the run, in any order, or an NPZ file with `x`. Labels are not
    needed, further columns are passed over, and the run's --id column is written first where the file has it.
    """
    run = runs.Run.open(run_dir)
    found = result_of(run, way)
    if client not in found.names:
        raise InputError(unknown("--client", client, found.names))
    settings = run.config().get("settings", {})
    model = training.load_model(found, client=client)
    own = "its own" if found.personal else "the one of its coalition"
    about = {"client": client, "way": way, "model": "personal" if found.personal else "coalition"}
    _predict_file(model, file, settings.get("id"), out, f"The model of {client} ({own})", about if as_json else None)


@click.command(
    epilog="""\b
Examples:
  fedcollab silo predict new.csv -o predicted.csv
  fedcollab silo predict new.csv --config north/silo.toml --json"""
)
@_file
@options.silo_config
@_out
@options.json
def predict_here(file: Path, config: Path, out: Path | None, as_json: bool) -> None:
    """What does this silo's model say of new rows? Rows, model and answers stay here; nobody is asked.

    The model is the one that the last training left: the silo's own one where the algorithm makes one, which never
    leaves it, else its coalition's. FILE is a table with the columns of that training, or an NPZ file with `x`.
    """
    silo = flower.SiloConfig.read(config)
    model, about = flower.own_model(config), {"client": silo.name} if as_json else None
    _predict_file(model, file, silo.id, out, f"The model of {silo.name}", about)


def result_of(run: runs.Run, way: str) -> TrainingResult:
    """Return one of the trainings of a run.

    Parameters
    ----------
    run : Run
        The run.
    way : str
        "coalitions", "local" or "global".

    Raises
    ------
    InputError
        If the run has not trained that way.
    """
    results = run.results()
    if way not in results:
        known = f"; it has: {', '.join(results)}" if results else ""
        raise InputError(
            f"`RUN_DIR` (={str(run.path)!r}) holds no training {runs.WAYS[way]} (--way {way}){known}; see `fedcollab "
            "train`"
        )
    return results[way]


def _predict_file(
    model: TrainedModel,
    file: Path,
    id_column: str | None,
    out: Path | None,
    whose: str,
    about: dict[str, str] | None,
) -> None:
    """Predict the rows of a file, and write or print the answers.

    Parameters
    ----------
    model : TrainedModel
        The model.
    file : Path
        The rows.
    id_column : str or None
        The column that names the rows, which is written too.
    out : Path or None
        The file to write; None prints the answers.
    whose : str
        What the model is called on the terminal.
    about : dict or None
        What the JSON for programs begins with; None where a person reads.
    """
    rows = read_rows(file, model.schema)
    if out is not None:
        files.check_target(out)
    columns = {**_identified(rows, id_column), **model.answers(rows.x)}
    for note in rows.notes:
        click.echo(f"note: {note}", err=True)
    count, text = len(rows.x), csv_text(columns)
    if out is not None:
        files.write_bytes(out, text.encode(), private=True)
    if about is not None:
        written = {"rows": count, "notes": rows.notes, "out": None if out is None else str(out)}
        options.print_json({**about, **written, **{key: list(values) for key, values in columns.items()}})
    elif out is not None:
        click.echo(f"{whose} predicted {count} {'row' if count == 1 else 'rows'}: {out}")
    else:
        click.echo(text, nl=False)


def _identified(rows: Rows, id_column: str | None) -> dict[str, Any]:
    """Return what tells the rows apart: their number from 1, and the column of identifiers where the file has it."""
    identified: dict[str, Any] = {"row": range(1, len(rows.x) + 1)}
    if id_column is not None and rows.unused is not None and id_column in rows.unused.columns:
        identified[id_column] = rows.unused[id_column]
    return identified
