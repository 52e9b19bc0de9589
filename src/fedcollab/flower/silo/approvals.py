"""The plans that a silo's administrator has approved: files in the silo's state folder, signed with the silo's key.

    state/plans/DIGEST.json     the plan, when it was approved, and the signature over digest and time

A file whose signature is not the silo's own is not read: who can write to the folder but does not have the key cannot
approve. In a federation without certificates silos have no key, and approvals no signature.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from fedcollab.errors import InputError
from fedcollab.files import now, write_bytes
from fedcollab.flower import keys
from fedcollab.flower.silo.config import SiloConfig
from fedcollab.parsing import read_json_file
from fedcollab.silo.plans import Approved, Plan, read_plan
from fedcollab.wire.limits import Limits

FOLDER = "plans"


def approve_plan(config: SiloConfig, plan: Plan, limits: Limits) -> dict[str, Any]:
    """Approve a plan for a silo: sign it, and keep it in the silo's state folder.

    Parameters
    ----------
    config : SiloConfig
        The silo's config.
    plan : Plan
        The plan.
    limits : Limits
        The silo's limits, which a plan must not exceed.

    Returns
    -------
    dict
        The approval, for the coordinator: `silo`, `plan` (its digest), `approved`, `signature`, `public_key`.

    Raises
    ------
    InputError
        If the silo is not among the plan's partners, or the plan asks for more than the limits allow.
    """
    check_plan(config, plan, limits)
    time = now()
    approval = {"silo": config.name, "plan": plan.digest, "approved": time, "signature": "", "public_key": ""}
    if config.key.is_file():
        approval["signature"], approval["public_key"] = keys.sign(config.key, _signed(plan.digest, time))
    content = {"plan": msgspec.to_builtins(plan), **{key: approval[key] for key in ("approved", "signature")}}
    with keys.private_files():
        write_bytes(_file(config, plan.digest), (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())
    return approval


def check_plan(config: SiloConfig, plan: Plan, limits: Limits) -> None:
    """Check that a plan is for this silo, and asks for no more than its limits allow.

    Parameters
    ----------
    config : SiloConfig
        The silo's config.
    plan : Plan
        The plan.
    limits : Limits
        The silo's limits.

    Raises
    ------
    InputError
        If it is not, or does.
    """
    if config.name not in plan.partners:
        raise InputError(f"the plan's partners are {', '.join(sorted(plan.partners))}; this silo is `{config.name}`")
    public = config.key.with_suffix(".pub")
    if plan.partners[config.name] and public.is_file():
        own = keys.fingerprint(public.read_bytes())
        if own != plan.partners[config.name]:
            raise InputError(f"the plan names another key for `{config.name}` than this silo's ({own[:16]})")
    for kind, most in limits.budget.items():
        if plan.budget.get(kind, 0) > most:
            raise InputError(
                f"the plan's budget of {kind} is {plan.budget[kind]}; this silo's limits allow {most} (a plan of fewer "
                f"rounds or candidates needs less; `max_{kind}` in the limits allows more)"
            )
    if plan.kind != "look" and plan.training is not None:
        if plan.training.batch_size < limits.min_batch:
            raise InputError(
                f"the plan's batch size is {plan.training.batch_size}; this silo asks for {limits.min_batch}"
            )
        groups = [group for group in plan.coalitions if config.name in group] or [tuple(plan.partners)]
        least = max if plan.kind == "join" else min  # a newcomer joins one of them, which its limits decide again
        if least(map(len, groups)) < limits.min_coalition:
            raise InputError(
                f"the plan's coalition is {', '.join(groups[0])}; this silo asks for {limits.min_coalition} clients"
            )


def withdraw_plan(config: SiloConfig, digest: str) -> Plan:
    """Withdraw an approval; the silo answers nothing more under that plan.

    Parameters
    ----------
    config : SiloConfig
        The silo's config.
    digest : str
        The plan's digest, or how it begins.

    Returns
    -------
    Plan
        The plan that was withdrawn.

    Raises
    ------
    InputError
        If no approved plan, or more than one, begins so.
    """
    found = [approved.plan for approved in approved_plans(config) if digest and approved.plan.digest.startswith(digest)]
    if len(found) != 1:
        raise InputError(f"`plan` (={digest!r}) must be how the digest of one approved plan begins; {len(found)} do")
    _file(config, found[0].digest).unlink()
    return found[0]


def approved_plans(config: SiloConfig) -> list[Approved]:
    """Return the plans that the silo has approved, the oldest first.

    Parameters
    ----------
    config : SiloConfig
        The silo's config.

    Returns
    -------
    list of Approved
        The plans; a file that is broken, or not signed by the silo, is left out with a line in the silo's log.
    """
    found = []
    for path in sorted((config.state / FOLDER).glob("*.json")):
        try:
            content = read_json_file(path, "an approval")
            approved = Approved(read_plan(content["plan"]), str(content["approved"]))
            signature = str(content["signature"])
            signed = _signed(approved.plan.digest, approved.approved)
            if config.key.is_file() and not keys.signed_by(config.key, signed, signature):
                raise ValueError("its signature is not this silo's")
        except (OSError, ValueError, KeyError, TypeError) as error:
            print(f"fedcollab: the approval {path.name} is not used: {error}", file=sys.stderr)
            continue
        found.append(approved)
    return sorted(found, key=lambda approved: approved.approved)


def _signed(digest: str, time: str) -> bytes:
    """Return what a signature is over."""
    return f"fedcollab plan {digest} approved {time}".encode()


def _file(config: SiloConfig, digest: str) -> Path:
    return config.state / FOLDER / f"{digest}.json"
