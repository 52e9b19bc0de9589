"""The command line: argument parsing and printing only. `fedcollab --help` reads like a tour."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from importlib import import_module
from typing import Any

import click

from fedcollab import __version__
from fedcollab.errors import FedcollabWarning, InputError, Paused, one_line, unknown

TOUR: dict[str, dict[str, str]] = {
    "Start here": {
        "demo": "fedcollab.cli.demo:demo",
        "new": "fedcollab.cli.new:new",
        "run": "fedcollab.cli.running:run",
    },
    "The stages, one at a time": {
        "inspect": "fedcollab.cli.inspecting:inspect_data",
        "estimate": "fedcollab.cli.stages:estimate",
        "solve": "fedcollab.cli.coalitions:solve",
        "advise": "fedcollab.cli.advising:advise",
        "train": "fedcollab.cli.stages:train",
        "report": "fedcollab.cli.stages:report",
    },
    "After a training": {
        "predict": "fedcollab.cli.predicting:predict",
        "compare": "fedcollab.cli.comparing:compare",
        "export": "fedcollab.cli.exporting:export",
    },
    "Later: clients come, go and change": {
        "join": "fedcollab.cli.membership:join",
        "leave": "fedcollab.cli.membership:leave",
        "check": "fedcollab.cli.membership:check",
    },
    "Between organisations, over Flower": {
        "federation": "fedcollab.cli.federation:federation",
        "silo": "fedcollab.cli.silo:silo",
    },
    "Look closer": {
        "explain": "fedcollab.cli.coalitions:explain",
        "path": "fedcollab.cli.coalitions:path",
        "check-encoder": "fedcollab.cli.encoder:check_encoder",
    },
    "Data sets, and the paper": {
        "data": "fedcollab.cli.data:data",
        "reproduce": "fedcollab.cli.reproduce:reproduce",
    },
}


class Tour(click.Group):
    """Lists the commands in sections, in the order in which they are used, and imports each when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the sections."""
        return [name for section in TOUR.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command of this name; return None if there is none."""
        for section in TOUR.values():
            if cmd_name in section:
                module, attribute = section[cmd_name].split(":")
                command: click.Command = getattr(import_module(module), attribute)
                return command
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that was typed; an unknown one is refused with a list of the known ones."""
        if args and not args[0].startswith("-") and args[0] not in self.list_commands(ctx):
            raise InputError(unknown("command", args[0], self.list_commands(ctx)))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one part of the help for each section."""
        for title, section in TOUR.items():
            rows = [(name, _first_line(self.get_command(ctx, name))) for name in section]
            with formatter.section(title):
                formatter.write_dl(rows)


def _first_line(command: click.Command | None) -> str:
    """Return the first sentence of a command's help."""
    return command.get_short_help_str(limit=300) if command is not None else ""


@click.group(cls=Tour, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="fedcollab")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Who should train with whom?

    Organisations want to train a model together but keep their data. With the wrong partners the model gets worse than
    training alone. fedcollab tells, before anyone commits, who should train with whom, what each will gain, how
    sure it is and why; then it trains inside the coalitions.

    \b
      clients --> data check --> distances --> coalitions --> advice --> training --> report
                  inspect        estimate      solve          advise     train        report

    \b
    New here?         fedcollab demo
    Files to try?     fedcollab new FOLDER
    Your own files?   fedcollab run --clients FOLDER --label COLUMN
    Only a matrix?    fedcollab solve --matrix D.csv --quantities m.csv
    """


def main() -> None:
    """Run the command line; the entry point of the program.

    Bad input ends in one line on standard error and exit code 2, too few answers in 75, an interrupt in 130.
    """
    debug = "--debug" in sys.argv or bool(os.environ.get("FEDCOLLAB_DEBUG"))
    warnings.showwarning = _show_warning
    try:
        code = cli.main(prog_name="fedcollab", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except InputError as error:
        _fail(str(error), 2, debug)
    except Paused as error:
        _fail(f"paused: {error}; what is done is kept: run the same command again to go on", 75, debug)
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
            sys.exit(0)
        hint = f" (see `{context.command_path} --help`)" if context is not None else ""
        _fail(" ".join(error.format_message().split()) + hint, 2, debug)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        _fail(f"`{error.filename}`: {error.strerror}" if error.filename else str(error), 2, debug)
    except (KeyboardInterrupt, click.Abort):
        print("fedcollab: stopped; finished stages are kept: run the same command again to go on", file=sys.stderr)
        sys.stderr.flush()
        os._exit(130)  # at once: threads that still compute would abort an orderly exit; files are whole or absent


def _fail(line: str, code: int, debug: bool) -> None:
    """Print one line on standard error (and the traceback with --debug), and exit with `code`."""
    if debug:
        traceback.print_exc()
    print(f"fedcollab: {one_line(line)}", file=sys.stderr)
    sys.exit(code)


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Print warnings for users as one line; other warnings are for developers and not shown."""
    if issubclass(category, FedcollabWarning):
        print(f"note: {one_line(message)}", file=sys.stderr)
