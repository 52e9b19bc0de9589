"""The SuperLink, Flower's own server: how it is started and waited for, and how Flower's commands reach it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedcollab.errors import InputError
from fedcollab.flower import processes
from fedcollab.flower.coordinator import commands
from fedcollab.flower.processes import ProcessHandle

CONNECTION = "federation"
START = 180.0  # seconds for the SuperLink to listen
COMMAND = 300.0  # seconds for one of Flower's commands
MEMORY = ":flwr-in-memory:"  # the SuperLink's database: silos are registered at every start


def superlink_command(port: int, keys: Path | None) -> list[str]:
    """Return the command that starts a SuperLink, which listens on this machine alone.

    Parameters
    ----------
    port : int
        The port.
    keys : Path or None
        The folder with certificates; None for a federation without TLS and admission.
    """
    command = [processes.program("flower-superlink"), "--host", "127.0.0.1", "--port", str(port)]
    command += ["--disable-runtime-dependency-installation", "--database", MEMORY]
    if keys is None:
        return [*command, "--insecure"]
    files = {"--ssl-ca-certfile": "ca.crt", "--ssl-certfile": "server.crt", "--ssl-keyfile": "server.key"}
    tls = [part for option, name in files.items() for part in (option, str(keys / name))]
    return [*command, "--enable-supernode-auth", *tls]


def write_connection(folder: Path, port: int, keys: Path | None) -> None:
    """Write how Flower's commands reach the SuperLink.

    Parameters
    ----------
    folder : Path
        Flower's own folder.
    port, keys
        As in `superlink_command`.
    """
    security = "insecure = true" if keys is None else f"root-certificates = {json.dumps(str(keys / 'ca.crt'))}"
    text = f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(f'{text}address = "127.0.0.1:{port}"\n{security}\n')


def wait_until_listening(port: int, started: ProcessHandle, log: Path) -> None:
    """Wait until a program listens.

    Parameters
    ----------
    port : int
        Where.
    started : ProcessHandle
        The program.
    log : Path
        What it writes.

    Raises
    ------
    InputError
        With the last line of its log, if it ends or takes too long.
    """
    end = time.monotonic() + START
    while not processes.listening("127.0.0.1", port):
        if not processes.alive(started) or time.monotonic() > end:
            tail = log.read_text(errors="replace").strip().splitlines()[-1:]
            raise InputError(f"it did not start ({' '.join(tail)}); see {log}")
        time.sleep(0.2)


def run_flwr(calls: Sequence[list[str]], env: dict[str, str]) -> list[dict[str, Any]]:
    """Run several of Flower's commands in one process.

    Parameters
    ----------
    calls : sequence of lists of str
        The arguments of each `flwr` command.
    env : dict of str
        The environment variables.

    Returns
    -------
    list of dict
        What each prints, as JSON.

    Raises
    ------
    InputError
        If a command fails or takes too long.
    """
    listed = json.dumps([[*arguments, "--format", "json"] for arguments in calls])
    line = [sys.executable, "-m", commands.__name__, listed]
    try:
        done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=COMMAND, check=False)
    except subprocess.TimeoutExpired:
        raise InputError(f"`flwr {calls[0][0]}` has not answered in {COMMAND:.0f} s") from None
    outputs = done.stdout.split(commands.SEPARATOR)[:-1]
    if len(outputs) < len(calls):
        raise InputError(f"`flwr {calls[0][0]}` failed: {_short(done.stderr)}")
    return [_parse(arguments, output) for arguments, output in zip(calls, outputs, strict=True)]


def _parse(arguments: list[str], output: str) -> dict[str, Any]:
    """Return a command's JSON; raise InputError if it failed."""
    try:
        answer: dict[str, Any] = json.loads(output)
    except ValueError:
        answer = {"success": False, "error-message": output}
    if not answer.get("success"):
        raise InputError(f"`flwr {' '.join(arguments[:2])}` failed: {_short(answer.get('error-message', answer))}")
    return answer


def _short(text: object) -> str:
    """Return the end of a text on one line."""
    return " ".join(str(text).split())[-400:]
