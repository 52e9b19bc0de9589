"""`fedcollab silo log`: what left this silo, for its administrator."""

from __future__ import annotations

from pathlib import Path

import click
from rich.markup import escape

from fedcollab import flower
from fedcollab.cli import options
from fedcollab.errors import InputError
from fedcollab.report.facts import bytes_words
from fedcollab.report.terminal import console, plain_table
from fedcollab.silo.audit import FILE, Audit


@click.command(
    epilog="""\b
Examples:
  fedcollab silo log
  fedcollab silo log --verify --head 9f2c...   # is the hash that I noted down still in it?"""
)
@click.argument("config", type=click.Path(path_type=Path), default=Path("silo.toml"))
@click.option("--last", type=int, default=20, show_default=True, help="How many entries to show; 0: all.")
@click.option("--verify", is_flag=True, help="Check that no line was changed, removed or put in between.")
@click.option("--head", metavar="HASH", help="With --verify: a hash noted down earlier, which must still be there.")
@options.json
def log(config: Path, last: int, verify: bool, head: str | None, as_json: bool) -> None:
    """Everything that left this silo: when, in which run, what for, how many bytes; and what was refused.

    CONFIG is silo.toml, or the log file itself. With --verify the last line's hash is printed: noted down, or given to
    a partner, it proves later that nothing was cut off.
    """
    if head is not None and not verify:
        raise InputError("`--head` goes with --verify")
    audit = Audit(_file(config))
    if not audit.path.exists():
        raise InputError(f"`{audit.path}` does not exist: nothing has left this silo yet, or it is another's config")
    checked = None
    if verify:
        lines, newest = audit.verify()
        if head is not None and head not in audit.hashes():
            raise InputError(f"`--head` (={head!r}) is not in the log: lines were cut off, or it is of another log")
        checked = {"lines": lines, "head": newest}
    entries = audit.entries()
    shown = entries[-last:] if last > 0 else entries
    if as_json:
        options.print_json({"entries": shown, "verified": checked})
        return
    if checked is not None:
        click.echo(f"{checked['lines']} lines, none changed. Note this down: {checked['head']}")
        return
    _show(shown, len(entries))


def _file(config: Path) -> Path:
    """Return the log of a silo, given its config or the log itself."""
    return config if config.suffix == ".jsonl" else flower.SiloConfig.read(config).state / FILE


def _show(entries: list[dict[str, object]], total: int) -> None:
    """Print entries of the log as a table."""
    table = plain_table("time (UTC)", "run", "what", "received", "sent", right=("received", "sent"))
    for entry in entries:
        what = f"{entry['action']}: {entry['purpose'] if entry['outcome'] == 'answered' else entry['outcome']}"
        what += f" ({entry['why']})" if entry["why"] else ""
        partners = entry["partners"]
        if isinstance(partners, list) and len(partners) > 1:
            what += f" (with {', '.join(map(str, partners))})"
        row = (str(entry["time"])[:19], str(entry["run"]), what)
        sizes = (bytes_words(float(str(entry["bytes_in"]))), bytes_words(float(str(entry["bytes_out"]))))
        table.add_row(*(escape(cell) for cell in (*row, *sizes)))
    shown = console()
    shown.print(table)
    shown.print(f"{len(entries)} of {total} entries." + (" All: --last 0." if len(entries) < total else ""))
