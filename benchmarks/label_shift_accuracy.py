"""The label-shift column of the paper's tables: accuracy, IPR and RSD of every algorithm, alone and in coalitions.

    python benchmarks/label_shift_accuracy.py [--seeds 5] [--rounds 200] [--rows local fedavg ...] [--baselines]

Local training, then each algorithm over everyone and inside the paper's coalitions [0..4], [5..9], [10..19]; with
`--baselines` the clustered ones with K clusters too. Percentages, mean (standard deviation) over seeds, beside the
paper's.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from fedcollab import baselines, metrics, scenarios
from fedcollab.clients.schema import federate
from fedcollab.training import train

PAPER = {
    "local": (86.05, None, None),
    "fedavg": (46.64, 46.00, 41.03), "fedavg in coalitions": (92.45, 100.00, 5.99),
    "fedprox": (46.70, 45.00, 41.09), "fedprox in coalitions": (92.39, 100.00, 6.02),
    "fednova": (75.92, 45.00, 12.38), "fednova in coalitions": (92.47, 100.00, 5.97),
    "finetune": (67.32, 48.00, 22.97), "finetune in coalitions": (92.57, 99.00, 6.07),
    "perfedavg": (51.13, 49.00, 37.35), "perfedavg in coalitions": (92.16, 97.00, 6.00),
    "pfedme": (55.31, 47.00, 33.71), "pfedme in coalitions": (92.18, 99.00, 6.40),
    "ditto": (68.73, 48.00, 20.29), "ditto in coalitions": (92.55, 99.00, 6.11),
    "ifca": (91.49, 95.00, 5.62), "fedcluster": (92.07, 95.00, 6.14),
    "fesem": (56.79, 45.00, 36.12), "kmeans": (69.30, 72.00, 35.87),
}  # fmt: skip
ALGORITHMS = ("fedavg", "fedprox", "fednova", "finetune", "perfedavg", "pfedme", "ditto")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--rows", nargs="*", default=list(ALGORITHMS), help="algorithms to run beside local training")
    parser.add_argument("--baselines", nargs="*", default=[], help="clustered baselines to run")
    parser.add_argument("--k", type=int, default=4)
    arguments = parser.parse_args()
    common = {"rounds": arguments.rounds, "lr": 0.1, "evaluate_every": None}
    rows: dict[str, list[tuple[float, float, float]]] = {}
    began = time.perf_counter()

    def note(name: str, accuracy: np.ndarray, local: np.ndarray) -> None:
        values = (100 * accuracy.mean(), 100 * metrics.ipr(accuracy, local), 100 * metrics.rsd(accuracy, local))
        rows.setdefault(name, []).append(values)
        print(
            f"  {name:28}" + "".join(f"{v:8.2f}" for v in values) + f"   {time.perf_counter() - began:7.0f} s",
            flush=True,
        )

    for seed in range(arguments.seeds):
        print(f"seed {seed}", flush=True)
        federation = federate(scenarios.make("label-shift", seed=seed).clients, scale="none", seed=seed)
        names = federation.names
        coalitions = [list(names[:5]), list(names[5:10]), list(names[10:])]
        local = train(federation, "local", seed=seed, **common).accuracy
        note("local", local, local)
        for algorithm in arguments.rows:
            note(algorithm, train(federation, "global", algorithm, seed=seed, **common).reported, local)
            result = train(federation, coalitions, algorithm, seed=seed, **common)
            note(f"{algorithm} in coalitions", result.reported, local)
        for name in arguments.baselines:
            result = baselines.run(name, federation, k=arguments.k, seed=seed, **common)
            note(name, result.reported, local)
            print("   ", [[member[-2:] for member in members] for members in result.coalitions], flush=True)

    print(f"\n{'':30}{'Acc':>16}{'IPR':>16}{'RSD':>16}      paper: Acc, IPR, RSD")
    for name, values in rows.items():
        table = np.array(values)
        cells = "".join(f"{m:9.2f} ({s:4.2f})" for m, s in zip(table.mean(0), table.std(0), strict=True))
        paper = ", ".join("-" if value is None else f"{value:.2f}" for value in PAPER.get(name, ()))
        print(f"{name:30}{cells}      {paper}")


if __name__ == "__main__":
    main()
