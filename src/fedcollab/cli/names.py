"""Options that take one of several names: the help lists the names, the shell completes them.

The names are written down here, because to ask the registries would load PyTorch at every press of the Tab key; a test
compares the two.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from fedcollab import files
from fedcollab.errors import InputError, choose

DISTANCES = ("auto", "cross", "few-round", "hypothesis", "published", "label", "prototype")
ALGORITHMS = (
    "fedavg",
    "fedprox",
    "fednova",
    "scaffold",
    "fedadam",
    "ditto",
    "finetune",
    "perfedavg",
    "pfedme",
    "own-intercept",
    "own-weights",
    "local",
)
MODELS = ("auto", "mlp", "logistic", "cnn", "resnet18", "xgboost")
ENCODERS = ("none", "efficientnet-lite0", "resnet18")
METHODS = ("auto", "local", "exact")
DATA_SETS = ("digits", "fashion-mnist", "cifar-10", "cifar-100", "heart", "federations")
EXPERIMENTS = (
    "table-1",
    "table-2",
    "clusters",
    "seed-spread",
    "ablation",
    "complexity",
    "quantities",
    "two-client",
    "label-distribution",
    "label-permutation",
    "distances",
    "effect-of-c",
    "new-client",
    "convergence",
    "overview",
    "heart",
    "federations",
)
SCENARIOS = ("label-shift", "feature-shift", "concept-shift")
LABEL_COUNTS = ("auto", "drawn", "set")
OPTIMIZERS = ("sgd", "adam")
STOPPING = ("held-out", "none")
SECURE = ("none", "dropouts", "everyone")
TASKS = ("auto", "classification", "regression")
LOSSES = ("cross-entropy", "squared", "absolute")


class Name(click.ParamType):  # type: ignore[type-arg]  # generic in recent versions of click alone
    """One of several names.

    Parameters
    ----------
    names : sequence of str
        The names, in the order in which the help lists them.
    open_ended : bool
        Take any other text too: names that carry options, or that are checked later.
    """

    name = "name"

    def __init__(self, names: Sequence[str], *, open_ended: bool = False) -> None:
        self.names, self.open_ended = tuple(names), open_ended

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Return the names as the help shows them."""
        return f"[{'|'.join(self.names)}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name, or refuse one that is unknown, with the most similar one."""
        text = str(value)
        if not self.open_ended:
            choose((param.name if param else None) or "name", text, dict.fromkeys(self.names))
        return text

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the names that begin with what was typed."""
        return [CompletionItem(name) for name in self.names if name.startswith(incomplete)]


class ClientName(click.ParamType):  # type: ignore[type-arg]
    """The name of a client of the run (or of the file) that the command is given as an argument.

    Parameters
    ----------
    argument : str
        The command's argument that names the run directory or the file.
    """

    name = "name"

    def __init__(self, argument: str) -> None:
        self.argument = argument

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the clients whose names begin with what was typed; nothing where the file cannot be read."""
        given = ctx.params.get(self.argument) or next(iter(ctx.args), None)  # in args while an option has no value yet
        if given is None:
            return []
        path = files.inside(Path(given), "distances.json", "collaboration.json")
        known: list[Any] = []
        for kind in ("distances", "collaboration"):
            with contextlib.suppress(InputError):
                known = files.read_json(path, kind).get("names") or known
        return [CompletionItem(str(name)) for name in known if str(name).startswith(incomplete)]
