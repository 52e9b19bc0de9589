"""Flower's programs as processes: each a group of its own, known by id and start time, ended with all children."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedcollab.errors import InputError

_started: dict[int, subprocess.Popen[bytes]] = {}  # kept so that they can be reaped
GRACE = 8.0  # seconds between asking a group to end and ending it


def program(name: str) -> str:
    """One of Flower's programs, from the environment that this Python runs in."""
    path = Path(sys.executable).parent / name
    if not path.is_file():
        raise InputError(f"`{name}` is not installed: pip install 'fedcollab[flower]'")
    return str(path)


def environment(home: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Flower without calls home, with its files in `home`, and this environment's programs first on the path."""
    known = dict(os.environ)
    local = ",".join(filter(None, [known.get("NO_PROXY") or known.get("no_proxy"), "127.0.0.1,localhost,::1"]))
    return {
        **known,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), known.get("PATH", "")]),
        "FLWR_HOME": str(home.absolute()),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
        "NO_PROXY": local,
        "no_proxy": local,
        **(more or {}),
    }


def start(command: Sequence[str], log: Path, env: Mapping[str, str]) -> int:
    """Start a program that outlives this one; what it says goes to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=dict(env), start_new_session=True
        )
    _started[process.pid] = process
    return process.pid


def born(pid: int) -> str | None:
    """When a process was started, or None where there is none: an id alone may have passed to another."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] == "Z" else fields[19]
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return None
    shown = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return shown.strip() or None


def stop(pid: int, since: str | None, grace: float = GRACE) -> bool:
    """End a process started by `start` and all its descendants; whether there was one.

    First asked, then made to. Descendants may be in groups of their own, so these are looked up before.
    """
    if since is None or born(pid) != since:
        return False
    groups = _groups(pid)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for group in groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, number)
        end = time.monotonic() + grace
        while any(map(_lives, groups)) and time.monotonic() < end:
            _reap(pid)
            time.sleep(0.05)
    return True


def free_port() -> int:
    """A port of this machine that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def listening(host: str, port: int) -> bool:
    """Whether something answers there."""
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False


def _groups(pid: int) -> list[int]:
    """The process's group, and those of its descendants."""
    shown = subprocess.run(["ps", "-eo", "pid=,ppid=,pgid="], capture_output=True, text=True, check=False).stdout
    rows = [tuple(map(int, row.split())) for row in shown.splitlines()]
    family, groups = {pid}, {pid: None}
    for _ in rows:
        more = {child for child, parent, _ in rows if parent in family} - family
        if not more:
            break
        family |= more
    own = os.getpgrp()
    groups |= dict.fromkeys(group for child, _, group in rows if child in family and group != own)
    return list(groups)


def _lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _reap(pid: int) -> None:
    """A child that ended stays in the process table until its parent asks."""
    if pid in _started and _started[pid].poll() is not None:
        del _started[pid]
