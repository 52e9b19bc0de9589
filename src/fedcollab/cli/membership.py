"""`fedcollab join`, `leave` and `check`: clients come, go and change in a run that exists."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from fedcollab import federation as federation_of
from fedcollab import flower, report, runs
from fedcollab.cli import options, sources
from fedcollab.cli.clients import Source, open_source
from fedcollab.cli.inspecting import renew_check
from fedcollab.cli.names import ClientName
from fedcollab.errors import FedcollabWarning, InputError, Paused, unknown
from fedcollab.progress import bar
from fedcollab.runs import membership

if TYPE_CHECKING:
    from fedcollab.federation import Federation
    from fedcollab.runs import Run

#: exit code of `check` when regrouping is advised
ADVISED = 3

_run = click.argument("run_dir", type=click.Path(path_type=Path))
_source = options.several(
    click.option(
        "--clients",
        type=click.Path(path_type=Path),
        help="Folder with the files of the run's clients, as for `run`.  [default: where they were last]",
    ),
    click.option("--label", help="The label column.  [default: the run's]"),
    click.option("--drop", multiple=True, metavar="COLUMN", help="A column to leave out.  [default: the run's]"),
    options.on,
)
_training = options.several(
    click.option("--retrain", is_flag=True, help="Train from new weights instead of from the saved model."),
    click.option("--rounds", type=int, help="Rounds of that training.  [default: a fifth of the run's, or all]"),
)
_threshold = click.option(
    "--threshold", default=0.02, show_default=True, help="What a regrouping must gain to be advised, as a share."
)


@click.command(
    epilog="""\b
Examples:
  fedcollab join runs/hospitals --client new/west.csv
  fedcollab join runs/hospitals --client new/west.csv --clients hospitals/ --label outcome
  fedcollab join runs/hospitals --client west --on federation/"""
)
@_run
@click.option(
    "--client",
    required=True,
    type=click.Path(path_type=Path),
    help="The newcomer's file, named after it; with --on, the name of its silo.",
)
@_source
@_training
@_threshold
@options.output
def join(
    run_dir: Path,
    client: Path,
    retrain: bool,
    rounds: int | None,
    threshold: float,
    as_json: bool,
    quiet: bool,
    **source: Any,
) -> None:
    """A client comes: where it should train, and why; its coalition trains on, nobody else.

    Only the newcomer's distances are estimated. It is encoded by the schema of the run, which it does not change. The
    existing clients' files are needed for its distances and for training; the run knows where they were last. With
    --on, newcomer and clients are silos, and their data stay where they are.
    """
    on = source["on"]
    options.hold(runs.Run(run_dir))
    run, state = membership.open_state(run_dir)
    name = client.stem if on is None else str(client)
    if name in state.names:
        raise InputError(f"`--client` (={str(client)!r}): the run has a client `{name}`; fedcollab check looks at it")
    with _clients(run, state.names, source, newcomer=client) as federation:
        if on is None:
            _note_changed(run, federation)
        with bar(f"taking {name} in", quiet=quiet or as_json) as progress:
            how = membership.Training(scratch=retrain, rounds=rounds, progress=progress)
            found = membership.join(
                state, federation, name, seed=_seed(run), training=how, threshold=threshold, progress=progress
            )
        if on is None:
            sources.remember(run, source["clients"], {name: client})  # first: one too many does no harm if killed
        kept = membership.keep_joining(run, state, found, federation)
        renew_check(federation, run.path, [name])
    _finish(run, found, kept, as_json, regroup=found.resolve_advised, on=on)


@click.command(
    epilog="""\b
Examples:
  fedcollab leave runs/hospitals --client west
  fedcollab leave runs/hospitals --client west --retrain --on federation/"""
)
@_run
@click.option("--client", required=True, type=ClientName("run_dir"), help="The name of the client that leaves.")
@_source
@_training
@_threshold
@options.output
def leave(
    run_dir: Path,
    client: str,
    retrain: bool,
    rounds: int | None,
    threshold: float,
    as_json: bool,
    quiet: bool,
    **source: Any,
) -> None:
    """A client goes: what staying costs the others, and whether they should regroup.

    No data are needed, and no model is trained; with --retrain (and --clients or --on) its coalition is trained without
    it.
    """
    options.hold(runs.Run(run_dir))
    run, state = membership.open_state(run_dir)
    if client not in state.names:
        raise InputError(unknown("--client", client, state.names))
    on, others = source["on"], [name for name in state.names if name != client]
    with ExitStack() as stack:
        federation = None
        if retrain and (on is not None or sources.locate(run, source["clients"])[0] is not None):
            federation = stack.enter_context(_clients(run, others, source))
        with bar(f"training without {client}", quiet=quiet or as_json or not retrain) as progress:
            found = membership.leave(
                state,
                client,
                federation=federation,
                seed=_seed(run),
                retrain=retrain,
                training=membership.Training(scratch=True, rounds=rounds, progress=progress),
                threshold=threshold,
            )
    kept = membership.keep_leaving(run, state, found)
    sources.forget(run, client)
    _finish(run, found, kept, as_json, regroup=found.regrouping.advised, on=on)
    if on is not None and not as_json:
        click.echo(f"          its silo is let in until:  fedcollab federation expel {quote(str(on))} {quote(client)}")


@click.command(
    epilog="""\b
