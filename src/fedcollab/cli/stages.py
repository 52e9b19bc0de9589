"""`run` does all stages in a run directory; `estimate`, `train` and `report` do one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedcollab.cli import options
from fedcollab.files import check_target

if TYPE_CHECKING:
    from fedcollab.data import ClientData
    from fedcollab.runs.pipeline import Fitted
    from fedcollab.training import TrainingResult
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
@click.option("--out", type=click.Path(path_type=Path), help="Run directory.  [default: runs/NAME of the source]")
@click.option("--fresh", is_flag=True, help="Start over if that run exists; else it goes on where it stopped.")
@options.output
def run(
    scenario: Path | None,
    clients: Path | None,
    label: str | None,
    drop: tuple[str, ...],
    C: str,
    out: Path | None,
    fresh: bool,
    as_json: bool,
    quiet: bool,
    **settings: Any,
) -> None:
    """All stages: who should train with whom, then train alone, with everyone and in coalitions.

    Clients come from a folder with one file per client (the file's name is the client's name), or from a scenario file.
    Every stage leaves its artefact in the run directory; an interrupted run goes on where it stopped.
    """
    options.parse_C(C)  # refused before anything is read
    measuring = options.take_measuring(settings)
    found, brought = options.find_clients(scenario, clients, label, drop)
    settings = with_defaults({"C": C, **settings}, brought) | ({"distance_options": measuring} if measuring else {})
    value = options.parse_C(settings.pop("C"))
    from fedcollab.report.terminal import show_run
    from fedcollab.runs.directory import RunDirectory

    federation = open_federation(found, settings, quiet=quiet or as_json)
    origin = (scenario or clients or Path()).resolve()
    out = out or Path("runs") / origin.stem
    asked = {"source": str(origin.name), "label": label, "drop": list(drop), "C": value, **settings}
    RunDirectory.open(out, asked, fresh=fresh)
    fitted, results = all_stages(federation, value, out, settings, quiet=quiet or as_json)
    page = write_report(out)
    if as_json:
        options.print_json(summary(fitted, results, page))
    else:
        show_run(fitted, results, page, next_command=f"fedcollab explain {out / 'collaboration.json'}")


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
@click.option(
    "-o", "--out", required=True, type=click.Path(path_type=Path), help="Where to write the distances (JSON)."
)
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
    check_target(out)
    measuring = options.take_measuring(settings)
    from fedcollab.distances import Distances, estimate_distances
    from fedcollab.distances.complete import complete
    from fedcollab.progress import bar
    from fedcollab.report.terminal import show_distances
    from fedcollab.wire import Runtime, connect

    with (
        options.open_source(scenario, clients, label, drop, on, journal=out.parent) as (found, brought),
        bar("distances", quiet=quiet or as_json) as progress,
    ):
        settings = with_defaults(settings, brought)
        known = Distances.load(out) if resume else None
        source = found if known is None else connect(found)
        if known is not None and isinstance(source, Runtime):
            adopt_schema(source, [out.parent])
            distances = complete(known, source, progress)
        else:
            distances = estimate_distances(
                source,
                method=settings["distance"],
                seed=settings["seed"],
                scale=settings["scale"],
                encoder=settings["encoder"],
                missing_indicators=settings["missing_indicators"],
                test_share=settings["test_share"],
                progress=progress,
                **measuring,
            )
        federation = found if isinstance(found, Runtime) and found.schema is not None else None
        if federation is not None:
            keep_schema(out.parent, federation)
        distances.save(out)
        if federation is not None:  # silos are asked again: whatever they answer, the distances are not lost
            begin_run(out.parent, federation, settings, resumed=resume)
    if as_json:
        options.print_json(options.read_json(out))
    else:
        show_distances(distances, next_command=f"fedcollab solve {out} --C auto")


@click.command(
    epilog="""\b
