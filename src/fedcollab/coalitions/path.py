"""The whole path over C: which partition is best for every C > 0, and which C to take.

For a fixed partition p the objective is a line in C, L_p(C) = a_p C + b_p (a_p = sum_S |S| / sqrt(m_S)). The best
partition over all C is therefore the lower envelope of lines, and it is found by its corners (Eisner and Severance
1976): two neighbouring lines meet at some C; if nothing is better there, that is a corner of the path, else the
better line is taken in between. Up to 20 clients every corner is solved exactly. Beyond, a corner is searched from the
two partitions that meet there and from trees of merged coalitions (merge.py); then the suggested segment is searched
with restarts, and the corners around it are proven as far as a budget of work goes. A segment is proven when the
optimum is proven at both of its ends: the envelope is concave, so nothing can dip below a line between two points where
it touches.

The first segment is the limit C -> 0+: everyone alone, except that clients at distance zero join for free. The last is
everyone together, as far as the constraints let it.

**The suggested C** is the middle (in log C) of the widest segment within natural limits:
    C(sigma) <= C <= C(1),   C(d) = b_everyone(d) / (a_alone - a_everyone),
where C(d) is the C at which everyone-alone and everyone-together cost the same if every distance were d. Below
C(sigma), sigma the noise of the estimated distances, the path follows noise; above C(1) even clients with nothing in
common are joined. The limits make the two ends of the path segments like any other: with like clients everyone-together
is the widest, with unlike clients everyone-alone is. sigma_ij is the given standard error or, without one, that of a
balanced accuracy measured on half of each client's samples, sqrt((1 / m_i + 1 / m_j) / 2). Where the distances carry
replicates, a segment is suggested only if its weakest split is more than noise, unless constraints ask for the split
(see `coalitions.evidence`); everyone-together splits nothing and always qualifies. Estimated distances of small clients
are too small, since discriminators learn from few samples; so a finer segment whose splits all have evidence is
preferred to the widest one if it is at least a third as wide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike

from fedcollab.coalitions.constraints import read_constraints
from fedcollab.coalitions.evidence import evidence
from fedcollab.coalitions.inputs import Inputs, Labels, read_inputs
from fedcollab.coalitions.solver.envelope import Line, Tracer
from fedcollab.coalitions.solver.feasible import refuse_impossible
from fedcollab.coalitions.solver.instance import Instance, build_instance
from fedcollab.errors import InputError, number
from fedcollab.files import inside, read_json, write_json
from fedcollab.parsing import complete

#: clients that a path is drawn for
MOST = 1000
#: how often a better partition at the suggested C may change the path
CHALLENGES = 4
#: share of the widest segment's width that a finer one with evidence needs
FINER = 1 / 3


@dataclass(frozen=True, eq=False)
class Segment:
    """One partition and the interval of C for which it is best. `objective` is its value at `C`, `at(C)` anywhere.

    `evidence`, where the distances tell: standard errors of its weakest split over those it needs; 1 is enough.
    """

    c_low: float
    c_high: float
    assignment: Labels
    coalitions: list[list[Any]]
    slope: float
    intercept: float
    proven: bool
    C: float
    evidence: float | None = None

    @property
    def objective(self) -> float:
        """The objective of this partition at the segment's own `C`."""
        return self.at(self.C)

    def at(self, C: float) -> float:
        """L = slope * C + intercept of this partition at any C."""
        return self.slope * C + self.intercept

    def as_dict(self) -> dict[str, Any]:
        """Return the content as plain values that can be written as JSON; an open end is None."""
        return {
            "c_low": self.c_low,
            "c_high": None if self.c_high == np.inf else self.c_high,
            "C": self.C,
            "objective": self.objective,
            "proven": self.proven,
            "evidence": self.evidence,
            "coalitions": self.coalitions,
        }


