"""docs/questions.md: the paper's six questions and two of its remarks, answered from our own cells.

An answer is a list of sentences. A sentence whose cells are not there is left out; an answer without any is listed as
not run yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as Seeds
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from textwrap import fill

import numpy as np

from fedcollab import files
from fedcollab.reproduce import table_1, table_2
from fedcollab.reproduce.ablation import Ablation
from fedcollab.reproduce.accuracy import FEDCOLLAB, LOCAL, MOST_SEEDS, Method, Run, coalitions_found, measures, runs_of
from fedcollab.reproduce.convergence import PAPER, descents_cell, in_the_best
from fedcollab.reproduce.distances import DistanceMatrices
from fedcollab.reproduce.effect_of_c import EffectOfC
from fedcollab.reproduce.experiment import paper
from fedcollab.reproduce.new_client import joining_cell
from fedcollab.reproduce.output import Comparison
from fedcollab.reproduce.setups import TITLES, Setup
from fedcollab.reproduce.workspace import Workspace

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


@dataclass(frozen=True)
class Numbers:
    """The numbers of a scenario's rows, as text with the paper's in brackets.

    Parameters
    ----------
    workspace : Workspace
        The cells.
    setup : Setup
        The scenario, with the number of rounds.
    table : str
        The experiment whose numbers are compared to the paper's.
    seeds : set of int, optional
        The seeds that count; by default all there are.
    """

    workspace: Workspace
    setup: Setup
    table: str = "table-1"
    seeds: Seeds[int] | None = None

    def runs(self, row: Method) -> dict[int, Run]:
        """Return the runs of a row by seed; `Missing` if there are none."""
        found = runs_of(self.workspace, self.setup, row)
        found = {seed: run for seed, run in found.items() if self.seeds is None or seed in self.seeds}
        if not found:
            raise Missing
        return found

    def shared(self, rows: Iterable[Method]) -> Numbers:
        """Return the same over the seeds that all of these rows have: only those can be compared."""
        return replace(self, seeds=set.intersection(*({*self.runs(row)} for row in rows)))

    def available(self, rows: Iterable[Method]) -> list[Method]:
        """Return those of the rows that were run."""
        return [row for row in rows if runs_of(self.workspace, self.setup, row)]

    def mean(self, row: Method, measure: str = "acc") -> float:
        """Return the mean of a row over seeds, in percent."""
        return float(np.mean(measures(self.runs(row))[measure]))

    def text(self, row: Method, measure: str = "acc", digits: int = 1) -> str:
        """Return the mean of a `row` in one `measure` with so many `digits`, and the paper's in brackets."""
        known = paper()[self.table].get(self.setup.scenario, {}).get(row.key, {}).get(measure)
        return f"{self.mean(row, measure):.{digits}f}" + ("" if known is None else f" ({known[0]:.{digits}f})")


Sentence = Callable[[], str]


def write(workspace: Workspace, docs: Path, openings: Mapping[str, str]) -> Path:
    """Write questions.md.

    Parameters
    ----------
    workspace : Workspace
        The cells.
    docs : Path
        The folder to write to.
    openings : mapping
        Texts to open an answer with, by "RQ1" and so on.

    Returns
    -------
    Path
        The file.
    """
    parts, missing = [HEAD], []
    for title, sentences in answers(workspace).items():
        written = [text for text in map(_or_nothing, sentences) if text]
        if written:
            opening = openings.get(title.split(":")[0], "")
            body = [fill(text, 120, break_on_hyphens=False) for text in (opening, *written) if text]
            parts.append("\n\n".join([f"## {title}", *body]) + "\n")
        else:
            missing.append(title)
    if missing:
        parts.append("## Not run yet\n\n" + "\n".join(f"- {title}" for title in missing) + "\n")
    target = docs / "questions.md"
    files.write_bytes(target, "\n".join(parts).encode())
    return target


