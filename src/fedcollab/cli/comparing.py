"""`fedcollab compare`: runs of the same clients side by side."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedcollab import federation, report, runs, training
from fedcollab.cli import options, sources
from fedcollab.errors import FedcollabWarning, InputError

if TYPE_CHECKING:
    from fedcollab.report import ComparedRuns
    from fedcollab.training import Comparison


@click.command(
    epilog="""\b
Examples:
  fedcollab compare runs/hospitals runs/hospitals-logistic
  fedcollab compare runs/first runs/second runs/third --way global --json"""
)
@click.argument("run_dirs", metavar="RUN RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@options.way("Which of their trainings")
@click.option(
    "--clients",
    type=click.Path(path_type=Path),
    help="Folder with the clients' files, for paired differences.  [default: where they were last]",
)
@click.option("--label", help="Their label column.  [default: the first run's]")
@click.option("--drop", multiple=True, metavar="COLUMN", help="A column to leave out.  [default: the first run's]")
@options.json
def compare(run_dirs: tuple[Path, ...], way: str, as_json: bool, **source: Any) -> None:
    """Runs of the same clients side by side: settings and data that differ, who moved, gains client by client.

    Differences are told against the first run. Where all runs have the same test rows and the clients' files can be
    read here, the models are tested on them again: intervals are then those of paired answers, which are narrower.
    """
    first, *_ = opened = [runs.Run.open(path) for path in run_dirs]
    schemas = tuple(run.schema() if run.has("schema.json") else None for run in opened)
    contents = tuple(report.read_run(path) for path in run_dirs)
    found = report.ComparedRuns(tuple(map(str, run_dirs)), contents, schemas, way)
    found = replace(found, paired=_pairs(found, first, source))
    if as_json:
        options.print_json(found.as_dict())
    else:
        report.show_compared(found)


def _pairs(found: ComparedRuns, first: runs.Run, source: dict[str, Any]) -> dict[str, Comparison]:
    """Test the models of the first run and of each with the same test rows on them again, if that can be done here."""
    before, *others = found.results
    label_before, *labels = found.labels
    alike = [
        (label, result)
        for label, result, schema, changed in zip(labels, others, found.schemas[1:], found.data_changed(), strict=True)
        if result is not None and not changed and schema == found.schemas[0]
    ]
    clients = source["clients"] or sources.locate(first, None)[0]
    if before is None or not alike or clients is None:
        return {}
    try:
        present = federation.federate(sources.read_present(first, found.names, source), schema=first.schema())
    except InputError as error:
        if source["clients"] is not None:
            raise
        return _without_pairs(f"the clients' files cannot be read ({error})")
    today, then = federation.describe_clients(present), first.config()["clients"]
    strange = [name for name in found.names if today[name]["fingerprint"] != then[name]["fingerprint"]]
    if strange:
        return _without_pairs(f"the data of `{strange[0]}` are no longer those of the runs")
    return {label: training.compare(present, {label_before: before, label: result}) for label, result in alike}


def _without_pairs(why: str) -> dict[str, Comparison]:
    """Warn that models cannot be tested again."""
    warnings.warn(f"{why}, so that intervals are wider", FedcollabWarning, stacklevel=3)
    return {}
