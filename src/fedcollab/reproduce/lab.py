"""Where an experiment works: what was asked for, the cells there are, and the cells that are still to compute.

Coalitions are never typed in: they come from the cell of the estimated distances and from the solver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedcollab.coalitions import Collaboration, solve
from fedcollab.distances.result import Distances
from fedcollab.errors import InputError, choose
from fedcollab.reproduce import setups
from fedcollab.reproduce.cells import Cell, Cells, Kept
from fedcollab.reproduce.setups import Setup

Coalitions = str | list[list[str]]
SIZES = {"full": setups.full, "quick": setups.quick, "tiny": setups.tiny}


@dataclass(frozen=True)
class Asked:
    """What the user asked for; None is the setup's own."""

    scenarios: tuple[str, ...] = ()
    seeds: int | None = None
    rounds: int | None = None
    methods: tuple[str, ...] = ()
    size: str = "full"


@dataclass(eq=False)
class Lab:
    """`asked`, and the `cells` to answer it from."""

    asked: Asked
    cells: Cells
    _solved: dict[tuple[Any, ...], Collaboration] = field(default_factory=dict)

    def __post_init__(self) -> None:
        made = choose("size", self.asked.size, SIZES)()
        for name in self.asked.scenarios:
            choose("scenario", name, {**dict.fromkeys(made), "heart": None})
        if self.asked.rounds is not None:
            made = {name: _shortened(setup, self.asked.rounds) for name, setup in made.items()}
        self.setups: dict[str, Setup] = made

    def only(self, *scenarios: str) -> Lab:
        """The same for some scenarios."""
        return Lab(replace(self.asked, scenarios=scenarios), self.cells)

    def scenarios(self, possible: Sequence[str]) -> list[str]:
        """Those of an experiment's scenarios that were asked for."""
        return [name for name in possible if name in (self.asked.scenarios or possible)]

    def dataset(self, scenario: str) -> str:
        """The data set that a scenario needs."""
        return self.setups[scenario].dataset if scenario in self.setups else scenario

    def seeds(self, setup: Setup, *, main: bool = True) -> range:
        """The seeds to run."""
        return range(self.asked.seeds if self.asked.seeds is not None else setup.seeds[0 if main else 1])

    def wants(self, setup: Setup, method: str) -> bool:
        """Whether a method is to be run; local training always is, as the reference of the others."""
        methods = self.asked.methods or setup.methods
        return methods is None or method in (*methods, "local")

    def distances_cell(self, setup: Setup, seed: int, method: str = "auto") -> Cell:
        """The estimated distances of all clients."""
        settings = {**setup.data(seed), "method": method, "encoder": setup.encoder}
        settings["distance_options"] = setup.distance_options
        word = "" if method == "auto" else f"_{method}"
        return Cell("distances", setup.file(f"distances{word}", seed), settings)

    def training_cell(
        self,
        setup: Setup,
        seed: int,
        method: str,
        coalitions: Coalitions | None,
        *,
        rounds: int | None = None,
        options: Mapping[str, Any] | None = None,
        training: int | None = None,
    ) -> Cell:
        """One method: an algorithm within coalitions, or without them a clustered baseline with its options.

        `seed` deals the samples and trains, unless `training` is another seed for that.
        """
        settings = {**setup.data(seed), **setup.training(rounds), "method": method}
        settings |= {"k": setup.k} if coalitions is None else {"coalitions": coalitions}
        settings |= {"baseline_options": dict(options)} if options else {}
        who = f"k{setup.k}" if coalitions is None else spoken(coalitions)
        who = "_".join([*(f"{key}-{value}" for key, value in (options or {}).items()), who])
        if training not in (None, seed):
            settings["training_seed"] = training
            who += f"_t{training}"
        return Cell("training", setup.file(f"{method}_{who}_r{settings['rounds']}", seed), settings)

    def get(self, cell: Cell) -> dict[str, Any] | None:
        """A cell's result, if it is there."""
        kept = self.cells.get(cell)
        return None if kept is None else kept.result

    def kept(self, cells: Sequence[Cell]) -> list[Kept]:
        """The files that are there."""
        return [kept for cell in cells if (kept := self.cells.get(cell)) is not None]

    def distances(self, setup: Setup, seed: int, method: str = "auto") -> Distances | None:
        """The estimated distances, if they are there."""
        result = self.get(self.distances_cell(setup, seed, method))
        if result is None:
            return None
        stderr = None if result["stderr"] is None else np.array(result["stderr"], dtype=np.float64)
        raw = np.array(result["raw"], dtype=np.float64)
        return Distances(raw, tuple(result["names"]), np.array(result["quantities"]), stderr, method=result["method"])

    def solve(self, setup: Setup, seed: int, C: float | None = None, *, ignore: str = "") -> Collaboration | None:
        """The solver's answer; `ignore` "quantities" makes them all equal, "distances" all their mean (Section 5.5)."""
        found = self.distances(setup, seed)
        if found is None:
            return None
        weight = setup.C if C is None else C
        key = (found.raw.tobytes(), setup.scenario, seed, weight, ignore)
        if key not in self._solved:
            self._solved[key] = _solve(found, weight, ignore)
        return self._solved[key]

    def coalitions(self, setup: Setup, seed: int, C: float | None = None, *, ignore: str = "") -> Coalitions | None:
        """Who trains with whom, if the distances are there: lists of names, "local" or "global"."""
        answer = self.solve(setup, seed, C, ignore=ignore)
        return None if answer is None else said(answer.coalitions)


def said(coalitions: list[list[str]]) -> Coalitions:
    """The two ends by their names, so that equal partitions are one cell."""
    if len(coalitions) == 1:
        return "global"
    return "local" if all(len(members) == 1 for members in coalitions) else coalitions


def spoken(coalitions: Coalitions) -> str:
    """Coalitions in a file name.

    >>> spoken([["client-00", "client-01", "client-02"], ["client-03"], ["client-04", "client-06"]])
    '0-2.3.4+6'
    """
    if isinstance(coalitions, str):
        return coalitions
    text = ".".join("+".join(_runs(members)) for members in coalitions)
    if len(text) <= 60:
        return text
    import hashlib

    return f"{len(coalitions)}-coalitions-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _runs(members: Sequence[str]) -> list[str]:
    """Names with their numbers, neighbours as a range; names without numbers as they are."""
    if not all(name.rpartition("-")[2].isdigit() for name in members):
        return list(members)
    numbers = sorted(int(name.rpartition("-")[2]) for name in members)
    starts = [k for k, number in enumerate(numbers) if k == 0 or numbers[k - 1] != number - 1]
    ends = [*(start - 1 for start in starts[1:]), len(numbers) - 1]
    return [str(numbers[a]) if a == b else f"{numbers[a]}-{numbers[b]}" for a, b in zip(starts, ends, strict=True)]


def _solve(found: Distances, C: float, ignore: str) -> Collaboration:
    matrix, quantities = found.matrix, found.quantities.astype(np.float64)
    if ignore == "quantities":
        quantities = np.full(len(quantities), quantities.mean())
    elif ignore == "distances":
        off = ~np.eye(len(matrix), dtype=bool)
        matrix = np.where(off, matrix[off].mean(), 0.0)
    elif ignore:
        raise InputError(f"`ignore` (={ignore!r}) must be 'quantities' or 'distances'")
    return solve(matrix, quantities, C, names=found.names)


def _shortened(setup: Setup, rounds: int) -> Setup:
    if rounds == setup.rounds:
        return setup
    return replace(setup, rounds=rounds, late=(rounds, max(1, rounds // 5)))
