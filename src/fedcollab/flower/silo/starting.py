"""How a silo is started: the command, its environment, and becoming it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from fedcollab.errors import InputError
from fedcollab.flower import processes
from fedcollab.flower.keys import private_files
from fedcollab.flower.silo.config import CONFIG, Invitation, SiloConfig

PROGRAM = "fedcollab.flower.silo.supernode"


def silo_command(path: Path) -> tuple[list[str], dict[str, str]]:
    """Return what to run for a silo.

    Parameters
    ----------
    path : Path
        The silo's config.

    Returns
    -------
    command : list of str
        The program and its arguments.
    env : dict
        Its environment variables.

    Raises
    ------
    InputError
        If the config or the invitation is wrong, the key is missing or Flower is not installed.
    """
    config = SiloConfig.read(path)
    invitation = Invitation.read(config.invitation)
    processes.program("flower-supernode")  # is there, or one clear line
    if invitation.certificate is not None and not config.key.is_file():
        raise InputError(f"`{config.key}` does not exist; make the silo's key with `fedcollab silo init`")
    home = config.state / "flwr"
    with private_files():
        home.mkdir(parents=True, exist_ok=True)
    line = [sys.executable, "-m", PROGRAM, str(path.absolute())]
    return line, processes.environment(home, {CONFIG: str(path.absolute())})


def start_silo(path: Path) -> NoReturn:
    """Become a silo's process: no wrapper stays behind, signals go where they belong, and the worker ends with it.

    Files that it writes are readable by their owner alone.

    Parameters
    ----------
    path : Path
        The silo's config.

    Raises
    ------
    InputError
        If the config or the invitation is wrong, the key is missing or Flower is not installed.
    """
    line, env = silo_command(path)
    os.umask(0o077)
    os.execve(line[0], line, env)
