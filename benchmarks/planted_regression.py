"""Is the advice right where clients with a numeric target were planted, and do its intervals hold what comes true?

    python benchmarks/planted_regression.py --seeds 20

Three scenarios, eight clients of 60 rows (--rows), y = w'x + offset + noise over six columns:

    one rule       all clients have the same w and offset: together
    two rules      w is -w at half of the clients: the two halves as coalitions, or own weights that part them
    own offsets    the same w, offsets that differ by several deviations: together, each with an own intercept

Right is: what was advised reaches on 400 test rows of each client a mean loss that is not above that of the planted
answer by more than 5 % of training alone. Coverage is that of 80 % predictive intervals of the gain in loss (the error
that the advice gave before, and the noise of the test rows), of clients that are not to train alone.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np

from fedcollab import ClientData, advise, train
from fedcollab.errors import FedcollabWarning
from fedcollab.reproduce.federation_study import Z80
from fedcollab.training import compare

CLIENTS, TEST, COLUMNS = 8, 400, 6
HALVES = [[f"c{k}" for k in range(CLIENTS // 2)], [f"c{k}" for k in range(CLIENTS // 2, CLIENTS)]]
#: the planted answer: who, and how
PLANTED = {
    "one rule": ("global", "fedavg"),
    "two rules": (HALVES, "fedavg"),
    "own offsets": ("global", "own-intercept"),
}
#: by what share of the loss alone the advised plan may be behind the planted one
BEHIND = 0.05


def clients_of(scenario: str, seed: int, rows: int) -> list[ClientData]:
    """Return the clients of a scenario."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=COLUMNS)
    made = []
    for position in range(CLIENTS):
        rule = -w if scenario == "two rules" and position >= CLIENTS // 2 else w
        offset = 6.0 * rng.normal() if scenario == "own offsets" else 0.0
        x = rng.normal(size=(rows + TEST, COLUMNS))
        y = 20 + 5 * (x @ rule + offset + 1.5 * rng.normal(size=len(x)))
        made.append(ClientData(f"c{position}", x[:rows], y[:rows], x[rows:], y[rows:]))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--rows", type=int, default=60, help="Training rows of a client.")
    parser.add_argument("--model", default="logistic")
    parser.add_argument("--rounds", type=int, default=40, help="The most rounds.")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", FedcollabWarning)
    how = {"model": arguments.model, "rounds": arguments.rounds}
    print("| scenario | right | advised kinds | coverage of 80 % intervals | RMSE alone | planted | advised |")
    print("|" + "---|" * 7, flush=True)
    for scenario, (groups, algorithm) in PLANTED.items():
        right, kinds, inside, errors = 0, dict[str, int](), list[bool](), list[list[float]]()
        for seed in range(arguments.seeds):
            clients = clients_of(scenario, seed, arguments.rows)
            advice = advise(clients, seed=seed, **how)
            planted = train(clients, groups, algorithm, seed=seed, evaluate_every=None, **how)
            alone = train(clients, "local", seed=seed, evaluate_every=None, **how)
            advised = train(clients, advice, seed=seed, evaluate_every=None, **how)
            losses = [float(result.reported_loss.mean()) for result in (alone, planted, advised)]
            right += losses[2] <= losses[1] + BEHIND * losses[0]
            kinds[advice.candidate.kind] = kinds.get(advice.candidate.kind, 0) + 1
            if advice.candidate.kind != "alone":
                found = compare(clients, {"alone": alone, "advised": advised}).ordered(alone.names)
                gain = found.loss_gain("advised", over="alone")
                for place, name in enumerate(alone.names):
                    told = advice.gains[name].loss
                    off = abs(float(gain.mean[place]) - told.mean)
                    inside.append(bool(off <= Z80 * np.hypot(told.stderr, float(gain.stderr[place]))))
            errors.append([float(result.used["rmse"].mean()) for result in (alone, planted, advised)])
        words = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
        means = " | ".join(f"{value:.2f}" for value in np.mean(errors, axis=0))
        coverage = f"{100 * np.mean(inside):.0f} %" if inside else "–"
        print(f"| {scenario} | {right} of {arguments.seeds} | {words} | {coverage} | {means} |", flush=True)


if __name__ == "__main__":
    main()
