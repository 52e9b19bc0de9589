"""Measures rounded to what the number of samples can mean, by a lot that only the silo can draw.

    g   = max(standard error of the measure, that of two samples)
    v'  = v + SHARE f g e,  then rounded to a tenth of g            e ~ N(0, 1)
    f   = 1 + k / K                                                 k questions of this kind in the plan, this included

e is drawn from the silo's secret and the question. A mean over n samples is known to its standard error; digits beyond
it say nothing about the world, but they do say something about single samples: a model that differs from another on one
sample moves an accuracy by exactly 1 / n. On a fixed grid the place where the rounded value jumps would still be that
sample's, so each question has an e of its own; the same question gets the same answer, so that asking again averages
nothing.

e is drawn anew for every message, and once the silo's data, or what it keeps, has changed: of two answers with one
error the difference has none. What is asked about is not enough: the same weights may be those of another model, or a
plan may have cut the samples into other folds.

Sums are not rounded, but each value has an error before it is summed (`with_errors`).

    x'  = x + OF_VALUE s g        s the column's standard deviation over the rows that are summed,  g ~ N(0, 1)

A sum over n rows has an error of OF_VALUE s sqrt(n): a fifth of its standard error, and at least half the deviation of
a value where ten rows or more are summed. So no difference of two sums is a row: of all patients and those of every
common label, before and after one was added, with two columns that differ for one patient, over two splits. g is drawn
from the silo's key and the values themselves: the same rows have the same errors, whatever is asked and in whatever
order they are, so that asking again averages nothing, and other rows have others.

Questions that differ in nothing that matters do average, and so f grows: all questions of a plan together tell no more
than sum_k 1 / (1 + k / K)^2 < K of them would at the start (`guard.EXACT` has K). An honest study asks few of them.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab import seeds
from fedcollab.data.rare import alike_columns
from fedcollab.wire.silo import Silo

Floats = NDArray[np.float64]

#: the error of a measure that is sent, as a share of its standard error
SHARE = 3**-0.5
#: the error of a value that is summed, as a share of its column's standard deviation
OF_VALUE = 0.2


def lot_of(silo: Silo, *asked: NDArray[Any] | str | int) -> str:
    """Return what an error is drawn from: the silo's secret, its data, its schema, and the question.

    Parameters
    ----------
    silo : Silo
        The silo.
    *asked : array, str or int
        What the server sent: the same question gets the same answer.

    Returns
    -------
    str
        Hexadecimal digits.
    """
    question = hashlib.blake2b(f"{silo.secret}{silo.version}".encode(), digest_size=16)
    question.update(str(silo.state.get("prepare", {}).get("schema", "")).encode())
    for part in asked:
        question.update(part.tobytes() if isinstance(part, np.ndarray) else f"{part}\x1f".encode())
    return question.hexdigest()


def added_error(silo: Silo) -> float:
    """Return the error that rounding adds to a measure, as a share of its standard error; 0 where nothing is rounded.

    Parameters
    ----------
    silo : Silo
        The silo.
    """
    return SHARE * silo.coarseness if silo.limits.round_measures else 0.0


def rounded(values: Any, errors: Any, silo: Silo, kind: str, *asked: NDArray[Any] | str) -> Floats:
    """Return measures rounded to their standard errors.

    Parameters
    ----------
    values : array
        The measures; NaN stays.
    errors : array
        The standard error of each; 0 or NaN leaves a measure as it is.
    silo : Silo
        Whose samples they are; without `round_measures` in its limits nothing is rounded.
    kind : str
        What the measures are, so that two kinds about one question are rounded independently.
    *asked : array or str
        What the server asked about: the weights of the model, or its name.

    Returns
    -------
    array
        The rounded measures, of the shape of `values`.
    """
    exact: Floats = np.asarray(values, dtype=np.float64)
    if not silo.limits.round_measures or exact.size == 0:
        return exact
    draw = seeds.generator(0, "rounding", kind, lot_of(silo, silo.question, *asked), repr(silo.coarseness))
    grid = np.broadcast_to(np.asarray(errors, dtype=np.float64), exact.shape)
    usable = np.isfinite(grid) & (grid > 0) & np.isfinite(exact)
    step = np.where(usable, grid, 1.0)
    moved = np.where(usable, exact, 0.0) + added_error(silo) * step * draw.standard_normal(exact.shape)
    result: Floats = np.where(usable, np.round(10 * moved / step) * step / 10, exact)
    return result


def moved_for_decision(value: float, error: float, silo: Silo, kind: str, *asked: NDArray[Any] | str) -> float:
    """Return a measure by which the silo decides whether to refuse: moved by at most its error, and never sent.

    Its error has an end, so that no honest training is refused by an unlucky draw.

    Parameters
    ----------
    value, error : float
        The measure, and its standard error.
    silo, kind, *asked
        As in `rounded`.
    """
    if not silo.limits.round_measures:
        return value
    draw = seeds.generator(0, "decision", kind, lot_of(silo, silo.question, *asked))
    return value + error * float(2 * draw.random() - 1)


def with_errors(values: Floats, silo: Silo) -> Floats:
    """Return values with the errors that they have in sums: see the module.

    Parameters
    ----------
    values : array
        The rows that are summed, one column or several.
    silo : Silo
        Whose samples they are; without `round_measures` in its limits they have no errors.
    """
    if not silo.limits.round_measures or not values.size:
        return values
    rows = np.ascontiguousarray(values).reshape(len(values), -1)
    order = np.argsort(rows.view(np.dtype((np.void, rows[0].nbytes)))[:, 0], kind="stable")
    lot = hashlib.blake2b(silo.secret.encode() if silo.key else b"", digest_size=16)  # without one they follow from x
    lot.update(f"{values.shape}".encode() + rows[order].tobytes())
    draw = seeds.generator(0, "values", lot.hexdigest())
    found: Floats = values.copy()
    found[order] += OF_VALUE * values.std(axis=0) * draw.standard_normal(values.shape)
    return found


def summable(values: Floats, silo: Silo) -> Floats:
    """Return numbers that stand for themselves as they are summed: alike (`data.rare.alike_columns`), and with errors.

    Parameters
    ----------
    values : array
        One row a sample, or the values of one column.
    silo : Silo
        Whose samples they are.
    """
    return with_errors(alike_columns(values, silo.limits.min_samples), silo)


def summable_rows(x: Floats, chosen: NDArray[np.int64], least: int, silo: Silo) -> Floats:
    """Return training samples as their products are summed: alike (`Silo.alike`), and with errors.

    Parameters
    ----------
    x : array
        All training samples, one row each: as the schema prepares them, or through its encoder.
    chosen : array of int
        Those that are summed over.
    least : int
        The fewest rows that a column may tell apart; 1 (with differential privacy): as they are.
    silo : Silo
        Whose samples they are.
    """
    return with_errors(silo.alike(x, chosen, least), silo) if least > 1 else x[chosen]


def rounded_shares(
    values: Any, samples: Any, silo: Silo, kind: str, *asked: NDArray[Any] | str, least: int = 2
) -> Floats:
    """Return shares of samples (accuracies) rounded to their standard errors, within 0 and 1.

    Parameters
    ----------
    values : array
        Shares of samples.
    samples : int or array
        How many samples each is a share of.
    silo, kind, *asked
        As in `rounded`.
    least : int
        How many samples a share must not tell apart.

    Returns
    -------
    array
        The rounded shares.
    """
    exact: Floats = np.asarray(values, dtype=np.float64)
    if not silo.limits.round_measures:
        return exact
    return np.clip(rounded(exact, share_errors(exact, samples, least), silo, kind, *asked), 0.0, 1.0)


def share_errors(shares: Any, samples: Any, least: int = 2) -> Floats:
    """Return the standard errors of shares of so many samples, at least the weight of `least` of them."""
    exact: Floats = np.asarray(shares, dtype=np.float64)
    errors: Floats = np.maximum(np.sqrt(np.clip(exact * (1 - exact), 0, None) / samples), least / np.asarray(samples))
    return errors
