"""The real study: four hospitals, 920 patients. Should they federate, and with whom?

Over repeated splits of every hospital's patients: distances by several methods and the advice they give, from the
training patients alone; and all 15 partitions of the four hospitals trained and judged on the patients held out. The
outcome of following a method's advice is that of the partition which it suggested in the same split.

A difference between two policies is judged by the corrected standard error of repeated hold-out,
    se = s sqrt(1 / R + test / train),
s the standard deviation of the difference over R splits: splits share patients (Nadeau and Bengio, 2003).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from fedcollab import distances, scenarios, training
from fedcollab.coalitions import c_path, solve
from fedcollab.reproduce import pictures
from fedcollab.reproduce.cells import Cell, Result, Scratch
from fedcollab.reproduce.compute import make_scenario, rounded, training_settings
from fedcollab.reproduce.experiment import Experiment
from fedcollab.reproduce.output import Output, Row, Table
from fedcollab.reproduce.setups import Setup, scenario_settings
from fedcollab.reproduce.workspace import Workspace

SPLITS = {"full": 30, "quick": 3, "tiny": 1}
ROUNDS = {"full": 100, "quick": 100, "tiny": 2}
METHODS = ("hypothesis", "cross", "few-round", "label", "prototype")
MEASURES = {"accuracy": "accuracy", "balanced_accuracy": "balanced accuracy", "auc": "AUC"}
SHARE = 0.2
SHORT = {"cleveland": "Cleveland", "hungarian": "Hungary", "switzerland": "Switzerland", "va": "VA Long Beach"}
ALONE, EVERYONE = "everyone alone", "everyone together"

Coalitions = list[list[str]]


class Heart(Experiment):
    """Advice and outcome, side by side."""

    name = "heart"
    title = "Four hospitals: should they federate, and with whom?"
    place = "not in the paper"
    time = "3 min"
    scenarios = ("heart",)
    page = "heart.md"

    def cells(self, workspace: Workspace) -> Iterator[Cell]:
        """Yield the cells of advice and outcome of every split."""
        for seed in range(
            SPLITS[workspace.choices.size] if workspace.choices.seeds is None else workspace.choices.seeds
        ):
            yield advice_cell(workspace, seed)
            yield outcome_cell(workspace, seed)

    def reduced(self, workspace: Workspace) -> list[str]:
        """Return how many splits a quick run has."""
        size = workspace.choices.size
        return [] if size == "full" else [f"{SPLITS[size]} splits instead of {SPLITS['full']}"]

    def output(self, workspace: Workspace) -> Output:
        """Return distances, advice along C, outcomes, and the two compared."""
        study = Study(workspace)
        if not study.splits:
            return Output()
        tables = [study.distances(), study.along_c(), study.advice(), *study.outcomes(), study.policies()]
        charts = {
            "heart-distances": pictures.matrices(
                {method: study.mean_matrix(method) for method in METHODS if method in study.methods}
            ),
            "heart-partitions": pictures.partitions(study.gains()),
        }
        return Output(tables, charts)


class Study:
    """All splits whose cells are there, as arrays.

    Parameters
    ----------
    workspace : Workspace
        The cells.
    """

    def __init__(self, workspace: Workspace) -> None:
        found = [
            (workspace.get(advice_cell(workspace, seed)), workspace.get(outcome_cell(workspace, seed)))
            for seed in range(200)
        ]
        both = [(advice, outcome) for advice, outcome in found if advice is not None and outcome is not None]
        self.advised = [advice for advice, _ in both]
        self.splits = len(both)
        if not both:
            return
        self.names: list[str] = both[0][0]["names"]
        self.methods: list[str] = list(both[0][0]["methods"])
        self.partitions: list[str] = list(both[0][1]["partitions"])
        #: splits x partitions x hospitals, a measure each
        self.values = {
            key: np.array(
                [[outcome["partitions"][name][key] for name in self.partitions] for _, outcome in both], dtype=float
            )
            for key in MEASURES
        }
        #: splits x partitions, the mean over hospitals
        self.means = {key: values.mean(axis=2) for key, values in self.values.items()}

    def distances(self) -> Table:
        """Return every pair by every method: mean over splits, and the mean standard error."""
        rows: list[Row] = []
        for i, j in combinations(range(len(self.names)), 2):
            cells = []
            for method in self.methods:
                values = [split["methods"][method]["raw"][i][j] for split in self.advised]
                errors = [split["methods"][method]["stderr"] for split in self.advised]
                text = f"{np.mean(values):.2f}"
                if errors[0] is not None:
                    text += f" ± {np.mean([error[i][j] for error in errors]):.2f}"
                cells.append(text)
            rows.append((f"{SHORT[self.names[i]]}, {SHORT[self.names[j]]}", *cells))
        title = f"Distances, mean of {self.splits} splits ± the standard error of one"
        return Table(title, ("hospitals", *self.methods), rows, key="distances")

    def mean_matrix(self, method: str) -> Any:
        """Return the mean matrix of a method over splits."""
        return np.clip(np.mean([split["methods"][method]["raw"] for split in self.advised], axis=0), 0, 1)

    def along_c(self) -> Table:
        """Return the coalitions for every C, from the mean distances."""
        rows: list[Row] = []
        quantities = self.advised[0]["quantities"]
        for method in ("hypothesis", "cross"):
            for part in c_path(self.mean_matrix(method), quantities, names=self.names):
                high = "infinity" if part.c_high == float("inf") else f"{part.c_high:.1f}"
                rows.append((method, f"{part.c_low:.1f} to {high}", partition_name(part.coalitions)))
        return Table("Coalitions along C, from the mean distances", ("distances", "C", "coalitions"), rows, key="path")

    def advice(self) -> Table:
        """Return what each method suggests, and how often."""
        rows: list[Row] = []
        for method in self.methods:
            counted = Counter(partition_name(split["methods"][method]["suggested"]) for split in self.advised)
            text = "; ".join(f"{name} ({count})" for name, count in counted.most_common())
            rows.append((method, text))
        return Table(f"Suggested coalitions, splits of {self.splits}", ("distances", "suggested"), rows, key="advice")

    def outcomes(self) -> list[Table]:
        """Return all 15 partitions: means over hospitals; then hospital by hospital."""
        order = np.argsort(-self.means["balanced_accuracy"].mean(axis=0), kind="stable")
        rows: list[Row] = [(self.partitions[at], *self._against_alone([at] * self.splits)) for at in order]
        note = (
            "Mean over the four hospitals and the splits, in percent; in brackets the difference to everyone alone ± "
            "its corrected standard error. Sorted by balanced accuracy."
        )
        tables = [Table("All 15 partitions", ("partition", *MEASURES.values()), rows, (note,), "partitions")]
        for key, words in MEASURES.items():
            one = self.values[key].mean(axis=0)
            rows = [(self.partitions[at], *(f"{100 * value:.1f}" for value in one[at])) for at in order]
            columns = ("partition", *(SHORT[name] for name in self.names))
            tables.append(Table(f"Hospital by hospital: {words}", columns, rows, key=f"hospitals-{key}"))
        return tables

    def policies(self) -> Table:
        """Return what following each method's advice gives, beside the two ends and the best partition in hindsight."""
        chosen: dict[str, list[int]] = {
            words: [self.partitions.index(words)] * self.splits for words in (ALONE, EVERYONE)
        }
        for method in self.methods:
            for key, words in (("suggested", "suggested C"), ("at_10", "C = 10")):
                names = [partition_name(split["methods"][method][key]) for split in self.advised]
                chosen[f"{method}, {words}"] = [self.partitions.index(name) for name in names]
        for key, words in MEASURES.items():
            best = int(self.means[key].mean(axis=0).argmax())
            chosen[f"best by {words} in hindsight: {self.partitions[best]}"] = [best] * self.splits
        rows: list[Row] = [(policy, *self._against_alone(picks)) for policy, picks in chosen.items()]
        note = "As above. The best in hindsight was chosen by the figures that it is shown with: it flatters itself."
        return Table("Following the advice", ("policy", *MEASURES.values()), rows, (note,), "policies")

    def _against_alone(self, picks: Sequence[int]) -> list[str]:
        """Return, by measure, the mean of the partitions picked in each split, and the difference to everyone alone."""
        alone, splits = self.partitions.index(ALONE), np.arange(self.splits)
        return [against(means[splits, picks], means[:, alone]) for means in self.means.values()]

    def gains(self) -> list[dict[str, Any]]:
        """Return the rows of the picture: the difference of each partition to everyone alone, by measure."""
        alone = self.partitions.index(ALONE)
        rows = []
        for key, words in MEASURES.items():
            for at, name in enumerate(self.partitions):
                gain, error = difference(self.means[key][:, at], self.means[key][:, alone])
                rows.append(
                    {"partition": name, "measure": words, "gain": gain, "low": gain - error, "high": gain + error}
                )
        return rows


