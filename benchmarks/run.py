"""Run every benchmark of this folder, one after the other, and print their tables."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
LONG = {"soak.py", "federation_stages.py"}  # half an hour each
NOT_A_BENCHMARK = {"run.py", "reference.py", "distances_reference.py", *LONG}


def main() -> None:
    wanted = sys.argv[1:]
    failed = []
    for path in sorted(HERE.glob("*.py")):
        if path.name in NOT_A_BENCHMARK or (wanted and path.stem not in wanted):
            continue
        print(f"\n## {path.stem}\n", flush=True)
        started = time.perf_counter()
        if subprocess.run([sys.executable, str(path)], check=False).returncode:
            failed.append(path.stem)
        print(f"\n({time.perf_counter() - started:.0f} s)", flush=True)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
