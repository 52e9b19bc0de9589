"""Options that several commands share, and how their answers are printed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from fedcollab import files as artefact
from fedcollab import runs
from fedcollab.cli.names import (
    ALGORITHMS,
    DISTANCES,
    ENCODERS,
    LABEL_COUNTS,
    LOSSES,
    MODELS,
    OPTIMIZERS,
    SECURE,
    STOPPING,
    TASKS,
    Name,
)
from fedcollab.training import defaults

if TYPE_CHECKING:
    from fedcollab.runs import Run

F = TypeVar("F", bound=Callable[..., Any])
OF_OUTPUT = ("as_json", "quiet")


def several(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    """Return one decorator for several, applied so that the help lists them in this order."""

    def apply(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply


def with_later_commands(later: Mapping[str, str]) -> type[click.Group]:
    """Return a class of click groups with more commands, imported from other files when they are used.

    Parameters
    ----------
    later : mapping
        The commands: name to "module:attribute".
    """

    class Later(click.Group):
        """A group with the commands of `later` after its own."""

        def list_commands(self, ctx: click.Context) -> list[str]:
            """Return the names of all commands, the later ones last."""
            return [*super().list_commands(ctx), *later]

        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            """Import the command of this name; return None if there is none."""
            if cmd_name not in later:
                return super().get_command(ctx, cmd_name)
            module, attribute = later[cmd_name].split(":")
            command: click.Command = getattr(import_module(module), attribute)
            return command

    return Later


json = click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output, for programs.")
output = several(
    json,
    click.option("--quiet", is_flag=True, help="No progress bars."),
)

source = several(
    click.argument("scenario", required=False, type=click.Path(path_type=Path)),
    click.option(
        "--clients", type=click.Path(path_type=Path), help="Folder with one CSV, Parquet or NPZ file per client."
    ),
    click.option("--label", help="The label column of CSV and Parquet files."),
    click.option(
        "--drop", multiple=True, metavar="COLUMN", help="A column to leave out (identifiers, dates); repeatable."
    ),
    click.option("--columns", metavar="common|FILE", help="Columns to read: those that all have, or a file's lines."),
    click.option(
        "--label-map", type=click.Path(path_type=Path), metavar="FILE", help="Labels to read as others: lines `ja,yes`."
    ),
    click.option("--merge-labels", is_flag=True, help="Labels that differ by case, blanks or number format are one."),
    click.option(
        "--id", "id_column", metavar="COLUMN", help="Rows that share its value stay together in splits; no feature."
    ),
    click.option(
        "--trust", multiple=True, metavar="COLUMN", help="A column (`label`: the labels) that the data check may trust."
    ),
)

on = click.option(
    "--on",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Work on the silos of this federation (see `fedcollab federation`) instead.",
)

silo_config = click.option(
    "--config", type=click.Path(path_type=Path), default=Path("silo.toml"), show_default=True, help="The silo's config."
)

seed = click.option("--seed", default=0, show_default=True, help="Everything random is derived from it.")
test_share = click.option(
    "--test-share", default=0.2, show_default=True, help="Hold-out share of clients without a test split."
)

#: what models predict
task = click.option(
    "--task",
    type=Name(TASKS),
    default="auto",
    show_default=True,
    help="Classes or a numeric target; auto: numbers with fractions mean regression.",
)

estimation = several(
    click.option(
        "--distance",
        type=Name(DISTANCES),
        default="auto",
        show_default=True,
        help="How to estimate distances.",
    ),
    click.option(
        "--encoder",
        type=Name(ENCODERS, open_ended=True),
        default="none",
        show_default=True,
        help="Frozen encoder through which images are compared; with options as efficientnet-lite0:block=10,size=64.",
    ),
    task,
    click.option("--missing-indicators", is_flag=True, help="Let missingness itself be a feature of tables."),
    test_share,
    seed,
)

measuring = several(
    click.option(
        "--privacy-epsilon",
        type=float,
        help="Differential privacy of the distances: what each client may spend (needs --distance few-round).",
    ),
    click.option("--privacy-delta", type=float, help="The delta of that epsilon.  [default: 1e-5]"),
    click.option(
        "--min-samples",
        type=int,
        help="Samples that a number leaving a client is made of, at the least; clients may insist on more.",
    ),
    click.option(
        "--folds",
        type=int,
        help="Parts into which each client's samples are cut for the distances; fewer where clients have few samples.  "
        "[default: the method's, mostly 5]",
    ),
    click.option(
        "--label-counts",
        type=Name(LABEL_COUNTS, open_ended=True),
        help="How clients got their label counts: drawn (by chance) or set (dealt out exactly).  [default: auto]",
    ),
)

#: what is trained and how clients take their steps, whatever the algorithm
how_to_train = several(
    click.option("--model", type=Name(MODELS), default=defaults.MODEL, show_default=True, help="What is trained."),
    click.option(
        "--model-option", multiple=True, metavar="KEY=VALUE", help="A setting of it, such as widths=[64]; repeatable."
    ),
    click.option("--rounds", default=defaults.ROUNDS, show_default=True, help="Communication rounds, at most."),
    click.option("--lr", default=defaults.LR, show_default=True, help="Step size of local SGD."),
    click.option("--batch-size", default=defaults.BATCH_SIZE, show_default=True, help="Batch size of local SGD."),
    click.option("--local-epochs", default=defaults.LOCAL_EPOCHS, show_default=True, help="Local epochs a round."),
    click.option(
        "--optimizer",
        type=Name(OPTIMIZERS),
        default=defaults.OPTIMIZER,
        show_default=True,
        help="What takes the local steps.",
    ),
    click.option(
        "--weight-decay", default=defaults.WEIGHT_DECAY, show_default=True, help="By how much weights shrink a step."
    ),
    click.option(
        "--loss",
        type=Name(LOSSES),
        help="What models are trained with.  [default: cross-entropy; squared for a numeric target]",
    ),
)

training = several(
    click.option(
        "--algorithm",
        type=Name(ALGORITHMS),
        help="The federated algorithm.  [default: as advised; fedavg for a given C or given coalitions]",
    ),
    click.option(
        "--algorithm-option",
        multiple=True,
        metavar="KEY=VALUE",
        help="A setting of it, such as mu=0.1; repeatable.",
    ),
    how_to_train,
    click.option("--keep", multiple=True, metavar="LAYER", help="A layer that stays with each client; repeatable."),
    click.option(
        "--averaging",
        type=float,
        help="Use a mean over rounds as the model, this far back; 0: the last round's.  [default: what is better on "
        "the held-out rows]",
    ),
    click.option(
        "--stopping",
        type=Name(STOPPING),
        default=defaults.STOPPING,
        show_default=True,
        help="Choose the rounds on training rows that a model has not seen, or train all rounds.",
    ),
    click.option(
        "--secure-aggregation",
        type=Name(SECURE),
        default="none",
        show_default=True,
        help="Clients send updates under masks that cancel in the sum: without members that drop out, or of everyone.",
    ),
)

constraints = several(
    click.option("--must-link", multiple=True, metavar="A,B", help="Clients that must train together; repeatable."),
    click.option("--cannot-link", multiple=True, metavar="A,B", help="Clients that may not; repeatable."),
    click.option("--min-size", default=1, show_default=True, help="Fewest clients of a coalition."),
    click.option("--max-size", type=int, help="Most clients of a coalition."),
)


def out(text: str, **settings: Any) -> Callable[[F], F]:
    """Return the option that says where a command writes, spelt `-o` or `--out` in all of them.

    Parameters
    ----------
    text : str
        What is written there, for the help.
    **settings
        Further settings of `click.option`.
    """
    return click.option("-o", "--out", **{"type": click.Path(path_type=Path), "help": text, **settings})


def way(text: str) -> Callable[[F], F]:
    """Return the option that names one of the trainings of a run.

    Parameters
    ----------
    text : str
        What it chooses, for the help.
    """
    known = Name(tuple(runs.WAYS))
    how = f"{text}: in coalitions (as advised), alone, or with everyone."
    return click.option("--way", type=known, default="coalitions", show_default=True, help=how)


def print_json(content: Any) -> None:
    """Print a value as JSON on standard output."""
    click.echo(artefact.dumps(content))


def hold(run: Run) -> None:
    """Keep other processes from changing a run until this command ends; see `Run.working`."""
    click.get_current_context().with_resource(run.working())


def typed_for(other: click.Command, without: Collection[str] = ()) -> list[str]:
    """Return what was typed for the command that runs, as far as another command takes it too.

    What was measured with one model would else be trained with another.

    Parameters
    ----------
    other : click.Command
        The other command.
    without : collection of str
        Parameters to leave out.
    """
    context = click.get_current_context()
    known = {each.name for each in other.params} - set(without)
    words = []
    for each in context.command.params:
        typed = context.get_parameter_source(each.name or "") is ParameterSource.COMMANDLINE
        if not typed or each.name not in known or each.name in OF_OUTPUT:
            continue
        value = context.params[each.name]
        values = value if isinstance(value, tuple) else (value,)
        if isinstance(each, click.Argument):
            words += [quote(str(value))]
        elif getattr(each, "is_flag", False):
            words += [each.opts[0] if value else (each.secondary_opts or each.opts)[0]]
        else:
            words += [f"{each.opts[0]} {quote(str(one))}" for one in values]
    return words
