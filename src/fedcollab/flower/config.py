"""A silo's own config, written by its administrator; nothing of it but the name ever leaves.

    name = "north"            the stable name under which the coordinator admits the silo
    data = "patients.csv"     CSV, Parquet or NPZ, relative to this file
    label = "outcome"         the label column

and where the defaults do not fit: `test` (a test split of its own), `drop` (columns to leave out), `invitation` (what
the coordinator sent; default invitation.toml), `key` (default NAME.key), `state` (a folder; default state), `device`.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcollab.data.client import ClientData
from fedcollab.errors import InputError, unknown

if TYPE_CHECKING:
    from fedcollab.training.trained import TrainedModel

CONFIG = "FEDCOLLAB_SILO"
SIMULATION = "FEDCOLLAB_SIMULATION"


@dataclass(frozen=True)
class SiloConfig:
    """One silo, with absolute paths."""

    name: str
    data: Path
    label: str | None
    invitation: Path
    key: Path
    state: Path
    test: Path | None = None
    drop: tuple[str, ...] = ()
    device: str = "cpu"
    more: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str | Path) -> SiloConfig:
        """Read a config file; what is wrong with it is one clear line."""
        path = Path(path).absolute()
        content = read_toml(path, "silo config")
        optional = {"label", "test", "drop", "invitation", "key", "state", "device"}
        for key in ("name", "data"):
            if not isinstance(content.get(key), str) or not content[key].strip():
                raise InputError(f'`{path}` must have a line {key} = "..."')
        for key, value in content.items():
            if key not in {"name", "data"} | optional and not isinstance(value, dict):
                raise InputError(unknown(f"{path.name}: setting", key, {"name", "data"} | optional))
        here, name = path.parent, content["name"]

        def beside(key: str, default: str) -> Path:
            return here / Path(content.get(key, default)).expanduser()

        return cls(
            name=name,
            data=beside("data", ""),
            label=content.get("label"),
            invitation=beside("invitation", "invitation.toml"),
            key=beside("key", f"{name}.key"),
            state=beside("state", "state"),
            test=beside("test", "") if "test" in content else None,
            drop=tuple(content.get("drop", ())),
            device=content.get("device", "cpu"),
            more={key: value for key, value in content.items() if isinstance(value, dict)},
        )

    def read_data(self) -> ClientData:
        """The silo's samples. What is wrong with them is for its own log: paths and values must not leave."""
        try:
            return self.check_data()
        except InputError as error:
            print(f"fedcollab: {error}", file=sys.stderr)
            raise InputError("its data cannot be read; the silo's log says why") from None

    def check_data(self) -> ClientData:
        """The same with the whole story, for the administrator."""
        from fedcollab.data.read import read_client

        return replace(read_client(self.data, self.label, self.test, self.drop), name=self.name)


def own_data() -> ClientData:
    """In a ClientApp at a silo that `fedcollab silo start` runs: its samples."""
    if CONFIG not in os.environ:
        raise InputError("this process is not at a silo; `fedcollab silo start` makes one")
    return SiloConfig.read(os.environ[CONFIG]).read_data()


def own_model(path: str | Path = "silo.toml") -> TrainedModel:
    """The model that the last training left at a silo, its personal one or its coalition's; it takes raw samples."""
    import torch

    from fedcollab.federation.prepare import Schema
    from fedcollab.flower.shelf import Shelf
    from fedcollab.training.models import Network
    from fedcollab.training.trained import TrainedModel

    config = SiloConfig.read(path)
    shelf = Shelf(config.state)
    if "model" not in shelf:
        raise InputError(f"silo `{config.name}` has no model yet; the coordinator has not trained")
    network = Network(shelf["model"]["model"])
    weights = torch.from_numpy(shelf["model"]["w"])
    return TrainedModel(network.point(weights).eval(), Schema.from_json(shelf["prepare"]["schema"]))


def simulated(node_config: Mapping[str, Any]) -> SiloConfig | None:
    """In a simulation: the silo that this node plays."""
    folder = os.environ.get(SIMULATION)
    if folder is None or "partition-id" not in node_config:
        return None
    return SiloConfig.read(Path(folder) / str(node_config["partition-id"]) / "silo.toml")


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """A TOML file, or one clear line."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"`{path}` does not exist; expected a {what}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"`{path}` cannot be read as a {what}: {error}") from None
