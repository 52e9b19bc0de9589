"""Trees of a client that trains alone: all levels of all rounds in one call, from its own rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedcollab.training.descend import Setting
from fedcollab.training.outcomes import Outcome
from fedcollab.training.trees.cuts import Cuts
from fedcollab.training.trees.forest import Forest, Growing, growing_of
from fedcollab.training.trees.growth import grow_level, set_base
from fedcollab.training.trees.places import Places
from fedcollab.training.trees.rows import Margins, Rows, histograms, rows_to_show
from fedcollab.wire.silo import Silo


def grown_alone(
    rows: Rows, cuts: Cuts, rounds: int, how: Growing, eta: float, *, each_round: Callable[[Margins], None]
) -> Forest:
    """Grow trees from the rows of one client; `each_round` is called with the margins after 0, 1, 2, ... rounds.

    Parameters
    ----------
    rows : Rows
        The rows.
    cuts : Cuts
        The thresholds.
    rounds : int
        How many rounds.
    how : Growing
        How trees are grown.
    eta : float
        The step size.
    each_round : callable
        What is to be done with the margins.
    """
    shape = replace(how.shape, rounds=rounds)
    forest = Forest(*(np.zeros(sides, dtype=np.float32) for _, sides in shape.parts))
    sums = np.zeros((len(rows.y), shape.trees))
    blank = Margins(rows, sums, shape.classes, Places(rows.x))
    set_base(forest, histograms(blank, forest, 0, 0, cuts), cuts, shape.classes)
    for position in range(rounds + 1):
        margins = Margins(rows, sums + forest.base, shape.classes, Places(rows.x))
        each_round(margins)
        if position == rounds:
            break
        for level in range(shape.depth):
            grow_level(forest, position, level, histograms(margins, forest, position, level, cuts), cuts, how, eta)
        sums = sums + margins.places.leaves(forest, position)
    return forest


def outcomes_alone(
    parts: Sequence[Any], cuts: Cuts, message: Mapping[str, Any], setting: Setting, silo: Silo
) -> list[list[list[Outcome]]]:
    """Return what trees of a client that trains alone do with the rows that are held out.

    Parameters
    ----------
    parts : sequence of Part
        The client's folds.
    cuts : Cuts
        The thresholds.
    message : mapping
        Says how many rounds.
    setting : Setting
        The training's setting.
    silo : Silo
        The client: thresholds are the server's, and all rounds have one error, so that rows must be in groups.

    Returns
    -------
    list
        After 0, 1, 2, ... rounds, for the one kind of model, the outcome of each part.
    """
    how = growing_of(setting.model)
    assert how is not None
    found: list[list[list[Outcome]]] = [[[]] for _ in range(message["rounds"] + 1)]
    for place, part in enumerate(parts):
        measured: list[Outcome] = []

        def keep(margins: Margins, measured: list[Outcome] = measured) -> None:
            measured.append(margins.outcome(held=True))

        grown_alone(rows_to_show(part, silo, 1 + place), cuts, message["rounds"], how, setting.lr, each_round=keep)
        for outcomes, outcome in zip(found, measured, strict=True):
            outcomes[0].append(outcome)
    return found
