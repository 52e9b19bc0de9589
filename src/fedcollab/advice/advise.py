"""`advise`: who should train with whom, how, and what each client will gain, measured before anyone commits."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fedcollab.advice.candidates import INTERCEPT, Plan, best_own_weights, best_partition, labels, own_weights_plan
from fedcollab.advice.decide import Decision, decide
from fedcollab.advice.gains import Expected, Gain
from fedcollab.advice.pilot import Measured, run_pilots
from fedcollab.advice.proxy import Sums, coalition_weights
from fedcollab.advice.result import Advice, Candidate
from fedcollab.advice.separates import separating_columns
from fedcollab.coalitions import CPath, c_path, solve
from fedcollab.data.client import list_clients
from fedcollab.distances import Distances, estimate_distances
from fedcollab.errors import InputError, choose, number
from fedcollab.federation import Clients, Federation, federate
from fedcollab.progress import Progress, silent
from fedcollab.training import check_model, defaults
from fedcollab.training.algorithms import ALGORITHMS, make_algorithm
from fedcollab.training.losses import choose_loss
from fedcollab.training.models import Factory
from fedcollab.training.opening import Steps, decisive, open_session
from fedcollab.training.scores import SCORES
from fedcollab.training.trees.forest import TREES, with_rounds

Floats = NDArray[np.float64]

#: in what gains are told
METRICS = ("loss", "accuracy")
#: what may be advised unless `algorithms` says otherwise
ALGORITHMS_ADVISED = ("fedavg", "own-intercept", "ditto", "own-weights")
#: the same where the model is one of trees
TREES_ADVISED = ("fedavg", "own-intercept")
#: how strongly Ditto's personal models are drawn to the coalition's: the usual strength, and a weaker one
STRENGTHS = (1.0, 0.3)
#: a partition or own weights are piloted if the proxies' squared error is lower by this share than with either end
PROMISING = 0.03
#: constraints of `solve` that candidates must keep
LIMITS = ("must_link", "cannot_link", "min_size", "max_size")


def advise(
    clients: Clients,
    *,
    model: str | Factory | nn.Module = defaults.MODEL,
    algorithms: Sequence[str] | None = None,
    metric: str = "loss",
    C: float | str = "auto",
    seed: int = 0,
    rounds: int = defaults.ROUNDS,
    lr: float = defaults.LR,
    batch_size: int = defaults.BATCH_SIZE,
    local_epochs: int = defaults.LOCAL_EPOCHS,
    weight_decay: float = defaults.WEIGHT_DECAY,
    optimizer: str = defaults.OPTIMIZER,
    model_options: Mapping[str, Any] | None = None,
    distances: Distances | None = None,
    path: CPath | None = None,
    constraints: Mapping[str, Any] | None = None,
    runtime: str | None = None,
    device: str | None = None,
    scale: str | None = None,
    task: str | None = None,
    loss: str | None = None,
    progress: Progress = silent,
) -> Advice:
    """Advise who should train with whom and how, and say what each client will gain, from training rows alone.

    Candidates come from theory: each alone, everyone together, the partitions on the paths over C, own weights along C.
    Closed-form proxies choose among them, the best few are trained as pilots with the model that will be trained, on a
    part of the training rows, and measured on the rest. Test rows are never looked at.

    Parameters
    ----------
    clients : iterable of ClientData, mapping, Runtime or Federation
        The clients, in a mapping by name (see `federate`).
    model : str, callable or torch.nn.Module
        The model that will be trained, as in `fedcollab.train`: the answer depends on it.
    algorithms : sequence of str, optional
        The algorithms that may be advised; by default "fedavg", "own-intercept", "ditto" and "own-weights", for trees
        ("xgboost") the first two.
    metric : str
        In what gains are told: "loss" or "accuracy" (of a numeric target R2 stands in its place). The choice is made
        by loss, which is the less noisy.
    C : float or "auto"
        A number gives the paper's procedure to the letter: the coalitions that are best for this C, trained by FedAvg;
        the pilots then only tell what they bring. "auto" measures.
    seed : int
        Everything random is derived from it.
    rounds, lr, batch_size, local_epochs, weight_decay, optimizer, model_options
        How it will be trained, as in `fedcollab.train`.
    distances : Distances, optional
        Distances that are known already; by default they are estimated ("hypothesis", and "cross" in process).
    path : CPath, optional
        The path over C of those distances, where it is known already.
    constraints : mapping, optional
        `must_link`, `cannot_link`, `min_size` and `max_size` of `solve`; only plans that keep them are considered,
        which leaves training alone out if partners are demanded.
    runtime, device, scale, task
        As in `fedcollab.federation.federate`.
    loss
        As in `fedcollab.train`.
    progress : callable
        Called with (done, total).

    Returns
    -------
    Advice
        Coalitions, algorithm, weights, expected gains, and all that was considered.

    Raises
    ------
    InputError
        If an argument is out of range, a name is unknown, or the clients do not fit together or with the model.
    Paused
        If too few clients answered.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(48, 2))
    >>> y = (x[:, 0] > 0).astype(int)
    >>> clients = {"north": (x[:24], y[:24]), "south": (x[24:], y[24:])}
    >>> advice = advise(clients, model="logistic", rounds=2)
    >>> sorted(advice.gains)
    ['north', 'south']
    """
    choose("metric", metric, dict.fromkeys(METRICS))
    rounds = int(number("rounds", rounds, at_least=1, whole=True))
    number("lr", lr, above=0)
    advised = TREES_ADVISED if isinstance(model, str) and model == TREES else ALGORITHMS_ADVISED
    allowed = list(advised if algorithms is None else algorithms)
    for name in allowed:
        choose("algorithms", name, ALGORITHMS)
    if not allowed:
        raise InputError("`algorithms` (=[]) must name at least one algorithm")
    limits = {key: value for key, value in (constraints or {}).items() if key in LIMITS}
    listed = list_clients(clients)
    federation = federate(listed, runtime=runtime, device=device, scale=scale, seed=seed, task=task)
    names = list(federation.names)
    if model == "auto":
        raise InputError("`model` (='auto') must be a model's name: the advice depends on the model")
    model_options = with_rounds(model, model_options, rounds)
    check_model(model, model_options, federation.schema)
    steps = Steps(model, model_options, lr, batch_size, local_epochs, seed, weight_decay, optimizer, loss=loss)
    started, before = time.process_time(), federation.runtime.cost.copy()
    kinds = [_in_order(kind, names) for kind in _distances(federation, distances, seed)]
    drawn = c_path(kinds[0], seed=seed, **limits) if path is None else path
    paths = [drawn, *(c_path(kind, seed=seed, **limits) for kind in kinds[1:])]
    quantities = {name: federation.quantities[name] for name in names}
    if C == "auto":
        sums = Sums.ask(federation, seed)
        plans, raw = _propose(names, quantities, kinds, paths, sums, allowed, limits)
    else:
        given = solve(kinds[0], C=float(C), **{"seed": seed, **limits})
        plans, raw, sums = [_paper(given.coalitions, float(C))], {}, None
    measured = run_pilots(federation, plans, steps, rounds, progress)
    measured = _allowed(measured, allowed, limits, C)
    weights = [_weights(each.plan, quantities, raw) for each in measured]
    scores = SCORES[federation.schema.task]
    decision = decide(measured, weights, names, quantities, kinds[0].matrix, kinds[0].stderr, scores)
    if C != "auto":
        decision = replace(decision, chosen=len(measured) - 1)
    settings = {
        **decisive(open_session(federation, *make_algorithm("fedavg"), steps), rounds),
        "distance": [kind.method for kind in kinds],
    }
    spent = {**federation.runtime.cost.since(before), "cpu_seconds": round(time.process_time() - started, 2)}
    advice = _advice(
        names, quantities, measured, weights, decision, paths, metric,
        C=C, settings=settings, spent=spent, separates=separating_columns(federation, sums, quantities),
        target=_target(federation, loss),
    )  # fmt: skip
    return advice.in_order(federation.in_order_of(listed))


def _target(federation: Federation, loss: str | None) -> dict[str, Any]:
    """Return what tells gains in the units of a numeric target; nothing where there are classes."""
    schema = federation.schema
    if schema.classes:
        return {}
    return {"loss": choose_loss(loss, schema.task), "scale": schema.target[1]}


def _distances(federation: Federation, given: Distances | None, seed: int) -> list[Distances]:
    """Return the distances to propose from: those given, and where rounds are cheap the other kind."""
    first = given if given is not None else estimate_distances(federation, method="auto", seed=seed)
    if federation.runtime.few_rounds:
        return [first]
    other = "cross" if first.method == "hypothesis" else "hypothesis"
    return [first, estimate_distances(federation, method=other, seed=seed)]


def _in_order(distances: Distances, names: Sequence[str]) -> Distances:
    """Return distances with the clients in another order, without clients that are not there.

    Raises
    ------
    InputError
        If a client has no distances.
    """
    missing = [name for name in names if name not in distances.names]
    if missing:
        raise InputError(f"`distances` lacks the client {missing[0]!r}; expected those of all clients")
    return distances.part(names)


def _propose(
    names: Sequence[str],
    quantities: Mapping[str, int],
    kinds: Sequence[Distances],
    paths: Sequence[CPath],
    sums: Sums,
    allowed: Sequence[str],
    limits: Mapping[str, Any],
) -> tuple[list[Plan], dict[int, Floats]]:
    """Return the plans to pilot, and the full weights of the one with own weights, by its position."""
    top = paths[0][-1].coalitions  # everyone together, as far as the constraints let it
    if len(top) == len(names):
        return [], {}  # nobody may have a partner
    kind = "together" if len(top) == 1 else "coalitions"
    plans: list[Plan] = []
    for algorithm in allowed:
        if algorithm == "ditto":
            keep = INTERCEPT if "own-intercept" in allowed else ()
            plans += [Plan(kind, top, "ditto", {"lam": strength}, keep, paths[0][-1].C) for strength in STRENGTHS]
        elif algorithm not in ("own-weights", "local") and (algorithm != "own-intercept" or "ditto" not in allowed):
            plans.append(Plan(kind, top, algorithm, {}, (), paths[0][-1].C))
    raw: dict[int, Floats] = {}
    if not sums.names:
        return plans, raw
    known = {name: quantities[name] for name in sums.names}
    ends = [coalition_weights(each, known) for each in ([list(known)], [[name] for name in known])]
    reached = min(float(sums.held_out(end, own=own).mean()) for end in ends for own in ((), (-1,)))
    found = best_partition(kinds, paths, sums, quantities)
    if found is not None and found.error < (1 - PROMISING) * reached:
        algorithm = "ditto" if "ditto" in allowed else next(each for each in allowed if each != "own-weights")
        keep = INTERCEPT if "own-intercept" in allowed and algorithm == "ditto" else ()
        proposed = Plan("coalitions", found.coalitions, algorithm, {}, keep, found.C, noisy=found.noisy)
        plans.append(proposed)
        if "fedavg" in allowed and algorithm != "fedavg":
            plans.append(replace(proposed, algorithm="fedavg", keep=()))
        if "own-intercept" in allowed and algorithm not in ("ditto", "own-intercept"):
            plans.append(replace(proposed, algorithm="own-intercept", keep=()))
    if "own-weights" in allowed and not limits:
        best = best_own_weights(kinds, sums, quantities)
        if best is not None and best[0] < (1 - PROMISING) * min(reached, np.inf if found is None else found.error):
            keep = INTERCEPT if "own-intercept" in allowed else ()
            raw[len(plans)] = best[2]
            plans.append(own_weights_plan(best[1], best[2], names, keep=keep))
    return plans, raw


def _paper(coalitions: list[list[str]], C: float) -> Plan:
    """Return the paper's plan for a given C: FedAvg inside the coalitions that are best for it."""
    kind = (
        "together" if len(coalitions) == 1 else "alone" if all(len(each) == 1 for each in coalitions) else "coalitions"
    )
    return Plan(kind, coalitions, "fedavg", {}, (), C)


