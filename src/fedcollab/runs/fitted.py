"""The answer of `FedCollab.fit`, before any training, and what can be done with it: advise, train, compare, join."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from fedcollab import advice as advice_of
from fedcollab import training
from fedcollab.advice.result import Advice
from fedcollab.coalitions import Collaboration, CPath, as_collaboration
from fedcollab.data.client import ClientData
from fedcollab.distances import Distances
from fedcollab.errors import InputError
from fedcollab.federation import Clients, Federation, federate, with_client
from fedcollab.progress import Progress, bar
from fedcollab.runs import membership
from fedcollab.runs.comparing import keep_comparison
from fedcollab.runs.learning_curve import keep_learning_curve
from fedcollab.runs.run import WAYS, Run
from fedcollab.training import defaults

if TYPE_CHECKING:
    from fedcollab.runs.pipeline import FedCollab

#: the options of `solve` that limit which coalitions there may be
LIMITS = ("must_link", "cannot_link", "min_size", "max_size")
#: the options of `train` that say how clients train together: of no matter to clients that are advised to stay alone
HOW = ("options", "keep", "secure_aggregation")
#: the names of the options of `advise`, and of those of `train`
OF_ADVICE, OF_TRAINING = (frozenset(inspect.signature(of).parameters) for of in (advice_of.advise, training.train))


@dataclass(frozen=True, eq=False)
class Asked:
    """An advice, and what it was asked with.

    Parameters
    ----------
    model
        The model, or None for that of the settings.
    options : dict
        The further options of `fedcollab.advise`.
    advice : Advice
        The answer.
    """

    model: Any
    options: dict[str, Any]
    advice: Advice

    def answers(self, model: Any, options: Mapping[str, Any]) -> bool:
        """Return whether an advice with these options, as far as any are given, would be the same."""
        if model is not None and not (isinstance(model, str) and model == self.model) and model is not self.model:
            return False
        return all(key in self.options and self.options[key] == value for key, value in options.items())


@dataclass(frozen=True, eq=False)
class Fitted:
    """The answer before any training: distances, the path over C, and the collaboration.

    Parameters
    ----------
    settings : FedCollab
        What was asked.
    federation : Federation
        The clients.
    distances : Distances
        How different every two clients' data are.
    path : CPath or None
        The coalitions for every C; None after a client joined, because it was computed without that client
        (`c_path` computes a new one).
    collaboration : Collaboration
        Who should train with whom.
    inputs : mapping
        A digest of the schema and a checksum of each client's data, where the run has a directory.
    """

    settings: FedCollab
    federation: Federation
    distances: Distances
    path: CPath | None
    collaboration: Collaboration
    inputs: Mapping[str, Any] = field(default_factory=dict)
    _asked: list[Asked] = field(default_factory=list, init=False, repr=False)

    def __repr__(self) -> str:
        clients, groups = len(self.distances.names), len(self.collaboration.coalitions)
        return f"Fitted(clients={clients}, coalitions={groups}, C={self.collaboration.C:.4g})"

    @cached_property
    def advice(self) -> Advice:
        """Who should train with whom, how, and what each client will gain: measured when it is first asked for."""
        return self.advise()

    @property
    def saved_advice(self) -> Advice | None:
        """The advice that the run directory has; None without one, or without a run directory."""
        return None if self.settings.run is None else self.settings.run.advice()

    def advise(self, model: Any = None, **options: Any) -> Advice:
        """Measure on training rows who should train with whom, how, and what each client will gain.

        Parameters
        ----------
        model
            As in `fedcollab.advise`; by default the model of the settings, with its options.
        **options
            Further settings of `fedcollab.advise`: metric, algorithms, rounds, lr and others.

        Returns
        -------
        Advice
            Kept in the run directory, where there is one.
        """
        _, settings = self._settled(defaults.ALGORITHM, model, options)
        settings.pop("algorithm")
        chosen = self.settings.model if model is None else model
        limits = {key: value for key, value in self.settings.solve_options.items() if key in LIMITS}
        with self._bar("measuring what each would gain") as progress:
            compute = partial(
                advice_of.advise,
                self.federation,
                model=chosen,
                C=self.settings.C,
                distances=self.distances,
                path=self.path,
                constraints=limits,
                **{"progress": progress, **settings},
            )
            run = self.settings.run
            if run is None:
                return self._remembered(model, options, compute())
            named = chosen if isinstance(chosen, str) else training.name_model(chosen)
            asked = {"model": named, "C": self.settings.C, "constraints": limits, **settings}
            made = {"settings": asked, "inputs": {"distances.json": run.digest("distances.json"), **self.inputs}}
            advised: Advice = run.stage(
                "advice.json", Advice.load, made, lambda: saved(compute(), run, "advice.json", made)
            )
            return self._remembered(model, options, advised)

    def _remembered(self, model: Any, options: Mapping[str, Any], advice: Advice) -> Advice:
        """Keep an advice with what it was asked with, so that `train` need not ask again, and return it."""
        self._asked[:] = [Asked(model, dict(options), advice)]
        return advice

    def following(self, advice: Advice) -> Fitted:
        """Return the same answer with the advice's coalitions as the collaboration.

        Parameters
        ----------
        advice : Advice
            The advice.
        """
        return replace(self, collaboration=as_collaboration(self.distances, advice.coalitions, advice.C))

    def train(
        self, algorithm: str | None = None, model: Any = None, *, way: str = "coalitions", **options: Any
    ) -> training.TrainingResult:
        """Train as advised; or a given algorithm inside the coalitions; or in one of the ways to compare with.

        Parameters
        ----------
        algorithm
            As in `fedcollab.train`. None: as advised, with the coalitions and the algorithm that are measured to be
            best (`advise`); with a given C, FedAvg in the coalitions of that C, as in the paper. An advice that was
            asked for before is followed, with the model and the settings that it was asked with, unless others are
            given here.
        model
            As in `fedcollab.train`; by default the model of the settings, with its options.
        way : str
            "coalitions", "local" (each alone) or "global" (everyone together).
        **options
            Further settings of `fedcollab.train`.

        Returns
        -------
        TrainingResult
            The result; read back from the run directory if it was trained there with the same settings and data.

        Raises
        ------
        InputError
            If `way` is none of these, or a setting is out of range.
        """
        if way not in WAYS:
            raise InputError(f"`way` (={way!r}) must be one of: {', '.join(WAYS)}")
        coalitions: Any = self.collaboration.coalitions if way == "coalitions" else way
        named = self.settings.model if model is None else model
        advice, followed = None, {}
        advised = way == "coalitions" and algorithm is None and self.settings.C == "auto" and named != "auto"
        if advised:
            given = {key: value for key, value in options.items() if key in OF_ADVICE}
            if not (self._asked and self._asked[0].answers(model, given)):
                self.advise(model, **given)
            (asked,) = self._asked
            advice, model = asked.advice, asked.model
            options = {**{key: value for key, value in asked.options.items() if key in OF_TRAINING}, **options}
            if advice.candidate.kind == "alone":  # then as advised is alone: the same models, not nearly the same
                coalitions, algorithm = advice.coalitions, defaults.ALGORITHM
                options = {key: value for key, value in options.items() if key not in HOW}
            else:
                coalitions, followed = advice, advice.followed
                algorithm, options = None, {"options": None, "keep": None, **options}
        else:
            algorithm = algorithm or defaults.ALGORITHM
        model, settings = self._settled(algorithm, model, options)
        words = {"coalitions": "training in coalitions", "local": "training alone", "global": "training with everyone"}
        with self._bar(words[way]) as progress:
            compute = partial(
                training.train, self.federation, coalitions, model=model, **{"progress": progress, **settings}
            )
            run = self.settings.run
            if run is None:
                return compute()
            groups = coalitions if advice is None else advice.coalitions
            made = {
                "settings": _training_settings(model, {**settings, **followed}),
                "inputs": {**self.inputs, "coalitions": groups},
            }
            if advised:
                made["inputs"]["advice.json"] = run.digest("advice.json")
            folder = f"training/{way}"
            return run.stage(
                f"{folder}/training.json",
                training.TrainingResult.load,
                made,
                lambda: compute(run_dir=run.file(folder), made=made),
            )

    def compare(self, results: Mapping[str, training.TrainingResult]) -> training.Comparison:
        """Compare ways of training on the same test samples: intervals of accuracies and of gains.

        Parameters
        ----------
        results : mapping of TrainingResult
            What `train` returned, by way of training.

        Returns
        -------
        Comparison
            Kept in the run directory, where there is one.
        """
        run = self.settings.run
        if run is None:
            return training.compare(self.federation, results)
        return keep_comparison(run, self.federation, results)

    def learning_curve(
        self, alone: training.TrainingResult, algorithm: str = defaults.ALGORITHM, model: Any = None, **options: Any
    ) -> training.LearningCurve:
        """Measure what half of their rows would cost clients that train alone: what gains are worth in rows.

        Parameters
        ----------
        alone : TrainingResult
            What `train(way="local")` returned.
        algorithm, model, **options
            What it was given.

        Returns
        -------
        LearningCurve
            Kept in the run directory, where there is one.
        """
        model, settings = self._settled(algorithm, model, options)
        with self._bar("training alone on half of the rows") as progress:
            asked = {"model": model, "progress": progress, **settings}
            measure = partial(training.measure_learning_curve, self.federation, alone, **asked)
            run = self.settings.run
            if run is None:
                return measure()
            return keep_learning_curve(run, _training_settings(model, settings), self.inputs, measure)

    def join(
        self,
        client: ClientData | str,
        *,
        clients: Clients | None = None,
        trained: training.TrainingResult | None = None,
        retrain: bool = False,
        rounds: int | None = None,
    ) -> membership.Joining:
        """Add a new client: only its own distances are estimated, and only the coalition that it joins trains on.

        Parameters
        ----------
        client : ClientData or str
            The newcomer; of a real federation, the name of its silo.
        clients : Runtime, optional
            In a real federation, all silos of the run and the newcomer's, as `connect_federation` gives them.
        trained : TrainingResult, optional
            The result to train on from; without it, that of the run directory; without either, nothing is trained.
        retrain : bool
            Train the coalition from new weights instead of from its saved model.
        rounds : int, optional
            Rounds of that training; by default a fifth of the run's, or all where it starts from new weights.

        Returns
        -------
        Joining
            Its `.fitted` is this object with the newcomer; in a run directory the change is recorded.

        Raises
        ------
        InputError
            If the client is in the run already, or its data do not fit the run's schema; or if `clients` is given with
            data, or not given with a name.
        """
        if isinstance(client, str) != (clients is not None):
            raise InputError("`client` must be a ClientData; or the name of a silo, with all silos as `clients`")
        name = client if isinstance(client, str) else client.name
        run = self.settings.run
        results = {} if run is None else {way: kept for way, kept in run.results().items() if way != "global"}
        if trained is not None:
            results["coalitions"] = trained
        advice = self._asked[0].advice if self._asked else None if run is None else run.advice()
        fit = None if advice is None else advice.bound
        before = membership.State(self.distances, self.collaboration, results, fit)
        if isinstance(client, str):
            assert clients is not None
            federation = federate(clients, schema=self.federation.schema)
        else:
            federation = with_client(self.federation, client)
        with self._bar(f"training with {name}") as progress:
            how = membership.Training(scratch=retrain, rounds=rounds, progress=progress)
            joining = membership.join(before, federation, name, seed=self.settings.seed, training=how)
        if run is not None:
            membership.keep_joining(run, before, joining, federation)
        fitted = replace(
            self,
            federation=federation,
            distances=joining.distances,
            path=None,
            collaboration=joining.collaboration,
            inputs={} if run is None else run.inputs(run.config()["clients"]),
        )
        return replace(joining, fitted=fitted)

    def _settled(self, algorithm: str | None, model: Any, options: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return the model to train, that of the settings if none is given, and all settings that are given."""
        settings = {"algorithm": algorithm, "seed": self.settings.seed, **options}
        if model is not None:
            return model, settings
        return self.settings.model, {"model_options": self.settings.model_options, **settings}

    def _bar(self, description: str) -> AbstractContextManager[Progress]:
        """Return a progress bar, or a silent one if `quiet` is set."""
        return bar(description, quiet=self.settings.quiet)


def _training_settings(model: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all settings of a training that decide its result, defaults included, as plain values."""
    parameters = inspect.signature(training.train).parameters.values()
    settings = {each.name: each.default for each in parameters if each.kind == each.KEYWORD_ONLY} | dict(given)
    algorithm, chosen = training.make_algorithm(settings["algorithm"], settings["options"])
    named = model if isinstance(model, str) else training.name_model(model)
    for key in ("runtime", "device", "scale", "task", "run_dir", "callbacks", "progress", "made"):
        settings.pop(key, None)
    if settings["loss"] is None:  # that of the task
        settings.pop("loss")
    return {**settings, "algorithm": algorithm, "options": chosen.options(), "model": named}


def saved(value: Any, run: Run, name: str, made: Mapping[str, Any]) -> Any:
    """Save what a stage computed together with its settings and inputs, and return it."""
    value.save(run.file(name), made)
    return value
