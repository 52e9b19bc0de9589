"""Plans for when clients come or change: what `join` and `check` with `--on` will ask, read off the run itself.

A newcomer is compared with each partner by the distance method of the run, and one coalition trains on with it, as the
run was trained and from the model that it left. So nothing of such a plan is chosen: it is all in the run directory.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedcollab.errors import InputError
from fedcollab.flower.coordinator.folder import FederationFolder
from fedcollab.flower.coordinator.planning import needed_budget, partners_of
from fedcollab.runs import membership
from fedcollab.silo.plans import METHODS, Plan, Training
from fedcollab.training import TrainingResult
from fedcollab.training.honest import start_digest
from fedcollab.training.models import size_of


def plan_join(
    federation: FederationFolder, run: str | Path, client: str, *, study: str | None = None, purpose: str = ""
) -> Plan:
    """Make the plan under which a silo joins a run.

    Parameters
    ----------
    federation : FederationFolder
        The federation; the newcomer and the run's clients must be admitted.
    run : str or Path
        The run directory.
    client : str
        The newcomer.
    study : str, optional
        The name of the study; by default the federation's.
    purpose : str
        Why, in words for the silos' administrators.

    Returns
    -------
    Plan
        The plan, for the newcomer and all clients of the run.

    Raises
    ------
    InputError
        If the client is in the run already, a silo is not admitted, or the run's distances were not estimated.
    """
    _, state = membership.open_state(run)
    if client in state.names:
        raise InputError(f"`--client` (={client!r}) is in this run already; for its drift: federation plan ... check")
    trained = state.results.get("coalitions")
    groups = [(*map(str, members), client) for members in state.collaboration.coalitions]
    return _plan(
        federation, "join", state, [*state.names, client], trained, study=study, purpose=purpose,
        coalitions=tuple(groups) if trained is not None else (), newcomer=client,
    )  # fmt: skip


def plan_check(
    federation: FederationFolder, run: str | Path, *, apply: bool = False, study: str | None = None, purpose: str = ""
) -> Plan:
    """Make the plan under which silos whose data changed are compared again, and may regroup and train on.

    Parameters
    ----------
    federation : FederationFolder
        The federation; the run's clients must be admitted.
    run : str or Path
        The run directory.
    apply : bool
        Whether coalitions may train on, for `check --apply`; they may be any of the partners.
    study, purpose
        As in `plan_join`.

    Returns
    -------
    Plan
        The plan, for all clients of the run.

    Raises
    ------
    InputError
        As in `plan_join`; or if nothing was trained that could train on.
    """
    _, state = membership.open_state(run)
    trained = state.results.get("coalitions") if apply else None
    if apply and trained is None:
        raise InputError(f"`--run` (={str(run)!r}) has no training in coalitions that could go on; leave --apply out")
    return _plan(federation, "check", state, state.names, trained, study=study, purpose=purpose)


def training_of(result: TrainingResult) -> Training:
    """Return how a run was trained, as a plan says it."""
    settings = result.settings
    return Training(
        model=result.model["name"],
        algorithm=settings["algorithm"],
        batch_size=settings["batch_size"],
        rounds=settings["rounds"],
        lr=settings["lr"],
        local_epochs=settings["epochs"],
        secure_aggregation=bool(settings.get("secure_aggregation")),
        model_options=dict(result.model["options"]),
        options=dict(settings["options"]),
        optimizer=settings["optimizer"],
        weight_decay=settings["weight_decay"],
        loss=result.model.get("loss"),
    )


def starts_of(result: TrainingResult) -> tuple[str, ...]:
    """Return the SHA-256 of each coalition's model as it is sent: flat weights, filled up with zeros."""
    text = json.dumps({key: result.model[key] for key in ("name", "options", "shape", "classes")})
    digests = []
    for saved in result.models["last"]:
        w = np.zeros(size_of(text), dtype=np.float32)
        w[: len(saved)] = saved
        digests.append(start_digest(w))
    return tuple(digests)


def _plan(
    federation: FederationFolder,
    kind: str,
    state: membership.State,
    names: Sequence[str],
    trained: TrainingResult | None,
    *,
    study: str | None,
    purpose: str,
    coalitions: tuple[tuple[str, ...], ...] = (),
    newcomer: str = "",
) -> Plan:
    """Return a plan for a change of membership, with the budget that its steps need."""
    method = state.distances.method
    if method not in METHODS:
        raise InputError(f"the distances of this run were {method}, not estimated: there is nothing to ask silos for")
    training = None if trained is None else training_of(trained)
    return Plan(
        study=study or federation.name,
        kind="join" if kind == "join" else "check",
        partners=partners_of(federation, names),
        budget=needed_budget(kind, len(names), methods=(method,), training=training, alone="local" in state.results),
        methods=(method,),
        training=training,
        coalitions=coalitions,
        starts=() if trained is None else starts_of(trained),
        comparison_alone=training is not None,
        purpose=purpose,
        newcomer=newcomer,
    )
