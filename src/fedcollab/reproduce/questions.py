"""docs/questions.md: the paper's six questions and two of its remarks, answered from our own cells.

An answer is a list of sentences. A sentence whose cells are not there is left out; an answer without any is listed as
not run yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as Seeds
from functools import partial
from pathlib import Path
from textwrap import fill

import numpy as np

from fedcollab import files as artefact
from fedcollab.reproduce import accuracy, table_1, table_2
from fedcollab.reproduce.ablation import Ablation
from fedcollab.reproduce.accuracy import FEDCOLLAB, LOCAL, Row, Run, measures, runs_of, said_coalitions
from fedcollab.reproduce.convergence import PAPER, descents_cell, in_the_best
from fedcollab.reproduce.distances import DistanceMatrices
from fedcollab.reproduce.effect_of_c import EffectOfC
from fedcollab.reproduce.experiment import paper
from fedcollab.reproduce.lab import Lab
from fedcollab.reproduce.new_client import joining_cell
from fedcollab.reproduce.output import Figure
from fedcollab.reproduce.setups import TITLES

HEAD = """# The paper's questions, answered from our own runs

Written by `fedcollab reproduce --write-docs docs` from the cells in [`results/cells`](../results/cells). All tables,
with seeds, rounds, dates and what differs from the paper: [results](results.md). Percentages are means over clients and
seeds; figures in brackets are the paper's. Where methods are compared, the means are over the seeds that all of them
have, so that a method's figure can differ between answers.
"""

GLOBAL = {row.method: row for row in table_1.Table1.rows if row.who == "global"}
GROUPED = {row.method: row for row in table_1.Table1.rows if row.who == "fedcollab"}
BASELINES = [row for row in table_2.Table2.rows if row.who is None]


class Missing(Exception):
    """A cell that a sentence needs is not there."""


class Figures:
    """Figures of rows, as text with the paper's in brackets; over these seeds, or all there are."""

    def __init__(self, lab: Lab, scenario: str, table: str = "table-1", seeds: Seeds[int] | None = None) -> None:
        self.lab, self.scenario, self.table, self.seeds = lab, scenario, table, seeds
        self.setup = lab.setups[scenario]

    def runs(self, row: Row) -> dict[int, Run]:
        """The seeds of a row."""
        found = runs_of(self.lab, self.setup, row)
        found = {seed: run for seed, run in found.items() if self.seeds is None or seed in self.seeds}
        if not found:
            raise Missing
        return found

    def shared(self, rows: Iterable[Row]) -> Figures:
        """The same over the seeds that all of these rows have: only those can be compared."""
        seeds = set.intersection(*({*self.runs(row)} for row in rows))
        return Figures(self.lab, self.scenario, self.table, seeds)

    def there(self, rows: Iterable[Row]) -> list[Row]:
        """Those of the rows that were run."""
        return [row for row in rows if runs_of(self.lab, self.setup, row)]

    def mean(self, row: Row, measure: str = "acc") -> float:
        """Over seeds, in percent."""
        return float(np.mean(measures(self.runs(row))[measure]))

    def said(self, row: Row, measure: str = "acc", digits: int = 1) -> str:
        """The mean, and the paper's in brackets."""
        known = paper()[self.table].get(self.scenario, {}).get(row.key, {}).get(measure)
        return f"{self.mean(row, measure):.{digits}f}" + ("" if known is None else f" ({known[0]:.{digits}f})")


Sentence = Callable[[], str]


def write(lab: Lab, docs: Path, said: Mapping[str, str]) -> Path:
    """Write DIR/questions.md; `said` has a text to open an answer with, by "RQ1" and so on."""
    parts, open_ = [HEAD], []
    for title, sentences in answers(lab).items():
        told = [text for text in map(_told, sentences) if text]
        if told:
            summed = [said.get(title.split(":")[0], "")]
            body = [fill(text, 120, break_on_hyphens=False) for text in (*summed, *told) if text]
            parts.append("\n\n".join([f"## {title}", *body]) + "\n")
        else:
            open_.append(title)
    if open_:
        parts.append("## Not run yet\n\n" + "\n".join(f"- {title}" for title in open_) + "\n")
    target = docs / "questions.md"
    artefact.write_bytes(target, "\n".join(parts).encode())
    return target


