"""Real federations: four hospitals, and tables with natural clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedcollab.data import ClientData
from fedcollab.files import own_folder
from fedcollab.scenarios.hospitals import heart_clients

Tables = dict[str, pd.DataFrame]


def federation_tables(name: str) -> Tables:
    """The tables of one of the real federations, by client, with the text column `label`."""
    folder = own_folder()
    assert folder is not None
    return {
        path.stem: pd.read_csv(path, dtype={"label": str}, keep_default_na=False, na_values=[""])
        for path in sorted((folder / "federations" / name).glob("*.csv"))
    }


def heart_tables() -> Tables:
    """The four hospitals as tables with the text column `label`."""
    tables = {}
    for client in heart_clients(test=0.0):
        tables[client.name] = client.x.assign(label=np.where(client.y > 0, "yes", "no"))
    return tables


def as_clients(tables: Tables) -> list[ClientData]:
    return [ClientData(name, table.drop(columns="label"), table["label"]) for name, table in tables.items()]


def write_tables(tables: Tables, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv", index=False)
    return folder


@pytest.fixture
def heart() -> Any:
    return heart_tables()
