"""Pilots: the candidates trained with the model that will be trained, measured on training rows that it has not seen.

Every client's training rows are cut into two folds (`training.folds`). Alone is trained inside each client, in one
message, and only what was measured leaves. The other candidates train in step, so that where a round costs seconds all
of them together cost the rounds of one training. A candidate that makes personal models is measured twice: with them,
and with its coalition's models, which are those of the same algorithm without personal models. What is measured is
compared with training alone on the same rows, client by client. A client also trains alone on half of each part, which
tells what more rows are worth. A pilot ends when it has trained twice as long as is
best for it. Groupings whose best candidate is clearly behind are dropped after a quarter and after half of the rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab import seeds
from fedcollab.advice.candidates import Plan
from fedcollab.federation import Federation
from fedcollab.progress import Progress
from fedcollab.threads import one_core_each
from fedcollab.training.algorithms import make_algorithm
from fedcollab.training.alone_client import train_alone
from fedcollab.training.fold_calls import FOLDS, asked
from fedcollab.training.opening import Steps, open_session
from fedcollab.training.rounds import Grouping
from fedcollab.training.session import Session
from fedcollab.training.stopping import fold_rounds, pick_rounds, train_in_step
from fedcollab.training.trees.boosting import thresholds
from fedcollab.wire.action import Action

Floats = NDArray[np.float64]

#: shares of the rounds after which groupings that are clearly behind are dropped, and how many go on at most
CHECKS = {0.25: 2, 0.5: 1}
#: a grouping is clearly behind if its mean loss is higher by so many standard errors over the clients
BEHIND = 2.0
#: a partition or own weights must be better than everyone by this share of the loss to count as equal, as far as
#: they may follow noise: they were proposed from distances that had seen the rows that judge them (see `advice.decide`)
HANDICAP = 0.055
#: the rows of small federations are cut anew until so many have judged training alone, but not more often than this
ENOUGH, DRAWS = 2000, 4
#: rounds before which no pilot ends, and between which that is looked at
LEAST, EVERY = 20, 5


@dataclass(frozen=True, eq=False)
class Measured:
    """What a pilot measured of one plan.

    Parameters
    ----------
    plan : Plan
        The plan.
    rounds : tuple of int
        How many rounds each of its coalitions would train.
    means : tuple of bool
        Whether each of them would use the mean over rounds.
    table : dict of arrays
        For each client that could be measured, what `training.folds.COLUMNS` names.
    dropped : bool
        Whether it was ended early, because it was clearly behind.
    fewer : dict of arrays
        Of training alone: the same as `table` with half as many rows to train on.
    """

    plan: Plan
    rounds: tuple[int, ...]
    means: tuple[bool, ...]
    table: dict[str, Floats]
    dropped: bool = False
    fewer: dict[str, Floats] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Track:
    """One training of the pilots.

    Parameters
    ----------
    session : Session
        The training.
    grouping : Grouping
        Who is in which coalition.
    plans : list of Plan
        The plans that it measures: with personal models, and with the coalition's.
    """

    session: Session
    grouping: Grouping
    plans: list[Plan] = field(default_factory=list)


def run_pilots(
    federation: Federation, plans: Sequence[Plan], steps: Steps, rounds: int, progress: Progress
) -> list[Measured]:
    """Measure training alone, and each of the plans.

    Parameters
    ----------
    federation : Federation
        The clients.
    plans : sequence of Plan
        The plans, without training alone. Ditto also measures the plan without personal models.
    steps : Steps
        Model and step sizes.
    rounds : int
        The most rounds.
    progress : callable
        Called with (done, total).

    Returns
    -------
    list of Measured
        Training alone first.
    """
    with one_core_each():
        alone, reference = _measure_alone(federation, steps, rounds)
        if not alone.table:
            return [alone]
        tracks = [_track(federation, plan, steps, position) for position, plan in enumerate(plans)]
        trainings = [fold_rounds(each.session, each.grouping, rounds, reference) for each in tracks]
        dropped: set[int] = set()

        def drop(number: int, measured: Mapping[int, Mapping[str, Sequence[Floats]]]) -> set[int]:
            most = next((most for share, most in CHECKS.items() if number == max(1, round(share * rounds))), None)
            if most is not None:
                dropped.update(behind_groupings(tracks, {k: _mean_losses(each) for k, each in measured.items()}, most))
            looked = number >= LEAST and number % EVERY == 0
            past = {k for k, curves in measured.items() if looked and past_best(tracks[k], curves, number)}
            return (past | dropped) & set(measured)

        curves = train_in_step(federation, trainings, progress, drop)
    found = [alone]
    for position, (track, measured) in enumerate(zip(tracks, curves, strict=True)):
        for which, plan in enumerate(track.plans):
            columns = _columns_of(track, which, measured)
            found.append(replace(_chosen(plan, columns, track.session, rounds), dropped=position in dropped))
    return found


def _columns_of(track: Track, which: int, tables: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return what was measured of one of a training's plans, by those clients that measured it.

    A client that did not answer when everyone trained alone has nothing to compare with, and measures no personal
    models.
    """
    kinds = 2 if track.session.setting.averaging else 1
    first, end = which * kinds, (which + 1) * kinds
    return {name: table[:, first:end] for name, table in tables.items() if table.shape[1] >= end}