def difference(ours: Any, theirs: Any) -> tuple[float, float]:
    """Return the mean difference over splits in percent, and its corrected standard error."""
    gaps = 100 * (np.asarray(ours) - np.asarray(theirs))
    spread = float(gaps.std(ddof=1)) if len(gaps) > 1 else 0.0
    return float(gaps.mean()), spread * float(np.sqrt(1 / len(gaps) + SHARE / (1 - SHARE)))


def against(ours: Any, theirs: Any) -> str:
    """Return a mean in percent as text, with its difference to another's."""
    gain, error = difference(ours, theirs)
    if np.array_equal(ours, theirs):
        return f"{100 * np.mean(ours):.1f}"
    return f"{100 * np.mean(ours):.1f} ({gain:+.1f} ± {error:.1f})"


def partitions(names: Sequence[str]) -> Iterator[Coalitions]:
    """Yield all partitions of the names.

    >>> [len(list(partitions("abcd"[:count]))) for count in (1, 2, 3, 4)]
    [1, 2, 5, 15]
    """
    if not names:
        yield []
        return
    first, rest = names[0], list(names[1:])
    for smaller in partitions(rest):
        yield [[first], *smaller]
        for at in range(len(smaller)):
            yield [[first, *smaller[at]], *smaller[:at], *smaller[at + 1 :]]


