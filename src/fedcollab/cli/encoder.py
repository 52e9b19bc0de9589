"""`check-encoder`: does an encoder see what matters to the task?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fedcollab import distances, federation
from fedcollab.cli import options
from fedcollab.cli.clients import Source, find_clients
from fedcollab.cli.names import ENCODERS, Name
from fedcollab.cli.settings import with_defaults
from fedcollab.files import check_target, inside
from fedcollab.progress import bar

OBJECTION = 3


@click.command(
    epilog="Example:  fedcollab check-encoder --clients photos/ --encoder efficientnet-lite0 -o encoder.json"
)
@options.source
@click.option(
    "--encoder",
    type=Name(ENCODERS[1:], open_ended=True),
    default="efficientnet-lite0",
    show_default=True,
    help="The encoder to check.",
)
@options.test_share
@options.seed
@options.out("Where to write verdict and evidence (JSON): a file, or a run directory, whose report then shows it.")
@options.output
def check_encoder(
    out: Path | None,
    as_json: bool,
    quiet: bool,
    **settings: Any,
) -> None:
    """Is an encoder blind to what matters, or does it see the wrong thing? Exits with 3 when it is or does.

    Its distances are compared with how much better a classifier can be at one client than at another (the `hypothesis`
    estimator), through the encoder and on the samples themselves.
    """
    if out is not None:
        out = check_target(inside(out, "encoder.json"))
    found, brought = find_clients(Source.take(settings))
    settings = with_defaults(settings, brought)
    shape = {key: settings[key] for key in ("scale", "test_share", "seed")}
    prepared = federation.federate(found, **shape)
    with bar("checking the encoder", quiet=quiet or as_json) as progress:
        checked = distances.check_encoder(prepared, settings["encoder"], seed=settings["seed"], progress=progress)
    if out is not None:
        checked.save(out)
    if as_json:
        options.print_json(checked.as_dict())
    else:
        click.echo(str(checked))
        if out is not None:
            click.echo(f"\nEvidence:  {out}")
    click.get_current_context().exit(0 if checked.passed else OBJECTION)
