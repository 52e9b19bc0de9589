"""A silo's process: Flower's SuperNode with the silo's own config, key and folder, and nothing else."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from fedcollab.errors import InputError
from fedcollab.flower import compat, processes
from fedcollab.flower.keys import private_files
from fedcollab.flower.silo import preforked
from fedcollab.flower.silo.config import CONFIG, Invitation, SiloConfig, toml_text

SOCKET_PATH = 100  # bytes of a socket's path that every system allows; beyond, messages start programs anew


def silo_command(path: Path) -> tuple[list[str], dict[str, str], str]:
    """Return what to run for a silo.

    Parameters
    ----------
    path : Path
        The silo's config.

    Returns
    -------
    command : list of str
        The SuperNode and its arguments.
    env : dict
        Its environment variables.
    address : str
        The socket at which a pre-forked worker is to listen.

    Raises
    ------
    InputError
        If the config or the invitation is wrong, the key is missing or Flower is not installed.
    """
    config = SiloConfig.read(path)
    invitation = Invitation.read(config.invitation)
    home = config.state / "flwr"
    processes.program("flower-supernode")  # is there, or one clear line
    line = [sys.executable, "-m", __name__, "--superlink", invitation.address]
    line += ["--host", "127.0.0.1", "--port", str(processes.free_port())]
    line += ["--node-config", f"name={toml_text(config.name)}"]  # for others' apps; it stays at the node
    with private_files():
        home.mkdir(parents=True, exist_ok=True)
        if invitation.certificate is None:
            line += ["--insecure"]
        else:
            if not config.key.is_file():
                raise InputError(f"`{config.key}` does not exist; make the silo's key with `fedcollab silo init`")
            digest = hashlib.sha256(invitation.certificate.encode()).hexdigest()[:16]
            certificate = home / f"coordinator-{digest}.crt"
            certificate.write_text(invitation.certificate)
            line += ["--root-certificates", str(certificate), "--auth-supernode-private-key", str(config.key)]
        address = str(home / "preforked")
        scripts = preforked.write_scripts(home / "bin", address)
    env = processes.environment(home, {CONFIG: str(path.absolute())})
    return line, {**env, "PATH": os.pathsep.join([str(scripts), env["PATH"]])}, address


def start_silo(path: Path) -> NoReturn:
    """Become the SuperNode of a silo: no wrapper stays behind, signals go where they belong, and children end with it.

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
    line, env, address = silo_command(path)
    os.umask(0o077)
    if len(address.encode()) < SOCKET_PATH:
        subprocess.Popen([sys.executable, "-m", preforked.__name__, address], env=env, stdin=subprocess.DEVNULL)
    os.execve(line[0], line, env)


def main() -> None:
    """Run Flower's `flower-supernode`, with shorter pauses and more tries to connect."""
    program = compat.load_program("flower-supernode")
    compat.poll_faster()
    compat.retry_activation()
    program()


if __name__ == "__main__":
    main()
