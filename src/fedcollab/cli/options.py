"""Options that several commands share, and where their clients come from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fedcollab import advice as advice_of
from fedcollab import coalitions, data, flower, runs, scenarios
from fedcollab import distances as distances_of
from fedcollab import files as artefact
from fedcollab.cli.names import (
    ALGORITHMS,
    DISTANCES,
    ENCODERS,
    LABEL_COUNTS,
    MODELS,
    OPTIMIZERS,
    SECURE,
    STOPPING,
    Name,
)
from fedcollab.data.own import read_columns, read_label_map
from fedcollab.errors import InputError, number
from fedcollab.scenarios.file import check_settings
from fedcollab.training import defaults

if TYPE_CHECKING:
    from fedcollab.coalitions import Collaboration
    from fedcollab.data import ClientData, OwnData
    from fedcollab.distances import Distances
    from fedcollab.runs import Run
    from fedcollab.wire import Runtime

F = TypeVar("F", bound=Callable[..., Any])

#: how the data check calls the labels
LABEL = "label"
#: settings of an own-data file beside those of a scenario file
PREPARING = ("distance", "missing_indicators", "seed", "test_share")


def several(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    """Return one decorator for several, applied so that the help lists them in this order."""

    def apply(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply


def with_later_commands(later: Mapping[str, str]) -> type[click.Group]:
    """Return a class of click groups with more commands, imported from other files when they are used.

    Parameters
    ----------
    later : mapping
        The commands: name to "module:attribute".
    """

    class Later(click.Group):
        """A group with the commands of `later` after its own."""

        def list_commands(self, ctx: click.Context) -> list[str]:
            """Return the names of all commands, the later ones last."""
            return [*super().list_commands(ctx), *later]

        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            """Import the command of this name; return None if there is none."""
            if cmd_name not in later:
                return super().get_command(ctx, cmd_name)
            module, attribute = later[cmd_name].split(":")
            command: click.Command = getattr(import_module(module), attribute)
            return command

    return Later


output = several(
    click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output, for programs."),
    click.option("--quiet", is_flag=True, help="No progress bars."),
)

source = several(
    click.argument("scenario", required=False, type=click.Path(path_type=Path)),
    click.option(
        "--clients", type=click.Path(path_type=Path), help="Folder with one CSV, Parquet or NPZ file per client."
    ),
    click.option("--label", help="The label column of CSV and Parquet files."),
    click.option(
        "--drop", multiple=True, metavar="COLUMN", help="A column to leave out (identifiers, dates); repeatable."
    ),
    click.option("--columns", metavar="common|FILE", help="Columns to read: those that all have, or a file's lines."),
    click.option(
        "--label-map", type=click.Path(path_type=Path), metavar="FILE", help="Labels to read as others: lines `ja,yes`."
    ),
    click.option("--merge-labels", is_flag=True, help="Labels that differ by case, blanks or number format are one."),
    click.option(
        "--id", "id_column", metavar="COLUMN", help="Rows that share its value stay together in splits; no feature."
    ),
    click.option(
        "--trust", multiple=True, metavar="COLUMN", help="A column (`label`: the labels) that the data check may trust."
    ),
)

on = several(
    click.option(
        "--on",
        metavar="FOLDER",
        type=click.Path(path_type=Path),
        help="Work on the silos of this federation (see `fedcollab federation`) instead.",
    ),
)

estimation = several(
    click.option(
        "--distance",
        type=Name(DISTANCES),
        default="auto",
        show_default=True,
        help="How to estimate distances.",
    ),
    click.option(
        "--encoder",
        type=Name(ENCODERS, open_ended=True),
        default="none",
        show_default=True,
        help="Frozen encoder through which images are compared; with options as efficientnet-lite0:block=10,size=64.",
    ),
    click.option("--missing-indicators", is_flag=True, help="Let missingness itself be a feature of tables."),
    click.option(
        "--test-share", default=0.2, show_default=True, help="Hold-out share of clients without a test split."
    ),
    click.option("--seed", default=0, show_default=True, help="Everything random is derived from it."),
)

measuring = several(
    click.option(
        "--privacy-epsilon",
        type=float,
        help="Differential privacy of the distances: what each client may spend (needs --distance few-round).",
    ),
    click.option("--privacy-delta", type=float, help="The delta of that epsilon.  [default: 1e-5]"),
    click.option(
        "--min-samples",
        type=int,
        help="Samples that a number leaving a client is made of, at the least; clients may insist on more.",
    ),
    click.option(
        "--label-counts",
        type=Name(LABEL_COUNTS, open_ended=True),
        help="How clients got their label counts: drawn (by chance) or set (dealt out exactly).  [default: auto]",
    ),
)

#: what is trained and how clients take their steps, whatever the algorithm
how_to_train = several(
    click.option("--model", type=Name(MODELS), default=defaults.MODEL, show_default=True, help="What is trained."),
    click.option(
        "--model-option", multiple=True, metavar="KEY=VALUE", help="A setting of it, such as widths=[64]; repeatable."
    ),
    click.option("--rounds", default=defaults.ROUNDS, show_default=True, help="Communication rounds, at most."),
    click.option("--lr", default=defaults.LR, show_default=True, help="Step size of local SGD."),
    click.option("--batch-size", default=defaults.BATCH_SIZE, show_default=True, help="Batch size of local SGD."),
    click.option("--local-epochs", default=defaults.LOCAL_EPOCHS, show_default=True, help="Local epochs a round."),
    click.option(
        "--optimizer",
        type=Name(OPTIMIZERS),
        default=defaults.OPTIMIZER,
        show_default=True,
        help="What takes the local steps.",
    ),
    click.option(
        "--weight-decay", default=defaults.WEIGHT_DECAY, show_default=True, help="By how much weights shrink a step."
    ),
)

training = several(
    click.option(
        "--algorithm",
        type=Name(ALGORITHMS),
        help="The federated algorithm.  [default: as advised; fedavg for a given C or given coalitions]",
    ),
    click.option(
        "--algorithm-option",
        multiple=True,
        metavar="KEY=VALUE",
        help="A setting of it, such as mu=0.1; repeatable.",
    ),
    how_to_train,
    click.option("--keep", multiple=True, metavar="LAYER", help="A layer that stays with each client; repeatable."),
    click.option(
        "--averaging",
        type=float,
        help="Use a mean over rounds as the model, this far back; 0: the last round's.  [default: what is better on "
        "the held-out rows]",
    ),
    click.option(
        "--stopping",
        type=Name(STOPPING),
        default=defaults.STOPPING,
        show_default=True,
        help="Choose the rounds on training rows that a model has not seen, or train all rounds.",
    ),
    click.option(
        "--secure-aggregation",
        type=Name(SECURE),
        default="none",
        show_default=True,
        help="Clients send updates under masks that cancel in the sum: without members that drop out, or of everyone.",
    ),
)

constraints = several(
    click.option("--must-link", multiple=True, metavar="A,B", help="Clients that must train together; repeatable."),
    click.option("--cannot-link", multiple=True, metavar="A,B", help="Clients that may not; repeatable."),
    click.option("--min-size", default=1, show_default=True, help="Fewest clients of a coalition."),
    click.option("--max-size", type=int, help="Most clients of a coalition."),
)


def out(text: str, **settings: Any) -> Callable[[F], F]:
    """Return the option that says where a command writes, spelt `-o` or `--out` in all of them.

    Parameters
    ----------
    text : str
        What is written there, for the help.
    **settings
        Further settings of `click.option`.
    """
    return click.option("-o", "--out", **{"type": click.Path(path_type=Path), "help": text, **settings})


def take_constraints(settings: dict[str, Any], *, named: bool = True) -> dict[str, Any]:
    """Remove the options of `constraints` from the settings, and return them as options of `solve`.

    Parameters
    ----------
    settings : dict
        The options of a command.
    named : bool
        Whether the clients have names; else they are called by position.
    """
    taken = {key: settings.pop(key) for key in ("must_link", "cannot_link", "min_size", "max_size")}
    for key in ("must_link", "cannot_link"):
        groups = [[part.strip() for part in text.split(",")] for text in taken[key]]
        taken[key] = [[int(part) if not named and part.isdigit() else part for part in group] for group in groups]
    return taken


def take_pairs(settings: dict[str, Any], option: str) -> dict[str, Any]:
    """Remove an option of KEY=VALUE pairs from the settings, and return its values by key.

    Parameters
    ----------
    settings : dict
        The options of a command.
    option : str
        The option's name there.

    Returns
    -------
    dict
        Numbers, lists, true and false as such; everything else as text.

    Raises
    ------
    InputError
        If there is no `=`.

    Examples
    --------
    >>> take_pairs({"model_option": ("widths=[64, 32]", "kind=small")}, "model_option")
    {'widths': [64, 32], 'kind': 'small'}
    """
    taken = {}
    for text in settings.pop(option):
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise InputError(f"`--{option.replace('_', '-')}` (={text!r}) must be KEY=VALUE, such as mu=0.1")
        try:
            taken[key.strip()] = json.loads(value)
        except ValueError:
            taken[key.strip()] = value.strip()
    return taken


READING = ("columns", "label_map", "merge_labels", "id_column", "trust")


def take_reading(settings: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of `source` about how files are read from the settings, and return those that were given."""
    taken = {key: settings.pop(key) for key in READING}
    given = {key: value for key, value in taken.items() if value not in (None, (), False)}
    if "columns" in given:
        given["columns"] = read_columns(given["columns"])
    if "label_map" in given:
        given["label_map"] = read_label_map(given["label_map"])
    return given


