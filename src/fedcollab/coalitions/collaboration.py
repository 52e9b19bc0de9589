"""The answer: who trains with whom, what it costs by the bound, how far from the optimum it can be, and why.

A frozen value. It keeps, per client and coalition, what is needed to explain every choice (the sums of distances), so
a saved file explains itself without the matrix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.coalitions.constraints import Constraints
from fedcollab.coalitions.explain import Explanation, explain, name_position
from fedcollab.coalitions.inputs import Floats, Labels
from fedcollab.display import display
from fedcollab.files import inside, read_json, write_json
from fedcollab.parsing import complete, names_in


@dataclass(frozen=True, eq=False)
class Collaboration:
    """A partition of the clients into coalitions.

    Parameters
    ----------
    assignment : array of int
        One coalition label per client, 0..K-1 in order of first appearance.
    quantities : array
        Each client's training samples.
    names : tuple of str or None
        The clients' names, where they have any.
    C : float
        How much it hurts to have little data.
    objective : float
        L of Eq. (collab_obj), its first line.
    lower_bound : float
        Proven for every partition that the constraints allow.
    optimal : bool
        Proven: objective and lower bound agree to a relative 1e-9.
    method : str
        How it was found.
    pull, push : array
        What client k and coalition T are to each other: sum_{j in T} m_j D_kj and sum_{i in T} D_ik.
    constraints : Constraints
        The rules that were kept.
    budget_spent : bool
        A proof was tried and ran out of its budget of work.

    Examples
    --------
    >>> from fedcollab import solve
    >>> D = [[0.0, 0.1, 0.8], [0.1, 0.0, 0.9], [0.8, 0.9, 0.0]]
    >>> answer = solve(D, [100, 60, 200], C=5, names=["north", "south", "east"])
    >>> answer.coalitions, answer.optimal, round(answer.objective, 4)
    ([['north', 'south'], ['east']], True, 1.2441)
    >>> answer.explain("south").best.kind
    'now'
    """

    assignment: Labels
    quantities: Floats
    names: tuple[str, ...] | None
    C: float
    objective: float
    lower_bound: float
    optimal: bool
    method: str
    pull: Floats = field(repr=False)
    push: Floats = field(repr=False)
    constraints: Constraints = field(default_factory=Constraints, repr=False)
    budget_spent: bool = False

    def __post_init__(self) -> None:
        for array in (self.assignment, self.quantities, self.pull, self.push):
            array.flags.writeable = False

    @property
    def coalitions(self) -> list[list[Any]]:
        """The coalitions as lists of names where names were given, else of positions."""
        labels = self.assignment
        count = int(labels.max()) + 1
        # Short integers are sorted by radix: at 10,000 clients a loop would cost more than placing a new client.
        order = np.argsort(labels.astype(np.int16) if count < 2**15 else labels, kind="stable").tolist()
        clients: list[Any] = order if self.names is None else [self.names[client] for client in order]
        ends = np.cumsum(np.bincount(labels, minlength=count)).tolist()
        return [clients[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    @property
    def gap(self) -> float:
        """(objective - lower_bound) / objective: how much better any other partition can be, at most."""
        return max(0.0, (self.objective - self.lower_bound) / self.objective)

    @property
    def terms(self) -> NDArray[np.float64]:
        """Generalisation and shift term of every client (N x 2); they sum to the objective."""
        mass = np.bincount(self.assignment, weights=self.quantities)[self.assignment]
        own = self.pull[np.arange(len(mass)), self.assignment]
        return np.stack([self.C / np.sqrt(mass), own / mass], axis=1)

    def explain(self, client: str | int) -> Explanation:
        """Return what the client's place costs it, and what every other place would cost it and the others.

        Parameters
        ----------
        client : str or int
            The client's name; its position where there are no names.

        Returns
        -------
        Explanation
            `.now`, `.alone`, `.everyone` and `.elsewhere`; `str` of it says the same in sentences.

        Raises
        ------
        InputError
            If there is no such client.
        """
        return explain(self, name_position(self, client))

    def plot(self) -> Any:
        """Each client's two terms against where it would be alone, as an Altair chart."""
        return display("plot_collaboration", self)

    def _repr_html_(self) -> str:
        return str(display("collaboration_html", self))

    def save(self, path: str | Path, made: Mapping[str, Any] | None = None) -> None:
        """Write the answer as a JSON file that explains itself.

        Parameters
        ----------
        path : str or Path
            The file.
        made : mapping, optional
            What a run notes about settings and inputs.
        """
        limits = self.constraints
        content = {
            "coalitions": self.coalitions,
            "objective": self.objective,
            "lower_bound": self.lower_bound,
            "gap": self.gap,
            "optimal": self.optimal,
            "budget_spent": self.budget_spent,
            "method": self.method,
            "C": self.C,
            "names": None if self.names is None else list(self.names),
            "quantities": self.quantities,
            "assignment": self.assignment,
            "constraints": {
                "must_link": [list(group) for group in limits.together],
                "cannot_link": [list(pair) for pair in limits.apart],
                "unobserved": [] if limits.unobserved is None else np.argwhere(np.triu(limits.unobserved)).tolist(),
                "min_size": limits.min_size,
                "max_size": limits.max_size,
            },
            "pull": self.pull,
            "push": self.push,
        }
        write_json(path, "collaboration", content, made)

    @classmethod
    def load(cls, path: str | Path) -> Collaboration:
        """Read an answer that `save` wrote.

        Parameters
        ----------
        path : str or Path
            The file, or the run directory that it is in.

        Raises
        ------
        InputError
            If it is no such answer.
        """
        path = inside(path, "collaboration.json")
        content = read_json(path, "collaboration")
        with complete(path, "collaboration"):
            limits = content["constraints"]
            count = len(content["assignment"])
            unobserved = None
            if limits["unobserved"]:
                unobserved = np.zeros((count, count), dtype=bool)
                rows, columns = np.array(limits["unobserved"]).T
                unobserved[rows, columns] = unobserved[columns, rows] = True
            pull, push = (np.array(content[key], dtype=np.float64) for key in ("pull", "push"))
            assignment = np.array(content["assignment"], dtype=np.int64)
            quantities = np.array(content["quantities"], dtype=np.float64)
            if pull.shape != (count, int(assignment.max()) + 1) or push.shape != pull.shape:
                raise ValueError("sums do not match the coalitions")
            if sorted(set(assignment.tolist())) != list(range(int(assignment.max()) + 1)):
                raise ValueError("`assignment` must number the coalitions from 0")
            if not (np.isfinite(quantities).all() and (quantities > 0).all()):
                raise ValueError("`quantities` must be positive")
            if not (0 < float(content["objective"]) < np.inf and 0 < float(content["C"]) < np.inf):
                raise ValueError("`objective` and `C` must be positive")
            if quantities.shape != (count,) or (content["names"] is not None and len(content["names"]) != count):
                raise ValueError("quantities or names do not match the clients")
            return cls(
                assignment=assignment,
                quantities=quantities,
                names=None if content["names"] is None else names_in(content),
                C=float(content["C"]),
                objective=float(content["objective"]),
                lower_bound=float(content["lower_bound"]),
                optimal=bool(content["optimal"]),
                budget_spent=bool(content.get("budget_spent", False)),
                method=str(content["method"]),
                pull=pull,
                push=push,
                constraints=Constraints(
                    tuple(tuple(int(i) for i in group) for group in limits["must_link"]),
                    tuple((int(i), int(j)) for i, j in limits["cannot_link"]),
                    int(limits["min_size"]),
                    None if limits["max_size"] is None else int(limits["max_size"]),
                    unobserved,
                ),
            )
