"""TOML files read into typed structs: what is wrong with a file is one line that names the file and the key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from fedcollab.errors import InputError, unknown
from fedcollab.parsing import parse_toml

T = TypeVar("T", bound=msgspec.Struct)


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Read a TOML file.

    Parameters
    ----------
    path : Path
        The file.
    what : str
        What the file should be, for the error line: "silo config".

    Returns
    -------
    dict
        The content, not checked yet; see `make_struct`.

    Raises
    ------
    InputError
        If the file does not exist, cannot be read or is not TOML.
    """
    return parse_toml(path, f"a {what}", f"cannot be read as a {what}")


def make_struct(kind: type[T], content: Mapping[str, Any], path: Path) -> T:
    """Check the content of a TOML file and make a struct of it.

    Parameters
    ----------
    kind : type
        A msgspec Struct; its fields are the keys of the file. Fields of type `Path` are taken relative to the file.
    content : mapping
        What `read_toml` returned, perhaps with defaults added.
    path : Path
        The file, for paths in it and for error lines.

    Raises
    ------
    InputError
        If a key is missing, unknown or has a wrong value.
    """

    def make_path(_: type, value: object) -> Path:
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"expected the name of a file, got {value!r}")
        try:
            return path.parent / Path(value).expanduser()
        except RuntimeError as error:  # `~somebody` who is not known here
            raise ValueError(f"{value!r}: {error}") from None

    known = [field.name for field in msgspec.structs.fields(kind)]
    strange = next((key for key in content if key not in known), None)
    if strange is not None and kind.__struct_config__.forbid_unknown_fields:
        raise InputError(unknown(f"{path.name}: setting", strange, known))
    try:
        return msgspec.convert(content, kind, dec_hook=make_path)
    except msgspec.ValidationError as error:
        what, _, key = str(error).partition(" - at `$.")
        raise InputError(f"`{path}`: {f'`{key} ' if key else ''}{what[0].lower()}{what[1:]}") from None