@dataclass(frozen=True, eq=False)
class CPath(Sequence[Segment]):
    """The segments from C = 0 to infinity. `limits` are the C between which the suggestion is looked for."""

    segments: tuple[Segment, ...]
    limits: tuple[float, float]

    @overload
    def __getitem__(self, index: int) -> Segment: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Segment, ...]: ...
    def __getitem__(self, index: int | slice) -> Segment | tuple[Segment, ...]:
        return self.segments[index]

    def __len__(self) -> int:
        return len(self.segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.segments)

    def containing(self, C: float) -> Segment:
        """The segment that this C lies in."""
        C = number("C", C, above=0)
        return next(segment for segment in self.segments if segment.c_high >= C)

    @property
    def suggested(self) -> Segment:
        """The widest segment within the limits whose splits are more than noise; its `C` is the suggested C.

        Or the finest one whose splits are known to be more than noise, if it is wide enough (`FINER`).
        """
        fit = [part for part in self.segments if part.evidence is None or part.evidence >= 1] or self.segments
        widest = max(fit, key=self.width)
        enough = FINER * self.width(widest)
        finer = (part for part in fit if part.evidence and part.evidence >= 1 and self.width(part) >= enough)
        return min((widest, *finer), key=lambda part: part.c_low)

    def as_dict(self) -> dict[str, Any]:
        """Return the content as plain values that can be written as JSON."""
        return {
            "suggested": self.segments.index(self.suggested),
            "suggested_C": self.suggested.C,
            "limits": list(self.limits),
            "segments": [segment.as_dict() for segment in self.segments],
        }

    def save(self, path: str | FilePath, made: Mapping[str, Any] | None = None) -> None:
        """Write the path as JSON.

        Parameters
        ----------
        path : str or Path
            The file.
        made : mapping, optional
            What a run notes about settings and inputs.
        """
        lines = [{"slope": part.slope, "intercept": part.intercept, "assignment": part.assignment} for part in self]
        content = self.as_dict()
        content["segments"] = [{**part, **line} for part, line in zip(content["segments"], lines, strict=True)]
        write_json(path, "path", content, made)

    @classmethod
    def load(cls, path: str | FilePath) -> CPath:
        """Read a path that `save` wrote, or that of a run directory."""
        path = inside(path, "path.json")
        content = read_json(path, "path")
        with complete(path, "path"):
            segments = tuple(
                Segment(
                    c_low=float(part["c_low"]),
                    c_high=np.inf if part["c_high"] is None else float(part["c_high"]),
                    assignment=np.array(part["assignment"], dtype=np.int64),
                    coalitions=part["coalitions"],
                    slope=float(part["slope"]),
                    intercept=float(part["intercept"]),
                    proven=bool(part["proven"]),
                    C=float(part["C"]),
                    evidence=None if part["evidence"] is None else float(part["evidence"]),
                )
                for part in content["segments"]
            )
            low, high = map(float, content["limits"])
            ends = [0.0, *(part.c_high for part in segments)]
            if not segments or not all(np.isfinite([part.C, part.slope, part.intercept]).all() for part in segments):
                raise ValueError("it has no segments, or one without C")
            if [part.c_low for part in segments] != ends[:-1] or ends[-1] != np.inf or sorted(set(ends)) != ends:
                raise ValueError("its intervals of C do not follow each other")
            if not 0 <= low <= high < np.inf:
                raise ValueError("its `limits` must be finite, the lower one first")
            return cls(segments, (low, high))

    def width(self, segment: Segment) -> float:
        """Width of a segment in log C, within the limits."""
        low, high = max(segment.c_low, self.limits[0]), min(segment.c_high, self.limits[1])
        return float(np.log(high / low)) if high > low else 0.0


