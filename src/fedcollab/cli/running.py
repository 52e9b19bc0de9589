"""`fedcollab run`: all stages in a run directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from fedcollab import report as report_of
from fedcollab import runs
from fedcollab.cli import options, sources
from fedcollab.cli.clients import Source, find_clients
from fedcollab.cli.inspecting import begin_with_check, keep_check
from fedcollab.cli.settings import (
    advises,
    check_settings,
    limited,
    pipeline_of,
    take_constraints,
    take_measuring,
    take_pairs,
    training_settings,
    with_defaults,
)
from fedcollab.coalitions.inputs import read_C

if TYPE_CHECKING:
    from fedcollab.data import ClientData
    from fedcollab.inspection import Inspection
    from fedcollab.report import Judgement
    from fedcollab.runs import Fitted, Run


@click.command(epilog="Example:  fedcollab run --clients hospitals/ --label outcome")
@options.source
@click.option(
    "--C",
    "C",
    default="auto",
    help="How much it hurts to have little data: a positive number, or auto.  [default: the scenario file's, or auto]",
)
@options.estimation
@options.measuring
@options.training
@options.constraints
@options.out("Run directory.  [default: runs/NAME of the source]")
@click.option(
    "--learning-curve/--no-learning-curve",
    default=True,
    show_default=True,
    help="Train alone on half of the rows too, to say how many rows a gain is worth; takes as long as training alone.",
)
@click.option("--fresh", is_flag=True, help="Start over if that run exists; else it goes on where it stopped.")
@options.output
def run(
    C: str,
    out: Path | None,
    learning_curve: bool,
    fresh: bool,
    as_json: bool,
    quiet: bool,
    **settings: Any,
) -> None:
    """All stages: who should train with whom and how, then train alone, with everyone and as advised.

    Clients come from a folder with one file per client (the file's name is the client's name), or from a scenario file.
    Every stage leaves its artefact in the run directory; an interrupted run goes on where it stopped.
    """
    read_C(C)  # refused before anything is read
    more = {
        "distance_options": take_measuring(settings),
        "solve_options": limited(take_constraints(settings)),
        "algorithm_options": take_pairs(settings, "algorithm_option"),
        "model_options": take_pairs(settings, "model_option"),
    }
    source = Source.take(settings)
    found, brought = find_clients(source)
    if settings["secure_aggregation"] != "none":  # two members of a coalition would learn each other's update
        more["solve_options"] = {**more["solve_options"], "min_size": max(3, more["solve_options"].get("min_size", 1))}
    settings = with_defaults({"C": C, **settings}, brought) | {key: value for key, value in more.items() if value}
    value = read_C(settings.pop("C"))
    origin = (source.scenario or source.clients or Path()).resolve()
    out = out or Path("runs") / origin.stem.replace(":", "-")
    asked = {"source": str(origin.name), "label": source.label, "drop": list(source.drop), "C": value, **settings}
    asked |= brought.get("reading", {})
    target = out

    def start() -> Run:
        run = runs.Run.start(target, asked, fresh=fresh)
        options.hold(run)
        return run

    check_settings(settings)
    checked = begin_with_check(found, brought, settings, quiet=as_json)
    fitted, judgement = all_stages(
        found,
        value,
        settings,
        start,
        quiet=quiet or as_json,
        learning_curve=learning_curve,
    )
    keep_check(checked, out)
    page = report_of.write(out)
    if "own" in brought:
        sources.remember(runs.Run(out), brought["own"].clients)
    if as_json:
        options.print_json(summary(fitted, judgement, page, checked))
    else:
        report_of.show_run(fitted, judgement, page, next_command=f"fedcollab explain {quote(str(out))}")


def all_stages(
    clients: Sequence[ClientData],
    C: float | str,
    settings: Mapping[str, Any],
    start: Callable[[], Run],
    *,
    quiet: bool,
    learning_curve: bool = True,
) -> tuple[Fitted, Judgement]:
    """Fit, then train alone, with everyone, and in the coalitions, and compare.

    Parameters
    ----------
    clients : sequence of ClientData
        The clients.
    C : float or "auto"
        As in `FedCollab`.
    settings : mapping
        The options of `estimation` and `training`.
    start : callable
        Opens the run directory; called once the clients are known to fit together.
    quiet : bool
        No progress bars.
    learning_curve : bool
        Also train alone on half of the rows, to say how many rows a gain is worth.

    Returns
    -------
    tuple of (Fitted, Judgement)
        The answer before training, and what the trainings mean.
    """
    check_settings(settings)
    pipeline = pipeline_of(C, settings, quiet=quiet)
    prepared = pipeline.prepare(clients)
    fitted = replace(pipeline, run_dir=start()).fit(prepared)
    keys = ("averaging", "stopping")
    asked = {**training_settings(settings), **{key: settings[key] for key in keys if key in settings}}
    chosen = {"algorithm": settings["algorithm"], "options": settings.get("algorithm_options")}
    chosen["keep"] = list(settings.get("keep", ())) or None
    if settings.get("secure_aggregation", "none") != "none":
        chosen["secure_aggregation"] = settings["secure_aggregation"]
    if advises(C, settings):
        fitted = fitted.following(fitted.advise(**training_settings(settings)))
    results = {}
    for way in runs.WAYS:
        results[way] = fitted.train(way=way, **asked, **({} if way == "local" else chosen))
    curve = fitted.learning_curve(results["local"], **asked) if learning_curve else None
    advice = fitted.saved_advice
    comparison = fitted.compare(results)
    names, rows = fitted.distances.names, fitted.distances.quantities.tolist()
    return fitted, report_of.Judgement.of(results, comparison, names, curve, advice=advice, rows=rows)


def summary(fitted: Fitted, judgement: Judgement, page: Path, checked: Inspection | None = None) -> dict[str, Any]:
    """Return the answer and what it gained as plain values, for JSON; what contradicts the answer comes first.

    Parameters
    ----------
    fitted : Fitted
        The answer before training.
    judgement : Judgement
        What the trainings mean.
    page : Path
        The report.
    checked : Inspection, optional
        What the data check found.
    """
    collaboration = fitted.collaboration
    advice = fitted.saved_advice
    return {
        "contradictions": judgement.contradictions(),
        "advice": None if advice is None else advice.as_dict(),
        "coalitions": collaboration.coalitions,
        "C": collaboration.C,
        "objective": collaboration.objective,
        "lower_bound": collaboration.lower_bound,
        "optimal": collaboration.optimal,
        "clients": list(fitted.distances.names),
        **judgement.figures(),
        "report": str(page),
        "findings": [] if checked is None else checked.as_dict()["findings"],
    }
