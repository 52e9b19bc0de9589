"""Flower's programs as processes: each a group of its own, known by id and start time, ended with all children."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from fedcollab.errors import InputError

_started: dict[int, subprocess.Popen[bytes]] = {}  # kept so that they can be reaped
PROC = Path("/proc/self/stat").exists()  # Linux; elsewhere `ps` is asked
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
    if PROC:
        fields = _stat(pid)
        return None if fields is None or fields[0] == "Z" else fields[19]
    shown = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return shown.strip() or None


def stop(pid: int, since: str | None, grace: float = GRACE) -> bool:
    """End a process started by `start` and all its descendants; whether there was one.

    First asked, then made to. Descendants may be in groups of their own, so these are looked up before.
    """
    if since is None or born(pid) != since:
        return False
    groups = family(pid)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for group in groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, number)
        end = time.monotonic() + grace
        while living(groups) and time.monotonic() < end:
            _reap(pid)
            time.sleep(0.1)
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


def living(groups: Collection[int]) -> list[int]:
    """Those of these process groups in which something still runs (what is dead and not yet reaped does not)."""
    return sorted({group for _, _, group, state in _table() if group in groups and not state.startswith("Z")})


def family(pid: int) -> list[int]:
    """The process's group, and those of its descendants."""
    table = _table()
    known = {pid}
    while more := {child for child, parent, *_ in table if parent in known} - known:
        known |= more
    own = os.getpgrp()
    return sorted({pid} | {group for child, _, group, _ in table if child in known and group != own})


def _table() -> list[tuple[int, int, int, str]]:
    """Every process: its id, its parent's, its group's, its state."""
    if PROC:
        known = {int(path.name): _stat(int(path.name)) for path in Path("/proc").iterdir() if path.name.isdigit()}
        return [(pid, int(f[1]), int(f[2]), f[0]) for pid, f in known.items() if f is not None]
    shown = subprocess.run(["ps", "-eo", "pid=,ppid=,pgid=,stat="], capture_output=True, text=True, check=True).stdout
    rows = (row.split() for row in shown.splitlines())
    return [(int(pid), int(parent), int(group), state) for pid, parent, group, state in rows]


def _stat(pid: int) -> list[str] | None:
    """Linux's line about a process, from its state on: state, parent, group, ..., start time (the 20th)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _reap(pid: int) -> None:
    """A child that ended stays in the process table until its parent asks."""
    if pid in _started and _started[pid].poll() is not None:
        del _started[pid]
