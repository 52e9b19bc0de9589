"""Figures of clients that are saved as one JSON file: arrays of numbers, and lists of names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fedcollab import files as artefact
from fedcollab.parsing import complete, names_in

#: fields that are lists of names; all others are arrays
LISTS = ("names", "models")


@dataclass(frozen=True, eq=False)
class Figures:
    """What saves and reads itself; a subclass adds the arrays. A field that may be None is left out where it is.

    Parameters
    ----------
    names : tuple of str
        The clients.
    """

    #: what the file is called in messages, and what `files.read_json` checks
    kind: ClassVar[str]

    names: tuple[str, ...]

    def save(self, path: str | Path, made: Mapping[str, Any] | None = None) -> None:
        """Write the figures as JSON.

        Parameters
        ----------
        path : str or Path
            The file.
        made : mapping, optional
            What a run records about settings and inputs.
        """
        content = {key: value for key, value in asdict(self).items() if value is not None}
        artefact.write_json(Path(path), self.kind, content, made)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read figures that `save` wrote.

        Parameters
        ----------
        path : str or Path
            The file.

        Raises
        ------
        InputError
            If it is missing, broken or of another kind.
        """
        content = artefact.read_json(Path(path), cls.kind)
        with complete(path, cls.kind):
            values: dict[str, Any] = {}
            for each in fields(cls):
                if each.name in LISTS:
                    values[each.name] = names_in(content, each.name)
                elif each.name in content or each.default is not None:
                    array = np.array(content[each.name], dtype=np.float64)  # null becomes NaN
                    values[each.name] = cls.shaped(each.name, array, len(values["names"]))
            return cls(**values)

    @classmethod
    def shaped(cls, name: str, array: NDArray[np.float64], clients: int) -> NDArray[np.float64]:
        """Return an array from a file in its shape, which an empty list does not tell.

        Parameters
        ----------
        name : str
            The field.
        array : array
            Its values.
        clients : int
            How many clients there are.
        """
        return array
