"""Real federations as clients: tables with natural clients, in splits that benchmarks and studies share.

Of each federation at most 20 clients are taken, of each client 70 % of its rows for training (at most 400) and the rest
for testing (at most 1,000). The seed is the split. The four heart hospitals are a federation too. Nothing is planted:
each client is a type of its own, and the distances between them are unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcollab.data.client import ClientData
from fedcollab.errors import InputError, choose, number
from fedcollab.scenarios.data import place
from fedcollab.scenarios.data.federations import TABLES, find, read_table, tables_here
from fedcollab.scenarios.hospitals import heart_clients
from fedcollab.scenarios.scenario import Scenario
from fedcollab.seeds import generator

if TYPE_CHECKING:
    import pandas as pd

CLIENTS, TRAINING, TESTING, SHARE = 20, 400, 1000, 0.7
#: how the scenario is trained on: the defaults, and the advice decides
SETTINGS = {"model": "mlp", "C": "auto"}


@dataclass(frozen=True, eq=False)
class Tables:
    """The features and labels of a federation's clients, by name, and what the federation is called."""

    name: str
    clients: dict[str, tuple[pd.DataFrame, Any]]


def federation_names() -> list[str]:
    """Return the federations that are on this machine: the heart hospitals first, then by name.

    Returns
    -------
    list of str
        Names that `federation_clients` takes.

    Examples
    --------
    >>> federation_names()[:2]  # doctest: +SKIP
    ['heart', 'airlines']
    """
    hospitals = ["heart"] if place("heart") else []
    return [*hospitals, *(name for name in tables_here() if name != "heart")]


def read_federation(name: str) -> Tables:
    """Read the tables of a federation; an unknown name lists those there are.

    Parameters
    ----------
    name : str
        "heart", one of the declared federations, or a folder of your own in FEDCOLLAB_DATA/federations.

    Raises
    ------
    InputError
        If it is unknown, or not on this machine.
    """
    choose("dataset", name, dict.fromkeys(["heart", *TABLES, *tables_here()]))
    if name == "heart":
        return Tables(name, {client.name: (client.x, np.asarray(client.y)) for client in heart_clients(test=0.0)})
    read = {path.stem: read_table(path) for path in find(name)}
    return Tables(
        name, {client: (table.drop(columns="label"), table["label"].to_numpy()) for client, table in read.items()}
    )


def federation_clients(
    name: str,
    split: int = 0,
    *,
    clients: int = CLIENTS,
    quantity: int = TRAINING,
    test: int = TESTING,
    share: float = SHARE,
) -> list[ClientData]:
    """Return the clients of a real federation, with the training and test rows of one of its splits.

    Parameters
    ----------
    name : str
        "heart", one of the declared federations (`fedcollab data list`), or a folder of your own in
        FEDCOLLAB_DATA/federations.
    split : int
        Decides which rows are held out.
    clients : int
        Of more clients so many are drawn, the same in every split.
    quantity : int
        The most training rows of a client.
    test : int
        The most test rows of a client.
    share : float
        Share of a client's rows for training.

    Returns
    -------
    list of ClientData
        The clients, each with a test split.

    Raises
    ------
    InputError
        If the federation is unknown or not on this machine, or a number is out of range.

    Examples
    --------
    >>> clients = federation_clients("loans_states", split=1)  # doctest: +SKIP
    """
    return _deal(read_federation(name), split, clients=clients, quantity=quantity, test=test, share=share)


def federation(
    data: Any,
    *,
    seed: int = 0,
    iid: bool = False,
    clients: int = CLIENTS,
    quantity: int = TRAINING,
    test: int = TESTING,
    share: float = SHARE,
) -> Scenario:
    """Make the scenario `federation`: a real federation, with the split that the seed names.

    Parameters
    ----------
    data : Tables
        What `read_federation` returns.
    seed : int
        The split.
    iid : bool
        Must be False: the rows are the clients' own.
    clients, quantity, test, share
        As in `federation_clients`.
    """
    if not isinstance(data, Tables):
        raise InputError(f"`dataset` must be one of: heart, {', '.join(TABLES)} in the scenario federation")
    if iid:
        raise InputError("`iid` (=True) must be false in the scenario federation: its rows are the clients' own")
    made = tuple(_deal(data, seed, clients=clients, quantity=quantity, test=test, share=share))
    classes = len({label for client in made for label in np.unique(np.asarray(client.y))})
    settings = {**SETTINGS, "dataset": data.name, "classes": classes}
    return Scenario("federation", made, tuple(range(len(made))), None, settings, seed)


def _deal(data: Tables, split: int, *, clients: int, quantity: int, test: int, share: float) -> list[ClientData]:
    """Draw the clients of a federation and part each one's rows."""
    most = int(number("clients", clients, at_least=1, whole=True))
    rows = int(number("quantity", quantity, at_least=2, whole=True))
    held = int(number("test", test, at_least=0, whole=True))
    part = number("share", share, above=0, at_most=1)
    names = list(data.clients)
    if len(names) > most:
        chosen = generator(0, "clients", data.name).choice(len(names), most, replace=False)
        names = [names[position] for position in sorted(chosen)]
    return [_split(name, *data.clients[name], split, rows, held, part) for name in names]


def _split(name: str, x: pd.DataFrame, y: Any, split: int, quantity: int, test: int, share: float) -> ClientData:
    """Part the rows of one client into training and test rows."""
    order = generator(split, "split", name).permutation(len(y))
    count = min(round(share * len(y)), quantity)
    train, held = order[:count], order[count : count + test]
    own = (x.iloc[train].reset_index(drop=True), y[train])
    return ClientData(name, *own, *((x.iloc[held].reset_index(drop=True), y[held]) if len(held) else ()))
