"""`run` does all stages in a run directory; `estimate`, `train` and `report` do one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from fedcollab import data, distances, federation, files, runs, training
from fedcollab import report as report_of
from fedcollab.cli import options, sources
from fedcollab.cli.inspecting import begin_with_check, keep_check
from fedcollab.coalitions.inputs import read_C
from fedcollab.errors import InputError, choose, number
from fedcollab.files import check_target
from fedcollab.progress import bar
from fedcollab.training import defaults

if TYPE_CHECKING:
    from fedcollab.data import ClientData
    from fedcollab.federation import Federation
    from fedcollab.inspection import Inspection
    from fedcollab.report import Judgement
    from fedcollab.runs import FedCollab, Fitted, Run
    from fedcollab.wire import Runtime


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
    scenario: Path | None,
    clients: Path | None,
    label: str | None,
    drop: tuple[str, ...],
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
        "distance_options": options.take_measuring(settings),
        "solve_options": limited(options.take_constraints(settings)),
        "algorithm_options": options.take_pairs(settings, "algorithm_option"),
        "model_options": options.take_pairs(settings, "model_option"),
    }
    how = options.take_reading(settings)
    found, brought = options.find_clients(scenario, clients, label, drop, how)
    if settings["secure_aggregation"] != "none":  # two members of a coalition would learn each other's update
        more["solve_options"] = {**more["solve_options"], "min_size": max(3, more["solve_options"].get("min_size", 1))}
    settings = with_defaults({"C": C, **settings}, brought) | {key: value for key, value in more.items() if value}
    value = read_C(settings.pop("C"))
    origin = (scenario or clients or Path()).resolve()
    out = out or Path("runs") / origin.stem.replace(":", "-")
    asked = {"source": str(origin.name), "label": label, "drop": list(drop), "C": value, **settings}
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


@click.command(
    epilog="""\b
Examples:
  fedcollab estimate --clients hospitals/ --label outcome -o distances.json
  fedcollab estimate --clients hospitals/ --label outcome --distance few-round --privacy-epsilon 4 -o distances.json
  fedcollab estimate --on federation/ -o runs/h/distances.json"""
)
@options.source
@options.on
@options.estimation
@options.measuring
@options.out("Where to write the distances (JSON): a file, or a run directory.", required=True)
@click.option("--resume", is_flag=True, help="Measure only the pairs that are missing in that file.")
@options.output
def estimate(
    scenario: Path | None,
    clients: Path | None,
    label: str | None,
    drop: tuple[str, ...],
    on: Path | None,
    out: Path,
    resume: bool,
    as_json: bool,
    quiet: bool,
    **settings: Any,
) -> None:
    """How different are every two clients' data? Writes a distances file for `fedcollab solve`.

    Clients that do not answer are left unobserved; with --resume, later, their pairs alone are measured.
    """
    out = check_target(files.inside(out, "distances.json"))
    if resume and not out.is_file():
        raise InputError(f"`--resume` completes a file, and `{out}` does not exist; leave --resume out to begin")
    measuring, how = options.take_measuring(settings), options.take_reading(settings)
    with options.open_source(scenario, clients, label, drop, on, journal=out.parent, how=how) as (found, brought):
        settings = with_defaults(settings, brought)
        checked = None if resume else begin_with_check(found, brought, settings, quiet=as_json)
        keys = ("scale", "missing_indicators", "test_share", "seed", "encoder")
        prepared = {key: settings[key] for key in keys}
        if resume:
            known = distances.Distances.load(out)
            present = adopted(found, [out.parent], **prepared)
        else:
            present = federation.federate(found, **prepared)
        run = runs.Run(out.parent) if on is not None else None
        described = None if run is None else run.begin(present)
        with bar("distances", quiet=quiet or as_json) as progress:
            if resume:
                estimated = distances.complete(known, present, progress)
            else:
                estimated = distances.estimate_distances(
                    present, method=settings["distance"], seed=settings["seed"], progress=progress, **measuring
                )
        made: Any = {"distance": settings["distance"], "seed": settings["seed"], "options": measuring}
        if resume:  # by the method and settings of the file
            made = (files.read_made(out) or {"settings": made})["settings"]
        estimated.save(
            out, {"settings": made, "inputs": {} if run is None or described is None else run.inputs(described)}
        )
        if run is not None:
            run.write_clients(present, described or {})
            run.write_config({} if resume else {"settings": settings})
        keep_check(checked, out.parent)
    if as_json:
        findings = [] if checked is None else checked.as_dict()["findings"]
        options.print_json({**options.read_json(out), "findings": findings})
    else:
        report_of.show_distances(estimated, next_command=f"fedcollab solve {quote(str(out))}")


@click.command(
    epilog="""\b
