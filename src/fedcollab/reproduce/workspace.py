"""What every experiment works with: the user's choices, and the cells to answer from.

Coalitions are never typed in: they come from the cell of the estimated distances and from the solver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedcollab.coalitions import Collaboration, solve
from fedcollab.distances import Distances
from fedcollab.errors import InputError, choose
from fedcollab.reproduce import setups
from fedcollab.reproduce.cells import Cell, Cells, Record, Result
from fedcollab.reproduce.notation import Coalitions, shorthand, slug
from fedcollab.reproduce.setups import Setup

SIZES = {"full": setups.full, "quick": setups.quick, "tiny": setups.tiny}


@dataclass(frozen=True)
class Choices:
    """What the user chose on the command line.

    Parameters
    ----------
    scenarios : tuple of str
        The scenarios to run; empty for all that an experiment has.
    seeds : int, optional
        Seeds 0 to `seeds` - 1; by default as many as the setup says.
    rounds : int, optional
        Rounds of training; by default as many as the setup says.
    methods : tuple of str
        The methods to run in tables of accuracies; empty for those that the setup says.
    size : {"full", "quick", "tiny"}
        Which setups to use.
    federations : tuple of str
        The real federations to study; empty for all that are declared.
    """

    scenarios: tuple[str, ...] = ()
    seeds: int | None = None
    rounds: int | None = None
    methods: tuple[str, ...] = ()
    size: str = "full"
    federations: tuple[str, ...] = ()


@dataclass(eq=False)
class Workspace:
    """The user's choices, the setups that they lead to, and the cells there are.

    Parameters
    ----------
    choices : Choices
        What the user chose.
    cells : Cells
        The folder of cells to answer from.

    Raises
    ------
    InputError
        If a scenario or the size is unknown.
    """

    choices: Choices
    cells: Cells
    _solved: dict[tuple[Any, ...], Collaboration] = field(default_factory=dict)

    def __post_init__(self) -> None:
        made, rounds = choose("size", self.choices.size, SIZES)(), self.choices.rounds
        for name in self.choices.scenarios:
            choose("scenario", name, {**dict.fromkeys(made), "heart": None, "federations": None})
        self.setups: dict[str, Setup] = {
            name: setup
            if rounds in (None, setup.rounds)
            else replace(setup, rounds=rounds, shorter=(), late=(rounds, max(1, rounds // 5)))
            for name, setup in made.items()
        }

    def only(self, *scenarios: str) -> Workspace:
        """Return the same workspace for some scenarios alone."""
        return Workspace(replace(self.choices, scenarios=scenarios), self.cells)

    def scenarios(self, possible: Sequence[str]) -> list[str]:
        """Return those of an experiment's scenarios that were chosen."""
        return [name for name in possible if name in (self.choices.scenarios or possible)]

    def chosen(self, possible: Sequence[str]) -> dict[str, Setup]:
        """Return the setups of those of an experiment's scenarios that were chosen."""
        return {name: self.setups[name] for name in self.scenarios(possible) if name in self.setups}

    def dataset(self, scenario: str) -> str:
        """Return the data set that a scenario needs."""
        return self.setups[scenario].dataset if scenario in self.setups else scenario

    def seeds(self, setup: Setup, *, main: bool = True) -> range:
        """Return the seeds to run, of main rows or of the others."""
        return range(self.choices.seeds if self.choices.seeds is not None else setup.seeds[0 if main else 1])

    def wants(self, setup: Setup, method: str) -> bool:
        """Return whether a method is to be run; local training always is, as the reference of the others."""
        methods = self.choices.methods or setup.methods
        return methods is None or method in (*methods, "local")

    def distances_cell(self, setup: Setup, seed: int) -> Cell:
        """Return the cell of the estimated distances of all clients."""
        settings = {**setup.data(seed), "method": "auto", "encoder": setup.encoder}
        settings["distance_options"] = setup.distance_options
        return Cell("distances", setup.file("distances", seed), settings)

    def training_cell(
        self,
        setup: Setup,
        seed: int,
        method: str,
        coalitions: Coalitions | None,
        *,
        rounds: int | None = None,
        options: Mapping[str, Any] | None = None,
        training_seed: int | None = None,
    ) -> Cell:
        """Return the cell of one method on one seed.

        Parameters
        ----------
        setup : Setup
            The scenario.
        seed : int
            Decides the samples of the clients, and the training.
        method : str
            An algorithm, or a clustered baseline.
        coalitions : "local", "global", lists of names, or None
            Who trains with whom; None for a clustered baseline.
        rounds : int, optional
            By default those of the setup.
        options : mapping, optional
            Options of a clustered baseline.
        training_seed : int, optional
            Another seed for the training alone.

        Returns
        -------
        Cell
        """
        settings = {**setup.data(seed), **setup.training(rounds), "method": method}
        settings |= {"k": setup.k} if coalitions is None else {"coalitions": coalitions}
        settings |= {"baseline_options": dict(options)} if options else {}
        who = f"k{setup.k}" if coalitions is None else slug(coalitions)
        who = "_".join([*(f"{key}-{value}" for key, value in (options or {}).items()), who])
        if training_seed not in (None, seed):
            settings["training_seed"] = training_seed
            who += f"_t{training_seed}"
        return Cell("training", setup.file(f"{method}_{who}_r{settings['rounds']}", seed), settings)

    def get(self, cell: Cell | None) -> Result | None:
        """Return a cell's result, or None if it is not there."""
        record = None if cell is None else self.cells.get(cell)
        return None if record is None else record.result

    def records(self, cells: Sequence[Cell]) -> list[Record]:
        """Return the records of those cells that are there."""
        return [record for cell in cells if (record := self.cells.get(cell)) is not None]

    def distances(self, setup: Setup, seed: int) -> Distances | None:
        """Return the estimated distances, or None if their cell is not there."""
        result = self.get(self.distances_cell(setup, seed))
        if result is None:
            return None
        stderr = None if result["stderr"] is None else np.array(result["stderr"], dtype=np.float64)
        raw = np.array(result["raw"], dtype=np.float64)
        return Distances(raw, tuple(result["names"]), np.array(result["quantities"]), stderr, method=result["method"])

    def solve(self, setup: Setup, seed: int, C: float | None = None, *, ignore: str = "") -> Collaboration | None:
        """Solve for the coalitions.

        Parameters
        ----------
        setup : Setup
            The scenario.
        seed : int
            The seed whose distances are used.
        C : float, optional
            By default that of the setup.
        ignore : {"", "quantities", "distances"}
            Make all quantities equal, or all distances their mean (Section 5.5).

        Returns
        -------
        Collaboration or None
            None if the distances are not there.
        """
        found = self.distances(setup, seed)
        if found is None:
            return None
        weight = setup.C if C is None else C
        key = (found.raw.tobytes(), setup.scenario, seed, weight, ignore)
        if key not in self._solved:
            self._solved[key] = _solve(found, weight, ignore)
        return self._solved[key]

    def coalitions(self, setup: Setup, seed: int, C: float | None = None, *, ignore: str = "") -> Coalitions | None:
        """Return what `solve` finds for `setup`, `seed`, `C` and `ignore` as lists of names, "local" or "global"."""
        answer = self.solve(setup, seed, C, ignore=ignore)
        return None if answer is None else shorthand(answer.coalitions)


def _solve(found: Distances, C: float, ignore: str) -> Collaboration:
    """Solve for the coalitions of distances that were `found`, for one `C`, without what is to `ignore`."""
    matrix, quantities = found.matrix, found.quantities.astype(np.float64)
    if ignore == "quantities":
        quantities = np.full(len(quantities), quantities.mean())
    elif ignore == "distances":
        off = ~np.eye(len(matrix), dtype=bool)
        matrix = np.where(off, matrix[off].mean(), 0.0)
    elif ignore:
        raise InputError(f"`ignore` (={ignore!r}) must be 'quantities' or 'distances'")
    return solve(matrix, quantities, C, names=found.names)
