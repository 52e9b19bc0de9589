"""`advise`: who should train with whom, how, and what each client will gain, before anyone commits."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from shlex import quote
from typing import Any

import click
from click.core import ParameterSource

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

OF_OUTPUT = ("as_json", "quiet")


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
        again = typed_for(stages.train, without=("out",))
        click.echo("\n" + " ".join([f"Next:    fedcollab train --coalitions {folder} -o {folder}", *again]))


def typed_for(other: click.Command, without: Collection[str] = ()) -> list[str]:
    """Return what was typed for the command that runs, as far as another command takes it too.

    What was measured with one model would else be trained with another.

    Parameters
    ----------
    other : click.Command
        The other command.
    without : collection of str
        Parameters to leave out.
    """
    context = click.get_current_context()
    known = {each.name for each in other.params} - set(without)
    words = []
    for each in context.command.params:
        typed = context.get_parameter_source(each.name or "") is ParameterSource.COMMANDLINE
        if not typed or each.name not in known or each.name in OF_OUTPUT:
            continue
        value = context.params[each.name]
        values = value if isinstance(value, tuple) else (value,)
        if isinstance(each, click.Argument):
            words += [quote(str(value))]
        elif getattr(each, "is_flag", False):
            words += [each.opts[0] if value else (each.secondary_opts or each.opts)[0]]
        else:
            words += [f"{each.opts[0]} {quote(str(one))}" for one in values]
    return words
