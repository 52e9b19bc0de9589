"""Making plans at the coordinator: what it will ask, with the partners by their keys and a budget that suffices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fedcollab.advice.candidates import ROWS
from fedcollab.advice.pilot import DRAWS
from fedcollab.errors import InputError
from fedcollab.flower import keys
from fedcollab.flower.coordinator.folder import FederationFolder
from fedcollab.silo.plans import METHODS, Plan, Training
from fedcollab.training.defaults import ROWS as OWN_MODELS

#: of each distance method: its rounds, and its ways of dividing the samples, at most (a label distance has neither)
ROUNDS = {"cross": 50, "hypothesis": 50, "published": 2000}
REPEATS = {"cross": 4, "hypothesis": 4, "few-round": 1, "published": 1, "prototype": 1}


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
    partners = partners_of(federation, federation.admitted)
    if len(partners) < 2:
        raise InputError(f"`{federation.folder}` has {len(partners)} admitted silo(s); a plan needs at least 2")
    unknown = sorted({name for group in coalitions for name in group} - set(partners))
    if unknown:
        raise InputError(f"`coalitions` names {unknown[0]!r}, which is not admitted")
    return Plan(
        study=study or federation.name,
        kind="look" if kind == "look" else "train",
        partners=partners,
        budget=needed_budget(
            kind, len(partners), methods=methods, candidates=candidates, training=training, alone=alone
        ),
        methods=tuple(methods) if kind == "look" else (),
        candidates=candidates if kind == "look" else 0,
        training=training,
        coalitions=tuple(tuple(group) for group in coalitions) if kind == "train" else (),
        starts=tuple(starts),
        comparison_alone=alone,
        purpose=purpose,
    )


def partners_of(federation: FederationFolder, names: Iterable[str]) -> dict[str, str]:
    """Return silos with the fingerprints of the keys under which they are admitted.

    Parameters
    ----------
    federation : FederationFolder
        The federation.
    names : iterable of str
        The silos.

    Returns
    -------
    dict
        The fingerprint of each silo's key, by name; an empty text where an insecure federation knows none.

    Raises
    ------
    InputError
        If one is not admitted.
    """
    admitted, found = set(federation.admitted), {}
    for name in names:
        if name in admitted:
            found[name] = keys.fingerprint((federation.folder / "silos" / f"{name}.pub").read_bytes())
        elif federation.secure:
            raise InputError(
                f"no silo {name!r} is admitted; `fedcollab federation admit {federation.folder} {name}.pub` does that"
            )
        else:
            found[name] = ""
    return found


def needed_budget(
    kind: str,
    partners: int,
    *,
    methods: Sequence[str] = (),
    candidates: int = 0,
    training: Training | None = None,
    alone: bool = False,
) -> dict[str, int]:
    """Return what an honest coordinator spends at a silo at most, and a little for what is asked again.

    A look with candidates divides the samples once for the sums behind the candidates and `DRAWS` times for training
    alone, whose models (one on all rows of a part, one on half of them) are each measured. Then every candidate may
    train to the end, one of them, that with own weights, as `ROWS` models; all use the last of those divisions. A
    training is done twice, first on folds to choose its rounds, under own weights with `OWN_MODELS` models; then its
    models are tested and compared. A join, and a check, take distances as a look does, of a row of pairs or, where all
    silos have changed, of all; then they train.

    Parameters
    ----------
    kind : str
        "look", "train", "join" or "check".
    partners : int
        How many silos take part.
    methods, candidates, training, alone
        As in `make_plan`.

    Returns
    -------
    dict
        Amounts by the keys of `wire.action.SPENDS`.
    """
    rounds = 0 if training is None else training.rounds + 1
    if kind in ("join", "check"):
        budget = needed_budget("look", partners, methods=methods)
        if kind == "join":  # one pair each, the newcomer one with each partner, by two ways of weighing at most
            budget["models"] = 2 * (partners - 1) + 10
        if training is not None:
            more = needed_budget("train", partners, training=training, alone=alone)
            budget = {spent: budget[spent] + more[spent] for spent in budget} | {"schemas": 2}
        return budget
    if kind == "look":
        divisions = sum(REPEATS.get(method, 0) for method in methods)
        models = 4 * partners * max(1, len(methods)) + 10
        updates = sum(ROUNDS[method] * (partners - 1) for method in methods if method in ROUNDS)  # for each pair
        if candidates:
            divisions += 1 + DRAWS
            models += 2 * DRAWS + candidates  # each candidate's last models are measured, and not trained
            updates += (candidates + ROWS - 1) * rounds
        return {"models": models, "repeats": divisions + 1, "rounds": updates, "schemas": 2}
    times = 2 if alone else 1
    models = OWN_MODELS if training is not None and training.algorithm == "own-weights" else 1
    updates = 2 * rounds * (models + times - 1)
    return {"models": 20 + 4 * times, "repeats": 2 * times, "rounds": updates, "schemas": 2}
