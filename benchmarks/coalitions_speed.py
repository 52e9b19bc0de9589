"""How fast is the solver, and how does its time grow?

    python benchmarks/coalitions_speed.py [--most 10000]

1. N = 20, 100 restarts, against Algorithm 2 read to the letter (the whole objective for each of the N choices).
2. One local search at N = 100, 1,000, 10,000 on a float32 matrix with N / 50 planted groups, against one `D.sum()`,
   with the peak of memory during the search against the matrix.
"""

from __future__ import annotations

import argparse
import threading
from pathlib import Path
from time import perf_counter, sleep

import numpy as np

from fedcollab.coalitions import objective, solve
from reference import best_of_restarts, planted


def least(call, times: int) -> float:
    """The shortest of several timings."""
    taken = []
    for _ in range(times):
        start = perf_counter()
        call()
        taken.append(perf_counter() - start)
    return min(taken)


def large(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A symmetric float32 matrix with planted groups of about 50 clients, made in blocks."""
    rng = np.random.default_rng(seed)
    truth, block = rng.integers(0, max(2, count // 50), count), 500
    D = np.empty((count, count), dtype=np.float32)
    for i in range(0, count, block):
        for j in range(i, count, block):
            rows, columns = truth[i : i + block], truth[j : j + block]
            part = np.where(rows[:, None] == columns, np.float32(0.05), np.float32(0.6))
            part += rng.random(part.shape, dtype=np.float32) * np.float32(0.1)
            part = np.triu(part, 1) + np.triu(part, 1).T if i == j else part
            D[i : i + block, j : j + block], D[j : j + block, i : i + block] = part, part.T
    return D, rng.integers(100, 1001, count).astype(float), truth


class Peak:
    """The most memory that the process holds while the block runs (sampled; where /proc has it)."""

    def __enter__(self) -> Peak:
        self.start = self.most = _resident()
        self.running = True
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def _watch(self) -> None:
        while self.running:
            self.most = max(self.most, _resident())
            sleep(0.002)

    def __exit__(self, *_: object) -> None:
        self.running = False
        self.thread.join()


def _resident() -> int:
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * 4096 if status.exists() else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=10_000)
    most = parser.parse_args().most

    D, m, _ = planted(4, 5, 0)
    solve(D, m, 10.0, method="local", restarts=2)
    slow = least(lambda: best_of_restarts(D, m, 10.0, 100), 1)
    print(f"N = 20, 100 restarts: to the letter {slow:.2f} s")
    for method in ("local", "auto"):
        fast = least(lambda method=method: solve(D, m, 10.0, method=method, restarts=100), 7)
        print(f"  {method:6} {1000 * fast:6.1f} ms, {slow / fast:5.0f} times faster")

    print(f"\n{'N':>6} {'D.sum()':>10} {'search':>9} {'ratio':>7} {'memory/matrix':>14} {'vs planted':>11} {'gap':>6}")
    for count in (100, 1000, 10_000):
        if count > most:
            break
        D, m, truth = large(count)
        once = least(lambda D=D: D.sum(), 5)
        with Peak() as peak:
            start = perf_counter()
            answer = solve(D, m, 10.0, method="local", restarts=1)
            taken = perf_counter() - start
        held = (D.nbytes + peak.most - peak.start) / D.nbytes
        excess = answer.objective - objective(D, m, truth, 10.0)
        row = f"{count:>6} {1000 * once:>7.3f} ms {taken:>7.3f} s {taken / once:>7.0f}"
        print(f"{row} {held:>14.2f} {excess:>+11.1e} {100 * answer.gap:>5.1f}%")


if __name__ == "__main__":
    main()
