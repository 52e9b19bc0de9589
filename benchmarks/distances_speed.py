"""How much faster than plain loops: all pairs of label shift, `published` and the default, in one run on one machine.

    python benchmarks/distances_speed.py [--sizes 20,50,100] [--plain-pairs 0]

The plain loops (`distances_reference.py`) are PyTorch with autograd and data in memory, pair by pair, with the same
rounds. `--plain-pairs K` times K pairs spread over all of them and scales up; 0 times every pair (minutes). Peak memory
is that of the whole process, data set included. Times are CPU seconds, so that a busy machine does not blur the ratio.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
from distances_reference import cross_pair, published_pair
from fedcollab import scenarios
from fedcollab.distances import estimate_distances
from fedcollab.distances.methods import cross, published
from fedcollab.distances.methods.cross_design import CrossSettings
from fedcollab.distances.methods.published_loop import PublishedSettings
from fedcollab.distances.request import Request, all_pairs
from fedcollab.federation import federate
from fedcollab.progress import silent
from fedcollab.wire.vectorised import Vectorised


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="20,50,100")
    parser.add_argument("--plain-pairs", type=int, default=12)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"{'N':>4} {'pairs':>6} {'method':<10} {'ours':>8} {'plain':>9} {'ratio':>7} {'peak memory':>12}")
    for count in (int(size) for size in options.sizes.split(",")):
        made = scenarios.make(
            "label-shift", seed=0, clients=count, quantity=quantities(count), test=350 if count <= 20 else 7
        )
        federation = federate(made.clients, scale="none")
        assert isinstance(federation.runtime, Vectorised)
        request = Request(federation, all_pairs(federation.names), 0, silent)
        for method in ("published", "cross"):
            started = time.process_time()
            estimate = estimate_distances(federation, method=method)
            ours = time.process_time() - started
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            chosen = sample(request, options.plain_pairs)
            plain = plain_time(request, method, chosen, estimate.raw) * len(request.pairs) / len(chosen)
            scaled = "" if len(chosen) == len(request.pairs) else f"  (plain: {len(chosen)} pairs, scaled)"
            print(
                f"{count:>4} {len(request.pairs):>6} {method:<10} {ours:>7.2f}s {plain:>8.1f}s {plain / ours:>7.1f} "
                f"{memory:>8.2f} GiB{scaled}",
                flush=True,
            )


def quantities(count: int) -> list[int]:
    """Half of the clients large, half of 14 samples; Fashion-MNIST is shared out among more clients than 20."""
    large = 2100 if count <= 20 else 2100 * 20 // count
    large -= large % 7
    return [large] * (count // 2) + [14] * (count - count // 2)


def sample(request: Request, count: int) -> list[int]:
    """Pairs spread evenly over the list of all."""
    total = len(request.pairs)
    return list(range(total)) if not count or count >= total else np.linspace(0, total - 1, count).astype(int).tolist()


def plain_time(request: Request, method: str, chosen: list[int], raw: np.ndarray) -> float:
    silos = request.silos  # type: ignore[attr-defined]
    at = {name: position for position, name in enumerate(request.runtime.names)}
    worst, started = 0.0, time.process_time()
    if method == "published":
        settings = PublishedSettings(published.train_size(request, None))
        plan = published.client_plans(request, settings)[request.names[0]]
    else:
        design = cross.make_design(request, CrossSettings())
    for position in chosen:
        a, b = request.pairs[position]
        if method == "published":
            value = published_pair((a, b), silos, plan, settings)[0]
        else:
            value = cross_pair(design, position, silos)
        worst = max(worst, abs(value - raw[at[a], at[b]]))
    taken = time.process_time() - started
    if worst > 0.03:
        print(f"     note: a plain {method} distance differs by {worst:.3f}")
    return taken


if __name__ == "__main__":
    main()
