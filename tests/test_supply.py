"""No network at import or run time beyond what was asked for: the stages run where sockets are denied."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd

DENIED = """
import socket, sys

def denied(*arguments, **options):
    raise AssertionError(f"fedcollab wanted the network: {arguments}")

for name in ("connect", "connect_ex", "bind", "sendto"):
    setattr(socket.socket, name, denied)
for name in ("create_connection", "create_server", "getaddrinfo", "gethostbyname"):
    setattr(socket, name, denied)
try:
    socket.create_connection(("127.0.0.1", 9))
except AssertionError:
    pass
else:
    sys.exit("sockets are not denied")
from fedcollab.cli import main
main()
"""


def test_all_stages_without_a_network(tmp_path: Path) -> None:
    (tmp_path / "clients").mkdir()
    for index in range(4):
        rng = np.random.default_rng(index)
        y = rng.integers(0, 2, 60)
        table = pd.DataFrame(rng.normal(0, 1, (60, 3)) + y[:, None], columns=["age", "dose", "weight"])
        table["ill"] = y if index < 2 else 1 - y
        table.to_csv(tmp_path / "clients" / f"c{index}.csv", index=False)
    run = str(tmp_path / "run")
    for arguments in (
        ["run", "--clients", str(tmp_path / "clients"), "--label", "ill", "--rounds", "2", "--out", run, "--quiet"],
        ["report", run, "--quiet"],
        ["explain", run],
    ):
        done = subprocess.run([sys.executable, "-c", DENIED, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "report.html").is_file()
