"""The five stages in a page: `FedCollab(...).fit(clients)`, then `.train()`.

clients ──▶ distances ──▶ coalitions ──▶ training ──▶ report
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedcollab import files as artefact
from fedcollab.data.client import ClientData
from fedcollab.federation.prepare import federate
from fedcollab.coalitions import Collaboration, CPath, c_path, solve
from fedcollab.distances import Distances, estimate_distances
from fedcollab.distances.complete import complete, missing_pairs
from fedcollab.errors import InputError, number
from fedcollab.runs.membership import Joining, State, Training, keep_joining, open_results, recover
from fedcollab.runs.membership import join
from fedcollab.federation.adopt import adopt, read_schema, said, with_client
from fedcollab.progress import Progress, bar
from fedcollab.wire import Runtime
from fedcollab.runs.directory import RunDirectory
from fedcollab.training import TrainingResult, train

WAYS = ("local", "global", "coalitions")


@dataclass(frozen=True)
class FedCollab:
    """Who should train with whom: settings of the stages, and `fit` to run them.

    C               weight of the generalisation term; "auto" takes the C that the path over C suggests
    distance        method of `estimate_distances`
    encoder         through which distances see images (see `estimate_distances`); training sees the images themselves
    seed            everything random is derived from it
    run_dir         where every stage leaves its artefact; a stage that is there already is not computed again
    quiet           no progress bars
    """

    C: float | str = "auto"
    distance: str = "auto"
    seed: int = 0
    runtime: str = "vectorised"
    device: str = "auto"
    scale: str = "auto"
    encoder: Any = None
    missing_indicators: bool = False
    test_share: float = 0.2
    distance_options: dict[str, Any] = field(default_factory=dict)
    solve_options: dict[str, Any] = field(default_factory=dict)
    run_dir: str | Path | None = None
    quiet: bool = True

    def __post_init__(self) -> None:
        if self.C != "auto":
            number("C", self.C, above=0)

    def fit(self, clients: Iterable[ClientData] | Runtime) -> Fitted:
        """Estimate the distances and solve for the coalitions."""
        clients = clients if isinstance(clients, Runtime) else list(clients)
        with bar("encoding", quiet=self.quiet or self.encoder in (None, "none")) as progress:
            federation = federate(
                clients,
                runtime=self.runtime,
                device=self.device,
                scale=self.scale,
                missing_indicators=self.missing_indicators,
                test_share=self.test_share,
                seed=self.seed,
                encoder=self.encoder,
                progress=progress,
            )
        store = RunDirectory(self.run_dir) if self.run_dir is not None else None
        if store is not None:
            self._begin(store, federation)
        with bar("distances", quiet=self.quiet) as progress:
            distances = self._stage(store, "distances.json", Distances, lambda: self._estimate(federation, progress))
            distances = self._completed(store, distances, federation, progress)
        here = {*federation.names, *federation.left_out}
        if not set(federation.names) <= set(distances.names) <= here:
            differing = sorted(set(distances.names) ^ here)
            raise InputError(
                f"`run_dir` (={str(self.run_dir)!r}) is about other clients ({differing[0]!r} is on one side only); "
                "to take clients in or out of a run: join, leave"
            )
        with bar("coalitions for every C", quiet=self.quiet):
            path = self._stage(store, "path.json", CPath, lambda: c_path(distances, **self._path_options()))
        C = path.suggested.C if self.C == "auto" else float(self.C)
        collaboration = self._stage(
            store,
            "collaboration.json",
            Collaboration,
            lambda: solve(distances, C=C, seed=self.seed, **self.solve_options),
        )
        return Fitted(self, federation, distances, path, collaboration)

    @staticmethod
    def _begin(store: RunDirectory, federation: Runtime) -> None:
        """Write down what the clients are; a run that goes on keeps the schema it began with."""
        recover(store)
        federation.keep_journal(store.path)
        if store.has("schema.json"):
            schema = read_schema(store.file("schema.json"))
            if schema != federation.schema:
                adopt(federation, schema)
        elif federation.schema is not None:
            artefact.write_bytes(store.file("schema.json"), (federation.schema.to_json() + "\n").encode())
        if not store.has("distances.json"):
            store.write_config({"clients": said(federation), "absent": sorted(federation.left_out)})

    @staticmethod
    def _completed(
        store: RunDirectory | None, distances: Distances, federation: Runtime, progress: Progress
    ) -> Distances:
        """Pairs that were missing because a client was absent, measured now that it is back.

        What was made of the incomplete matrix is set aside, and made again.
        """
        if store is None:
            return distances
        expected = {*distances.names, *store.config().get("absent", [])} if store.has("run.json") else set()
        back = [name for name in federation.names if name in expected]
        if set(back) != set(federation.names) or not missing_pairs(distances, back):
            return distances
        whole = complete(distances, federation, progress)
        if np.array_equal(whole.observed, distances.observed):
            return distances
        store.set_aside("training", "collaboration.json", "path.json", "distances.json")
        whole.save(store.file("distances.json"))
        store.write_config({"clients": said(federation), "absent": sorted(federation.left_out)})
        return whole

    def _estimate(self, federation: Runtime, progress: Progress) -> Distances:
        return estimate_distances(
            federation, method=self.distance, seed=self.seed, progress=progress, **self.distance_options
        )

    def _path_options(self) -> dict[str, Any]:
        return {key: value for key, value in self.solve_options.items() if key not in ("method", "restarts")}

    @staticmethod
    def _stage(store: RunDirectory | None, name: str, kind: Any, compute: Callable[[], Any]) -> Any:
        """What the stage left in the run directory, or what it computes now."""
        if store is not None and store.has(name):
            return kind.load(store.file(name))
        value = compute()
        if store is not None:
            value.save(store.file(name))
        return value


@dataclass(frozen=True, eq=False)
class Fitted:
    """The answer before any training: distances, the path over C, and the collaboration.

    `path` is None after a client joined: it was drawn for those who were there before (`c_path` draws a new one).
    """

    settings: FedCollab
    federation: Runtime
    distances: Distances
    path: CPath | None
    collaboration: Collaboration

    def train(
        self, algorithm: str = "fedavg", model: str = "mlp", *, way: str = "coalitions", **options: Any
    ) -> TrainingResult:
        """Train inside the coalitions, or ("local", "global") the two ends that they are compared to."""
        if way not in WAYS:
            raise InputError(f"`way` (={way!r}) must be one of: {', '.join(WAYS)}")
        coalitions = self.collaboration.coalitions if way == "coalitions" else way
        folder = None if self.settings.run_dir is None else Path(self.settings.run_dir) / "training" / way
        if folder is not None and (folder / "training.json").exists():
            return TrainingResult.load(folder / "training.json")
        words = {"coalitions": "training in coalitions", "local": "training alone", "global": "training with everyone"}
        with self._bar(words[way]) as progress:
            return train(
                self.federation,
                coalitions,
                algorithm,
                model,
                **{"seed": self.settings.seed, "run_dir": folder, "progress": progress, **options},
            )

    def join(
        self,
        client: ClientData,
        *,
        trained: TrainingResult | None = None,
        retrain: bool = False,
        rounds: int | None = None,
    ) -> Joining:
        """Take a new client in: its distances alone are estimated, and the coalition that it joins trains on.

        trained   what to train on from; without it, what the run directory holds, else nothing is trained
        retrain   train the coalition from new weights instead of from its saved model
        rounds    of that training; a fifth of the run's where it goes on from a saved model

        The answer's `.fitted` is this object with the newcomer; in a run directory the change is recorded.
        """
        store = None if self.settings.run_dir is None else RunDirectory(self.settings.run_dir)
        results = {} if store is None else open_results(store)
        if trained is not None:
            results["coalitions"] = trained
        before = State(self.distances, self.collaboration, results)
        federation = with_client(self.federation, client)
        with self._bar(f"training with {client.name}") as progress:
            how = Training(scratch=retrain, rounds=rounds, progress=progress)
            joining = join(before, federation, client.name, seed=self.settings.seed, training=how)
        if store is not None:
            keep_joining(store, before, joining, federation)
        fitted = replace(
            self, federation=federation, distances=joining.distances, path=None, collaboration=joining.collaboration
        )
        return replace(joining, fitted=fitted)

    def _bar(self, description: str) -> AbstractContextManager[Progress]:
        return bar(description, quiet=self.settings.quiet)
