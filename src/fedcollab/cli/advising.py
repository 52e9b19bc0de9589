"""`advise`: who should train with whom, how, and what each client will gain, before anyone commits."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Any

import click

from fedcollab import report as report_of
from fedcollab import runs
from fedcollab.cli import options, stages
from fedcollab.cli.artefacts import read_json
from fedcollab.cli.clients import Source, open_source
from fedcollab.cli.inspecting import begin_with_check, keep_check
from fedcollab.cli.settings import (
    limited,
    pipeline_of,
    take_constraints,
    take_measuring,
    take_pairs,
    training_settings,
    with_defaults,
)
from fedcollab.coalitions.inputs import read_C


@click.command(
    epilog="""\b
Examples:
  fedcollab advise --clients hospitals/ --label outcome -o runs/hospitals
  fedcollab advise --on federation/ --model logistic -o runs/h"""
)
@options.source
@options.on
@click.option(
    "--C",
    "C",
    default="auto",
    help="auto: measured. A number: the paper's coalitions for this C, and what they would bring.",
)
@click.option(
    "--metric",
    type=click.Choice(["loss", "accuracy"]),
    default="loss",
    show_default=True,
    help="In what gains are told.",
)
@options.estimation
@options.measuring
@options.how_to_train
@options.constraints
@options.out("Run directory for distances, path, coalitions and advice.", required=True)
@options.output
def advise(
    on: Path | None,
    C: str,
    metric: str,
    out: Path,
    as_json: bool,
    quiet: bool,
    **settings: Any,
) -> None:
    """Who should train with whom, how, and what will each gain? Measured on training rows, before anyone commits.

    Candidates from the bound (everyone, alone, the partitions on the path over C, own weights) are trained as pilots on
    a part of the training rows and measured on the rest. Test rows are never looked at. `fedcollab train --coalitions
    RUN` follows the advice.
    """
    value = read_C(C)
    more = {
        "distance_options": take_measuring(settings),
        "solve_options": limited(take_constraints(settings)),
        "model_options": take_pairs(settings, "model_option"),
    }
    source = Source.take(settings)
    with open_source(source, on, journal=out) as (found, brought):
        settings = with_defaults(settings, brought) | {key: content for key, content in more.items() if content}
        checked = begin_with_check(found, brought, settings, quiet=as_json)
        pipeline = pipeline_of(value, settings, quiet=quiet or as_json, run_dir=runs.Run(out))
        fitted = pipeline.fit(found)
        advice = fitted.advise(metric=metric, **training_settings(settings))
        keep_check(checked, out)
    if as_json:
        options.print_json(read_json(out / "advice.json"))
    else:
        folder = quote(str(out))
        report_of.show_advice(advice)
        again = options.typed_for(stages.train, without=("out",))
        click.echo("\n" + " ".join([f"Next:    fedcollab train --coalitions {folder} -o {folder}", *again]))
