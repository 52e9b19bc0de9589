"""Four hospitals as clients: heart disease in Cleveland, Hungary, Switzerland and the VA of Long Beach.

Real clients, so that nothing is planted: each hospital is a type of its own and the distances between them are unknown.
Outside Cleveland `slope`, `ca` and `thal` are almost wholly missing, so that missingness alone tells the hospitals
apart; they are left out unless all features are asked for. A cholesterol or blood pressure of 0 is no measurement and
becomes missing (all of Switzerland's cholesterol, 49 of the VA's). The target is any disease found: num > 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.data.client import ClientData
from fedcollab.errors import InputError, number, unknown
from fedcollab.scenarios.data import arrays
from fedcollab.scenarios.data.heart import COLUMNS
from fedcollab.scenarios.scenario import Scenario
from fedcollab.seeds import generator

if TYPE_CHECKING:
    import pandas as pd

SPARSE = ("slope", "ca", "thal")  # almost wholly missing outside Cleveland
CATEGORIES = ("cp", "restecg", "slope", "thal")  # codes without an order; the rest are numbers or yes (1) and no (0)
NEVER_ZERO = ("trestbps", "chol")
FEATURES = ("usable", "all")

SETTINGS = {
    "model": "logistic",
    "lr": 0.1,
    "rounds": 100,
    "batch_size": 32,
    "local_epochs": 1,
    "C": "auto",
    "discriminator_lr": 0.01,
}


def heart_clients(*, seed: int = 0, test: float = 0.2, features: str = "usable") -> tuple[ClientData, ...]:
    """Return the four hospitals (cleveland, hungarian, switzerland, va) as tables with missing values.

    Parameters
    ----------
    seed : int
        Decides which patients are held out.
    test : float
        Share held out for testing, stratified by label; 0 for none.
    features : {"usable", "all"}
        The 10 features that all hospitals measured, or all 13.

    Returns
    -------
    tuple of ClientData

    Raises
    ------
    InputError
        If the data set is not on this machine.

    Examples
    --------
    >>> [client.name for client in heart_clients()]  # doctest: +SKIP
    ['cleveland', 'hungarian', 'switzerland', 'va']
    """
    return hospitals(tables("heart"), seed=seed, test=test, features=features).clients


def tables(dataset: str) -> dict[str, NDArray[np.float64]]:
    """Load the hospitals' arrays; there is no other data set for this scenario."""
    if dataset != "heart":
        raise InputError(f"`dataset` (={dataset!r}) must be 'heart' in the scenario heart")
    return arrays("heart")


def hospitals(data: Any, *, seed: int = 0, iid: bool = False, test: float = 0.2, features: str = "usable") -> Scenario:
    """Make the scenario `heart`: the four hospitals, with a test split drawn by the seed.

    Parameters
    ----------
    data : dict of arrays
        What `tables` loads.
    seed : int
        Decides which patients are held out.
    iid : bool
        Must be False: the labels are the patients' own.
    test : float
        Share held out for testing, stratified by label; 0 for none.
    features : {"usable", "all"}
        The 10 features that all hospitals measured, or all 13.
    """
    if not isinstance(data, dict):
        raise InputError("`dataset` must be 'heart' in the scenario heart")
    if iid:
        raise InputError("`iid` (=True) must be false in the scenario heart: its labels are the patients' own")
    share = number("test", test, at_least=0, at_most=0.9)
    if features not in FEATURES:
        raise InputError(unknown("features", features, FEATURES))
    clients = tuple(
        _client(name, frame(rows, features), (rows[:, -1] > 0).astype(np.int64), share, seed)
        for name, rows in data.items()
    )
    settings = {**SETTINGS, "dataset": "heart", "classes": 2}
    return Scenario("heart", clients, tuple(range(len(clients))), None, settings, seed)


def frame(rows: NDArray[np.float64], features: str) -> pd.DataFrame:
    """Return one hospital's features: codes as text, the rest as numbers, missing where nothing was measured."""
    import pandas as pd

    table = pd.DataFrame(rows[:, :-1], columns=list(COLUMNS[:-1]))
    for column in NEVER_ZERO:
        table[column] = table[column].mask(table[column] == 0)
    if features == "usable":
        table = table.drop(columns=list(SPARSE))
    for column in set(CATEGORIES) & set(table.columns):
        codes = [None if np.isnan(value) else str(int(value)) for value in table[column]]
        table[column] = pd.Series(codes, dtype=object)
    return table


def _client(name: str, table: pd.DataFrame, y: NDArray[np.int64], share: float, seed: int) -> ClientData:
    """Hold out a `share` of each label's rows of `table` and `y` for testing, drawn from the `seed` and the `name`."""
    held = np.zeros(len(y), dtype=bool)
    for label in (0, 1):
        own = generator(seed, "scenario", "heart", name, label).permutation(np.flatnonzero(y == label))
        held[own[: round(share * len(own))]] = True
    if not held.any():
        return ClientData(name, table, y)
    return ClientData(name, table[~held], y[~held], table[held], y[held])