def answers(workspace: Workspace) -> dict[str, list[Sentence]]:
    """Return the sentences that answer each question."""
    setups = [setup for scenario in TITLES for setup in workspace.setups[scenario].lengths]
    first, second = ([Numbers(workspace, setup, table) for setup in setups] for table in ("table-1", "table-2"))
    label_shift = workspace.setups["label-shift"]
    return {
        "RQ1: does FedCollab alleviate negative transfer?": [
            partial(sentence, numbers) for numbers in first for sentence in (transfer, gains)
        ],
        "RQ2: are its coalitions better than those of clustered federated learning?": [
            *(partial(clustered, numbers) for numbers in second),
            *(partial(separation, workspace, scenario) for scenario in TITLES),
        ],
        "RQ3: what does C do?": [partial(effect, workspace)],
        "RQ4: what do quantities and distances contribute?": [
            partial(ablation, Numbers(workspace, label_shift, "ablation")),
        ],
        "RQ5: can new clients be taken in?": [partial(joining, workspace, scenario) for scenario in TITLES],
        "RQ6: does the solver converge?": [partial(converging, workspace, scenario) for scenario in TITLES],
        "Who before how": [partial(who_before_how, numbers) for numbers in first],
        "Clustering before or during training": [partial(before_or_during, Numbers(workspace, label_shift))],
    }


def transfer(numbers: Numbers) -> str:
    """Say what FedAvg gives with everyone and in coalitions."""
    everyone, grouped = GLOBAL["fedavg"], GROUPED["fedavg"]
    numbers = numbers.shared([LOCAL, everyone, grouped])
    return (
        f"{numbers.setup.title}: alone the clients reach {numbers.text(LOCAL)} %; one FedAvg model for everyone "
        f"gives {numbers.text(everyone)} % and {numbers.text(everyone, 'ipr', 0)} % of the clients gain over "
        f"training alone; inside the coalitions it is {numbers.text(grouped)} % and "
        f"{numbers.text(grouped, 'ipr', 0)} %."
    )


def gains(numbers: Numbers) -> str:
    """Say what the coalitions add to every algorithm that was run both ways."""
    found = []
    for method, row in GLOBAL.items():
        if len(numbers.available([row, GROUPED[method]])) == 2:
            both = numbers.shared([row, GROUPED[method]])
            found.append((table_1.NAMES[method], both.mean(GROUPED[method]) - both.mean(row)))
    if len(found) < 2:
        raise Missing
    listed = ", ".join(f"{name} {gain:+.1f}" for name, gain in found)
    return f"What the coalitions add to each algorithm, in points: {listed}."


def clustered(numbers: Numbers) -> str:
    """Say what the clustered baselines found."""
    rows = numbers.available(BASELINES)
    if not rows:
        raise Missing
    numbers = numbers.shared([FEDCOLLAB, *rows])
    parts = [
        f"{name} {numbers.text(row)} % with {coalitions_found(numbers.runs(row))}"
        for name, row in [("FedCollab", FEDCOLLAB), *((row.label, row) for row in rows)]
    ]
    return f"{numbers.setup.title}: {'; '.join(parts)}."


def separation(workspace: Workspace, scenario: str) -> str:
    """Say how well the matrices tell the planted types apart."""
    table = next((table for table in DistanceMatrices().output(workspace).tables if table.key == scenario), None)
    if table is None or len(table.rows) < 2:
        raise Missing
    listed = ", ".join(f"{row[0]} {row[-1]:.2f}" for row in table.rows)
    return f"How often a pair of one type is nearer than a pair of two types ({TITLES[scenario]}): {listed}."


def effect(workspace: Workspace) -> str:
    """Say where along C accuracy is highest, and what the two ends give."""
    made = EffectOfC().output(workspace)
    if not made.tables:
        raise Missing
    rows = made.tables[0].rows
    first, last = rows[0], rows[-1]
    assert isinstance(first[1], Comparison)
    assert isinstance(last[1], Comparison)
    same = {row[3] for row in rows if row[0] in ("6", "8", "10")}
    word = "the same coalitions, as in the paper" if len(same) == 1 else "different coalitions (in the paper the same)"
    return (
        f"From local training at C = 0 ({first[1].mean:.1f} %) the coalitions grow to one for everyone "
        f"({last[1].mean:.1f} %). {made.text[0]} C = 6, 8 and 10 give {word}."
    )


