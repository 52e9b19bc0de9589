"""`fedcollab federation plan`: what the coordinator will ask, as a file for the silos' administrators to approve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fedcollab import flower, training
from fedcollab.cli import options
from fedcollab.cli.artefacts import open_collaboration
from fedcollab.cli.settings import take_pairs
from fedcollab.errors import InputError
from fedcollab.silo.plans import METHODS, Plan, Training
from fedcollab.training.trees.forest import with_rounds


@click.command(
    epilog="""\b
Examples:
  fedcollab federation plan hospitals look -o look.json
  fedcollab federation plan hospitals train --model logistic --rounds 50 --coalitions runs/h -o train.json
  fedcollab federation plan hospitals join --run runs/h --client coast -o join.json
  fedcollab federation plan hospitals check --run runs/h --apply -o check.json"""
)
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("kind", type=click.Choice(["look", "train", "join", "check"]))
@click.option("--study", help="The study's name; its plans share it.  [default: the federation's name]")
@click.option("--purpose", default="", help="What the study is for, in words for the silos' administrators.")
@click.option(
    "--distance",
    "methods",
    multiple=True,
    type=click.Choice(sorted(METHODS)),
    help="Of a look: a distance method; may be given several times.  [default: few-round]",
)
@click.option(
    "--candidates",
    default=0,
    show_default=True,
    help="Of a look: candidates that the advice trains on folds; it has 6 at most.",
)
@click.option("--algorithm", default="fedavg", show_default=True, help="Of a train plan: the algorithm's name.")
@click.option(
    "--algorithm-option", multiple=True, metavar="KEY=VALUE", help="A setting of it, such as mu=0.1; repeatable."
)
@options.how_to_train
@click.option(
    "--coalitions", type=click.Path(path_type=Path), help="Who trains with whom: a run, or a file of `solve`."
)
@click.option("--alone", is_flag=True, help="Each silo also trains alone, for comparison.")
@click.option("--secure-aggregation", is_flag=True, help="Updates must be masked.")
@click.option("--start", "starts", multiple=True, help="SHA-256 of weights that training may start from.")
@click.option(
    "--run", "run_dir", type=click.Path(path_type=Path), help="Of a join or a check: the run, which says all the rest."
)
@click.option("--client", help="Of a join: the silo that joins.")
@click.option("--apply", "do", is_flag=True, help="Of a check: coalitions may train on (`fedcollab check --apply`).")
@options.out("The plan's file.", required=True)
@options.json
def plan(
    folder: Path,
    kind: str,
    study: str | None,
    purpose: str,
    methods: tuple[str, ...],
    candidates: int,
    algorithm: str,
    coalitions: Path | None,
    alone: bool,
    secure_aggregation: bool,
    starts: tuple[str, ...],
    run_dir: Path | None,
    client: str | None,
    do: bool,
    out: Path,
    as_json: bool,
    **how: Any,
) -> None:
    """Write a plan: a `look` at the data and distances, or how to `train`. Silos review and approve it.

    A look with candidates, and a train plan, say how models are trained: as in `fedcollab train`, by the same options.
    When a silo comes, or data change, a `join` or a `check` says what `fedcollab join` and `check` will ask; how models
    are trained, and from which, it reads off the run.
    """
    _check_options(kind)
    if kind in ("join", "check"):
        federation = flower.FederationFolder.read(folder)
        if run_dir is None or (kind == "join" and client is None):
            raise InputError(f"a {kind} plan needs --run RUN_DIR{' and --client NAME' * (kind == 'join')}")
        if kind == "join" and client is not None:
            made = flower.plan_join(federation, run_dir, client, study=study, purpose=purpose)
        else:
            made = flower.plan_check(federation, run_dir, apply=do, study=study, purpose=purpose)
        _save(made, out, as_json)
        return
    trained = _training(kind, algorithm, secure_aggregation, how) if kind == "train" or candidates else None
    groups = open_collaboration(coalitions).coalitions if coalitions is not None else []
    made = flower.make_plan(
        flower.FederationFolder.read(folder),
        kind,
        study=study,
        methods=methods or ("few-round",),
        candidates=candidates,
        training=trained,
        coalitions=[[str(name) for name in members] for members in groups],
        starts=starts,
        alone=alone,
        purpose=purpose,
    )
    _save(made, out, as_json)


def _save(made: Plan, out: Path, as_json: bool) -> None:
    """Write a plan, and print what the silos do with it."""
    made.save(out)
    if as_json:
        options.print_json({"plan": made.digest, "file": str(out), "budget": made.budget})
        return
    click.echo(f"Plan {made.digest[:12]} ({made.kind} of {made.study!r}) is in {out}. Send it to the silos; each runs:")
    click.echo(f"  fedcollab silo review {out.name}")
    click.echo(f"  fedcollab silo approve {out.name}")


def _check_options(kind: str) -> None:
    """Refuse options that belong to another kind of plan than was asked for."""
    context = click.get_current_context()
    typed = {
        name for name in context.params if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    }
    every = {"folder", "kind", "study", "purpose", "out", "as_json"}
    change = {"join": {"run_dir", "client"}, "check": {"run_dir", "do"}}
    wrong = typed - every - change[kind] if kind in change else typed & {"run_dir", "client", "do"}
    if wrong:
        named = {each.name: each.opts[0] for each in context.command.params}
        known = "; how models are trained is the run's" if kind in change else ""
        raise InputError(f"`{named[min(wrong)]}` does not belong to a {kind} plan{known}")


def _training(kind: str, algorithm: str, masked: bool, how: dict[str, Any]) -> Training:
    """Return how models are trained: in a train plan with all options of the algorithm, in a look with any."""
    model_options = with_rounds(how["model"], take_pairs(how, "model_option"), how["rounds"])
    name, chosen = training.make_algorithm(algorithm, take_pairs(how, "algorithm_option"))
    own = None if kind == "look" or name == "own-weights" else chosen.options()
    return Training(algorithm=name, secure_aggregation=masked, model_options=model_options, options=own, **how)
