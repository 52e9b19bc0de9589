"""`fedcollab silo review`, `approve`, `plans` and `withdraw`: what a silo's administrator agrees to."""

from __future__ import annotations

import json
from pathlib import Path

import click

from fedcollab import flower
from fedcollab.cli import options
from fedcollab.files import write_bytes
from fedcollab.silo import plans as planning
from fedcollab.silo import review as words
from fedcollab.silo.audit import FILE, Audit

_plan = click.argument("plan", type=click.Path(path_type=Path))


@click.command(epilog="Example:  fedcollab silo review look.json")
@_plan
@options.silo_config
@options.json
def review(plan: Path, config: Path, as_json: bool) -> None:
    """Show a plan in plain words: what each step reveals, and what earlier plans have revealed. Approves nothing."""
    silo = flower.SiloConfig.read(config)
    wanted, limits = planning.Plan.load(plan), flower.silo_limits(silo)
    lines = words.review(
        wanted,
        limits,
        Audit(silo.state / FILE).entries(),
        flower.approved_plans(silo),
        own=flower.own_starts(silo),
    )
    if as_json:
        options.print_json({"plan": wanted.digest, "kind": wanted.kind, "words": lines})
        return
    click.echo("\n".join(lines))
    click.echo(f"\nTo agree:  fedcollab silo approve {plan}")


@click.command(epilog="Example:  fedcollab silo approve look.json")
@_plan
@options.silo_config
@options.out("Where to write the signed approval, for the coordinator.  [default: NAME.approval.json beside the plan]")
@options.json
def approve(plan: Path, config: Path, out: Path | None, as_json: bool) -> None:
    """Sign a plan with this silo's key: from now on the silo serves it."""
    silo = flower.SiloConfig.read(config)
    wanted = planning.Plan.load(plan)
    approval = flower.approve_plan(silo, wanted, flower.silo_limits(silo))
    target = out or plan.with_name(f"{silo.name}.approval.json")
    write_bytes(target, (json.dumps(approval, indent=1) + "\n").encode())
    if as_json:
        options.print_json({**approval, "file": str(target)})
        return
    click.echo(f"Approved plan {wanted.digest[:12]} ({wanted.kind} of {wanted.study!r}). For the coordinator: {target}")


@click.command(epilog="Example:  fedcollab silo plans")
@options.silo_config
@options.json
def plans(config: Path, as_json: bool) -> None:
    """List the plans that this silo has approved, and what they have spent."""
    silo = flower.SiloConfig.read(config)
    guard = flower.silo_guard(silo)
    listed = [
        {
            "plan": each.plan.digest,
            "study": each.plan.study,
            "kind": each.plan.kind,
            "approved": each.approved,
            "spent": guard.spent(each),
            "budget": each.plan.allowed(guard.limits.budget),
        }
        for each in guard.plans
    ]
    if as_json:
        options.print_json({"plans": listed, "required": guard.limits.require_plan})
        return
    for row in listed:
        spent = ", ".join(f"{row['spent'][kind]} of {most} {kind}" for kind, most in row["budget"].items())  # type: ignore[attr-defined, index]
        click.echo(f"{row['plan'][:12]}  {row['kind']} of {row['study']!r}, approved {row['approved']}: {spent}")  # type: ignore[index]
    rule = "It serves these and nothing else." if guard.limits.require_plan else "It also serves what is in no plan."
    click.echo(f"{len(listed)} plan(s). {rule}")


@click.command(epilog="Example:  fedcollab silo withdraw 9f2c01ab")
@click.argument("plan")
@options.silo_config
@options.json
def withdraw(plan: str, config: Path, as_json: bool) -> None:
    """Withdraw an approval, by the beginning of the plan's digest (`fedcollab silo plans` lists them)."""
    withdrawn = flower.withdraw_plan(flower.SiloConfig.read(config), plan)
    if as_json:
        options.print_json({"withdrawn": withdrawn.digest})
        return
    click.echo(f"Withdrawn: {withdrawn.digest[:12]} ({withdrawn.kind} of {withdrawn.study!r}).")
