"""Where the clients of a command come from: a scenario, one's own files, or the silos of a federation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcollab import data, federation, flower, scenarios
from fedcollab.data.own import read_columns, read_label_map
from fedcollab.errors import InputError, number
from fedcollab.scenarios.file import check_settings

if TYPE_CHECKING:
    from fedcollab.data import ClientData, OwnData
    from fedcollab.federation import Federation
    from fedcollab.wire import Runtime

#: how the data check calls the labels
LABEL = "label"
#: the options of `options.source` that say where clients are, and those that say how else files are read
OWN = ("scenario", "clients", "label", "drop", "trust")
READING = ("columns", "label_map", "merge_labels", "id_column")
#: settings of an own-data file beside those of a scenario file
PREPARING = ("distance", "missing_indicators", "seed", "task", "test_share")


@dataclass(frozen=True)
class Source:
    """What was typed about where the clients are: the options of `options.source`.

    Parameters
    ----------
    scenario : Path or None
        The scenario file or own-data file, or
    clients : Path or None
        the folder with one file per client.
    label : str or None
        The label column of the folder's tables.
    drop : tuple of str
        Columns to leave out.
    how : mapping
        How else files are read, as `data.Reading` takes it; empty where nothing was typed.
    trust : tuple of str
        Columns that the data check may not object to.
    """

    scenario: Path | None = None
    clients: Path | None = None
    label: str | None = None
    drop: tuple[str, ...] = ()
    how: Mapping[str, Any] = field(default_factory=dict)
    trust: tuple[str, ...] = ()

    @classmethod
    def take(cls, settings: dict[str, Any]) -> Source:
        """Remove the options of `options.source` from the settings of a command, and return them."""
        own, others = ({key: settings.pop(key) for key in keys} for keys in (OWN, READING))
        how = {key: value for key, value in others.items() if value not in (None, (), False)}
        if "columns" in how:
            how["columns"] = read_columns(how["columns"])
        if "label_map" in how:
            how["label_map"] = read_label_map(how["label_map"])
        return cls(**own, how=how)


def find_clients(source: Source, *, strict: bool = True) -> tuple[list[ClientData], dict[str, Any]]:
    """Return the clients of a scenario file, of an own-data file or of a folder, and the settings that they bring.

    Parameters
    ----------
    source : Source
        What was typed.
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
        If none or both of scenario and folder are given, or the scenario does not exist.
    """
    scenario, label = source.scenario, source.label
    if (scenario is None) == (source.clients is None):
        raise InputError("give either a SCENARIO.toml or --clients FOLDER (with --label COLUMN)")
    if source.clients is not None:
        trust = tuple(LABEL if name == label else name for name in source.trust)
        return _read_own(data.OwnData(source.clients, data.Reading(label, source.drop, **source.how), trust), strict)
    typed = source.how or source.trust
    name, _, dataset = str(scenario).partition(":")
    if scenario is not None and name in scenarios.SCENARIOS and not scenario.exists():
        if label or source.drop or typed:
            raise InputError(
                "--label, --drop, --columns, --label-map, --merge-labels, --id and --trust are for your own files"
            )
        made = scenarios.make(name, dataset=dataset or None)
        return list(made.clients), {**made.settings, "scale": made.scale}
    if scenario is not None and scenario.is_dir():
        raise InputError(f"`SCENARIO` (={str(scenario)!r}) is a folder; give it as --clients, with --label COLUMN")
    if scenario is None or not scenario.is_file():
        raise InputError(
            f"`SCENARIO` (={str(scenario)!r}) does not exist; expected a TOML file, or a scenario's name such as "
            "federation:loans_states"
        )
    own = data.load_own(scenario)
    if own is not None:
        if label or source.drop or typed:
            raise InputError(f"`{scenario}` says how files are read; give label, columns and the like there")
        return _read_own(own, strict)
    if typed:
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
    for key in ("distance", "task"):
        if not isinstance(mine.get(key, ""), str):
            raise InputError(f"`{key}` (={mine[key]!r}) must be a name")
    if "seed" in mine:
        mine["seed"] = int(number("seed", mine["seed"], at_least=0, whole=True))
    if "test_share" in mine:
        mine["test_share"] = number("test_share", mine["test_share"], above=0, at_most=0.9)
    return mine | check_settings({key: value for key, value in settings.items() if key not in PREPARING})


@contextmanager
def open_source(
    source: Source,
    on: Path | None,
    names: list[str] | None = None,
    journal: Path | None = None,
    *,
    strict: bool = True,
) -> Iterator[tuple[list[ClientData] | Runtime, dict[str, Any]]]:
    """Yield the clients of a scenario, of a folder or of a running federation, and the settings that they bring.

    Parameters
    ----------
    source : Source
        What was typed.
    on : Path or None
        The folder of a federation, instead.
    names : list of str, optional
        The silos of the federation to work with; without it, all that are admitted.
    journal : Path, optional
        The folder in which a federation records who was absent, from the very beginning.
    strict : bool
        As in `find_clients`.

    Raises
    ------
    InputError
        If both a federation and clients are given, or Flower is not installed.
    """
    if on is None:
        yield find_clients(source, strict=strict)
        return
    if any((source.scenario, source.clients, source.label, source.drop, source.how)):
        raise InputError("give either --on FOLDER or clients; with --on, data, label and columns are each silo's own")
    if find_spec("flwr") is None:
        raise InputError("`--on` needs Flower: pip install 'fedcollab[flower]'")
    with flower.connect_federation(on, names=names, journal=journal) as runtime:
        yield runtime, {"trust": source.trust}


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
