"""Rows cut into folds, and a model for each fold that never sees it: trained for a round, measured on that fold.

A client cuts its training rows into K folds, drawn with a secret of its own, so that a server cannot repeat the draw.
Test rows play no part. `folds_client` and `alone_client` have the actions that a server may ask for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcollab import seeds
from fedcollab.data.schema import Arrays
from fedcollab.data.split import fold_of
from fedcollab.errors import InputError
from fedcollab.training.averaging import add_means
from fedcollab.training.client_side import (
    algorithm_of,
    data_of,
    in_stacks,
    is_finite,
    lend_network,
    line_of,
)
from fedcollab.training.descend import Local, Setting, descend, gradient, personal, steps_of
from fedcollab.training.gradient import Dense
from fedcollab.training.hooks import Algorithm, State
from fedcollab.training.kept import averaged_keys, withhold
from fedcollab.training.measures import changes, what_diverged
from fedcollab.training.models import Network
from fedcollab.training.outcomes import Outcome, of_outputs
from fedcollab.training.scores import SCORES
from fedcollab.wire.silo import Silo

MOST_FOLDS = 10  # into which a silo cuts its rows
DIVISIONS = "divisions"  # where a silo keeps in which ways it has cut its rows into folds
#: what is measured on rows that a model has not seen
COLUMNS = ("loss", "accuracy", "loss_stderr", "accuracy_stderr")


@dataclass(frozen=True, eq=False)
class Part:
    """The rows of a client that one fold's model trains on (`x`, `y`), and those that it is measured on.

    `spread` is the variance of a numeric target over all of them (`Scores.spread`).
    """

    x: Tensor
    y: Tensor
    x_held: Tensor
    y_held: Tensor
    spread: float = 1.0


@dataclass(frozen=True, eq=False)
class Work:
    """One fold of one client in a round: what is trained, what is measured, what was sent, the rows to measure on.

    What is measured is a model (its weights), or a client's part whose personal model is to be made.
    """

    local: Local
    measured: list[Tensor | Local]
    sent: Tensor
    part: Part
    number: int
    train: bool


@dataclass(frozen=True, eq=False)
class Done:
    """What a fold of a client left: what each kind of model did with the rows held out, and what training gave."""

    outcomes: list[Outcome]
    reply: State
    state: State
    diverged: str = ""
    error: str = ""
    whole: Tensor | None = None  # the trained weights, with those that stay at the client


_parts: WeakKeyDictionary[Arrays, dict[tuple[int, int, bool], list[Part]]] = WeakKeyDictionary()


def parts_of(silo: Silo, folds: int, seed: int, *, grown: bool = False) -> list[Part]:
    """Return a client's training rows cut into folds, made once.

    Parameters
    ----------
    silo : Silo
        The client.
    folds : int
        How many folds.
    seed : int
        The training's seed; the client's own samples make the draw unknown to a server.
    grown : bool, default False
        Whether trees are grown on them, which know groups of rows (`trees.groups`): then rows are not displaced.
    """
    known = _parts.setdefault(silo.arrays, {})
    if (folds, seed, grown) not in known:
        known.clear()
        draw = seeds.generator(seed, "training folds", silo.secret)
        fold = fold_of(silo.arrays.y, folds, draw, silo.arrays.groups)
        masks = [torch.from_numpy(fold == number).to(silo.device) for number in range(folds)]
        spread = SCORES[silo.schema.task].spread(silo.arrays.y)
        if grown:
            x, y = (torch.from_numpy(values).to(silo.device) for values in (silo.arrays.x, silo.arrays.y))
        else:
            data = data_of(silo)
            x, y = data["x"], data["y"]
        known[folds, seed, grown] = [Part(x[~held], y[~held], x[held], y[held], spread) for held in masks]
    return known[folds, seed, grown]


def _division(message: Mapping[str, Any]) -> str:
    """Return in which way a message cuts rows into folds; a setting that cannot be read is refused later."""
    try:
        return f"{message['folds']} folds, seed {json.loads(message['setting'])['seed']}"
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""


def new_division(message: Mapping[str, Any], silo: Silo) -> int:
    """Return 1 for a message that cuts a silo's rows into folds in a new way, 0 for one that it has used before."""
    return int(_division(message) not in silo.state.get(DIVISIONS, {}).get("known", []))


