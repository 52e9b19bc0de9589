"""`fedcollab demo`: the whole story in half a minute, on data that ships with scikit-learn."""

from __future__ import annotations

from pathlib import Path

import click

from fedcollab import report, runs, scenarios
from fedcollab.cli import options
from fedcollab.cli.inspecting import begin_with_check, keep_check
from fedcollab.cli.stages import all_stages, summary

#: one line to try next, on files that are made for it
NEXT = "fedcollab new hospitals && fedcollab run --clients hospitals --label outcome"


@click.command(epilog="Example:  fedcollab demo && open runs/demo/report.html")
@options.out("Run directory.", default=Path("runs/demo"), show_default=True)
@click.option("--seed", default=0, show_default=True, help="Another seed, another split of the digits.")
@options.output
def demo(out: Path, seed: int, as_json: bool, quiet: bool) -> None:
    """The whole story in half a minute: 20 clients, handwritten digits, who should train with whom."""
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
        report.show_run(fitted, judgement, page, next_command=NEXT)
