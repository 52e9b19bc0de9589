"""The value that the distance stage passes on: how different every two clients' data are, and how sure we are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcollab import files as artefact
from fedcollab.display import display
from fedcollab.errors import InputError

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Distances:
    """Estimated distances between every two clients.

    Parameters
    ----------
    raw : array
        N x N signed estimates of 2 BalAcc - 1, symmetric with a zero diagonal; NaN where unobserved.
    names : sequence of str
        One name a client.
    quantities : array of int
        Training samples of each client.
    stderr : array, optional
        N x N standard errors, if the method gives them.
    replicates : array, optional
        R x N x N joint replicates of `raw` (all pairs of one replicate share one resampling of each client).
    observed : array of bool, optional
        N x N mask: False where a pair was never measured. Without it, True wherever `raw` is finite.
    method : str
        How the distances were estimated; "given" if they were not.
    settings : mapping
        The settings of the method, with the seed.
    cost : mapping
        What the estimate took: `rounds`, and `bytes` of each client.
    privacy : mapping
        What each client spent, `epsilon` and `delta`, if noise was added.

    Attributes
    ----------
    matrix : array
        `raw` clipped to [0, 1], with 1 where a pair was not observed.

    Raises
    ------
    InputError
        If the arrays do not fit together, or `raw` is not symmetric with a zero diagonal.

    Examples
    --------
    >>> Distances([[0.0, 0.4], [0.4, 0.0]], ("north", "south"), [100, 50]).between("north", "south")
    0.4
    """

    raw: Floats
    names: tuple[str, ...]
    quantities: NDArray[np.int64]
    stderr: Floats | None = None
    replicates: Floats | None = None
    observed: NDArray[np.bool_] = field(default=None)  # type: ignore[arg-type]
    method: str = "given"
    settings: Mapping[str, Any] = field(default_factory=dict)
    cost: Mapping[str, Any] = field(default_factory=dict)
    privacy: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        raw = _square("raw", self.raw)
        count = len(raw)
        names = tuple(str(name) for name in self.names)
        if len(names) != count or len(set(names)) != count:
            raise InputError(f"`names` (={list(names)!r}) must be {count} different names, one a row of `raw`")
        quantities = np.array(self.quantities, dtype=np.int64)
        if quantities.shape != (count,) or (quantities <= 0).any():
            raise InputError(f"`quantities` (={quantities.tolist()!r}) must be {count} positive whole numbers")
        observed = np.isfinite(raw) if self.observed is None else np.array(self.observed, dtype=bool)
        if observed.shape != raw.shape:
            raise InputError(f"`observed` has shape {observed.shape}; expected {raw.shape}")
        np.fill_diagonal(observed, True)
        if not np.isfinite(raw[observed]).all():
            raise InputError("`raw` must be finite wherever `observed` is true")
        if not np.array_equal(np.where(observed, raw, 0), np.where(observed, raw, 0).T):
            raise InputError("`raw` must be symmetric")
        if np.diag(raw).any():
            raise InputError("`raw` must have a zero diagonal")
        values: dict[str, Any] = {"raw": raw, "names": names, "quantities": quantities, "observed": observed}
        if self.stderr is not None:
            values["stderr"] = _square("stderr", self.stderr, count)
        if self.replicates is not None:
            replicates = np.array(self.replicates, dtype=np.float64)
            if replicates.ndim != 3 or replicates.shape[1:] != raw.shape:
                raise InputError(f"`replicates` has shape {replicates.shape}; expected (R, {count}, {count})")
            values["replicates"] = replicates
        for key, value in values.items():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)
            object.__setattr__(self, key, value)

    @property
    def matrix(self) -> Floats:
        """Return distances in [0, 1], as the objective takes them: `raw` clipped, 1 where a pair was not observed."""
        return np.where(self.observed, np.clip(self.raw, 0.0, 1.0), 1.0)

    def part(self, names: Sequence[str]) -> Distances:
        """Return the distances between some of the clients, in the order given.

        Parameters
        ----------
        names : sequence of str
            The clients.

        Raises
        ------
        InputError
            If one of them is unknown.
        """
        places = [self.index(name) for name in names]
        if places == list(range(len(self.names))):
            return self
        square = np.ix_(places, places)
        return replace(
            self,
            raw=self.raw[square],
            names=tuple(names),
            quantities=self.quantities[places],
            stderr=None if self.stderr is None else self.stderr[square],
            replicates=None if self.replicates is None else self.replicates[:, places][:, :, places],
            observed=self.observed[square],
        )

    def between(self, first: str, second: str) -> float:
        """Return the distance between two clients.

        Parameters
        ----------
        first, second : str
            The clients' names.

        Returns
        -------
        float
            The distance in [0, 1]; 1 if the pair was not observed.

        Raises
        ------
        InputError
            If a name is unknown.
        """
        return float(self.matrix[self.index(first), self.index(second)])

    def index(self, name: str) -> int:
        """Return the position of a client in every array of this value.

        Parameters
        ----------
        name : str
            The client.

        Returns
        -------
        int
            Its position.

        Raises
        ------
        InputError
            If the name is unknown.
        """
        try:
            return self.names.index(name)
        except ValueError:
            raise InputError(f"`client` (={name!r}) must be one of: {', '.join(self.names)}") from None

    def spent_with(self, later: Distances) -> dict[str, Any]:
        """Return `cost` and `privacy` of this estimate and a later one together.

        Parameters
        ----------
        later : Distances
            The later estimate.

        Returns
        -------
        dict
            `cost` and `privacy`: rounds and bytes, and every client's epsilons and deltas, are added up.
        """
        moved = [part.cost.get("bytes", {}) for part in (self, later)]
        private: dict[str, dict[str, float]] = {}
        for part in (self, later):
            for name, spent in part.privacy.items():
                before = private.get(name, {})
                private[name] = {key: value + before.get(key, 0.0) for key, value in spent.items()}
        return {
            "cost": {
                "rounds": sum(part.cost.get("rounds", 0) for part in (self, later)),
                "bytes": {name: sum(part.get(name, 0) for part in moved) for name in {**moved[0], **moved[1]}},
            },
            "privacy": private,
        }

    def save(self, path: str | Path, made: Mapping[str, Any] | None = None) -> None:
        """Write JSON that a person can read; numbers keep six decimals, replicates four.

        Parameters
        ----------
        path : str or Path
            The file.
        made : mapping, optional
            The settings and inputs that a run notes in the file.
        """
        artefact.write_json(
            path,
            "distances",
            {
                "method": self.method,
                "names": list(self.names),
                "quantities": self.quantities,
                "matrix": _rounded(self.matrix),
                "raw": _rounded(self.raw),
                "stderr": _rounded(self.stderr),
                "observed": self.observed,
                "settings": dict(self.settings),
                "cost": dict(self.cost),
                "privacy": {name: dict(spent) for name, spent in self.privacy.items()},
                "replicates": _rounded(self.replicates, 4),
            },
            made,
        )

    @classmethod
    def load(cls, path: str | Path) -> Distances:
        """Read a file that `save` wrote, or one by hand with `names`, `quantities` and `matrix` or `raw`.

        Parameters
        ----------
        path : str or Path
            The JSON file, or a run directory.

        Returns
        -------
        Distances
            The distances; clients without names are "0", "1", ...

        Raises
        ------
        InputError
            If the file cannot be read, or its content does not fit together.
        """
        path = artefact.inside(path, "distances.json")
        content = artefact.read_json(path, "distances")
        if not ("raw" in content or "matrix" in content) or "quantities" not in content:
            raise InputError(f"`{path}` must have `quantities` and `raw` or `matrix`")
        raw = _numbers(path, "raw", content.get("raw", content.get("matrix")))
        return cls(
            raw=raw,
            names=tuple(content.get("names") or (str(i) for i in range(len(raw)))),
            quantities=_numbers(path, "quantities", content["quantities"]).astype(np.int64),
            stderr=_numbers(path, "stderr", content["stderr"]) if content.get("stderr") else None,
            replicates=_numbers(path, "replicates", content["replicates"]) if content.get("replicates") else None,
            observed=np.array(content["observed"], dtype=bool) if content.get("observed") else None,  # type: ignore[arg-type]
            method=str(content.get("method", "given")),
            settings=content.get("settings", {}),
            cost=content.get("cost", {}),
            privacy=content.get("privacy", {}),
        )

    def plot(self, collaboration: Any = None) -> Any:
        """Return the matrix as an Altair chart.

        Parameters
        ----------
        collaboration : Collaboration, optional
            Orders the clients by its coalitions.

        Returns
        -------
        altair.Chart
            The chart.
        """
        return display("plot_distances", self, collaboration)

    def _repr_html_(self) -> str:
        return str(display("distances_html", self))

    def __repr__(self) -> str:
        return f"Distances({len(self.names)} clients, method={self.method!r})"


def _rounded(values: Floats | None, digits: int = 6) -> Any:
    return None if values is None else (np.round(values, digits) + 0.0).tolist()


def _numbers(path: str | Path, key: str, value: Any) -> Floats:
    try:
        return np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"`{path}`: `{key}` must be numbers, in rows of equal length") from None


def _square(name: str, values: ArrayLike | Sequence[Sequence[float]], count: int | None = None) -> Floats:
    array = np.array(values, dtype=np.float64)
    if array.ndim != 2 or array.shape[0] != array.shape[1] or (count is not None and len(array) != count):
        raise InputError(f"`{name}` has shape {array.shape}; expected a square matrix, one row a client")
    return array
