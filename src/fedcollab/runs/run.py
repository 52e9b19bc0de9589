"""A run and its folder: what was asked, what every stage left, and whether that still answers the question.

    run.json             what was asked: command, settings, seed, versions, date, and how each client describes itself
    inspection.json      what the data check found, on the command line
    schema.json          how raw samples become model inputs
    distances.json       stage 1
    path.json            the coalitions for every C
    collaboration.json   stage 2
    advice.json          what was measured: who should train with whom and how, and what each client will gain
    training/WAY/        stage 3, once per way of training: result, metrics by round, models
    training/comparison.json   how the ways compare on the same test samples
    training/learning_curve.json   what training alone reaches with half of the rows
    absences.jsonl       who did not answer, when and why
    set-aside/           stages that were made again, because a setting changed or a client that had been absent is back
    history/             collaborations of earlier days (see `runs.membership.history`)
    report.html          what to show to the partners

Every artefact carries what it was made with: settings, and digests of its inputs (`made`). A stage whose artefact was
made with the same is read back, so that an interrupted run goes on where it stopped; one that was made with anything
else is set aside with all that came of it, and computed again. An old file never answers a new question. Readable by
people and programs; never pickle.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from fedcollab import coalitions, files, training
from fedcollab.advice.result import Advice
from fedcollab.coalitions import Collaboration, CPath
from fedcollab.data.schema import Schema
from fedcollab.distances import Distances
from fedcollab.errors import FedcollabWarning, InputError
from fedcollab.federation import Federation, describe_clients
from fedcollab.runs.folder import RunFolder
from fedcollab.runs.provenance import as_json, differences, provenance

T = TypeVar("T")

#: the ways of training that a run compares, and their words
WAYS = {"local": "alone", "global": "everyone together", "coalitions": "in coalitions"}
#: what is made of each artefact, latest first
MADE_OF: dict[str, tuple[str, ...]] = {
    "schema.json": ("training", "advice.json", "collaboration.json", "path.json", "distances.json"),
    "distances.json": ("training", "advice.json", "collaboration.json", "path.json"),
    "collaboration.json": ("training/coalitions",),
    "advice.json": ("training/coalitions",),
}
#: clients up to which a path that membership changes have outdated is drawn again for the page, in seconds
REDRAWN = 20
#: in run.json: every artefact of this run says what it was made with
STAMPED = "artefacts_say_what_they_were_made_with"


class Run(RunFolder):
    """A run: its folder, what each stage left there, and whether that was made with the same settings and inputs.

    Parameters
    ----------
    path : str or Path
        The folder; it need not exist yet.

    Examples
    --------
    >>> run = Run("runs/hospitals")
    >>> run.has("distances.json")
    False
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self._trusted = False  # artefacts that do not say what they were made with

    @classmethod
    def start(cls, path: str | Path, settings: Mapping[str, Any], *, fresh: bool = False) -> Run:
        """Start a run, or go on with one that was started with the same settings.

        Parameters
        ----------
        path : str or Path
            The folder.
        settings : mapping
            What was asked.
        fresh : bool
            Empty the folder first, if it holds a run (and only then).

        Returns
        -------
        Run
            The run.

        Raises
        ------
        InputError
            If the folder holds a run with other settings, or files that are no run; they are left alone.
        """
        with files.claim(path):
            return cls._start(path, settings, fresh=fresh)

    @classmethod
    def _start(cls, path: str | Path, settings: Mapping[str, Any], *, fresh: bool) -> Run:
        """Do what `start` says, while no other process changes the folder."""
        run = cls(path)
        wanted = as_json(settings)
        files.sweep(run.file("run.json"))
        if run.path.exists() and not run.path.is_dir():
            raise InputError(f"`--out` (={str(path)!r}) is a file; expected a folder")
        if run.has("run.json"):
            if fresh:
                run.empty()
            elif run.config().get("settings") != wanted:
                known = run.config().get("settings", {})
                differing = [key for key, value in wanted.items() if known.get(key) != value]
                raise InputError(
                    f"`--out` (={str(path)!r}) holds a run with other settings ({', '.join(differing) or 'fewer'}); "
                    "give another folder, or --fresh to start over"
                )
            else:
                run._trusted = STAMPED not in run.config()
                return run
        elif run.path.is_dir() and any(run.path.iterdir()):
            raise InputError(f"`--out` (={str(path)!r}) is not empty and holds no run; give another folder")
        run.make_folder()
        run.write_config({"settings": wanted, **provenance(), STAMPED: True})
        return run

    @classmethod
    def open(cls, path: str | Path, *needed: str) -> Run:
        """Open a run that exists; an interrupted change of several files is completed, or undone if it was not ready.

        Parameters
        ----------
        path : str or Path
            The folder.
        *needed : str
            Files that the run must have; distances.json in any case.

        Returns
        -------
        Run
            The run.

        Raises
        ------
        InputError
            If the folder does not exist or lacks one of the files.
        """
        run = cls(path)
        if not run.path.is_dir():
            raise InputError(f"`RUN_DIR` (={str(path)!r}) does not exist; expected a run directory")
        for name in (*needed, "distances.json"):
            if not run.has(name):
                raise InputError(
                    f"`RUN_DIR` (={str(path)!r}) holds no {name}; see `fedcollab run`, `estimate` and `solve`"
                )
        run.recover()
        return run

    # What the stages left.

    def schema(self) -> Schema:
        """Return the schema that the clients agreed on.

        Raises
        ------
        InputError
            If schema.json is not the one that the distances were estimated with.
        """
        known = self.made_of("distances.json", "schema.json") if self.has("distances.json") else None
        if known is not None and self.has("schema.json") and known != self.digest("schema.json"):
            raise InputError(
                f"`{self.file('schema.json')}` is damaged, or was changed after distances.json was made with it; "
                "restore it, or start over with --fresh"
            )
        return Schema.load(self.file("schema.json"))

    def distances(self) -> Distances:
        """Return the distances that the run has estimated."""
        return Distances.load(self.file("distances.json"))

    def collaboration(self) -> Collaboration | None:
        """Return the collaboration, if the run has come so far: the advice's coalitions, where there is one.

        Raises
        ------
        InputError
            If it is about other clients, or was made of other distances, than those that are there.
        """
        advice = self.advice()
        if advice is not None:
            return coalitions.as_collaboration(self.distances(), advice.coalitions, advice.C)
        path = self.file("collaboration.json")
        if not path.exists():
            return None
        found, known = Collaboration.load(path), self.distances()
        others = found.names is not None and tuple(found.names) != known.names
        if others or len(found.assignment) != len(known.names):
            raise InputError(f"`{path}` is about other clients than distances.json")
        digest = self.made_of("collaboration.json", "distances.json")
        if digest is not None and digest != self.digest("distances.json"):
            raise InputError(
                f"`{path}` was made of other distances than distances.json; make it again: fedcollab solve"
            )
        return found

    def advice(self) -> Advice | None:
        """Return the advice, if there is one of the clients and distances that are there today."""
        if not self.has("advice.json"):
            return None
        made_of = self.made_of("advice.json", "distances.json")
        if made_of not in (None, self.digest("distances.json")):
            return None
        found = Advice.load(self.file("advice.json"))
        return found if set(found.names) == set(self.distances().names) else None

    def c_path(self) -> CPath | None:
        """Return the path over C as saved, or computed again if a client came or went since and nothing is constrained.

        Returns
        -------
        CPath or None
            None if there is no collaboration yet, if it is constrained, or if computing again would take long.
        """
        today = (None, self.digest("distances.json"))
        if self.has("path.json") and self.made_of("path.json", "distances.json") in today:
            return CPath.load(self.file("path.json"))
        found, known = self.collaboration(), self.distances()
        if found is None or found.constraints.any or len(known.names) > REDRAWN:
            return None
        return coalitions.c_path(known)

    def results(self) -> dict[str, training.TrainingResult]:
        """Return what was trained, by way of training; a training in other coalitions than today's is left out."""
        found = {}
        for way in WAYS:
            name = f"training/{way}/training.json"
            if not self.has(name):
                continue
            groups, collaboration = self.made_of(name, "coalitions"), self.collaboration()
            if way == "coalitions" and groups is not None and collaboration is not None:
                today = {frozenset(map(str, members)) for members in collaboration.coalitions}
                if {frozenset(members) for members in groups} != today:
                    text = f"{name} is of other coalitions than collaboration.json, and is left out; train again"
                    warnings.warn(text, FedcollabWarning, stacklevel=2)
                    continue
            found[way] = training.TrainingResult.load(self.file(name))
        return found

    # Stages.

    def stage(self, name: str, load: Callable[[Path], T], made: Mapping[str, Any], compute: Callable[[], T]) -> T:
        """Return what a stage left, if it was made with the same settings and inputs; else compute and save it.

        A file that was made with others is set aside, with all that was made from it and with a warning.

        Parameters
        ----------
        name : str
            The stage's file.
        load : callable
            Reads it.
        made : mapping
            Settings and inputs that the stage is asked with.
        compute : callable
            Computes the stage's value and saves it with `made`.

        Returns
        -------
        object
            What `load` or `compute` returned.
        """
        with self.working():
            return self._stage(name, load, as_json(made), compute)

    def _stage(self, name: str, load: Callable[[Path], T], wanted: dict[str, Any], compute: Callable[[], T]) -> T:
        """Do what `stage` says, while no other process changes the run."""
        if self.has(name):
            differing = self._differing(name, wanted)
            if not differing:
                return load(self.file(name))
            own = name.removesuffix("/training.json")
            target = self.set_aside(*MADE_OF.get(name, ()), own)
            warnings.warn(
                f"{name} was made with other settings or data ({', '.join(differing)}); it is in {target} now, and is "
                "computed again",
                FedcollabWarning,
                stacklevel=4,
            )
        return compute()

    def begin(self, federation: Federation) -> dict[str, Any]:
        """Write down who the clients are and what they agreed on; stages of another schema are set aside.

        Parameters
        ----------
        federation : Federation
            The clients.

        Returns
        -------
        dict
            What the clients say of themselves, by name.
        """
        self.recover()
        federation.runtime.keep_journal(self.path)
        described = describe_clients(federation)
        if self.has("schema.json") and self.schema() != federation.schema:
            differing = differences(self.schema().settings, federation.schema.settings) or ["other data"]
            target = self.set_aside(*MADE_OF["schema.json"], "schema.json")
            warnings.warn(
                f"the clients were prepared otherwise ({', '.join(differing)}); all stages are in {target} now, "
                "and are computed again",
                FedcollabWarning,
                stacklevel=3,
            )
        if not self.has("schema.json"):
            federation.schema.save(self.file("schema.json"))
        if "started" not in self.config():
            self.write_config({**provenance(), STAMPED: True})
        if not self.has("distances.json"):
            self.write_clients(federation, described)
        return described

    def write_clients(self, federation: Federation, described: Mapping[str, Any]) -> None:
        """Write down what the clients of the distances say of themselves, and who was absent.

        Parameters
        ----------
        federation : Federation
            The clients.
        described : mapping
            What they say of themselves, by name.
        """
        self.write_config({"clients": dict(described), "absent": sorted(federation.left_out)})

    def inputs(self, described: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Return what distances and trainings are made of: a digest of the schema, and the clients' fingerprints.

        Parameters
        ----------
        described : mapping
            What the clients say of themselves, by name.
        """
        prints = {name: reply.get("fingerprint") for name, reply in described.items()}
        return {"schema.json": self.digest("schema.json"), "clients": prints}

    def _differing(self, name: str, wanted: dict[str, Any]) -> list[str]:
        """Return, in words, which settings and inputs of an artefact differ from those that are asked for now."""
        made = files.read_made(self.file(name))
        if made is None:  # written by an earlier version: the settings of the whole run are all that is known
            return [] if self._trusted else ["it does not say with which"]
        newcomers = name.startswith("training/")  # a result that lacks a client is no answer; distances are completed
        return [
            text
            for part in ("settings", "inputs")
            for text in differences(made[part], wanted[part], newcomers=newcomers)
        ]
