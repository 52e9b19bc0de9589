"""Flower's programs as processes: each a group of its own, known by id and start time, ended with all descendants."""

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
from typing import NamedTuple

import psutil

from fedcollab.errors import InputError

_children: dict[int, subprocess.Popen[bytes]] = {}  # kept so that they can be reaped
GRACE = 8.0  # seconds between asking a group to end and ending it


class ProcessHandle(NamedTuple):
    """A process by its id and its start time: an id alone may have passed to another process.

    Attributes
    ----------
    pid : int
        The process id.
    started : float or None
        What `start_time` returns for it.
    """

    pid: int
    started: float | None


def program(name: str) -> str:
    """Find one of Flower's programs.

    Parameters
    ----------
    name : str
        The name of the command.

    Returns
    -------
    str
        Its path in the environment that this Python runs in.

    Raises
    ------
    InputError
        If it is not installed.
    """
    path = Path(sys.executable).parent / name
    if not path.is_file():
        raise InputError(f"`{name}` is not installed: pip install 'fedcollab[flower]'")
    return str(path)


def environment(home: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment variables for Flower's programs.

    Parameters
    ----------
    home : Path
        Where Flower keeps its files.
    more : mapping, optional
        Further variables.

    Returns
    -------
    dict
        This process's variables, with Flower's telemetry and update check off, this environment's programs first on
        the path, and no proxy for this machine.
    """
    known = dict(os.environ)
    local = ",".join(filter(None, [known.get("NO_PROXY") or known.get("no_proxy"), "127.0.0.1,localhost,::1"]))
    return {
        **known,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), known.get("PATH", "")]),
        "FLWR_HOME": str(home.absolute()),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",
        "NO_PROXY": local,
        "no_proxy": local,
        **(more or {}),
    }


def start(command: Sequence[str], log: Path, env: Mapping[str, str]) -> ProcessHandle:
    """Start a program that outlives this one.

    Parameters
    ----------
    command : sequence of str
        The program and its arguments.
    log : Path
        The file to which its output is added.
    env : mapping
        Its environment variables.

    Returns
    -------
    ProcessHandle
        What `alive` and `stop` take.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=dict(env), start_new_session=True
        )
    _children[process.pid] = process
    return ProcessHandle(process.pid, start_time(process.pid))


def start_time(pid: int) -> float | None:
    """Return when a process was started.

    Parameters
    ----------
    pid : int
        The process id.

    Returns
    -------
    float or None
        Seconds since the machine was started, which setting the clock does not change; None if no such process runs.
    """
    try:
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE:
            return round(float(process.create_time() - psutil.boot_time()), 2)
    except psutil.NoSuchProcess:
        pass
    return None


def alive(handle: ProcessHandle) -> bool:
    """Return whether a process still runs.

    Parameters
    ----------
    handle : ProcessHandle
        What `start` returned.

    Returns
    -------
    bool
        Whether it runs; another process with the same id does not count.
    """
    return handle.started is not None and start_time(handle.pid) == handle.started


def stop(handle: ProcessHandle, grace: float = GRACE) -> bool:
    """End a process and all its descendants, in whatever process groups they are.

    Parameters
    ----------
    handle : ProcessHandle
        What `start` returned.
    grace : float
        Seconds between asking them to end and ending them.

    Returns
    -------
    bool
        Whether it ran.
    """
    if not alive(handle):
        return False
    _end(process_groups(handle.pid), grace)
    if handle.pid in _children and _children[handle.pid].poll() is not None:
        del _children[handle.pid]
    return True


def stop_orphans(handle: ProcessHandle, key: str, value: str, grace: float = GRACE) -> bool:
    """End what a process that has died has left behind in its process group.

    Parameters
    ----------
    handle : ProcessHandle
        What `start` returned for the process that died.
    key, value : str
        An environment variable of the process's, by which its descendants are known: the group's number alone may have
        passed to others.
    grace : float
        Seconds between asking them to end and ending them.

    Returns
    -------
    bool
        Whether there was anything.
    """
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            left = os.getpgid(process.pid) == handle.pid and process.status() != psutil.STATUS_ZOMBIE
            if left and process.environ().get(key) == value:
                _end([handle.pid], grace)
                return True
    return False


def _end(groups: Collection[int], grace: float) -> None:
    """Ask process groups to end, and after some seconds end them."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for group in running_groups(groups):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, number)
        end = time.monotonic() + grace
        while running_groups(groups) and time.monotonic() < end:
            time.sleep(0.1)


def process_groups(pid: int) -> list[int]:
    """Return the process groups of a process and of its descendants.

    Parameters
    ----------
    pid : int
        The process id.

    Returns
    -------
    list of int
        The groups, without that of the process that asks.
    """
    groups = {pid}
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(OSError):
                groups.add(os.getpgid(process.pid))
    return sorted(groups - {os.getpgrp()})


def running_groups(groups: Collection[int]) -> list[int]:
    """Return those of these process groups in which something still runs.

    Parameters
    ----------
    groups : collection of int
        Process groups.
    """
    running = set()
    for process in psutil.process_iter(["status"]):
        if process.info["status"] != psutil.STATUS_ZOMBIE:
            with contextlib.suppress(OSError):
                running.add(os.getpgid(process.pid))
    return sorted(running & set(groups))


def free_port() -> int:
    """Return a port of this machine that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def listening(host: str, port: int) -> bool:
    """Return whether something listens at an address.

    Parameters
    ----------
    host, port : str, int
        Where to try.
    """
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False
