"""A silo's own config, written by its administrator; nothing of it but the name ever leaves.

    name = "north"            the stable name under which the coordinator admits the silo
    data = "patients.csv"     CSV, Parquet or NPZ, relative to this file
    label = "outcome"         the label column

and where the defaults do not fit: `test` (a test split of its own), `drop` (columns to leave out), `columns` (those to
read, in this order), `label_map` (labels to read as others), `id` (rows that share this column stay together in every
split; it is no feature), `invitation` (what the coordinator sent; default invitation.toml), `key` (default NAME.key),
`state` (a folder; default state), `device`, and the tables `[limits]` (see `wire.limits`) and `[app]` (see `pin`).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from fedcollab.data.client import ClientData
from fedcollab.data.read import read_client
from fedcollab.errors import InputError, choose
from fedcollab.flower import keys
from fedcollab.flower.toml import make_struct, read_toml
from fedcollab.wire.limits import PRESETS

CONFIG = "FEDCOLLAB_SILO"  # the environment variable with the path of silo.toml
SIMULATION = "FEDCOLLAB_SIMULATION"  # in a simulation: that with the folder of all silos
OLD_LIMITS = "floors"  # what the table [limits] was called


class AppTable(Struct, frozen=True, forbid_unknown_fields=True):
    """The table `[app]`: SHA-256 of the apps that may run here beside fedcollab's own, or "any"."""

    allow: Literal["any"] | tuple[Annotated[str, Meta(pattern="^[0-9a-f]{64}$")], ...] = ()


class SiloConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a silo.toml.

    Attributes
    ----------
    name : str
        The name under which the coordinator admits the silo.
    data, test : Path, Path or None
        The silo's samples, and a test split of its own.
    label : str or None
        The label column of CSV and Parquet files.
    drop : tuple of str
        Columns to leave out.
    columns : tuple of str or None
        The columns to read, in this order; None: all.
    label_map : dict of str to str
        What to read instead of a label.
    id : str or None
        The column whose value rows of one person share.
    invitation, key, state : Path
        What the coordinator sent, the silo's private key, and the folder for what it keeps.
    device : str
        Where models run.
    limits : dict
        The table `[limits]`, not checked.
    app : AppTable
        The table `[app]`.
    """

    name: Annotated[str, Meta(min_length=1)]
    data: Path
    invitation: Path
    key: Path
    state: Path
    label: str | None = None
    test: Path | None = None
    drop: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    label_map: dict[str, str] = field(default_factory=dict)
    id: str | None = None
    device: str = "cpu"
    limits: dict[str, Any] = field(default_factory=dict)
    app: AppTable = AppTable()

    @classmethod
    def read(cls, path: str | Path) -> SiloConfig:
        """Read a silo.toml.

        Parameters
        ----------
        path : str or Path
            The file. Paths in it are relative to its folder.

        Returns
        -------
        SiloConfig
            Its content; `limits` is not checked yet.

        Raises
        ------
        InputError
            If the file is missing or something in it is wrong.
        """
        path = Path(path).absolute()
        content = read_toml(path, "silo config")
        if OLD_LIMITS in content:
            if "limits" in content:
                raise InputError(f"`{path}` has both [limits] and [{OLD_LIMITS}], which is its old name; keep one")
            content["limits"] = content.pop(OLD_LIMITS)
        files = {"invitation": "invitation.toml", "key": f"{content.get('name')}.key", "state": "state"}
        return make_struct(cls, files | content, path)

    def read_data(self) -> ClientData:
        """Read the silo's samples, for an answer to the coordinator.

        Returns
        -------
        ClientData
            The samples, under the silo's name.

        Raises
        ------
        InputError
            If they cannot be read; why is in the silo's log only, since it may hold paths and values.
        """
        try:
            return self.check_data()
        except InputError as error:
            print(f"fedcollab: {error}", file=sys.stderr)
            raise InputError("its data cannot be read; the silo's log says why") from None

    def check_data(self) -> ClientData:
        """Read the silo's samples, for its administrator.

        Returns
        -------
        ClientData
            The samples, under the silo's name.

        Raises
        ------
        InputError
            If they cannot be read, with the reason.
        """
        read = read_client(
            self.data,
            self.label,
            self.test,
            self.drop,
            columns=self.columns,
            label_map=self.label_map,
            id_column=self.id,
        )
        return replace(read, name=self.name)


class Invitation(Struct, frozen=True):
    """What the coordinator sent.

    Attributes
    ----------
    address : str
        Where the coordinator is: host and port.
    name : str
        The federation's name.
    certificate : str or None
        The certificate of the federation's authority, by which to know the coordinator.
    insecure : bool
        Whether the federation has no certificate.
    """

    address: str
    name: str = ""
    certificate: str | None = None
    insecure: bool = False

    @classmethod
    def read(cls, path: Path) -> Invitation:
        """Read an invitation.toml; raise InputError if it is wrong, or has no certificate and is not `insecure`."""
        invitation = make_struct(cls, read_toml(path, "invitation from the coordinator"), path)
        if invitation.certificate is None and not invitation.insecure:
            raise InputError(f"`{path}` lacks `certificate`; ask the coordinator for the whole invitation")
        return invitation


def renewal_warnings(config: SiloConfig) -> list[str]:
    """Return a line for the silo's key and for the federation's certificate, if they end soon.

    Parameters
    ----------
    config : SiloConfig
        The silo's config.

    Returns
    -------
    list of str
        What ends, when, and what to do.
    """
    lines = keys.age_warnings(config.key)
    certificate = Invitation.read(config.invitation).certificate if config.invitation.is_file() else None
    if certificate is not None:
        days = keys.days_left(certificate.encode())
        if days < keys.WARN_DAYS:
            lines.append(f"the invitation's certificate ends in {days} days; ask the coordinator for a new invitation")
    return lines


def init_silo(
    folder: Path, name: str, data: Path, label: str | None, invitation: Path | None, preset: str | None = None
) -> tuple[Path, Path | None]:
    """Write a silo.toml and make the silo's key pair.

    Parameters
    ----------
    folder : Path
        Where to write.
    name : str
        The name under which the coordinator knows the silo.
    data : Path
        The silo's data: CSV, Parquet or NPZ.
    label : str or None
        The label column of CSV and Parquet files.
    invitation : Path or None
        What the coordinator sent.
    preset : str, optional
        Where the silo's limits begin: "cautious", "usual" or "open" (see `wire.limits.PRESETS`).

    Returns
    -------
    config : Path
        The silo.toml.
    public_key : Path or None
        What to send to the coordinator; None if the invitation is to an insecure federation.

    Raises
    ------
    InputError
        If there is a silo.toml or a key in the folder, or the name or the invitation cannot be used.
    """
    config = folder / "silo.toml"
    keys.check_name(name)
    if preset is not None:
        choose("preset", preset, PRESETS)
    if config.exists():
        raise InputError(f"`{config}` exists; edit it, or give another folder")
    secure = invitation is None or Invitation.read(invitation).certificate is not None
    files = {"data": data, "invitation": invitation}
    settings: dict[str, str | None] = {"name": name, "label": label} | {
        key: str(path.absolute()) for key, path in files.items() if path
    }
    folder.mkdir(parents=True, exist_ok=True)
    public = keys.make_silo_key(folder / f"{name}.key", name) if secure else None
    lines = [f"{key} = {toml_text(value)}\n" for key, value in settings.items() if value is not None]
    if preset is not None:
        lines += ["\n[limits]\n", f"preset = {toml_text(preset)}\n"]
    with keys.private_files():
        config.write_text("".join(lines))
    return config, public


def own_data() -> ClientData:
    """Return the silo's samples, in a ClientApp at a silo that `fedcollab silo start` runs.

    Returns
    -------
    ClientData
        The samples that the silo's administrator named.

    Raises
    ------
    InputError
        If this process is not at a silo, or its data cannot be read (the silo's log says why).
    """
    if CONFIG not in os.environ:
        raise InputError("this process is not at a silo; `fedcollab silo start` makes one")
    return SiloConfig.read(os.environ[CONFIG]).read_data()


def current_config(node_config: Mapping[str, Any]) -> SiloConfig:
    """Return the config of the silo that this process works for.

    Parameters
    ----------
    node_config : mapping
        Flower's config of the node, which in a simulation has its number.
    """
    if SIMULATION in os.environ and "partition-id" in node_config:
        return SiloConfig.read(Path(os.environ[SIMULATION]) / str(node_config["partition-id"]) / "silo.toml")
    return SiloConfig.read(os.environ[CONFIG])


def toml_text(value: str) -> str:
    """Return a text as a TOML string."""
    return json.dumps(value, ensure_ascii=False)
