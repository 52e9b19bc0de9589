"""What tests of the command line share."""

from __future__ import annotations

from click.testing import CliRunner, Result

from fedcollab.cli import cli


def type_in(*words: object) -> Result:
    """Run a command in this process, which must succeed; an error of the program is raised."""
    done = CliRunner().invoke(cli, [str(word) for word in words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done
