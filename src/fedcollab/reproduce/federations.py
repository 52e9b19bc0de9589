"""Does it help in reality? Seventeen real federations: the advice beside fixed policies and other procedures.

The cells (`federation_cells`) say what each policy gave on each federation, split and model; the figures
(`federation_study`) are made from the splits whose cells are all there; the page (`federation_page`) shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcollab.errors import InputError, choose
from fedcollab.progress import Progress
from fedcollab.reproduce import federation_page, federation_pictures
from fedcollab.reproduce.experiment import Experiment
from fedcollab.reproduce.federation_cells import FILES, MODELS, POLICIES, PROCEDURES, Key, Result, cached, read_cells
from fedcollab.reproduce.federation_study import Study, make_study
from fedcollab.reproduce.output import Output
from fedcollab.reproduce.workspace import Workspace
from fedcollab.scenarios import data, federation_names

#: splits of the advice, the fixed policies and own weights; the other procedures get one
SPLITS = {"full": 5, "quick": 1, "tiny": 1}
CHOSEN = {"full": MODELS, "quick": ("logistic",), "tiny": ("logistic",)}
#: how many federations, by name; None: all
FEDERATIONS = {"full": None, "quick": 4, "tiny": 2}
#: the procedures of a tiny run
FEWER = {"tiny": ("paper-hypothesis", "ifca")}
#: splits that are looked for when figures are made, so that they show all that was ever run
MOST_SPLITS = 50


@dataclass(frozen=True, eq=False)
class Found:
    """The cells of a folder, by file, and how many splits of each model are complete."""

    advice: Mapping[Key, Result]
    policies: Mapping[Key, Result]
    procedures: Mapping[Key, Result]
    federations: list[str]

    def splits(self, model: str) -> range:
        """Return the splits from 0 on that have the advice and all fixed policies of every federation."""
        count = 0
        while count < MOST_SPLITS and all(self._has(name, count, model) for name in self.federations):
            count += 1
        return range(count)

    def _has(self, name: str, split: int, model: str) -> bool:
        key = (name, split, model)
        return key in self.advice and all((*key, policy) in self.policies for policy in POLICIES)

    def studies(self) -> list[Study]:
        """Return the study of every model that has a complete split."""
        return [
            make_study(model, self.federations, splits, self.advice, self.policies)
            for model in MODELS
            if self.federations and (splits := self.splits(model))
        ]


class Federations(Experiment):
    """The advice and its rivals on real federations."""

    name = "federations"
    title = "Does it help in reality? Seventeen real federations"
    place = "not in the paper"
    time = "a day"
    scenarios = ("federations",)
    page = "federations.md"
    shown_in = ("../README.md", "heart.md")

    def compute(self, workspace: Workspace, *, jobs: int, fresh: bool, progress: Progress, say: Any) -> None:
        """Compute the cells that are wanted and not there, split by split.

        Parameters
        ----------
        workspace : Workspace
            The user's choices, and the folder.
        jobs : int
            How many at a time.
        fresh : bool
            Compute also those that are there.
        progress : function of (done, total)
            Called after every cell.
        say : function of str
            Called with one line for every cell.

        Raises
        ------
        InputError
            If cells are missing and a federation is not on this machine, or an option does not apply.
        """
        choices = workspace.choices
        if choices.rounds is not None or choices.methods:
            raise InputError("`--rounds` and `--methods` are not for federations: every policy chooses its own rounds")
        wanted = wanted_keys(workspace)
        known = {file: {} if fresh else read_cells(folder_of(workspace) / file) for file in wanted}
        total = sum(map(len, wanted.values()))
        missing = {key[0] for file, keys in wanted.items() for key in keys if key not in known[file]}
        absent = sorted(missing - set(federation_names()))
        if absent:
            data_set = "federations" if len(absent) > 1 else absent[0]
            raise InputError(
                f"`dataset` (={', '.join(absent)}) is not on this machine: run `fedcollab data get {data_set}`"
            )
        done = total - sum(key not in known[file] for file, keys in wanted.items() for key in keys)
        progress(done, total)

        def told(line: str) -> None:
            nonlocal done
            done += 1
            progress(done, total)
            say(line)

        for file, keys in wanted.items():
            cached(folder_of(workspace) / file, keys, FILES[file], jobs=jobs, fresh=fresh, say=told)

    def reduced(self, workspace: Workspace) -> list[str]:
        """Return what a quick run leaves out."""
        size = workspace.choices.size
        if size == "full":
            return []
        return [f"{SPLITS[size]} split instead of 5, {FEDERATIONS[size]} federations, logistic regression alone"]

    def output(self, workspace: Workspace) -> Output:
        """Return tables, figures and the texts of the page, from the splits whose cells are all there."""
        found = find_cells(folder_of(workspace), chosen_federations(workspace))
        studies = found.studies()
        if not studies:
            return Output()
        charts = {
            "federations-gains": federation_pictures.gains(studies),
            "federations-calibration": federation_pictures.calibration(studies),
            "federations-harmed": federation_pictures.harmed(studies),
        }
        page = federation_page.Page(studies, found.advice, found.policies, found.procedures, folder_of(workspace))
        return Output(page.tables(), charts, page.short(), page.blocks())

    def ran(self, workspace: Workspace) -> str:
        """Return how many cells there are, and where and when they were computed."""
        found = find_cells(folder_of(workspace), chosen_federations(workspace))
        count = sum(map(len, (found.advice, found.procedures))) + sum(key[3] != "alone" for key in found.policies)
        return f"{count} cells; {federation_page.reasons(folder_of(workspace)).get('ran', 'no date was kept')}."


def folder_of(workspace: Workspace) -> Path:
    """Return the folder that the files of cells are in."""
    return workspace.cells.folder.parent


def chosen_federations(workspace: Workspace) -> list[str]:
    """Return the federations chosen by name, or all that are declared (in a quick run a few of those here)."""
    if workspace.choices.federations:
        known = dict.fromkeys(["heart", *data.TABLES, *federation_names()])
        for name in workspace.choices.federations:
            choose("federations", name, known)
        return list(workspace.choices.federations)
    few = FEDERATIONS[workspace.choices.size]
    if few is None:
        return ["heart", *data.TABLES]
    return federation_names()[:few] or ["heart"]


def wanted_keys(workspace: Workspace) -> dict[str, list[Key]]:
    """Return the keys of the cells that are wanted, by file."""
    size, names = workspace.choices.size, chosen_federations(workspace)
    splits = range(SPLITS[size] if workspace.choices.seeds is None else workspace.choices.seeds)
    keys = [(name, split, model) for split in splits for name in names for model in CHOSEN[size]]
    fixed = [policy for policy in POLICIES if policy != "alone"]
    procedures = [policy for policy in PROCEDURES if policy in FEWER.get(size, PROCEDURES)]
    return {
        "advice.jsonl": keys,
        "policies.jsonl": [(*key, policy) for key in keys for policy in fixed],
        "procedures.jsonl": [
            (*key, policy) for key in keys for policy in procedures if key[1] == 0 or policy == "own-weights"
        ],
    }


def find_cells(folder: Path, federations: list[str]) -> Found:
    """Return the cells of a folder; federations without any are left out."""
    advice, policies, procedures = (read_cells(folder / file) for file in FILES)
    alone = {(*key, "alone"): cell["alone"] for key, cell in advice.items()}
    here = {key[0] for key in advice}
    return Found(advice, policies | alone, procedures, [name for name in federations if name in here])