def past_best(track: Track, curves: Mapping[str, Sequence[Floats]], number: int) -> bool:
    """Return whether a training has gone on for twice the rounds that are best for each of its coalitions so far.

    Parameters
    ----------
    track : Track
        The training.
    curves : mapping
        What each client has measured so far.
    number : int
        The last round that has ended.
    """
    tables = {name: np.array(curve) for name, curve in curves.items() if len(curve) > 1}
    for which, plan in enumerate(track.plans):
        part = {name: table[:, :, 0] for name, table in _columns_of(track, which, tables).items()}
        chosen = pick_rounds(part, track.session.quantities, plan.coalitions, number)
        if max(rounds for rounds, _ in chosen) > number // 2:
            return False
    return True


def behind_groupings(tracks: Sequence[Track], losses: Mapping[int, Mapping[str, float]], most: int) -> list[int]:
    """Return the trainings to drop: all those of groupings whose best training is clearly behind the best of all.

    Parameters
    ----------
    tracks : sequence of Track
        The trainings.
    losses : mapping
        For each training that still runs (its position) the lowest mean loss so far of each client.
    most : int
        How many groupings may go on.
    """
    groups: dict[str, list[int]] = {}
    for position in losses:
        groups.setdefault(str(tracks[position].plans[0].coalitions), []).append(position)
    best = {
        min(members, key=lambda k: np.mean(list(losses[k].values()) or [np.inf])): members
        for members in groups.values()
    }
    compared = {}
    for leader in best:
        plan = tracks[leader].plans[0]
        handicap = HANDICAP * plan.noisy if plan.kind in ("coalitions", "own weights") else 0.0
        compared[leader] = {n: value * (1 + handicap) for n, value in losses[leader].items()}
    return [position for leader in clearly_behind(compared, most) for position in best[leader]]


def clearly_behind(losses: Mapping[int, Mapping[str, float]], most: int) -> list[int]:
    """Return which trainings to drop: those clearly behind the best, and all but the best `most`.

    Parameters
    ----------
    losses : mapping
        For each training (its position) the lowest mean loss so far of each client.
    most : int
        How many may go on.

    Examples
    --------
    >>> clearly_behind({0: {"a": 1.0, "b": 2.0}, 1: {"a": 1.5, "b": 2.4}, 2: {"a": 0.9, "b": 2.1}}, 3)
    [1]
    """
    common = sorted(set.intersection(*(set(each) for each in losses.values())))
    if not common:
        return []
    table = {each: np.array([values[name] for name in common]) for each, values in losses.items()}
    order = sorted(table, key=lambda each: float(table[each].mean()))
    best = table[order[0]]
    behind = set(order[most:])
    for each in order[1:]:
        change = table[each] - best
        error = change.std(ddof=1) / np.sqrt(len(change)) if len(change) > 1 else np.inf
        if change.mean() > BEHIND * error:
            behind.add(each)
    return sorted(behind)


