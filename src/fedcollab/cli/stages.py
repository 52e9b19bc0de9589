"""`fedcollab estimate`, `train` and `report`: one stage each."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from fedcollab import distances, federation, files, runs, training
from fedcollab import report as report_of
from fedcollab.cli import options
from fedcollab.cli.artefacts import open_coalitions, read_json
from fedcollab.cli.clients import Source, adopted, open_source
from fedcollab.cli.inspecting import begin_with_check, keep_check
from fedcollab.cli.settings import take_measuring, take_pairs, with_defaults
from fedcollab.errors import InputError
from fedcollab.files import check_target
from fedcollab.progress import bar
from fedcollab.training import defaults

if TYPE_CHECKING:
    from fedcollab.federation import Federation
    from fedcollab.report import Judgement


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
    measuring, source = take_measuring(settings), Source.take(settings)
    if resume:
        known = distances.Distances.load(out)
        folds = known.settings.get("folds")
        if measuring.get("folds") not in (None, folds):
            raise InputError(
                f"`--folds` (={measuring['folds']}) is not that of `{out}` (={folds}), by which --resume measures; "
                "leave --resume out to measure all pairs anew"
            )
    with open_source(source, on, journal=out.parent) as (found, brought):
        settings = with_defaults(settings, brought)
        checked = None if resume else begin_with_check(found, brought, settings, quiet=as_json)
        keys = ("scale", "missing_indicators", "test_share", "seed", "encoder", "task")
        prepared = {key: settings[key] for key in keys if key in settings}
        present = adopted(found, [out.parent], **prepared) if resume else federation.federate(found, **prepared)
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
        options.print_json({**read_json(out), "findings": findings})
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
@options.task
@options.test_share
@options.seed
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
    own = {"options": take_pairs(settings, "algorithm_option")}
    own["model_options"] = take_pairs(settings, "model_option")
    training.make_algorithm(settings["algorithm"] or defaults.ALGORITHM, own["options"])  # refused before all else
    settings["keep"], afresh = list(settings["keep"]) or None, settings.pop("afresh")
    ends = ("local", "global")
    groups: Any = coalitions if coalitions in ends else open_coalitions(Path(coalitions))
    if hasattr(groups, "plan") and (settings["algorithm"] or settings["keep"]):
        groups = groups.coalitions  # who is the advice's, how is what was typed
    members = groups if coalitions in ends or isinstance(groups, list) else groups.coalitions
    names = None if coalitions in ends else [str(name) for group in members for name in group]
    source = Source.take(settings)
    if source.trust:
        raise InputError("`--trust` is for the data check, which `train` does not do: inspect, run, estimate, advise")
    if runs.Run(out).has("distances.json"):
        out = out / "training" / (coalitions if coalitions in ends else "coalitions")
    options.hold(runs.Run(out))
    with open_source(source, on, names, journal=out) as (found, brought):
        settings = with_defaults(settings, brought)
        shape = {key: settings.pop(key) for key in ("scale", "test_share", "task") if key in settings}
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
        options.print_json(read_json(out / "training.json"))
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
    schema = present.schema.as_dict()
    results = {way: result for way, result in run.results().items() if result.schema == schema}
    if len(results) < 2 or out.name not in results:
        return None
    comparison, curve = runs.keep_comparison(run, present, results), runs.read_learning_curve(run)
    rows = [present.quantities[name] for name in present.names]
    return report_of.Judgement.of(results, comparison, present.names, curve, advice=run.advice(), rows=rows)