Examples:
  fedcollab train --clients hospitals/ --label outcome --coalitions collaboration.json -o trained/
  fedcollab train --on federation/ --coalitions runs/h/collaboration.json -o runs/h/training/coalitions"""
)
@options.source
@options.on
@click.option(
    "--coalitions",
    required=True,
    help="A collaboration file from `fedcollab solve`, or `local` or `global`.",
)
@options.training
@click.option("--test-share", default=0.2, show_default=True, help="Hold-out share of clients without a test split.")
@click.option("--seed", default=0, show_default=True, help="Everything random is derived from it.")
@click.option(
    "-o", "--out", required=True, type=click.Path(path_type=Path), help="Folder for result, metrics and models."
)
@options.output
def train(
    scenario: Path | None,
    clients: Path | None,
    label: str | None,
    drop: tuple[str, ...],
    on: Path | None,
    coalitions: str,
    out: Path,
    as_json: bool,
    quiet: bool,
    **settings: Any,
) -> None:
    """Train a federated algorithm inside each coalition; models are saved as safetensors."""
    from fedcollab.coalitions import Collaboration
    from fedcollab.federation.prepare import federate
    from fedcollab.progress import bar
    from fedcollab.report.terminal import show_training
    from fedcollab.training import train as run_training
    from fedcollab.wire import Runtime

    ends = ("local", "global")
    groups: Any = coalitions if coalitions in ends else Collaboration.load(coalitions).coalitions
    names = None if coalitions in ends else [str(name) for members in groups for name in members]
    with options.open_source(scenario, clients, label, drop, on, names, journal=out) as (found, brought):
        settings = with_defaults(settings, brought)
        shape = {key: settings.pop(key) for key in ("scale", "test_share")}
        if isinstance(found, Runtime):
            adopt_schema(found, [out.parent.parent, *[Path(coalitions).parent] * (names is not None)])
        federation = federate(found, **shape, seed=settings["seed"])
        with bar("training", quiet=quiet or as_json) as progress:
            result = run_training(federation, groups, run_dir=out, progress=progress, **settings)
    if as_json:
        options.print_json(options.read_json(out / "training.json"))
    else:
        show_training(result, out)


@click.command(epilog="Example:  fedcollab report runs/demo")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Where to write the page.  [default: in the run]")
@click.option("--figures", type=click.Path(path_type=Path), help="Folder for the pictures as PNG, SVG and PDF.")
@options.output
def report(directory: Path, out: Path | None, figures: Path | None, as_json: bool, quiet: bool) -> None:
    """One HTML file to open, question and forward, from a run directory at whatever stage it is."""
    page = write_report(directory, out)
    drawn = []
    if figures is not None:
        from fedcollab.report import write_figures

        drawn = list(write_figures(directory, figures))
    if as_json:
        options.print_json({"report": str(page), "figures": drawn})
    else:
        click.echo(f"Report:  {page}")
        if figures is not None:
            click.echo(f"Figures: {len(drawn)} files in {figures}")


def open_federation(clients: Iterable[ClientData], settings: dict[str, Any], *, quiet: bool = True) -> Runtime:
    """Everything that can be wrong with names and data is found out here, before anything is written."""
    from fedcollab.distances import METHODS
    from fedcollab.errors import choose, number
    from fedcollab.federation.prepare import federate
    from fedcollab.progress import bar
    from fedcollab.training import ALGORITHMS, MODELS

    choose("distance", settings["distance"], METHODS)
    choose("algorithm", settings["algorithm"], ALGORITHMS)
    choose("model", settings["model"], MODELS)
    number("lr", settings["lr"], above=0)
    for option in ("rounds", "batch_size", "local_epochs"):
        number(option, settings[option], at_least=1, whole=True)
    encoder = settings.get("encoder", "none")
    with bar("encoding", quiet=quiet or encoder == "none") as progress:
        return federate(
            clients,
            scale=settings["scale"],
            missing_indicators=settings["missing_indicators"],
            test_share=settings["test_share"],
            seed=settings["seed"],
            encoder=encoder,
            progress=progress,
        )


def begin_run(folder: Path, federation: Runtime, settings: dict[str, Any], *, resumed: bool) -> None:
    """Write down what was asked of a federation and what it agreed on, for later stages and for the report.

    Over silos a stage is a run of its own, so the folder is made stage by stage. What is resumed keeps the settings
    that it was begun with, as the distances do.
    """
    from fedcollab.federation.adopt import said
    from fedcollab.runs.directory import RunDirectory, command, now, versions

    keep_schema(folder, federation)
    store = RunDirectory(folder)
    begun = resumed and store.has("run.json")
    asked = {} if begun else {"settings": settings, "command": command(), "started": now(), "versions": versions()}
    store.write_config({**asked, "clients": said(federation)})


def keep_schema(folder: Path, federation: Runtime) -> None:
    """What the federation agreed on, and a list of who was absent."""
    from fedcollab.files import write_bytes

    assert federation.schema is not None
    federation.keep_journal(folder)
    write_bytes(folder / "schema.json", (federation.schema.to_json() + "\n").encode())


def adopt_schema(federation: Runtime, folders: list[Path]) -> None:
    """Go on with the schema that the distances were estimated with, where a run directory has it."""
    from fedcollab.federation.adopt import adopt, read_schema

    found = [folder / "schema.json" for folder in folders if (folder / "schema.json").is_file()]
    if found:
        adopt(federation, read_schema(found[0]))


def all_stages(
    federation: Runtime, C: float | str, out: Path, settings: dict[str, Any], *, quiet: bool
) -> tuple[Fitted, dict[str, TrainingResult]]:
    """Fit, then train alone, with everyone, and in the coalitions."""
    from fedcollab.runs.pipeline import WAYS, FedCollab

    keys = ("algorithm", "model", "rounds", "lr", "batch_size", "local_epochs")
    training = {key: settings[key] for key in keys}
    fitted = FedCollab(
        C=C,
        distance=settings["distance"],
        distance_options=settings.get("distance_options", {}),
        seed=settings["seed"],
        run_dir=out,
        quiet=quiet,
    ).fit(federation)
    results = {}
    for way in WAYS:
        plain = {**training, "algorithm": "fedavg"} if way == "local" else training
        results[way] = fitted.train(way=way, **plain)
    return fitted, results


def with_defaults(settings: dict[str, Any], brought: dict[str, Any]) -> dict[str, Any]:
    """Command-line settings over what a scenario brings, over the defaults."""
    context = click.get_current_context()
    merged = {"scale": brought.get("scale", "auto")}
    for key, value in settings.items():
        typed = context.get_parameter_source(key) == click.core.ParameterSource.COMMANDLINE
        merged[key] = value if typed else brought.get(key, value)
    return merged


def write_report(directory: Path, out: Path | None = None) -> Path:
    """The page of a run."""
    from fedcollab.report import write

    return write(directory, out)


def summary(fitted: Fitted, results: dict[str, TrainingResult], page: Path) -> dict[str, Any]:
    """The answer and what it gained, for programs."""
    from fedcollab import metrics

    local = results["local"].reported
    collaboration = fitted.collaboration
    return {
        "coalitions": collaboration.coalitions,
        "C": collaboration.C,
        "objective": collaboration.objective,
        "lower_bound": collaboration.lower_bound,
        "optimal": collaboration.optimal,
        "clients": list(fitted.distances.names),
        "results": {
            way: {
                "accuracy": result.reported,
                "mean_accuracy": float(result.reported.mean()),
                "ipr": None if way == "local" else metrics.ipr(result.reported, local),
                "rsd": None if way == "local" else metrics.rsd(result.reported, local),
            }
            for way, result in results.items()
        },
        "report": str(page),
    }
