"""Constraints that no partition can respect: which of them conflict.

A deletion filter: constraints are dropped one at a time, and what can be dropped without making the rest possible is
not part of the conflict. What remains is a smallest set that no partition respects, named one by one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import numpy as np

from fedcollab.coalitions.constraints import Constraints
from fedcollab.coalitions.inputs import Inputs
from fedcollab.coalitions.solver.exact import prove
from fedcollab.coalitions.solver.instance import build_instance
from fedcollab.errors import InputError


def refuse_impossible(inputs: Inputs, constraints: Constraints) -> NoReturn:
    """Raise the error that names the conflicting constraints."""
    kept = constraints
    for group in constraints.together:
        kept = _without(inputs, kept, replace(kept, together=tuple(g for g in kept.together if g != group)))
    for pair in constraints.apart:
        kept = _without(inputs, kept, replace(kept, apart=tuple(p for p in kept.apart if p != pair)))
    kept = _without(inputs, kept, replace(kept, unobserved=None))
    kept = _without(inputs, kept, replace(kept, min_size=1))
    kept = _without(inputs, kept, replace(kept, max_size=None))
    named = [f"`must_link` {_names(inputs, group)}" for group in kept.together]
    named += [f"`cannot_link` {_names(inputs, pair)}" for pair in kept.apart]
    named += ["pairs whose distance was never measured"] if kept.unobserved is not None else []
    named += [f"`min_size` (={kept.min_size})"] if kept.min_size > 1 else []
    named += [f"`max_size` (={kept.max_size})"] if kept.max_size is not None else []
    raise InputError(f"no partition respects all of: {', '.join(named)}")


def _without(inputs: Inputs, kept: Constraints, fewer: Constraints) -> Constraints:
    """The smaller set of constraints if that is still impossible, else the one before."""
    instance = build_instance(inputs, fewer, 1.0)
    proof = prove(instance, np.arange(instance.count))
    return fewer if proof.optimal and proof.labels is None else kept


def _names(inputs: Inputs, clients: tuple[int, ...]) -> str:
    return "(" + ", ".join(str(inputs.label(client)) for client in clients) + ")"
