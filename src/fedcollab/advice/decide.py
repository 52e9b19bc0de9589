"""From measurements to an advice: gains that are true on average, and the plan with the least expected loss.

For plan p and client i the pilots give g_pi, the held-out loss alone less that of the plan, on the same rows, and its
standard error e_pi. Four things stand between g_pi and the gain that the client will see:

    fewer rows      pilots train on half of the rows, where partners help more. How much more rows help a client alone
                    is measured too, with a quarter of the rows: G = g - CATCH_UP (mean loss with a quarter - half), a
                    mean without the highest and the lowest tenth. But
                    twice the rows at most halve what a client is short of: at least half of what is clear of a mean
                    gain, (mean - 2 standard errors) / 2, is left. What is taken off is spread over the clients in
                    proportion to 1 / rows, as what more rows win is
    the proposal    partitions and own weights were proposed from distances that had seen the rows that judge them:
                    their gain beyond the best plan with everyone (or alone) is lowered by u OPTIMISM, where u tells
                    how far a partition may follow noise (`Plan.noisy`): one that any sample of the clients' rows would
                    give has u = 0. Then it is drawn to PROPOSED, what such plans are worth on real
                    federations; the noisier that gain, the more (trust: SPREAD^2 / (SPREAD^2 + doubt), doubt =
                    (u OPTIMISM_SPREAD)^2 + noise^2), but not by more than u OPTIMISM + 2 sqrt(doubt): what is far
                    beyond chance is believed
    noise           of rows (e_pi) and of training (INFLATION e_pi), while gains vary between clients (T^2)
    the choice      the best of several candidates looks better than it is: CATCH_UP covers that too

For the noise every G_pi is drawn to f_pi, what the fitted bound (`advice.fit`) and the plan's mean lead one to
expect, the more so the noisier it is (empirical Bayes). With v = (INFLATION e)^2,

    mean_pi = f_pi + T^2 / (T^2 + v) (G_pi - f_pi)
    variance_pi = T^2 v / (T^2 + v) + variance of the plan's mean + (FLOOR loss_i)^2 100 / rows_i
                  + (unlike (loss_i with a quarter - with half of the rows))^2

The plan with the highest mean gain is advised; one model for a whole coalition (FedAvg), the simplest plan with the
largest coalitions, also if another plan is better by less than SIMPLER times the loss alone. The constants were taught
by twelve real federations (docs/advice.md says which, and how). Of a numeric target three things are believed
differently (`BELIEFS`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedcollab.advice.candidates import OPTIMISM
from fedcollab.advice.fit import BoundFit, bound_terms, fit_bound
from fedcollab.advice.gains import Expected
from fedcollab.advice.pilot import Measured
from fedcollab.tasks import CLASSIFICATION, REGRESSION
from fedcollab.training.scores import SCORES, Scores

Floats = NDArray[np.float64]

#: what training alone wins back with all rows, as a share of what it won from a quarter to half of them
CATCH_UP = 0.3
#: the share of clients at either end that are left out of that mean: a tiny one or two may win very much by more rows
TAILS = 0.1
#: how much larger the error of a measured gain is than the noise of its rows
INFLATION = 1.3
#: what no measurement tells of a client of 100 rows, as a share of the loss alone
FLOOR = 0.03
#: the spread between federations of what proposed plans look better by than they are (`candidates.OPTIMISM`); what they
#: are worth beyond the best other plan, and the spread of that; as shares of the loss alone
OPTIMISM_SPREAD = 0.04
PROPOSED, SPREAD = -0.015, 0.03
#: by how much another plan must be better than one model for a coalition, as a share of the loss alone
SIMPLER = 0.005
#: the probability of a gain or a loss that makes a difference clear
CLEAR = 0.8


@dataclass(frozen=True)
class Beliefs:
    """What the decision believes before it has seen a measurement, where that depends on the task.

    Parameters
    ----------
    bound : bool
        Whether the fitted bound tells how gains differ between clients: f_pi then is what it expects of each client,
        else the same for all. The gains that it is fitted to and the distances are of the same rows, and so is their
        noise; where gains are small it fits that noise.
    steady : bool
        Whether a partition that any sample of the rows would give (u = 0) is believed as the plans with everyone are:
        then what it is lowered by is multiplied by u.
    unlike : float
        How far the models of all rows may be from what those of half of the rows promise, as a share of what training
        alone wins from a quarter to half of the rows. That win is about the loss that the rows' noise still costs, and
        it is spread over few coefficients: that of one model may be half or twice that of the next.
    """

    bound: bool
    steady: bool
    unlike: float


#: what is believed of each task
BELIEFS = {CLASSIFICATION: Beliefs(True, False, 0.0), REGRESSION: Beliefs(False, True, 0.15)}


@dataclass(frozen=True, eq=False)
class Estimate:
    """What a plan is expected to bring, against training alone; positive is better.

    Parameters
    ----------
    mean : Expected
        The mean over clients.
    clients : dict of Expected
        Each client's gain.
    """

    mean: Expected
    clients: dict[str, Expected]


@dataclass(frozen=True, eq=False)
class Decision:
    """Which plan is advised, and what every plan is expected to bring.

    Parameters
    ----------
    chosen : int
        The position of the advised plan.
    clear : bool
        Whether it is clearly better than training alone, or alone clearly better than any other plan.
    loss, accuracy : list of Estimate
        For each plan, in loss and in accuracy.
    fit : BoundFit
        The bound, fitted to the measurements.
    """

    chosen: int
    clear: bool
    loss: list[Estimate]
    accuracy: list[Estimate]
    fit: BoundFit


def decide(
    measured: Sequence[Measured],
    weights: Sequence[Floats],
    names: Sequence[str],
    quantities: Mapping[str, int],
    distances: Floats,
    distance_errors: Floats | None = None,
    scores: Scores = SCORES["classification"],
) -> Decision:
    """Choose a plan from what the pilots measured.

    Parameters
    ----------
    measured : sequence of Measured
        Training alone first.
    weights : sequence of arrays
        For each plan what every client weighs in each client's model, N x N.
    names : sequence of str
        The clients, in the order of rows and columns.
    quantities : mapping of int
        Their training samples.
    distances, distance_errors : arrays
        N x N, and their standard errors where they are known.
    scores : Scores
        What was measured beside the loss: accuracy, or R2.

    Returns
    -------
    Decision
        The choice. Where nobody could be measured: everyone together if there is such a plan, with gains unknown.
    """
    alone = measured[0]
    masses = np.array([quantities[name] for name in names], dtype=np.float64)
    fit = _fit(measured, weights, names, masses, distances, distance_errors)
    beliefs = BELIEFS[scores.task.name]
    unlike = beliefs.unlike * _won(alone, names, masses)
    loss = [
        _estimate(alone, each, 0, names, masses, fit.gain(row, distances, masses) if beliefs.bound else None, unlike)
        for each, row in zip(measured, weights, strict=True)
    ]
    loss = _lowered(measured, loss, alone, steady=beliefs.steady)
    accuracy = [_as_told(_estimate(alone, each, 1, names, masses, None, unlike, scores)) for each in measured]
    chosen = _choose(measured, loss, alone)
    best = loss[chosen].mean
    clear = best.probability >= CLEAR if chosen else all(each.mean.probability <= 1 - CLEAR for each in loss[1:])
    return Decision(chosen, clear, loss, accuracy, fit)


def _choose(measured: Sequence[Measured], loss: Sequence[Estimate], alone: Measured) -> int:
    """Return the plan with the highest mean gain, or the simplest one if that is hardly worse."""
    scale = _loss_alone(alone)

    def worth(position: int) -> tuple[float, int]:
        plan = measured[position].plan
        price = SIMPLER * scale if plan.personal or plan.kind == "alone" else 0.0
        return loss[position].mean.mean - price, -len(plan.coalitions)

    return max((k for k, each in enumerate(measured) if not each.dropped), key=worth)


def _gains(alone: Measured, one: Measured, column: int, known: Sequence[str], rows: Floats) -> tuple[Floats, Floats]:
    """Return the gains of clients that were measured, and their standard errors; column 0 is loss, 1 is accuracy.

    What training alone will win back with all rows is taken off, more of clients with fewer rows. Many tiny clients may
    win very much by more rows: therefore at least half of what is clear of the mean gain is left.
    """
    from scipy.stats import trim_mean  # type: ignore[import-untyped]

    sign = 1.0 if column == 0 else -1.0
    gains = sign * np.array([alone.table[name][column] - one.table[name][column] for name in known])
    errors = INFLATION * np.array([one.table[name][column + 2] for name in known])
    errors = np.where(np.isfinite(errors), errors, np.nanmean(errors) if np.isfinite(errors).any() else 0.1)
    won = [alone.fewer[name][column] - alone.table[name][column] for name in alone.table if name in alone.fewer]
    caught_up = CATCH_UP * max(0.0, sign * float(trim_mean(won, TAILS))) if won else 0.0
    mean, error = float(gains.mean()), float(np.sqrt((errors**2).sum()) / len(known))
    shares = (1 / np.maximum(rows, 1)) / (1 / np.maximum(rows, 1)).mean()
    return gains - min(caught_up, max(0.0, mean / 2 + error)) * shares, errors


def _loss_alone(alone: Measured) -> float:
    """Return the mean held-out loss of training alone; 0 where nobody was measured."""
    return float(np.mean([row[0] for row in alone.table.values()])) if alone.table else 0.0


def _won(alone: Measured, names: Sequence[str], masses: Floats) -> Floats:
    """Return what each client alone wins from a quarter to half of its rows, as a share of its loss.

    A client's own figure is mostly noise. In theory it is in proportion to 1 / rows, which all clients are fitted by.
    """
    both = [name for name in names if name in alone.table and name in alone.fewer]
    shares = [alone.fewer[name][0] / max(alone.table[name][0], 1e-12) - 1 for name in both]
    fewer = (1 / np.maximum(masses, 1))[[name in both for name in names]]
    return max(0.0, float(np.sum(shares) / fewer.sum())) / np.maximum(masses, 1) if both else np.zeros(len(names))


def _estimate(
    alone: Measured,
    one: Measured,
    column: int,
    names: Sequence[str],
    masses: Floats,
    expected: Floats | None,
    unlike: Floats,
    scores: Scores | None = None,
) -> Estimate:
    """Return what a plan is expected to bring, in loss (column 0) or in accuracy or R2 (column 1, with `scores`)."""
    if one is alone:
        return Estimate(Expected(0.0, 0.0), {name: Expected(0.0, 0.0) for name in names})
    known = [name for name in names if name in alone.table and name in one.table]
    if not known:
        return Estimate(Expected(0.0, np.inf), {name: Expected(0.0, np.inf) for name in names})
    positions = [list(names).index(name) for name in known]
    gains, errors = _gains(alone, one, column, known, masses[positions])
    base = np.zeros(len(known)) if expected is None else expected[positions]
    left = gains - base
    noise = (errors**2 + (errors**2).mean()) / 2  # a client of few rows whose predictions did not change is not certain
    between = max(0.0, float(left.var(ddof=1) - noise.mean())) if len(known) > 1 else float(noise.mean())
    weight = 1 / (between + noise + 1e-12)
    centre = float((weight * left).sum() / weight.sum())
    centre_error = float(np.sqrt(1 / weight.sum()))
    share = between / (between + noise + 1e-12)
    means = base + centre + share * (left - centre)
    reached = np.array([alone.table[name][column] for name in known])
    scale = reached if scores is None else scores.unexplained(reached)
    floor = np.hypot(FLOOR * scale * np.sqrt(100 / np.maximum(masses[positions], 1)), unlike[positions] * scale)
    variances = share * noise + (1 - share) ** 2 * centre_error**2 + floor**2
    clients = {
        name: Expected(float(mean), float(np.sqrt(variance)))
        for name, mean, variance in zip(known, means, variances, strict=True)
    }
    mean = Expected(float(gains.mean()), float(np.hypot(centre_error, floor.mean() / np.sqrt(len(known)))))
    for position, name in enumerate(names):
        if name not in clients:
            guess = centre + (0.0 if expected is None else float(expected[position]))
            clients[name] = Expected(guess, float(np.sqrt(between + centre_error**2 + (floor.mean()) ** 2)))
    return Estimate(mean, {name: clients[name] for name in names})


def _as_told(estimate: Estimate) -> Estimate:
    """Return an estimate whose mean is that of what each client is told: those of few rows are drawn to the others."""
    mean = float(np.mean([gain.mean for gain in estimate.clients.values()]))
    return replace(estimate, mean=Expected(mean, estimate.mean.stderr))


def _lowered(
    measured: Sequence[Measured], loss: Sequence[Estimate], alone: Measured, *, steady: bool
) -> list[Estimate]:
    """Return the estimates with those of proposed plans lowered by what such plans look better by than they are."""
    scale = _loss_alone(alone)
    plain = [k for k, one in enumerate(measured) if one.plan.kind in ("alone", "together")]
    best = max(plain, key=lambda k: loss[k].mean.mean)
    lowered = []
    for each, one in zip(loss, measured, strict=True):
        beyond = each.mean.mean - loss[best].mean.mean
        if one.plan.kind not in ("coalitions", "own weights"):
            lowered.append(each)
            continue
        errors = INFLATION * np.nan_to_num(np.array([row[2] for row in one.table.values()])) / max(scale, 1e-12)
        doubt = (one.plan.noisy * OPTIMISM_SPREAD) ** 2 + float((errors**2).sum()) / max(len(errors), 1) ** 2
        trust = SPREAD**2 / (SPREAD**2 + doubt)
        true = PROPOSED * scale * (1 - trust) + trust * (beyond - one.plan.noisy * OPTIMISM * scale)
        true = max(true, beyond - (one.plan.noisy * OPTIMISM + 2 * doubt**0.5) * scale)
        shift = min(0.0, true - beyond) if beyond > 0 else min(0.0, PROPOSED * scale * (1 - trust))
        shift *= one.plan.noisy if steady else 1.0
        lowered.append(
            Estimate(
                Expected(each.mean.mean + shift, each.mean.stderr),
                {name: Expected(gain.mean + shift, gain.stderr) for name, gain in each.clients.items()},
            )
        )
    return lowered


def _fit(
    measured: Sequence[Measured],
    weights: Sequence[Floats],
    names: Sequence[str],
    masses: Floats,
    distances: Floats,
    distance_errors: Floats | None,
) -> BoundFit:
    """Fit the bound to the gains of all plans but Ditto's, whose weights do not say what clients learn from."""
    alone = measured[0]
    parts: list[list[float]] = []
    for one, row in zip(measured[1:], weights[1:], strict=True):
        if one.plan.algorithm == "ditto":
            continue
        more, apart = bound_terms(row, distances, masses)
        noise = None if distance_errors is None else ((row * np.nan_to_num(distance_errors)) ** 2).sum(axis=1)
        known = [position for position, name in enumerate(names) if name in alone.table and name in one.table]
        if not known:
            continue
        gains, _ = _gains(alone, one, 0, [names[position] for position in known], masses[known])
        for position, gain in zip(known, gains, strict=True):
            error = one.table[names[position]][2] if np.isfinite(one.table[names[position]][2]) else 0.1
            parts.append(
                [float(gain), more[position], apart[position], error**2, 0.0 if noise is None else noise[position]]
            )
    table = np.array(parts).reshape(-1, 5)
    return fit_bound(*(table[:, column] for column in range(5)))