def answers(lab: Lab) -> dict[str, list[Sentence]]:
    """Question by question."""
    first, second = (
        {scenario: Figures(lab, scenario, table) for scenario in TITLES} for table in ("table-1", "table-2")
    )
    return {
        "RQ1: does FedCollab alleviate negative transfer?": [
            partial(sentence, figures) for figures in first.values() for sentence in (transfer, gains)
        ],
        "RQ2: are its coalitions better than those of clustered federated learning?": [
            *(partial(clustered, figures) for figures in second.values()),
            *(partial(told_apart, lab, scenario) for scenario in TITLES),
        ],
        "RQ3: what does C do?": [partial(effect, lab)],
        "RQ4: what do quantities and distances contribute?": [
            partial(ablation, Figures(lab, "label-shift", "ablation")),
        ],
        "RQ5: can new clients be taken in?": [partial(joining, lab, scenario) for scenario in TITLES],
        "RQ6: does the solver converge?": [partial(converging, lab, scenario) for scenario in TITLES],
        "Who before how": [partial(who_before_how, figures) for figures in first.values()],
        "Clustering before or during training": [partial(before_or_during, first["label-shift"])],
    }


def transfer(figures: Figures) -> str:
    """FedAvg with everyone and in coalitions."""
    everyone, grouped = GLOBAL["fedavg"], GROUPED["fedavg"]
    figures = figures.shared([LOCAL, everyone, grouped])
    return (
        f"{TITLES[figures.scenario]}: alone the clients reach {figures.said(LOCAL)} %; one FedAvg model for everyone "
        f"gives {figures.said(everyone)} % and {figures.said(everyone, 'ipr', 0)} % of the clients gain over "
        f"training alone; inside the coalitions it is {figures.said(grouped)} % and "
        f"{figures.said(grouped, 'ipr', 0)} %."
    )


def gains(figures: Figures) -> str:
    """Every other algorithm that was run both ways."""
    found = []
    for method, row in GLOBAL.items():
        if len(figures.there([row, GROUPED[method]])) == 2:
            both = figures.shared([row, GROUPED[method]])
            found.append((table_1.NAMES[method], both.mean(GROUPED[method]) - both.mean(row)))
    if len(found) < 2:
        raise Missing
    listed = ", ".join(f"{name} {gain:+.1f}" for name, gain in found)
    return f"What the coalitions add to each algorithm, in points: {listed}."


def clustered(figures: Figures) -> str:
    """The baselines and what they found."""
    rows = figures.there(BASELINES)
    if not rows:
        raise Missing
    figures = figures.shared([FEDCOLLAB, *rows])
    parts = [
        f"{name} {figures.said(row)} % with {said_coalitions(figures.runs(row))}"
        for name, row in [("FedCollab", FEDCOLLAB), *((row.label, row) for row in rows)]
    ]
    return f"{TITLES[figures.scenario]}: {'; '.join(parts)}."


def told_apart(lab: Lab, scenario: str) -> str:
    """How well the matrices tell the planted types apart."""
    table = next((table for table in DistanceMatrices().output(lab).tables if table.key == scenario), None)
    if table is None or len(table.rows) < 2:
        raise Missing
    listed = ", ".join(f"{row[0]} {row[-1]:.2f}" for row in table.rows)
    return f"How often a pair of one type is nearer than a pair of two types ({TITLES[scenario]}): {listed}."


def effect(lab: Lab) -> str:
    """Where accuracy is highest, and the two ends."""
    made = EffectOfC().output(lab)
    if not made.tables:
        raise Missing
    rows = made.tables[0].rows
    first, last = rows[0], rows[-1]
    assert isinstance(first[1], Figure)
    assert isinstance(last[1], Figure)
    same = {row[3] for row in rows if row[0] in ("6", "8", "10")}
    word = "the same coalitions, as in the paper" if len(same) == 1 else "different coalitions (in the paper the same)"
    return (
        f"From local training at C = 0 ({first[1].mean:.1f} %) the coalitions grow to one for everyone "
        f"({last[1].mean:.1f} %). {made.text[0]} C = 6, 8 and 10 give {word}."
    )


def ablation(figures: Figures) -> str:
    """Without quantities, without distances."""
    quantities, distances = Ablation.rows[1:]
    figures = figures.shared([FEDCOLLAB, quantities, distances])
    return (
        f"With both, FedCollab reaches {figures.said(FEDCOLLAB)} %. Without the quantities it finds "
        f"{said_coalitions(figures.runs(quantities))} and reaches {figures.said(quantities)} %; without the distances "
        f"{said_coalitions(figures.runs(distances))} and {figures.said(distances)} %."
    )