def partition_name(coalitions: Sequence[Sequence[str]]) -> str:
    """Return the name of a partition, the same whatever the order; hospitals alone are not named.

    >>> partition_name([["va"], ["hungarian", "cleveland"], ["switzerland"]])
    'Cleveland + Hungary'
    """
    groups = sorted(sorted(SHORT[name] for name in members) for members in coalitions if len(members) > 1)
    if not groups:
        return ALONE
    return EVERYONE if len(coalitions) == 1 else "; ".join(" + ".join(group) for group in groups)


def setup_of(workspace: Workspace) -> Setup:
    """Return the hospitals' own settings."""
    return Setup(
        "heart",
        "heart",
        scenarios.SETTINGS["heart"]["model"],
        workspace.choices.rounds or ROUNDS[workspace.choices.size],
        **{**scenario_settings("heart"), "C": 10.0},  # the paper's; `fedcollab run heart` measures instead
        options={"test": SHARE, "features": "usable"},
        distance_options={"rounds": 3} if workspace.choices.size == "tiny" else {},
    )


def advice_cell(workspace: Workspace, seed: int) -> Cell:
    """Return the cell of the distances and suggestions of one split."""
    setup = setup_of(workspace)
    methods = METHODS if workspace.choices.size != "tiny" else ("hypothesis", "cross", "label")
    settings = {**setup.data(seed), "methods": methods, "rounds": setup.distance_options.get("rounds")}
    return Cell("advice", setup.file("advice", seed), settings)


def outcome_cell(workspace: Workspace, seed: int) -> Cell:
    """Return the cell of all partitions of one split, trained."""
    setup = setup_of(workspace)
    name = setup.file(f"partitions_r{setup.rounds}", seed)
    return Cell("partitions", name, {**setup.data(seed), **setup.training()})


def advise(settings: Mapping[str, Any], scratch: Scratch) -> Result:
    """Estimate the distances of one split by every method, from the training patients, and solve for coalitions."""
    made = make_scenario(settings)
    methods = {}
    quantities: list[int] = []
    for method in settings["methods"]:
        more = {"rounds": settings["rounds"]} if settings["rounds"] and method not in ("label", "prototype") else {}
        found = distances.estimate_distances(
            made.clients, method=method, seed=settings["seed"], scale=made.scale, **more
        )
        quantities = found.quantities.tolist()
        suggested = c_path(found).suggested
        methods[method] = {
            "raw": rounded(found.raw, 4),
            "stderr": None if found.stderr is None else rounded(found.stderr, 4),
            "suggested": suggested.coalitions,
            "C": round(suggested.C, 3),
            "at_10": solve(found, C=10.0).coalitions,
        }
    return {"names": [client.name for client in made.clients], "quantities": quantities, "methods": methods}


def train_all(settings: Mapping[str, Any], scratch: Scratch) -> Result:
    """Train every partition of the hospitals and measure it on each hospital's held-out patients."""
    made = make_scenario(settings)
    names = [client.name for client in made.clients]
    common = {**training_settings(settings), "scale": made.scale, "evaluate_every": None}
    results = {}
    for coalitions in partitions(names):
        result = training.train(made.clients, coalitions, "fedavg", stopping="none", **common)
        results[partition_name(coalitions)] = {key: rounded(result.measures[key]) for key in MEASURES}
    return {"names": names, "partitions": results}