def find_clients(
    scenario: Path | None,
    clients: Path | None,
    label: str | None,
    drop: tuple[str, ...],
    how: Mapping[str, Any] | None = None,
    *,
    strict: bool = True,
) -> tuple[list[ClientData], dict[str, Any]]:
    """Return the clients of a scenario file, of an own-data file or of a folder, and the settings that they bring.

    Parameters
    ----------
    scenario : Path or None
        The scenario file or own-data file, or
    clients : Path or None
        the folder with one file per client; exactly one of the two.
    label : str or None
        The label column of the folder's tables.
    drop : tuple of str
        Columns to leave out.
    how : mapping, optional
        What `take_reading` returned.
    strict : bool
        Whether files that cannot be used are an error; else they are listed under "unreadable".

    Returns
    -------
    clients : list of ClientData
        The clients.
    brought : dict
        Settings of a scenario; for own data "reading" (how files were read, for the run's record), "trust" and
        "unreadable" as well.

    Raises
    ------
    InputError
        If none or both are given, or the scenario does not exist.
    """
    if (scenario is None) == (clients is None):
        raise InputError("give either a SCENARIO.toml or --clients FOLDER (with --label COLUMN)")
    how = how or {}
    if clients is not None:
        trust = tuple(LABEL if name == label else name for name in how.get("trust", ()))
        reading = data.Reading(label, drop, **{key: value for key, value in how.items() if key != "trust"})
        return _read_own(data.OwnData(clients, reading, trust), strict)
    name, _, dataset = str(scenario).partition(":")
    if scenario is not None and name in scenarios.SCENARIOS and not scenario.exists():
        if label or drop or how:
            raise InputError(
                "--label, --drop, --columns, --label-map, --merge-labels, --id and --trust are for your own files"
            )
        made = scenarios.make(name, dataset=dataset or None)
        return list(made.clients), {**made.settings, "scale": made.scale}
    if scenario is None or not scenario.is_file():
        raise InputError(
            f"`SCENARIO` (={str(scenario)!r}) does not exist; expected a TOML file, or a scenario's name such as "
            "federation:loans_states"
        )
    own = data.load_own(scenario)
    if own is not None:
        if label or drop or how:
            raise InputError(f"`{scenario}` says how files are read; give label, columns and the like there")
        return _read_own(own, strict)
    if how:
        raise InputError("--columns, --label-map, --merge-labels, --id and --trust are for your own files")
    made = scenarios.load(scenario)
    return list(made.clients), {**made.settings, "scale": made.scale}