Examples:
  fedcollab train --clients hospitals/ --label outcome --coalitions collaboration.json -o trained/
  fedcollab train --on federation/ --coalitions runs/h -o runs/h"""
)
@options.source
@options.on
@click.option(
    "--coalitions",
    required=True,
    metavar="RUN|FILE|local|global",
    help="The coalitions of a run directory or of a file from `fedcollab solve`; or each alone, or everyone together.",
)
@options.training
@click.option("--test-share", default=0.2, show_default=True, help="Hold-out share of clients without a test split.")
@click.option("--seed", default=0, show_default=True, help="Everything random is derived from it.")
@click.option(
    "--afresh",
    multiple=True,
    metavar="NAME",
    help="Of a training that goes on: a client that lost what it kept of it, and starts anew; repeatable.",
)
@click.option("--tensorboard", type=click.Path(path_type=Path), metavar="FOLDER", help="Stream metrics to TensorBoard.")
@click.option("--mlflow", metavar="EXPERIMENT", help="Stream metrics to this experiment of MLflow.")
@options.out("Folder for result, metrics and models; or a run directory.", required=True)
@options.output
def train(
    scenario: Path | None,
    clients: Path | None,
    label: str | None,
    drop: tuple[str, ...],
    on: Path | None,
    coalitions: str,
    tensorboard: Path | None,
    mlflow: str | None,
    out: Path,
    as_json: bool,
    quiet: bool,
    **settings: Any,
) -> None:
    """Train a federated algorithm inside each coalition; models are saved as safetensors.

    training.jsonl in the folder grows as it goes, one line for each round and client, wherever the clients are.
    """
    callbacks: list[Any] = [] if tensorboard is None else [training.TensorBoard(tensorboard)]
    callbacks += [] if mlflow is None else [training.MLflow(mlflow)]
    own = {"options": options.take_pairs(settings, "algorithm_option")}
    own["model_options"] = options.take_pairs(settings, "model_option")
    training.make_algorithm(settings["algorithm"] or defaults.ALGORITHM, own["options"])  # refused before all else
    settings["keep"], afresh = list(settings["keep"]) or None, settings.pop("afresh")
    ends = ("local", "global")
    groups: Any = coalitions if coalitions in ends else options.open_coalitions(Path(coalitions))
    if hasattr(groups, "plan") and (settings["algorithm"] or settings["keep"]):
        groups = groups.coalitions  # who is the advice's, how is what was typed
    members = groups if coalitions in ends or isinstance(groups, list) else groups.coalitions
    names = None if coalitions in ends else [str(name) for group in members for name in group]
    how = options.take_reading(settings)
    if how.get("trust"):
        raise InputError("`--trust` is for the data check, which `train` does not do: inspect, run, estimate, advise")
    if runs.Run(out).has("distances.json"):
        out = out / "training" / (coalitions if coalitions in ends else "coalitions")
    options.hold(runs.Run(out))
    with options.open_source(scenario, clients, label, drop, on, names, journal=out, how=how) as (found, brought):
        settings = with_defaults(settings, brought)
        shape = {key: settings.pop(key) for key in ("scale", "test_share")}
        folders = [] if on is None else [out.parent.parent]
        if on is not None and names is not None:
            folders.append(files.inside(coalitions, "collaboration.json").parent)
        present = adopted(found, folders, **shape, seed=settings["seed"])
        with bar("training", quiet=quiet or as_json) as progress:
            settings |= {key: value for key, value in own.items() if value}
            made = {"settings": settings, "inputs": {"coalitions": members}}
            again = {"callbacks": callbacks, "afresh": afresh}
            result = training.train(present, groups, run_dir=out, progress=progress, made=made, **again, **settings)
        judgement = compared_in_run(out, present)
    if as_json:
        options.print_json(options.read_json(out / "training.json"))
    else:
        report_of.show_training(result, out, judgement)


@click.command(epilog="Example:  fedcollab report runs/demo")
@click.argument("directory", type=click.Path(path_type=Path))
@options.out("Where to write the page.  [default: in the run]")
@click.option("--figures", type=click.Path(path_type=Path), help="Folder for the pictures as PNG, SVG and PDF.")
@options.output
def report(directory: Path, out: Path | None, figures: Path | None, as_json: bool, quiet: bool) -> None:
    """One HTML file to open, question and forward, from a run directory at whatever stage it is."""
    page = report_of.write(directory, out)
    drawn = [] if figures is None else list(report_of.write_figures(directory, figures))
    if as_json:
        options.print_json({"report": str(page), "figures": drawn})
    else:
        click.echo(f"Report:  {page}")
        if figures is not None:
            click.echo(f"Figures: {len(drawn)} files in {figures}")


def check_settings(settings: Mapping[str, Any]) -> None:
    """Check names and numbers of the settings before anything is computed or written.

    Parameters
    ----------
    settings : mapping
        The options of `estimation` and `training`.

    Raises
    ------
    InputError
        If a name is unknown or a number is out of range.
    """
    choose("distance", settings["distance"], distances.METHODS)
    training.make_algorithm(settings["algorithm"] or defaults.ALGORITHM, settings.get("algorithm_options"))
    choose("model", settings["model"], {"auto": None, **training.MODELS})
    number("lr", settings["lr"], above=0)
    number("weight_decay", settings.get("weight_decay", 0.0), at_least=0)
    number("averaging", settings.get("averaging") or 0.0, at_least=0, at_most=0.99)
    for option in ("rounds", "batch_size", "local_epochs"):
        number(option, settings[option], at_least=1, whole=True)


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
    advice = None if fitted.settings.run is None else fitted.settings.run.advice()
    comparison = fitted.compare(results)
    return fitted, report_of.Judgement.of(results, comparison, fitted.distances.names, curve, advice=advice)


def pipeline_of(C: float | str, settings: Mapping[str, Any], *, quiet: bool, run_dir: Run | None = None) -> FedCollab:
    """Return the stages with the settings of a command.

    Parameters
    ----------
    C : float or "auto"
        As in `FedCollab`.
    settings : mapping
        The options of `estimation` and `training`.
    quiet : bool
        No progress bars.
    run_dir : Run, optional
        Where stages leave their artefacts.
    """
    return runs.FedCollab(
        C=C,
        distance_options=settings.get("distance_options", {}),
        solve_options=settings.get("solve_options", {}),
        model_options=settings.get("model_options", {}),
        encoder=settings.get("encoder", "none"),
        quiet=quiet,
        run_dir=run_dir,
        **{key: settings[key] for key in ("distance", "model", "scale", "missing_indicators", "test_share", "seed")},
    )


def training_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return those options of a command that say how clients take their steps, for `advise` and `train`."""
    keys = ("rounds", "lr", "batch_size", "local_epochs", "optimizer", "weight_decay")
    return {key: settings[key] for key in keys if key in settings}


