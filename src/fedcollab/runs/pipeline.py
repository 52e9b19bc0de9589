"""The stages in a page: `FedCollab(...).fit(clients)`, then `.train()`.

clients ──▶ distances ──▶ coalitions ──▶ training ──▶ report
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedcollab import distances as distances_of
from fedcollab import encoders, training
from fedcollab.coalitions import Collaboration, CPath, c_path, solve
from fedcollab.coalitions.constraints import read_constraints
from fedcollab.coalitions.inputs import Inputs, read_C
from fedcollab.data.schema import Schema
from fedcollab.distances import Distances
from fedcollab.errors import InputError, unknown
from fedcollab.federation import Clients, Federation, describe_clients, federate
from fedcollab.progress import Progress, bar
from fedcollab.runs.fitted import LIMITS, Fitted, saved
from fedcollab.runs.run import Run
from fedcollab.training import defaults


@dataclass(frozen=True)
class FedCollab:
    """Who should train with whom: settings of the stages, and `fit` to run them.

    Parameters
    ----------
    C : float or "auto"
        Weight of the generalisation term; "auto" takes the C that the path over C suggests.
    distance : str
        Method of `estimate_distances`.
    seed : int
        Everything random is derived from it.
    runtime, device, scale, missing_indicators, test_share, task
        How the clients are prepared; as in `fedcollab.federation.federate`.
    encoder : str, torch.nn.Module, callable or None
        Through which distances see images (see `estimate_distances`); training sees the images themselves.
    distance_options, solve_options : dict
        Further settings of `estimate_distances` and of `solve`.
    run_dir : str, Path or Run, optional
        Where every stage leaves its artefact. A stage that was made with the same settings and data is not computed
        again; one that was made with others is set aside and computed again.
    quiet : bool
        No progress bars.
    model : str, callable or torch.nn.Module
        What `train` trains if it is not told otherwise; `fit` refuses one that the clients' samples do not fit, before
        anything is estimated.
    model_options : dict
        Settings of that model.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(90, 2))
    >>> y = (x[:, 0] > 0).astype(int)
    >>> clients = {"north": (x[:30], y[:30]), "south": (x[30:60], y[30:60]), "east": (x[60:], 1 - y[60:])}
    >>> fitted = FedCollab(C=5.0, model="logistic").fit(clients)
    >>> fitted.distances.names, fitted.collaboration.coalitions
    (('east', 'north', 'south'), [['east'], ['north', 'south']])
    """

    C: float | str = "auto"
    distance: str = "auto"
    seed: int = 0
    runtime: str | None = None
    device: str | None = None
    scale: str | None = None
    encoder: Any = None
    missing_indicators: bool | None = None
    test_share: float | None = None
    distance_options: dict[str, Any] = field(default_factory=dict)
    solve_options: dict[str, Any] = field(default_factory=dict)
    run_dir: str | Path | Run | None = None
    quiet: bool = True
    model: Any = defaults.MODEL
    model_options: dict[str, Any] = field(default_factory=dict)
    task: str | None = None

    def __post_init__(self) -> None:
        read_C(self.C)
        known = [each.name for each in inspect.signature(solve).parameters.values() if each.kind == each.KEYWORD_ONLY]
        for option in self.solve_options:
            if option not in known:
                raise InputError(unknown("solve_options", option, known))

    @property
    def run(self) -> Run | None:
        """The run that keeps the stages' files, or None without a run directory."""
        return self.run_dir if self.run_dir is None or isinstance(self.run_dir, Run) else Run(self.run_dir)

    def fit(self, clients: Clients) -> Fitted:
        """Estimate the distances and solve for the coalitions.

        Parameters
        ----------
        clients : iterable or mapping of ClientData, Runtime or Federation
            The clients; in a mapping, by name, pairs of features and labels will do.

        Returns
        -------
        Fitted
            Distances, the path over C and the collaboration; `.train()` goes on from there.

        Raises
        ------
        InputError
            If the clients' data do not fit together or do not fit the model, constraints name a client that there is
            not, or the run directory is about other clients.
        """
        federation = self.prepare(clients)
        if federation.min_coalition > self.solve_options.get("min_size", 1):  # by the limits of the silos
            limited = {**self.solve_options, "min_size": federation.min_coalition}
            return replace(self, solve_options=limited).fit(federation)
        run = self.run
        if run is None:
            with self._bar("distances") as progress:
                distances = self._estimate(federation, progress)
            with self._bar("coalitions for every C"):
                path = c_path(distances, **self._path_options())
            return Fitted(self, federation, distances, path, self._solve(distances, path))
        run.make_folder()
        with run.working():
            return self._fit(run, federation)

    def _fit(self, run: Run, federation: Federation) -> Fitted:
        """Go through the stages of a run, as far as its folder does not hold their answers."""
        described = run.begin(federation)
        inputs = run.inputs(described)
        with self._bar("distances") as progress:
            made = {
                "settings": {"distance": self.distance, "seed": self.seed, "options": self.distance_options},
                "inputs": inputs,
            }

            def estimate() -> Distances:
                run.write_clients(federation, described)
                estimated: Distances = saved(self._estimate(federation, progress), run, "distances.json", made)
                return estimated

            distances = run.stage("distances.json", Distances.load, made, estimate)
            distances = self._completed(run, distances, federation, made, progress)
        self._check_clients(distances, federation)
        found = {"distances.json": run.digest("distances.json")}
        with self._bar("coalitions for every C"):
            made = {"settings": self._path_options(), "inputs": found}
            path = run.stage(
                "path.json",
                CPath.load,
                made,
                lambda: saved(c_path(distances, **self._path_options()), run, "path.json", made),
            )
        asked = {"settings": {"C": self.C, "seed": self.seed, **self.solve_options}, "inputs": found}
        collaboration = run.stage(
            "collaboration.json",
            Collaboration.load,
            asked,
            lambda: saved(self._solve(distances, path), run, "collaboration.json", asked),
        )
        return Fitted(self, federation, distances, path, collaboration, inputs)

    def prepare(self, clients: Clients) -> Federation:
        """Prepare the clients, and check that model and constraints suit them, before anything is computed or written.

        A run that goes on keeps the schema that it began with.

        Parameters
        ----------
        clients : iterable or mapping of ClientData, Runtime or Federation
            The clients, as in `fit`.
        """
        federation = self._prepare(clients)
        training.check_model(self.model, self.model_options, federation.schema)
        limits = {key: value for key, value in self.solve_options.items() if key in LIMITS}
        names = (*federation.names, *federation.left_out)
        read_constraints(Inputs(np.empty((0, 0)), np.ones(len(names)), names, None, True), **limits)
        return federation

    def _prepare(self, clients: Clients) -> Federation:
        """Return the clients as a federation, by the schema of the run if there is one that answers the settings."""
        run = self.run
        known = None if run is None or not run.has("schema.json") else run.schema()
        if isinstance(clients, Federation):
            return self._settled(clients, known)
        if known is not None and self._asks_for(known.settings, known.columns is not None):
            given: dict[str, Any] = {"schema": known}
        else:
            keys = ("scale", "missing_indicators", "test_share", "seed", "encoder", "task")
            given = {key: getattr(self, key) for key in keys}
        with bar("encoding", quiet=self.quiet or self.encoder in (None, "none")) as progress:
            return federate(clients, runtime=self.runtime, device=self.device, progress=progress, **given)

    def _settled(self, federation: Federation, known: Schema | None) -> Federation:
        """Return a federation that was given, by the schema of the run if it was prepared with the same settings."""
        settings = federation.schema.settings
        for key in ("scale", "missing_indicators", "test_share"):
            value = getattr(self, key)
            if value not in (None, "auto", settings[key]) and (key != "scale" or federation.schema.columns is None):
                raise InputError(f"`{key}` (={value!r}) is not that of the federation given ({settings[key]!r})")
        if self.task not in (None, "auto", federation.schema.task):
            raise InputError(
                f"`task` (={self.task!r}) is not that of the federation given ({federation.schema.task!r})"
            )
        if self.encoder is not None:
            federation = federate(federation, encoder=self.encoder)
        if known is None or known == federation.schema or known.settings != federation.schema.settings:
            return federation
        return federate(federation.runtime, schema=known)

    def _asks_for(self, known: Mapping[str, Any], table: bool) -> bool:
        """Return whether clients would be prepared with the settings that are known of a run."""
        encoder = None if self.encoder in (None, "none") else encoders.name_encoder(self.encoder)
        asked = {
            "scale": known["scale"] if table or self.scale in (None, "auto") else self.scale,
            "missing_indicators": bool(self.missing_indicators),
            "test_share": 0.2 if self.test_share is None else self.test_share,
            "seed": self.seed,
            "encoder": encoder,
        }
        task = known.get("task", "classification")
        return asked == {key: value for key, value in known.items() if key != "task"} and self.task in (
            None,
            "auto",
            task,
        )

    def _estimate(self, federation: Federation, progress: Progress) -> Distances:
        """Estimate the distances with the settings of this object."""
        return distances_of.estimate_distances(
            federation, method=self.distance, seed=self.seed, progress=progress, **self.distance_options
        )

    def _solve(self, distances: Distances, path: CPath) -> Collaboration:
        """Solve for the coalitions with the given C, or with the one that the path suggests."""
        C = path.suggested.C if self.C == "auto" else float(self.C)
        return solve(distances, C=C, **{"seed": self.seed, **self.solve_options})

    def _path_options(self) -> dict[str, Any]:
        """Return the seed, and those of `solve_options` that `c_path` takes too."""
        own = ("method", "restarts", "prove")
        return {"seed": self.seed, **{key: value for key, value in self.solve_options.items() if key not in own}}

    def _check_clients(self, distances: Distances, federation: Federation) -> None:
        """Check that the distances are of the clients that are here, absent ones included."""
        here = {*federation.names, *federation.left_out}
        if not set(federation.names) <= set(distances.names) <= here:
            differing = sorted(set(distances.names) ^ here)
            assert self.run is not None
            raise InputError(
                f"`run_dir` (={str(self.run.path)!r}) is about other clients ({differing[0]!r} is on one side only); "
                "to take clients in or out of a run: join, leave"
            )

    @staticmethod
    def _completed(
        run: Run, distances: Distances, federation: Federation, made: Mapping[str, Any], progress: Progress
    ) -> Distances:
        """Measure the pairs that were missing because a client was absent, now that it is back.

        The files that were made from the incomplete matrix are set aside, and made again.
        """
        expected = {*distances.names, *run.config().get("absent", [])}
        if not set(federation.names) <= expected or not distances_of.missing_pairs(distances, federation.names):
            return distances
        whole = distances_of.complete(distances, federation, progress)
        if np.array_equal(whole.observed, distances.observed):
            return distances
        run.set_aside("training", "collaboration.json", "path.json", "distances.json")
        whole.save(run.file("distances.json"), made)
        run.write_clients(federation, describe_clients(federation))
        return whole

    def _bar(self, description: str) -> AbstractContextManager[Progress]:
        """Return a progress bar, or a silent one if `quiet` is set."""
        return bar(description, quiet=self.quiet)
