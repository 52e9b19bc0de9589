"""Is the advice worth following? Seventeen real federations, held against four fixed policies and an oracle.

    python benchmarks/advice.py --splits 5

For every federation (benchmarks/federations.py), split and model (MLP, logistic regression) the advice is asked for
and followed (`train(clients, advice)`), and each of the fixed policies is trained: alone, everyone (FedAvg), Ditto with
everyone, own intercept with everyone. All choose their rounds by the same rule, on training rows. The oracle takes for
each federation the fixed policy that is best on the *other* splits.

    captured    (advice - alone) / (oracle - alone), ratio of means over federations and splits
    harmed      clients (paired on the same test rows, pooled over splits, at least 30 test rows in all) that are worse
                than alone by more than two standard errors; chance alone gives 2.3 %
    sign        of the clients whose true gain is beyond two standard errors, those whose predicted gain has its sign
    coverage    80 % predictive intervals: the expected gain's error and the noise of the test rows

Cells are kept in results/advice.jsonl and results/policies.jsonl: run again to go on. They and the figures are those
of `fedcollab reproduce federations`, which makes a page of them (docs/federations.md).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fedcollab.reproduce.federation_cells import ASIDE, MODELS, POLICIES, advice_cell, cached, policy_cell
from fedcollab.reproduce.federation_study import make_study, text_lines
from federations import names

RESULTS = Path(__file__).resolve().parent.parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--names", default="", help="Only these federations, with commas; `aside` for the five.")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--only", choices=("advice", "policies"), help="Compute only these cells, and print nothing.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    wanted = list(ASIDE) if arguments.names == "aside" else arguments.names.split(",") if arguments.names else names()
    models = arguments.models.split(",")
    keys = [(n, s, m) for s in range(arguments.splits) for n in wanted for m in models]
    advised: dict[Any, Any] = {}
    policies: dict[Any, Any] = {}
    others = [policy for policy in POLICIES if policy != "alone"]
    if arguments.only != "policies":
        advised = cached(arguments.results / "advice.jsonl", keys, advice_cell)
    if arguments.only != "advice":
        policies = cached(arguments.results / "policies.jsonl", [(*k, p) for k in keys for p in others], policy_cell)
        policies |= {(*key, "alone"): cell["alone"] for key, cell in advised.items()}
    if arguments.only is None:
        for model in models:
            print("\n".join(text_lines(make_study(model, wanted, range(arguments.splits), advised, policies))))


if __name__ == "__main__":
    main()