def _measure_alone(federation: Federation, steps: Steps, rounds: int) -> tuple[Measured, dict[str, tuple[int, int]]]:
    """Have every client train alone; return what was measured, and the best rounds and kind of model of each client.

    Where there are few rows, how they are cut matters more than anything else: then they are cut several times.
    """
    called, algorithm = make_algorithm("fedavg")
    draws = int(np.clip(ENOUGH // max(1, sum(federation.quantities.values())), 1, DRAWS))
    calls: list[tuple[Action | str, Mapping[str, Any]]] = []
    for draw in reversed(range(draws)):  # the last is what pilots are compared with, row by row
        seed = steps.seed if draw == 0 else seeds.derive(steps.seed, "training alone", draw)
        session = open_session(federation, called, algorithm, replace(steps, seed=seed))
        Grouping([[name] for name in federation.names]).start(session)
        message = {
            "setting": session.text,
            "rounds": rounds,
            "folds": FOLDS,
            "w": session.initial.numpy(),
            "training": "advice alone",
            "fewer": True,
            **thresholds(session),
        }
        calls.append((train_alone, dict.fromkeys(asked(session), message)))
    answers = federation.call_several(calls, partial=True)
    told = [{name: answer for name, answer in each.replies.items() if "unfit" not in answer} for each in answers]
    names = [name for name in told[-1] if all(name in each for each in told)]
    curves, fewer = (
        {name: _mean([each[name][key] for each in told]) for name in names} for key in ("held_out", "fewer")
    )
    plan = Plan("alone", [[name] for name in federation.names], "fedavg")
    found = replace(_chosen(plan, curves, session, rounds), fewer=_chosen(plan, fewer, session, rounds).table)
    reference = {
        name: (found.rounds[k], 0 if found.means[k] else curves[name].shape[1] - 1)
        for name, k in session.assignment.items()
        if name in curves
    }
    longest = {name: len(told[-1][name]["held_out"]) - 1 for name in names}
    return found, {name: (min(number, longest[name]), kind) for name, (number, kind) in reference.items()}


def _mean(curves: Sequence[Floats]) -> Floats:
    """Return the mean of curves, as far as the shortest of them goes."""
    shortest = min(len(curve) for curve in curves)
    total: Floats = np.stack([curve[:shortest] for curve in curves]).sum(axis=0)
    return total / len(curves)


def _track(federation: Federation, plan: Plan, steps: Steps, position: int) -> Track:
    """Return a session for a plan, and the plans that it measures."""
    called, algorithm = make_algorithm(plan.algorithm, dict(plan.options))
    session = open_session(federation, called, algorithm, steps, keep=plan.keep or None)
    session.training = f"advice {position}"
    plans = [plan]
    if algorithm.personalises:  # its coalition's model is trained as by FedAvg, whatever the personal one does
        plans.append(replace(plan, algorithm="own-intercept" if plan.keep else "fedavg", options={}, keep=()))
    return Track(session, Grouping(plan.coalitions, plan.weights), plans)


def _chosen(plan: Plan, curves: Mapping[str, Floats], session: Session, ceiling: int) -> Measured:
    """Return what was measured after the rounds that are best for each coalition, with the better kind of model."""
    losses = {name: table[:, :, 0] for name, table in curves.items()}
    chosen = pick_rounds(losses, session.quantities, plan.coalitions, ceiling)
    table = {}
    for members, (number, kind) in zip(plan.coalitions, chosen, strict=True):
        for name in members:
            if name in curves:
                rows = curves[name]
                values = rows[min(number, len(rows) - 1), min(kind, rows.shape[1] - 1)]
                if np.isfinite(values[:2]).all():
                    table[name] = values
    return Measured(plan, tuple(each for each, _ in chosen), tuple(kind == 0 for _, kind in chosen), table)


def _mean_losses(curves: Mapping[str, Sequence[Floats]]) -> dict[str, float]:
    """Return the lowest loss of each client so far, over the kinds of models: that at the best round of all clients.

    A client that measured fewer kinds of models than others (see `_columns_of`) is left out.
    """
    shortest = min((len(curve) for curve in curves.values()), default=0)
    if shortest < 2:
        return {}
    most = max(len(curve[0]) for curve in curves.values())
    curves = {name: curve for name, curve in curves.items() if len(curve[0]) == most}
    stacked = np.array([[rows[:, 0] for rows in curve[:shortest]] for curve in curves.values()])
    means = stacked.mean(axis=0)[1:]
    number, kind = np.unravel_index(int(np.argmin(means)), means.shape)
    return dict(zip(curves, stacked[:, number + 1, kind].tolist(), strict=True))
