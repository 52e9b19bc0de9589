"""Should the small clients 10-19 train together, or in two coalitions by type? Trained both ways.

    python benchmarks/encoders_grouping.py --seeds 2 --rounds 100

Concept shift (120 samples a client): a logistic head on EfficientNet-Lite0's final features at 64 px, step size .01.
Feature shift (340 samples a client): the paper's CNN, step size .01. FedAvg, batches of 32, one local epoch; mean
accuracy of the ten clients on their 500 test images.
"""

from __future__ import annotations

import argparse

import torch

from fedcollab import scenarios, train
from fedcollab.federation import encode_clients

TOGETHER = [list(range(10))]
IN_TWO = [list(range(5)), list(range(5, 10))]
MODELS = {"concept-shift": "logistic", "feature-shift": "cnn"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--scenarios", default="concept-shift,feature-shift")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for kind in options.scenarios.split(","):
        for seed in range(options.seeds):
            small = scenarios.make(kind, seed=seed).clients[10:]
            members = encode_clients(small, scale="none") if kind == "concept-shift" else small
            found = []
            for label, groups in (("together", TOGETHER), ("in two", IN_TWO)):
                result = train(
                    members,
                    [[members[place].name for place in group] for group in groups],
                    model=MODELS[kind],
                    rounds=options.rounds,
                    lr=0.01,
                    seed=seed,
                    scale="none",
                    evaluate_every=None,
                )
                found.append(f"{label} {100 * result.accuracy.mean():.1f} %")
            print(f"{kind} seed {seed}, {options.rounds} rounds: {', '.join(found)}", flush=True)


if __name__ == "__main__":
    main()
