"""Is the advice worth following? Seventeen real federations, held against four fixed policies and an oracle.

    python benchmarks/advice.py --splits 5
    FEDCOLLAB_DATA=numbers python benchmarks/advice.py --task regression --splits 1 --models logistic \\
        --results results/numeric --names $(ls numbers/federations | paste -sd,)

For every federation (benchmarks/federations.py), split and model (MLP, logistic regression; trees with `--models
xgboost`) the advice is asked for and followed (`train(clients, advice)`), and each of the fixed policies is trained:
alone, everyone (FedAvg), Ditto with everyone (not of trees), own intercept with everyone. All choose their rounds by
the same rule, on training rows. The oracle takes for each federation the fixed policy that is best on the *other*
splits. With --task regression the label is a numeric target (benchmarks/further_federations.py --numeric makes such
federations), and R2 stands for accuracy.

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
from functools import partial
from pathlib import Path
from typing import Any

from fedcollab.reproduce.federation_cells import ASIDE, MODELS, advice_cell, cached, policies_of, policy_cell
from fedcollab.reproduce.federation_study import make_study, text_lines
from fedcollab.tasks import CLASSIFICATION, TASKS
from federations import names

RESULTS = Path(__file__).resolve().parent.parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--names", default="", help="Only these federations, with commas; `aside` for the five.")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--only", choices=("advice", "policies"), help="Compute only these cells, and print nothing.")
    parser.add_argument("--task", choices=sorted(TASKS), default=CLASSIFICATION, help="What is predicted.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    wanted = list(ASIDE) if arguments.names == "aside" else arguments.names.split(",") if arguments.names else names()
    models = arguments.models.split(",")
    keys = [(n, s, m) for s in range(arguments.splits) for n in wanted for m in models]
    advised: dict[Any, Any] = {}
    policies: dict[Any, Any] = {}
    if arguments.only != "policies":
        advised = cached(arguments.results / "advice.jsonl", keys, partial(advice_cell, task=arguments.task))
    if arguments.only != "advice":
        others = [(*key, policy) for key in keys for policy in policies_of(key[2]) if policy != "alone"]
        compute = partial(policy_cell, task=arguments.task)
        policies = cached(arguments.results / "policies.jsonl", others, compute)
        policies |= {(*key, "alone"): cell["alone"] for key, cell in advised.items()}
    if arguments.only is None:
        for model in models:
            study = make_study(model, wanted, range(arguments.splits), advised, policies)
            print("\n".join(text_lines(study, TASKS[arguments.task])))


if __name__ == "__main__":
    main()