Examples:
  fedcollab check runs/hospitals --clients hospitals/ --label outcome || echo "regrouping is advised"
  fedcollab check runs/hospitals --clients hospitals/ --label outcome --apply
  fedcollab check runs/hospitals --on federation/"""
)
@_run
@_source
@click.option(
    "--client",
    "named",
    multiple=True,
    type=ClientName("run_dir"),
    metavar="NAME",
    help="Whose data changed.  [default: found out]",
)
@click.option("--apply", "do", is_flag=True, help="Take the changes in: regroup where advised, and train on.")
@_training
@_threshold
@options.output
def check(
    run_dir: Path,
    named: tuple[str, ...],
    do: bool,
    retrain: bool,
    rounds: int | None,
    threshold: float,
    as_json: bool,
    quiet: bool,
    **source: Any,
) -> None:
    """Did a client's data grow or drift, and should the clients regroup? Exits with 3 when they should.

    Only the distances of clients whose data changed are estimated again. Nothing is written without --apply. With --on
    each silo looks at its own data, and tells by a checksum whether they changed.
    """
    options.hold(runs.Run(run_dir))
    run, state = membership.open_state(run_dir)
    hidden = quiet or as_json
    with _clients(run, state.names, source) as federation:
        changed = list(named) or _changed(run, federation)
        with bar("changed distances", quiet=hidden) as progress:
            how: dict[str, Any] = {"seed": _seed(run), "threshold": threshold, "progress": progress}
            found = membership.check(state, federation, changed, **how)
        advised = found.regrouping.advised
        if do and (found.changes or advised):
            with bar("training", quiet=hidden) as progress:
                again = membership.Training(scratch=retrain, rounds=rounds, progress=progress)
                after, trained = membership.apply(found, state, federation, again)
            kept = membership.keep_change(run, state, after, found, trained, federation)
            renew_check(federation, run.path, [change.client for change in found.changes])
            if not as_json:
                click.echo("Regrouped." if advised else "The changes are taken in; nobody moves.")
            _finish(run, found, kept, as_json, *([str(trained)] if trained is not None else []))
            return
    if as_json:
        options.print_json(found.as_dict())
    else:
        click.echo(str(found) + ("\n\nNext:     the same command with --apply" if advised else ""))
    click.get_current_context().exit(ADVISED if advised else 0)


@contextmanager
def _clients(
    run: Run, names: Sequence[str], source: dict[str, Any], *, newcomer: Path | None = None
) -> Iterator[Federation]:
    """Yield the clients of a run, and a newcomer, prepared by the schema of the run: from files, or silos with --on."""
    on = source["on"]
    if on is None:
        added = [] if newcomer is None else [sources.read_one(run, newcomer, source)]
        found = [*sources.read_present(run, names, source), *added]
        yield federation_of.federate(found, schema=run.schema())
        return
    wanted = [*names, *([] if newcomer is None else [str(newcomer)])]
    _refuse_strangers(on, wanted)
    given = Source(None, source["clients"], source["label"], source["drop"])
    with open_source(given, on, wanted, journal=run.path) as (silos, _):
        yield federation_of.federate(silos, schema=run.schema())


def _refuse_strangers(on: Path, names: Iterable[str]) -> None:
    """Raise `InputError` for a silo that a federation does not admit, before any is asked."""
    if find_spec("flwr") is not None:  # without Flower, what is missing is said where silos are opened
        flower.partners_of(flower.FederationFolder.read(on), names)


def _seed(run: Run) -> int:
    """Return the seed that the run was started with."""
    return int(run.config().get("settings", {}).get("seed", 0))


def _changed(run: Run, federation: Federation) -> list[str]:
    """Return the clients whose data are not those that the run last saw."""
    last, said = run.config().get("clients", {}), federation_of.describe_clients(federation)
    silent = [name for name, reply in said.items() if reply["fingerprint"] is None]
    if silent:
        raise Paused(
            f"{silent[0]!r} did not say whether its data changed: {federation.absent.get(silent[0], 'no answer')}"
        )
    keys = ("fingerprint", "quantity", "label_counts")
    return [
        name
        for name, reply in said.items()
        if name in last and any(key in last[name] and last[name][key] != reply[key] for key in keys)
    ]


def _note_changed(run: Run, federation: Federation) -> None:
    """Warn about every client whose data changed since the run last saw them."""
    for name in _changed(run, federation):
        text = f"the data of `{name}` changed since the run last saw them: fedcollab check"
        warnings.warn(text, FedcollabWarning, stacklevel=2)


def _finish(
    run: Run, found: Any, kept: Path, as_json: bool, *more: str, regroup: bool = False, on: Path | None = None
) -> None:
    """Write the report again if there is one, and print the answer, the history file and what to do next."""
    if run.has("report.html"):
        report.write(run.path)
    if as_json:
        options.print_json({**found.as_dict(), "history": str(kept)})
        return
    click.echo("\n".join([str(found), *more]))
    click.echo(f"\nHistory:  {kept}")
    if regroup:
        where = " --clients FOLDER" if sources.locate(run, None)[0] is None else ""
        where = where if on is None else f" --on {quote(str(on))}"
        click.echo(f"Next:     fedcollab check {run.path}{where} --apply")