def joining(lab: Lab, scenario: str) -> str:
    """The newcomer and its coalition."""
    setup = lab.setups[scenario]
    found = [lab.get(joining_cell(setup, seed)) for seed in range(accuracy.MOST_SEEDS)]
    runs = [run for run in found if run is not None and run["accuracy"]["without"] is not None]
    if not runs:
        raise Missing
    values = {key: 100 * float(np.mean([run["accuracy"][key] for run in runs])) for key in runs[0]["accuracy"]}
    return (
        f"{TITLES[scenario]}, client 0 comes after {setup.late[0]} rounds: alone it would have "
        f"{values['alone']:.1f} %, in its coalition it has {values['newcomer']:.1f} % after {setup.late[1]} more. The "
        f"coalition goes from {values['before']:.1f} to {values['after']:.1f} % with it, and to "
        f"{values['without']:.1f} % with as many rounds without it. {runs[0]['pairs']} pairs were estimated."
    )


def converging(lab: Lab, scenario: str) -> str:
    """100 runs of Algorithm 2."""
    cell = descents_cell(lab, lab.setups[scenario])
    found, answer = None if cell is None else lab.get(cell), lab.solve(lab.setups[scenario], 0)
    if found is None or answer is None:
        raise Missing
    runs, best = len(found["losses"]), in_the_best(found, answer)
    converged, stopped = (
        f" ({paper()['convergence'][key]})" if scenario == PAPER else "" for key in ("converged", "stopped")
    )
    return (
        f"{TITLES[scenario]}: the last change of {runs} runs of Algorithm 2 comes after at most "
        f"{max(found['converged'])} inner iterations{converged}, the last stop after "
        f"{max(found['stopped'])}{stopped}. {best} of {runs} single runs end in the best partition, which "
        "`solve` finds and proves"
        + (": no run gets there by single moves." if best == 0 else ": restarts are needed." if best < runs else ".")
    )


def who_before_how(figures: Figures) -> str:
    """How much the algorithm decides with everyone, and inside the coalitions."""
    methods = [method for method in GLOBAL if len(figures.there([GLOBAL[method], GROUPED[method]])) == 2]
    if len(methods) < 3:
        raise Missing
    figures = figures.shared(rows[method] for method in methods for rows in (GLOBAL, GROUPED))
    everyone, grouped = ([figures.mean(rows[method]) for method in methods] for rows in (GLOBAL, GROUPED))
    return (
        f"{TITLES[figures.scenario]}, {len(methods)} algorithms: with everyone they reach {min(everyone):.1f} to "
        f"{max(everyone):.1f} %, inside the coalitions {min(grouped):.1f} to {max(grouped):.1f} %. "
        + (
            "The worst algorithm inside the coalitions is better than the best one with everyone."
            if min(grouped) > max(everyone)
            else "The best algorithm with everyone is better than the worst one inside the coalitions."
        )
    )


def before_or_during(figures: Figures) -> str:
    """How many different clusterings the seeds give, and what a second try costs."""
    parts = []
    for row in (*BASELINES, FEDCOLLAB):
        try:
            runs = figures.runs(row)
        except Missing:
            continue
        kinds = len({str(sorted(map(sorted, run.coalitions))) for run in runs.values()})
        when = "before" if row.method in ("kmeans", "fedavg") else "during"
        parts.append(f"{row.label} ({when} training) {kinds} in {len(runs)}")
    cell = figures.lab.cells.get(figures.lab.distances_cell(figures.setup, 0))
    everyone = figures.lab.cells.get(figures.lab.training_cell(figures.setup, 0, "ifca", None))
    if len(parts) < 2 or cell is None or everyone is None:
        raise Missing
    return (
        f"Different clusterings that the seeds give ({TITLES[figures.scenario]}): {', '.join(parts)}. FedCollab "
        f"estimates its distances once ({cell.seconds:.0f} s here) and then tries thousands of partitions in less than "
        f"a second; another try of IFCA is another training ({everyone.seconds:.0f} s). The price of clustering first: "
        "data that change afterwards are not noticed by themselves (`fedcollab check` asks)."
    )


def _told(sentence: Sentence) -> str:
    try:
        return sentence()
    except Missing:
        return ""