def _read_own(own: OwnData, strict: bool) -> tuple[list[ClientData], dict[str, Any]]:
    """Read one's own files; all that cannot be used are told at once."""
    folder = data.read_folder(own.clients, own.reading, strict=False)
    if strict and folder.unreadable:
        raise InputError(folder.refusal)
    reading = folder.reading
    used = {"label": reading.label, "drop": list(reading.drop), "columns": reading.columns, "id": reading.id_column}
    used["label_map"] = dict(reading.label_map)
    record = {key: value for key, value in used.items() if value or key in ("label", "drop")}
    brought = {"reading": record, "trust": own.trust, "unreadable": folder.unreadable, "own": own}
    return folder.clients, {**brought, **check_own_settings(own.settings)}


def check_own_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the [settings] of an own-data file, checked: those of a scenario file, and how clients are prepared."""
    mine = {key: value for key, value in settings.items() if key in PREPARING}
    if not isinstance(mine.get("missing_indicators", False), bool):
        raise InputError(f"`missing_indicators` (={mine['missing_indicators']!r}) must be true or false")
    if not isinstance(mine.get("distance", ""), str):
        raise InputError(f"`distance` (={mine['distance']!r}) must be a name")
    if "seed" in mine:
        mine["seed"] = int(number("seed", mine["seed"], at_least=0, whole=True))
    if "test_share" in mine:
        mine["test_share"] = number("test_share", mine["test_share"], above=0, at_most=0.9)
    return mine | check_settings({key: value for key, value in settings.items() if key not in PREPARING})


@contextmanager
def open_source(
    scenario: Path | None,
    clients: Path | None,
    label: str | None,
    drop: tuple[str, ...],
    on: Path | None,
    names: list[str] | None = None,
    journal: Path | None = None,
    how: Mapping[str, Any] | None = None,
    *,
    strict: bool = True,
) -> Iterator[tuple[list[ClientData] | Runtime, dict[str, Any]]]:
    """Yield the clients of a scenario, of a folder or of a running federation, and the settings that they bring.

    Parameters
    ----------
    scenario, clients, label, drop
        As in `find_clients`.
    on : Path or None
        The folder of a federation, instead of these.
    names : list of str, optional
        The silos of the federation to work with; without it, all that are admitted.
    journal : Path, optional
        The folder in which a federation records who was absent, from the very beginning.
    how, strict
        As in `find_clients`.

    Raises
    ------
    InputError
        If both a federation and clients are given, or Flower is not installed.
    """
    if on is None:
        yield find_clients(scenario, clients, label, drop, how, strict=strict)
        return
    given = dict(how or {})
    trust = given.pop("trust", ())
    if any((scenario, clients, label, drop, given)):
        raise InputError("give either --on FOLDER or clients; with --on, data, label and columns are each silo's own")
    if find_spec("flwr") is None:
        raise InputError("`--on` needs Flower: pip install 'fedcollab[flower]'")
    with flower.connect_federation(on, names=names, journal=journal) as runtime:
        yield runtime, {"trust": trust}


def open_distances(path: Path) -> Distances:
    """Return the distances of a file or of a run directory."""
    return runs.Run.open(path).distances() if path.is_dir() else distances_of.Distances.load(path)


def open_collaboration(path: Path) -> Collaboration:
    """Return the coalitions of a file, or those of a run directory if they were made of the distances there.

    Parameters
    ----------
    path : Path
        The file or the run directory.

    Raises
    ------
    InputError
        If there is none, or the distances of the run are newer.
    """
    if not path.exists():
        raise InputError(f"`{path}` does not exist; expected a run directory, or a file of `fedcollab solve`")
    if not path.is_dir():
        return coalitions.Collaboration.load(path)
    found = runs.Run.open(path, "collaboration.json").collaboration()
    assert found is not None
    return found


def open_coalitions(path: Path) -> Any:
    """Return what a training is to follow: the advice of a file or a run directory, else its coalitions as lists.

    Parameters
    ----------
    path : Path
        The file or the run directory.

    Raises
    ------
    InputError
        If there is neither, or the distances of the run are newer.
    """
    if path.is_dir():
        advice = runs.Run.open(path).advice()
        return open_collaboration(path).coalitions if advice is None else advice
    if path.name == "advice.json":
        return advice_of.Advice.load(path)
    return open_collaboration(path).coalitions


def take_measuring(settings: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of `measuring` from the settings, and return them as options of `estimate_distances`."""
    epsilon, delta = settings.pop("privacy_epsilon"), settings.pop("privacy_delta")
    if delta is not None and epsilon is None:
        raise InputError(f"`--privacy-delta` (={delta}) goes with --privacy-epsilon, which was not given")
    given = {key: settings.pop(key) for key in ("min_samples", "label_counts")}
    taken: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if epsilon is not None:
        taken["privacy"] = {"epsilon": epsilon, **({} if delta is None else {"delta": delta})}
    return taken


def print_json(content: Any) -> None:
    """Print a value as JSON on standard output."""
    click.echo(artefact.dumps(content))


def hold(run: Run) -> None:
    """Keep other processes from changing a run until this command ends; see `Run.working`."""
    click.get_current_context().with_resource(run.working())


def read_json(path: Path) -> Any:
    """Return the content of a JSON file, whatever kind of artefact it is."""
    return json.loads(path.read_text())