def ablation(numbers: Numbers) -> str:
    """Say what FedCollab gives without quantities, and without distances."""
    quantities, distances = Ablation.rows[1:]
    numbers = numbers.shared([FEDCOLLAB, quantities, distances])
    return (
        f"With both, FedCollab reaches {numbers.text(FEDCOLLAB)} %. Without the quantities it finds "
        f"{coalitions_found(numbers.runs(quantities))} and reaches {numbers.text(quantities)} %; without the distances "
        f"{coalitions_found(numbers.runs(distances))} and {numbers.text(distances)} %."
    )


def joining(workspace: Workspace, scenario: str) -> str:
    """Say what a newcomer and its coalition gain."""
    setup = workspace.setups[scenario]
    found = [workspace.get(joining_cell(setup, seed)) for seed in range(MOST_SEEDS)]
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


def converging(workspace: Workspace, scenario: str) -> str:
    """Say how 100 runs of Algorithm 2 end."""
    cell = descents_cell(workspace, workspace.setups[scenario])
    found, answer = None if cell is None else workspace.get(cell), workspace.solve(workspace.setups[scenario], 0)
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


def who_before_how(numbers: Numbers) -> str:
    """Say how much the algorithm decides with everyone, and inside the coalitions."""
    methods = [method for method in GLOBAL if len(numbers.available([GLOBAL[method], GROUPED[method]])) == 2]
    if len(methods) < 3:
        raise Missing
    numbers = numbers.shared(rows[method] for method in methods for rows in (GLOBAL, GROUPED))
    everyone, grouped = ([numbers.mean(rows[method]) for method in methods] for rows in (GLOBAL, GROUPED))
    return (
        f"{numbers.setup.title}, {len(methods)} algorithms: with everyone they reach {min(everyone):.1f} to "
        f"{max(everyone):.1f} %, inside the coalitions {min(grouped):.1f} to {max(grouped):.1f} %. "
        + (
            "The worst algorithm inside the coalitions is better than the best one with everyone."
            if min(grouped) > max(everyone)
            else "The best algorithm with everyone is better than the worst one inside the coalitions."
        )
    )


def before_or_during(numbers: Numbers) -> str:
    """Say how many different clusterings the seeds give, and what a second try costs."""
    parts = []
    for row in (*BASELINES, FEDCOLLAB):
        try:
            runs = numbers.runs(row)
        except Missing:
            continue
        kinds = len({str(sorted(map(sorted, run.coalitions))) for run in runs.values()})
        when = "before" if row.method in ("kmeans", "fedavg") else "during"
        parts.append(f"{row.label} ({when} training) {kinds} in {len(runs)}")
    cell = numbers.workspace.cells.get(numbers.workspace.distances_cell(numbers.setup, 0))
    everyone = numbers.workspace.cells.get(numbers.workspace.training_cell(numbers.setup, 0, "ifca", None))
    if len(parts) < 2 or cell is None or everyone is None:
        raise Missing
    return (
        f"Different clusterings that the seeds give ({numbers.setup.title}): {', '.join(parts)}. FedCollab "
        f"estimates its distances once ({cell.seconds:.0f} s here) and then tries thousands of partitions in less than "
        f"a second; another try of IFCA is another training ({everyone.seconds:.0f} s). The price of clustering first: "
        "data that change afterwards are not noticed by themselves (`fedcollab check` asks)."
    )


def _or_nothing(sentence: Sentence) -> str:
    """Return a sentence, or an empty one if a cell that it needs is missing."""
    try:
        return sentence()
    except Missing:
        return ""
