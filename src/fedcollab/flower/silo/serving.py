"""What a silo's process serves with: every action that fedcollab declares, the silo's limits, plans and guard."""

from __future__ import annotations

import fedcollab.advice.sums
import fedcollab.distances.estimate
import fedcollab.federation.federate
import fedcollab.inspection.profile
import fedcollab.training.compare_client
import fedcollab.training.evaluate_client
import fedcollab.training.folds_client
import fedcollab.training.trees.client  # noqa: F401  (these declare every action that a silo can be asked for)
from fedcollab.flower.silo.approvals import approved_plans
from fedcollab.flower.silo.config import SiloConfig
from fedcollab.silo.guard import Guard
from fedcollab.wire.action import ACTIONS
from fedcollab.wire.limits import Limits, make_limits


def silo_limits(config: SiloConfig) -> Limits:
    """Return a silo's limits.

    Parameters
    ----------
    config : SiloConfig
        The silo's config.

    Returns
    -------
    Limits
        What its table `[limits]` says; defaults for the rest.

    Raises
    ------
    InputError
        If the table has an unknown key or a wrong value.
    """
    return make_limits(config.limits, ACTIONS)


def silo_guard(config: SiloConfig) -> Guard:
    """Return the guard of a silo: its log, its limits and the plans that it has approved.

    Parameters
    ----------
    config : SiloConfig
        The silo's config.

    Returns
    -------
    Guard
        The guard.
    """
    return Guard.at(config.state, silo_limits(config), approved_plans(config))