def note_division(message: Mapping[str, Any], silo: Silo) -> None:
    """Keep in which way a silo's rows were cut into folds."""
    if new_division(message, silo):
        known = silo.state.get(DIVISIONS, {}).get("known", [])
        silo.state[DIVISIONS] = {"known": [*known, _division(message)]}


def unfit_folds(parts: list[Part], silo: Silo) -> str:
    """Return why a client's folds cannot be used: empty ones, or updates of fewer samples than the silo's limit."""
    fewest, held = min(len(part.y) for part in parts), min(len(part.y_held) for part in parts)
    if fewest < silo.limits.min_samples:
        return f"a fold leaves {fewest} sample(s) to train on; this silo asks for at least {silo.limits.min_samples}"
    if held < silo.limits.min_samples:  # the models of two folds differ by the samples of these folds
        return f"a fold has {held} sample(s); this silo asks for at least {silo.limits.min_samples}"
    return "" if all(len(part.y_held) for part in parts) else "a fold has no samples"


def halved(part: Part, draw: np.random.Generator) -> Part:
    """Return a part with half of its training rows (at least one), labels spread as evenly as it goes."""
    kept = torch.from_numpy(fold_of(part.y.cpu().numpy(), 2, draw) == 0).to(part.y.device)
    return replace(part, x=part.x[kept], y=part.y[kept]) if kept.any() else part


def all_folds(work: Mapping[str, list[Work]], setting: Setting, silos: Mapping[str, Silo]) -> dict[str, list[Done]]:
    """Do the work of many clients' folds in stacks, and return what each fold of each client left."""
    if not work:
        return {}
    jobs = {f"{name}\x1f{fold}": job for name, folds in work.items() for fold, job in enumerate(folds)}
    steps = {key: steps_of(len(job.local.y), setting) for key, job in jobs.items()}
    device = next(iter(silos.values())).device

    def one(key: str) -> dict[str, Done]:
        return _measure_and_train({key: jobs[key]}, setting, device)

    def stack(keys: list[str]) -> dict[str, Done]:  # does not call itself: that would keep every round's weights alive
        done = _measure_and_train({key: jobs[key] for key in keys}, setting, device)
        if len(keys) > 1 and any(result.error for result in done.values()):  # only the client at fault is lost
            done = {key: one(key)[key] for key in keys}
        return done

    done = {key: result for results in in_stacks(stack, steps, setting, device) for key, result in results.items()}
    return {name: [done[f"{name}\x1f{fold}"] for fold in range(len(folds))] for name, folds in work.items()}


def _measure_and_train(jobs: Mapping[str, Work], setting: Setting, device: str) -> dict[str, Done]:
    """Measure a stack of fold models on the rows that they have not seen, then train them for a round."""
    algorithm = algorithm_of(setting)
    try:
        with lend_network(setting, device) as network:
            measured = _measure(jobs, algorithm, network, setting)
            trained = [key for key, job in jobs.items() if job.train]
            if not trained:
                return measured
            replies, states, losses = descend(
                [jobs[key].local for key in trained], algorithm, network, setting, next(iter(jobs.values())).number
            )
    except InputError:
        raise
    except Exception as error:  # as in training: the clients of this stack fail, the others go on
        return {key: Done([], {}, {}, error=line_of(error)) for key in jobs}
    for key, reply, state, loss in zip(trained, replies, states, losses, strict=True):
        job, whole = jobs[key], reply["w"].clone()
        withhold(reply, state, job.sent, setting)
        state = add_means(state, job.local.means, averaged_keys(algorithm, setting), job.number, setting.averaging)
        good = np.isfinite(loss) and all(is_finite(value) for value in (*reply.values(), *state.values()))
        diverged = "" if good else what_diverged(float(loss))
        measured[key] = replace(measured[key], reply=reply, state=state, diverged=diverged, whole=whole)
    return measured