def c_path(
    distances: Any,
    quantities: Any = None,
    *,
    names: Iterable[str] | None = None,
    seed: int = 0,
    restarts: int = 20,
    must_link: Iterable[Iterable[Any]] = (),
    cannot_link: Iterable[Iterable[Any]] = (),
    min_size: int = 1,
    max_size: int | None = None,
) -> CPath:
    """Find the best partition for every C > 0, each with its interval of C, and suggest one.

    Parameters
    ----------
    distances : array_like, pandas.DataFrame or Distances
        N x N matrix in [0, 1] with a zero diagonal, or a `Distances`; its standard errors and replicates, where it has
        them, tell which C are too small and which splits are noise.
    quantities : array_like, pandas.Series or mapping, optional
        Samples per client; a Series or a mapping is read by name. Default: what the `Distances` carries.
    names : iterable of str, optional
        One name per client. Default: those that the `Distances` carries, else clients are called by position.
    seed : int
        Everything random is derived from it.
    restarts : int
        Restarts of the search at the suggested C (above 20 clients; up to 20 every corner is proven).
    must_link, cannot_link : iterable of groups of clients
        Clients, by name (by position where there are no names), that must or may not be in one coalition.
    min_size, max_size : int
        How many clients a coalition may hold.

    Returns
    -------
    CPath
        The segments from C = 0 to infinity; `suggested` is one of them.

    Raises
    ------
    InputError
        If an argument is wrong, there are more than 1,000 clients, or no partition respects the constraints.

    Examples
    --------
    >>> near, far = 0.05, 0.9
    >>> path = c_path([[0, near, far], [near, 0, far], [far, far, 0]], [100, 100, 100])
    >>> [(round(part.c_low, 1), round(part.c_high, 1), part.coalitions) for part in path]
    [(0.0, 0.9, [[0], [1], [2]]), (0.9, 17.3, [[0, 1], [2]]), (17.3, inf, [[0, 1, 2]])]
    >>> path.suggested.coalitions
    [[0, 1], [2]]
    """
    restarts = int(number("restarts", restarts, at_least=1, whole=True))
    inputs = read_inputs(distances, quantities, names)
    constraints = read_constraints(inputs, must_link, cannot_link, min_size, max_size)
    if len(inputs.quantities) > MOST:
        raise InputError(f"`distances` holds {len(inputs.quantities)} clients; a path is drawn for at most {MOST}")
    instance = build_instance(inputs, constraints, 1.0)
    limits = natural_limits(inputs, getattr(distances, "stderr", None))
    tracer = Tracer(instance, restarts, int(number("seed", seed, whole=True)), constraints.any, limits)
    if tracer.impossible:
        refuse_impossible(inputs, constraints)
    known: dict[bytes, float | None] = {}

    def drawn() -> CPath:
        """Return the path as it is now; the evidence of a partition is computed once."""
        segments = []
        for part in (_segment(instance, inputs, *part, limits) for part in tracer.envelope()):
            key = part.assignment.tobytes()
            if key not in known:
                known[key] = evidence(distances, part.assignment, constraints.admits)
            segments.append(replace(part, evidence=known[key]))
        return CPath(tuple(segments), limits)

    path = drawn()
    for _ in range(CHALLENGES):  # the suggestion is what matters: search and prove it, and where the path meets it
        at = path.segments.index(path.suggested)
        near = (path[at], path[max(0, at - 1)], path[min(len(path) - 1, at + 1)])
        corners = dict.fromkeys(C for part in near for C in (part.c_low, part.c_high))
        better = tracer.challenge(path.suggested.C) or tracer.prove(list(corners))
        path = drawn()
        if not better:
            break
    return path


def natural_limits(inputs: Inputs, stderr: ArrayLike | None = None) -> tuple[float, float]:
    """C(sigma) and C(1): between which C separates clients by more than noise and less than everything."""
    m = inputs.quantities
    if len(m) == 1:
        return 1.0, 100.0  # any C gives the same answer; the middle is the usual 10
    total = m.sum()
    save = (1 / np.sqrt(m)).sum() - len(m) / np.sqrt(total)
    noise = np.sqrt((1 / m[:, None] + 1 / m) / 2)
    if stderr is not None:
        given = np.asarray(stderr, dtype=np.float64)
        noise = np.where(np.isfinite(given), given, noise)
    noise = np.minimum(noise, 1.0)
    np.fill_diagonal(noise, 0)
    ceiling = (len(m) - 1) / save
    lowest = float((noise @ m).sum() / total) / save
    return float(min(max(lowest, 1e-3 * ceiling), 0.999 * ceiling)), float(ceiling)


def _segment(
    instance: Instance,
    inputs: Inputs,
    line: Line,
    low: float,
    high: float,
    proven: bool,
    limits: tuple[float, float],
) -> Segment:
    """Return a line of the envelope as a segment of the path, with its C and the clients by name."""
    assignment = instance.to_clients(line.labels)
    groups: list[list[Any]] = [[] for _ in range(int(assignment.max()) + 1)]
    for client, label in enumerate(assignment):
        groups[label].append(inputs.label(client))
    inner = max(low, limits[0]), min(high, limits[1])
    if inner[1] <= inner[0]:  # outside the limits: its own middle, one octave from an open end
        inner = (low if low > 0 else high / 4, high if high < np.inf else low * 4)
    middle = float(np.sqrt(inner[0] * inner[1]))
    return Segment(low, high, assignment, groups, line.slope, line.intercept, proven, middle)
