"""A plan in plain words: what each step reveals about a silo's samples, and what earlier plans have revealed."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fedcollab.silo.plans import METHODS, UPDATES, Approved, Plan, actions_of, total_cost
from fedcollab.wire.action import SPENDS, Release
from fedcollab.wire.limits import Limits

#: characters that are not shown as they are: control, format, unassigned, private, line and paragraph separators
HIDDEN = ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp")
#: what a reply of each kind tells the coordinator
REVEALS = {
    Release.NOTHING: "nothing about samples leaves",
    Release.SUMMARY: "counts, sums and common categories over all samples leave",
    Release.NOISED: "sums and accuracies leave, with noise where it is required",
    Release.EXACT: "sums over samples, weights or measures leave, without noise",
}


def review(
    plan: Plan,
    limits: Limits,
    entries: Sequence[Mapping[str, Any]],
    approved: Sequence[Approved],
    *,
    own: Collection[str] = (),
) -> list[str]:
    """Return a plan in plain words, line by line.

    Parameters
    ----------
    plan : Plan
        The plan.
    limits : Limits
        The silo's limits.
    entries : sequence of mapping
        The silo's log.
    approved : sequence of Approved
        The plans that the silo has approved so far.
    own : collection of str, optional
        SHA-256 of the models that this silo has from earlier trainings.

    Returns
    -------
    list of str
        Lines for the silo's administrator.
    """
    lines = [f"Plan {plan.digest[:12]}: {plan.kind} in the study {plan.study!r}."]
    lines += [f"Purpose: {plan.purpose}"] * bool(plan.purpose)
    lines += _about_change(plan)
    partners = ", ".join(f"{name} ({key[:16] or 'no key'})" for name, key in sorted(plan.partners.items()))
    lines += [f"Partners, with the beginning of their keys' fingerprints: {partners}.", "", "What it may ask for:"]
    for action in actions_of(plan):
        lines.append(f"  {action.step.value}: {action.name} ({action.purpose}); {REVEALS[action.release]}.")
    if plan.candidates:
        lines.append(f"The advice may train {plan.candidates} candidate(s); who trains with whom, and how, is open.")
    if not limits.require_plan:
        lines.append("This silo requires no plan: it also answers what is in none, with a budget for each day.")
    lines += ["", *_about_training(plan, limits, own), "Its budget, and what this silo's limits leave of it:"]
    allowed = plan.allowed(limits.budget)
    lines += [f"  {allowed[kind]} {words} (asked: {plan.budget.get(kind, 0)})" for kind, words in SPENDS.items()]
    lines += _about_limits(plan, limits)
    return [visible(line) for line in (*lines, "", *_about_earlier(entries, approved))]


def visible(text: str) -> str:
    r"""Return a line of which nothing is hidden: control and format characters, which a plan's texts may hold, escaped.

    Else a purpose could move the cursor, write over the lines before it, or add lines that look like a review's.

    Examples
    --------
    >>> print(visible("Purpose: heart\x1b[2J\nIts budget: 0"))
    Purpose: heart\x1b[2J\x0aIts budget: 0
    """
    return "".join(_escaped(sign) if unicodedata.category(sign) in HIDDEN else sign for sign in text)


def _escaped(sign: str) -> str:
    return f"\\x{ord(sign):02x}" if ord(sign) < 256 else f"\\u{ord(sign):04x}"


def _about_limits(plan: Plan, limits: Limits) -> list[str]:
    """Return what to know where the silo's limits, or the plan's methods, let a coordinator learn more than usual."""
    usual = Limits().budget
    wider = [SPENDS[kind] for kind, amount in limits.budget.items() if amount > usual[kind]]
    lines = []
    if wider:
        lines.append(
            f"This silo's limits are wider than the preset 'usual' (more {', '.join(wider)}): a coordinator that asks "
            "for all of it can compute values of single samples (docs/threats.md)."
        )
    if not (limits.round_measures and limits.blur_updates and limits.check_training):
        lines.append(
            "Errors of sums, measures or updates, or checks of training, are switched off: samples can be computed."
        )
    if any(METHODS[method] in UPDATES for method in plan.methods):
        lines.append(
            "The distance methods send updates of models that the coordinator chooses: with `published` a hostile one "
            "can read samples from them. `few-round` sends sums alone."
        )
    return lines


def _about_change(plan: Plan) -> list[str]:
    """Return what happens when a client joins, or when data changed, in words."""
    methods = ", ".join(plan.methods)
    if plan.kind == "join":
        return [
            f"{plan.newcomer} joins. It is compared with each partner ({methods}), no two partners with each other. "
            f"Then {plan.newcomer} trains with one of the coalitions below, on from the model that these have; the "
            "other coalitions are not asked to train."
        ]
    if plan.kind == "check":
        changed = f"Each silo says by a checksum whether its data changed; only those are compared again ({methods})."
        follows = "Nothing is trained." if plan.training is None else "Then coalitions that changed may train on."
        return [f"{changed} {follows}"]
    return []


def _about_training(plan: Plan, limits: Limits, own: Collection[str]) -> list[str]:
    """Return how a plan trains, and from which models, in words."""
    training = plan.training
    if training is None:
        return []
    steps = f"step size {training.lr:g}, optimiser {training.optimizer}, weight decay {training.weight_decay:g}"
    steps = steps if training.loss is None else f"loss {training.loss}, {steps}"
    lines = [
        f"Training: model {training.model}, algorithm {training.algorithm}, batches of {training.batch_size}, "
        f"{steps}, at most "
        f"{training.rounds} rounds of {training.local_epochs} local epoch(s)."
    ]
    told = {"the model": training.model_options, "the algorithm": training.options or {}}
    for what, options in told.items():
        if options:
            lines.append(f"Options of {what}: " + ", ".join(f"{key} = {value}" for key, value in options.items()) + ".")
    if plan.kind != "look" and training.options is None:
        lines.append("Options of the algorithm are left open.")
    if plan.coalitions:
        lines.append("Coalitions: " + "; ".join(", ".join(group) for group in plan.coalitions) + ".")
    if training.model == "xgboost":
        lines.append(
            "Of every tree the coordinator sees, level by level, sums of gradients by node and bin of each feature, "
            "which tell about how many of this silo's samples of each class are there. A sum is of at least "
            f"{limits.min_samples} samples (`min_samples`)"
            + (" and has an error of half its standard error." if limits.blur_updates else ", without an error.")
        )
    if training.secure_aggregation:
        lines.append("Updates are masked: the coordinator sees sums over a coalition alone.")
    else:
        lines.append("Updates are not masked: the coordinator sees each silo's own, and so can a partner of two.")
    if plan.comparison_alone:
        who = plan.newcomer or "The silo"
        lines.append(
            f"{who} also trains alone, for comparison: the coordinator then sees a model of its samples alone."
        )
    others = [start for start in plan.starts if start not in own]
    if len(others) < len(plan.starts):
        lines.append("Training may start from the model that this silo has from its last training.")
    if others:
        lines.append(
            f"Training may start from {len(others)} model(s) of the coordinator's: ask where they come from "
            f"(SHA-256 {', '.join(start[:16] for start in others)})."
        )
    return [*lines, ""]


def _about_earlier(entries: Sequence[Mapping[str, Any]], approved: Sequence[Approved]) -> list[str]:
    """Return what was answered so far, under each plan and in all."""
    answered = [entry for entry in entries if entry["outcome"] == "answered"]
    if not answered:
        return ["This silo has answered nothing so far."]
    names = {each.plan.digest: f"{each.plan.kind} of {each.plan.study!r}" for each in approved}
    lines = ["What earlier plans have revealed (in the log):"]
    for digest in dict.fromkeys(entry.get("plan", "") for entry in answered):
        own = [entry for entry in answered if entry.get("plan", "") == digest]
        what = f"plan {digest[:12]} ({names.get(digest, 'withdrawn')})" if digest else "without a plan"
        lines.append(f"  {what}: {len(own)} answers; {_spent(own)}")
    return [*lines, f"  in all: {len(answered)} answers; {_spent(answered)}"]


def _spent(entries: Sequence[Mapping[str, Any]]) -> str:
    return (
        ", ".join(f"{amount} {SPENDS[kind]}" for kind, amount in total_cost(entries).items() if amount) or "no budget"
    )