def _measure(jobs: Mapping[str, Work], algorithm: Algorithm, network: Network, setting: Setting) -> dict[str, Done]:
    """Return what each kind of model of each fold does with the rows that it has not seen."""
    outcomes: dict[str, list[Outcome]] = {key: [] for key in jobs}
    kinds = max(len(job.measured) for job in jobs.values())
    grad = gradient(network, setting)
    for position in range(kinds):
        having = {key: job for key, job in jobs.items() if position < len(job.measured)}
        models = {
            key: _model(job.measured[position], algorithm, network, setting, job.number) for key, job in having.items()
        }
        if isinstance(grad, Dense):
            found = _outcomes_stacked(grad, [models[key] for key in having], [job.part for job in having.values()])
        else:
            parts = ((models[key], job.part) for key, job in having.items())
            found = [
                of_outputs(network.loss, grad.logits(w, part.x_held), part.y_held, part.spread) for w, part in parts
            ]
        for key, outcome in zip(having, found, strict=True):
            outcomes[key].append(outcome)
    return {key: Done(outcomes[key], {"w": job.sent}, job.local.state) for key, job in jobs.items()}


def _model(kind: Tensor | Local, algorithm: Algorithm, network: Network, setting: Setting, number: int) -> Tensor:
    """Return the weights of a model that is to be measured before a round: given, or a client's personal model."""
    if not isinstance(kind, Local):
        return kind
    return personal(kind, algorithm, network, setting, number - 1) if algorithm.personalises else kind.message["w"]


def _outcomes_stacked(grad: Dense, models: list[Tensor], parts: list[Part]) -> list[Outcome]:
    """Return what each model does with its held-out rows, all in one product a layer; shorter parts are padded."""
    longest = max(len(part.y_held) for part in parts)
    x = torch.zeros((len(parts), longest, *parts[0].x_held.shape[1:]), device=parts[0].x_held.device)
    y = torch.zeros((len(parts), longest), dtype=parts[0].y_held.dtype, device=x.device)
    for row, part in enumerate(parts):
        x[row, : len(part.y_held)] = part.x_held
        y[row, : len(part.y_held)] = part.y_held
    outputs, loss = grad.stacked_logits(torch.stack(models), x), grad.network.loss
    spreads = torch.tensor([part.spread for part in parts], dtype=torch.float64, device=x.device)[:, None]
    whole = of_outputs(loss, outputs, y, spreads)
    sizes = [len(part.y_held) for part in parts]
    return [Outcome(whole.right[row, :size], whole.loss[row, :size]) for row, size in enumerate(sizes)]


def joined(kinds: list[list[Outcome]]) -> list[Outcome]:
    """Return the outcomes of each kind of model on the rows of all folds, one fold after the other."""
    return [
        Outcome(np.concatenate([fold.right for fold in folds]), np.concatenate([fold.loss for fold in folds]))
        for folds in kinds
    ]


def columns_of(outcome: Outcome, alone: Outcome | None, silo: Silo) -> list[float]:
    """Return what `COLUMNS` names; the standard errors are those of the differences from training alone."""
    measures = [float(outcome.loss.mean()), float(outcome.right.mean())]
    if alone is None or len(outcome.loss) < 2:
        return [*measures, np.nan, np.nan]
    return [*measures, *(_stderr(change) for change in changes(outcome, alone, silo))]


def _stderr(values: NDArray[np.float64]) -> float:
    """Return the standard error of a mean; NumPy's `std` takes three times as long for the few values of a client."""
    centred = values - values.sum() / len(values)
    return float(np.sqrt(centred @ centred / (len(values) - 1) / len(values)))
