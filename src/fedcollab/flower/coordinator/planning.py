"""Making plans at the coordinator: what it will ask, with the partners by their keys and a budget that suffices."""

from __future__ import annotations

from collections.abc import Sequence

from fedcollab.errors import InputError
from fedcollab.flower import keys
from fedcollab.flower.coordinator.folder import FederationFolder
from fedcollab.silo.plans import METHODS, Plan, Training

#: rounds of each distance method over a federation, at most
ROUNDS = {"cross": 50, "hypothesis": 50, "published": 2000}
#: models that a silo trains in a round of one candidate, at most: more than one under own weights
LAYERS = 3


def make_plan(
    federation: FederationFolder,
    kind: str,
    *,
    study: str | None = None,
    methods: Sequence[str] = ("few-round",),
    candidates: int = 0,
    training: Training | None = None,
    coalitions: Sequence[Sequence[str]] = (),
    starts: Sequence[str] = (),
    alone: bool = False,
    purpose: str = "",
) -> Plan:
    """Make a plan for the silos of a federation.

    Parameters
    ----------
    federation : FederationFolder
        The federation; its admitted silos are the partners.
    kind : str
        "look" or "train".
    study : str, optional
        The name of the study; by default the federation's.
    methods : sequence of str
        The distance methods of a look.
    candidates : int
        How many candidates the advice may train on folds.
    training : Training, optional
        How models are trained; a train plan must say it, and a look with candidates.
    coalitions : sequence of sequences of str
        Who trains with whom; empty: any of the partners.
    starts : sequence of str
        SHA-256 of weights that training may start from, beside those drawn from its seed.
    alone : bool
        Whether silos also train alone, for comparison.
    purpose : str
        What the study is for, in words for the silos' administrators.

    Returns
    -------
    Plan
        The plan, with a budget that suffices for it.

    Raises
    ------
    InputError
        If a method is unknown, the training is missing, or a coalition names a silo that is not admitted.
    """
    for method in methods:
        if method not in METHODS:
            raise InputError(f"`method` (={method!r}) must be one of: {', '.join(METHODS)}")
    if training is None and (kind == "train" or candidates):
        raise InputError("`training` is missing: a plan that trains must say which model, and how")
    partners = {
        name: keys.fingerprint((federation.folder / "silos" / f"{name}.pub").read_bytes())
        for name in federation.admitted
    }
    if len(partners) < 2:
        raise InputError(f"`{federation.folder}` has {len(partners)} admitted silo(s); a plan needs at least 2")
    unknown = sorted({name for group in coalitions for name in group} - set(partners))
    if unknown:
        raise InputError(f"`coalitions` names {unknown[0]!r}, which is not admitted")
    return Plan(
        study=study or federation.name,
        kind="look" if kind == "look" else "train",
        partners=partners,
        budget=_budget(kind, len(partners), methods, candidates, training, alone),
        methods=tuple(methods) if kind == "look" else (),
        candidates=candidates if kind == "look" else 0,
        training=training,
        coalitions=tuple(tuple(group) for group in coalitions) if kind == "train" else (),
        starts=tuple(starts),
        comparison_alone=alone,
        purpose=purpose,
    )


def _budget(
    kind: str, partners: int, methods: Sequence[str], candidates: int, training: Training | None, alone: bool
) -> dict[str, int]:
    """Return what a plan needs at most: once for what it asks, and a little for messages that are asked again."""
    rounds = 0 if training is None else training.rounds + 1
    if kind == "look":
        tests = 4 * partners * max(1, len(methods)) + 4 * candidates
        each = max((ROUNDS.get(method, 1) for method in methods), default=1)
        each *= partners - 1 if each > 1 else 1  # an update for each pair
        repeats, updates = 4 * len(methods) + candidates + 2, each + candidates * LAYERS * rounds
        return {"models": tests + 10, "repeats": repeats, "rounds": updates, "schemas": 2}
    times = 2 if alone else 1
    return {"models": 20 + 4 * times, "repeats": 2 * times, "rounds": 2 * times * rounds, "schemas": 2}
