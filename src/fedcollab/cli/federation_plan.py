"""`fedcollab federation plan`: what the coordinator will ask, as a file for the silos' administrators to approve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fedcollab import flower, training
from fedcollab.cli import options
from fedcollab.silo.plans import METHODS, Training


@click.command(
    epilog="""\b
Examples:
  fedcollab federation plan hospitals look -o look.json
  fedcollab federation plan hospitals train --model logistic --rounds 50 --coalitions runs/h -o train.json"""
)
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("kind", type=click.Choice(["look", "train"]))
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
@options.out("The plan's file.", required=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output, for programs.")
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
    out: Path,
    as_json: bool,
    **how: Any,
) -> None:
    """Write a plan: a `look` at the data and distances, or how to `train`. Silos review and approve it.

    A look with candidates, and a train plan, say how models are trained: as in `fedcollab train`, by the same options.
    """
    trained = _training(kind, algorithm, secure_aggregation, how) if kind == "train" or candidates else None
    groups = options.open_collaboration(coalitions).coalitions if coalitions is not None else []
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
    made.save(out)
    if as_json:
        options.print_json({"plan": made.digest, "file": str(out), "budget": made.budget})
        return
    click.echo(f"Plan {made.digest[:12]} ({made.kind} of {made.study!r}) is in {out}. Send it to the silos; each runs:")
    click.echo(f"  fedcollab silo review {out.name}")
    click.echo(f"  fedcollab silo approve {out.name}")


def _training(kind: str, algorithm: str, masked: bool, how: dict[str, Any]) -> Training:
    """Return how models are trained: in a train plan with all options of the algorithm, in a look with any."""
    model_options = options.take_pairs(how, "model_option")
    name, chosen = training.make_algorithm(algorithm, options.take_pairs(how, "algorithm_option"))
    own = None if kind == "look" or name == "own-weights" else chosen.options()
    return Training(algorithm=name, secure_aggregation=masked, model_options=model_options, options=own, **how)
