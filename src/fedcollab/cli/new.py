"""`fedcollab new`: a small example federation of CSV files to play with."""

from __future__ import annotations

from pathlib import Path

import click

from fedcollab import scenarios
from fedcollab.cli import options


@click.command(epilog="Example:  fedcollab new hospitals && fedcollab run --clients hospitals --label outcome")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--seed", default=0, show_default=True, help="Another seed, other patients.")
@options.output
def new(folder: Path, seed: int, as_json: bool, quiet: bool) -> None:
    """Write a small example federation to play with: seven invented hospitals as CSV files, and a README."""
    written = scenarios.write_example(folder, seed)
    if as_json:
        options.print_json({"folder": str(folder), "files": [path.name for path in written], "label": "outcome"})
    elif not quiet:
        click.echo(f"{len(written) - 1} hospitals and a README in {folder}.")
        click.echo(f"Next:    fedcollab run --clients {folder} --label outcome")