def _allowed(
    measured: Sequence[Measured], allowed: Sequence[str], limits: Mapping[str, Any], C: float | str
) -> list[Measured]:
    """Return what was measured without doubles, and without algorithms that may not be advised."""
    kept: list[Measured] = []
    for each in measured:
        plan = each.plan
        same = (plan.algorithm, dict(plan.options), plan.coalitions)
        if any((other.plan.algorithm, dict(other.plan.options), other.plan.coalitions) == same for other in kept[1:]):
            continue
        if not kept or C != "auto" or plan.algorithm in allowed:
            kept.append(each)
    if limits.get("min_size", 1) > 1 or limits.get("must_link"):
        kept[0] = replace(kept[0], dropped=True)
    return kept


def _weights(plan: Plan, quantities: Mapping[str, int], raw: Mapping[int, Floats]) -> Floats:
    """Return what every client weighs in each client's model under a plan."""
    if plan.kind == "own weights":
        return next(iter(raw.values()))
    return coalition_weights(plan.coalitions, quantities)


def _advice(
    names: Sequence[str],
    quantities: Mapping[str, int],
    measured: Sequence[Measured],
    weights: Sequence[Floats],
    decision: Decision,
    paths: Sequence[CPath],
    metric: str,
    *,
    C: float | str,
    settings: Mapping[str, Any],
    spent: Mapping[str, Any],
    separates: list[Mapping[str, Any]],
    target: Mapping[str, Any],
) -> Advice:
    """Return the advice: candidates with their expected gains, the chosen one, and each client's gain by it."""
    ends = {"alone": paths[0][0].C, "together": paths[0][-1].C}
    candidates = [
        Candidate(
            label=label,
            kind=each.plan.kind,
            algorithm=each.plan.algorithm,
            options=dict(each.plan.options),
            keep=each.plan.keep,
            coalitions=each.plan.coalitions,
            C=each.plan.C if each.plan.C is not None else ends.get(each.plan.kind),
            gain=loss.mean,
            accuracy_gain=accuracy.mean,
            held_out={name: [_or_none(value) for value in row.tolist()] for name, row in each.table.items()},
            rounds=list(each.rounds),
            means=list(each.means),
            dropped=each.dropped,
        )
        for label, each, loss, accuracy in zip(
            labels([each.plan for each in measured]), measured, decision.loss, decision.accuracy, strict=True
        )
    ]
    chosen = candidates[decision.chosen]
    hard = [k for k, each in enumerate(candidates) if each.kind != "own weights" and not each.dropped]
    partition = chosen if chosen.kind != "own weights" else candidates[max(hard, key=lambda k: candidates[k].gain.mean)]
    loss, accuracy = decision.loss[decision.chosen], decision.accuracy[decision.chosen]
    told = loss if metric == "loss" else accuracy
    gains = {
        name: Gain(
            told.clients[name].mean,
            told.clients[name].stderr,
            loss.clients[name],
            accuracy.clients[name],
            name in measured[decision.chosen].table,
        )
        for name in names
    }
    verdict = chosen.kind if decision.clear or C != "auto" else "no clear difference"
    return Advice(
        names=tuple(names),
        quantities=np.array([quantities[name] for name in names], dtype=np.float64),
        verdict=verdict,
        chosen=decision.chosen,
        coalitions=partition.coalitions,
        weights=weights[decision.chosen],
        C=float(C) if C != "auto" else float(chosen.C if chosen.C is not None else paths[0].suggested.C),
        candidates=candidates,
        gains=gains,
        mean_gain=Expected(told.mean.mean, told.mean.stderr),
        metric=metric,
        fit=decision.fit.as_dict(),
        separates=separates,
        settings=settings,
        cost=spent,
        target=target,
    )


def _or_none(value: float) -> float | None:
    """Return a number, or None in the place of NaN."""
    return value if np.isfinite(value) else None
