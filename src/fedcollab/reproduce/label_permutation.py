"""The figure of the concept-shift clients: which index each type gives to each label."""

from __future__ import annotations

from fedcollab.reproduce import pictures
from fedcollab.reproduce.experiment import Experiment
from fedcollab.reproduce.output import Output
from fedcollab.reproduce.workspace import Workspace
from fedcollab.scenarios import paper_permutations

LABELS = 20


class LabelPermutation(Experiment):
    """Four rows of twenty labels, from the scenario's own permutations."""

    name = "label-permutation"
    title = "Label permutation of the concept-shift clients"
    place = "Figure 4, Section 5.1"
    time = "2 s"
    scenarios = ("concept-shift",)

    def output(self, workspace: Workspace) -> Output:
        """Return a grid with the new index of each label, and how many labels every two types share."""
        tables = paper_permutations(LABELS)
        shared = {(i, j): int((tables[i] == tables[j]).sum()) for i in range(4) for j in range(i)}
        text = (
            f"Of {LABELS} labels types 0 and 1 name {shared[1, 0]} alike, types 2 and 3 name {shared[3, 2]} alike, and "
            f"a type of the first two and one of the last two at most {max(shared[2, 0], shared[3, 0], shared[3, 1])}."
        )
        return Output(charts={self.name: pictures.permutations(tables.tolist())}, text=[text])
