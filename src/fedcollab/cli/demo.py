"""`fedcollab demo`: the whole story in a minute or two, on data that ships with scikit-learn."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from shlex import quote

import click

from fedcollab import report, runs, scenarios
from fedcollab.cli import options
from fedcollab.cli.inspecting import begin_with_check, keep_check
from fedcollab.cli.running import all_stages, summary

#: one line to try next, on files that are made for it
NEXT = "fedcollab new hospitals && fedcollab run --clients hospitals --label outcome"


@click.command(epilog="Example:  fedcollab demo && open runs/demo/report.html")
@options.out("Run directory.", default=Path("runs/demo"), show_default=True)
@click.option("--seed", default=0, show_default=True, help="Another seed, another split of the digits.")
@options.output
def demo(out: Path, seed: int, as_json: bool, quiet: bool) -> None:
    """The whole story in a minute or two: 20 clients, handwritten digits, who should train with whom."""
    made = scenarios.make("digits", seed=seed)
    settings = {
        "algorithm": None,
        "model": made.settings["model"],
        "rounds": made.settings["rounds"],
        "lr": made.settings["lr"],
        "batch_size": made.settings["batch_size"],
        "local_epochs": 1,
        "distance": "auto",
        "seed": seed,
        "scale": "none",
        "missing_indicators": False,
        "test_share": 0.2,
    }
    run = runs.Run.start(out, {"source": "digits", "C": "auto", **settings}, fresh=True)
    options.hold(run)
    if not as_json:
        report.show_demo_start(made)
    keep_check(begin_with_check(list(made.clients), {}, settings, quiet=as_json), out)
    fitted, judgement = all_stages(
        made.clients, "auto", settings, lambda: run, quiet=quiet or as_json, learning_curve=False
    )
    page = report.write(out)
    if as_json:
        options.print_json(summary(fitted, judgement, page))
    else:
        report.show_run(fitted, judgement, page, next_command=next_command())


def next_command() -> str:
    """Return what to try next: with the environment activated first, where the shell does not find `fedcollab` yet."""
    script = Path(sys.prefix) / "bin" / "activate"
    if shutil.which("fedcollab") is not None or not script.is_file():
        return NEXT
    near = script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script
    return f". {quote(os.fspath(near))} && {NEXT}"