def advises(C: float | str, settings: Mapping[str, Any]) -> bool:
    """Return whether a command asks for an advice: no C, no algorithm and no layers that stay were given.

    Pilots choose their rounds on held-out rows, so that `--stopping none` asks for none either; and they send updates
    of nested groups, which secure aggregation rules out.
    """
    plain = settings["algorithm"] is None and not settings.get("keep") and settings["model"] != "auto"
    plain = plain and settings.get("secure_aggregation", "none") == "none"
    return C == "auto" and plain and settings.get("stopping", defaults.STOPPING) == defaults.STOPPING


def compared_in_run(out: Path, present: Federation) -> Judgement | None:
    """Compare a training with the others of its run on the same test samples.

    Parameters
    ----------
    out : Path
        The folder of the training.
    present : Federation
        The clients.

    Returns
    -------
    Judgement or None
        None if the folder is not that of a run's training, or there is no other training to compare with.
    """
    run = runs.Run(out.parent.parent)
    if out.parent.name != "training" or out.name not in runs.WAYS or not run.has("distances.json"):
        return None
    schema = json.loads(present.schema.to_json())
    results = {way: result for way, result in run.results().items() if result.schema == schema}
    if len(results) < 2 or out.name not in results:
        return None
    comparison, curve = runs.keep_comparison(run, present, results), runs.read_learning_curve(run)
    return report_of.Judgement.of(results, comparison, present.names, curve, advice=run.advice())


def limited(constraints: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constraints without those that limit nothing."""
    free = {"must_link": [], "cannot_link": [], "min_size": 1, "max_size": None}
    return {key: value for key, value in constraints.items() if value != free[key]}


def adopted(clients: list[ClientData] | Runtime, folders: Sequence[Path], **settings: Any) -> Federation:
    """Prepare clients by the schema that the distances were estimated with, where a run directory has it.

    Parameters
    ----------
    clients : list of ClientData or Runtime
        The clients.
    folders : sequence of Path
        Where a schema.json may be.
    **settings
        As in `federate`, for where there is none.
    """
    found = [folder / "schema.json" for folder in folders if (folder / "schema.json").is_file()]
    if not found:
        return federation.federate(clients, **settings)
    return federation.federate(clients, schema=data.Schema.load(found[0]))


def with_defaults(settings: dict[str, Any], brought: dict[str, Any]) -> dict[str, Any]:
    """Return settings where what was typed comes first, then what a scenario brings, then the defaults.

    Parameters
    ----------
    settings : dict
        The options of the command.
    brought : dict
        The settings of a scenario.
    """
    context = click.get_current_context()
    merged = {"scale": brought.get("scale", "auto")}
    for key, value in settings.items():
        typed = context.get_parameter_source(key) == click.core.ParameterSource.COMMANDLINE
        merged[key] = value if typed else brought.get(key, value)
    return merged


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
    advice = None if fitted.settings.run is None else fitted.settings.run.advice()
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
