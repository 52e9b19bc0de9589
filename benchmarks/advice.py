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

Cells are kept in results/advice.jsonl and results/policies.jsonl: run again to go on.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import defaultdict
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from fedcollab import advise, train
from fedcollab.errors import FedcollabWarning
from fedcollab.training import compare
from federations import ASIDE, cached, load, names

MODELS = ("mlp", "logistic")
POLICIES = {
    "alone": ("local", "fedavg"),
    "everyone": ("global", "fedavg"),
    "ditto": ("global", "ditto"),
    "own-intercept": ("global", "own-intercept"),
}
HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results"
Z80 = NormalDist().inv_cdf(0.9)


def policy_cell(name: str, split: int, model: str, policy: str) -> dict[str, Any]:
    """Train one of the fixed policies; return loss and accuracy of each client."""
    warnings.simplefilter("ignore", FedcollabWarning)
    who, how = POLICIES[policy]
    result = train(load(name, split), who, how, model, evaluate_every=None, seed=split)
    return {"loss": _rounded(result.reported_loss), "accuracy": _rounded(result.reported)}


def advice_cell(name: str, split: int, model: str) -> dict[str, Any]:
    """Ask for the advice, follow it, and compare it with training alone on the same test rows."""
    warnings.simplefilter("ignore", FedcollabWarning)
    clients = load(name, split)
    started = time.process_time()
    advice = advise(clients, model=model, seed=split)
    asked = time.process_time() - started
    followed = train(clients, advice, model=model, evaluate_every=None, seed=split)
    started = time.process_time()
    alone = train(clients, "local", "fedavg", model, evaluate_every=None, seed=split)
    trained = time.process_time() - started
    found = compare(clients, {"alone": alone, "advice": followed})
    loss, accuracy = found.loss_gain("advice", over="alone"), found.accuracy_gain("advice", over="alone")
    gains = [advice.gains[client] for client in followed.names]
    return {
        "verdict": advice.verdict,
        "advised": advice.candidate.label,
        "options": dict(advice.candidate.options),
        "coalitions": [len(members) for members in advice.candidate.coalitions],
        "loss": _rounded(followed.reported_loss),
        "accuracy": _rounded(followed.reported),
        "rows": [int(rows) for rows in advice.quantities],
        "tests": [int(samples) for samples in found.samples],
        "gain": {"loss": _rounded(loss.mean), "accuracy": _rounded(accuracy.mean)},
        "stderr": {"loss": _rounded(loss.stderr), "accuracy": _rounded(accuracy.stderr)},
        "expected": {
            "loss": [[round(g.loss.mean, 5), round(g.loss.stderr, 5)] for g in gains],
            "accuracy": [[round(g.accuracy.mean, 5), round(g.accuracy.stderr, 5)] for g in gains],
        },
        "candidates": [[c.label, c.options, round(c.gain.mean, 5), c.dropped] for c in advice.candidates],
        "alone": {"loss": _rounded(alone.reported_loss), "accuracy": _rounded(alone.reported)},
        "cpu": [round(asked, 2), round(trained, 2)],
        "rounds": advice.cost["rounds"],
    }


def _rounded(values: Any) -> list[float | None]:
    return [None if not np.isfinite(value) else round(float(value), 6) for value in values]


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
            report(model, wanted, range(arguments.splits), advised, policies)


def report(model: str, federations: list[str], splits: range, advised: Any, policies: Any) -> None:
    """Print the table and the figures of one model."""
    print(f"\n## {model}, {len(federations)} federations, {len(splits)} splits\n")
    print("Mean over clients, then splits: log loss / accuracy.\n")
    print("| federation | " + " | ".join(POLICIES) + " | oracle | advice | advised (splits) | gain over alone |")
    print("|" + "---|" * (len(POLICIES) + 5))
    rows: dict[str, list[Any]] = defaultdict(list)
    for name in federations:
        at = {p: np.array([_means(policies[name, s, model, p]) for s in splits]) for p in POLICIES}
        got = np.array([_means(advised[name, s, model]) for s in splits])
        oracle = np.array([at[best_elsewhere(at, s, splits)][s] for s in splits])
        said = _counted([advised[name, s, model]["advised"] for s in splits])
        change = [at["alone"][s][0] - got[s][0] for s in splits]
        noise = _federation_stderr([advised[name, s, model] for s in splits])
        cells = [
            f"{v[0]:.3f} / {100 * v[1]:.1f}" for v in (*(at[p].mean(axis=0) for p in POLICIES), oracle.mean(axis=0))
        ]
        cells.append(f"**{got[:, 0].mean():.3f} / {100 * got[:, 1].mean():.1f}**")
        print(f"| {name} | " + " | ".join(cells) + f" | {said} | {np.mean(change):+.3f} ± {noise:.3f} |")
        for policy in POLICIES:
            rows[policy].append(at[policy])
        rows["oracle"].append(oracle)
        rows["advice"].append(got)
        rows["harm"].append((np.mean(change), noise))
    means = {key: np.concatenate(value).mean(axis=0) for key, value in rows.items() if key != "harm"}
    print(
        "| **mean** | "
        + " | ".join(f"{means[k][0]:.4f} / {100 * means[k][1]:.2f}" for k in (*POLICIES, "oracle", "advice"))
        + " | | |"
    )
    alone, oracle, advice = means["alone"], means["oracle"], means["advice"]
    share = (advice - alone) / (oracle - alone)
    print(f"\nCaptured: {100 * share[0]:.0f} % in loss, {100 * share[1]:.0f} % in accuracy.")
    for policy in POLICIES:
        change = np.concatenate(rows[policy])[:, 0] - np.concatenate(rows["advice"])[:, 0]
        by = change.reshape(len(federations), -1).mean(axis=1)
        errors = by.mean() / (by.std(ddof=1) / np.sqrt(len(by))) if len(by) > 1 else np.nan
        print(f"Advice against {policy}: {by.mean():+.4f} in loss, {errors:.1f} paired standard errors.")
    worse = [name for name, (mean, noise) in zip(federations, rows["harm"], strict=True) if mean < -2 * noise]
    print(f"Worse than alone beyond two standard errors: {', '.join(worse) or 'none'}.")
    _clients([[advised[name, s, model] for s in splits] for name in federations])
    cpu = np.array([advised[n, s, model]["cpu"] for n in federations for s in splits])
    print(f"Cost: {cpu[:, 0].sum() / cpu[:, 1].sum():.1f} ordinary trainings alone (CPU, rounds chosen).")


def _clients(federations: list[list[Any]]) -> None:
    """Print what single clients got: harmed, signs and coverage; cells of each federation, one a split."""
    harmed, pooled, right, clear = 0, 0, 0, 0
    for parts in federations:
        for client in range(len(parts[0]["loss"])):
            gains, errors, tests, said = [], [], [], []
            for part in parts:
                if part["gain"]["loss"][client] is not None and part["stderr"]["loss"][client] is not None:
                    gains.append(part["gain"]["loss"][client])
                    errors.append(part["stderr"]["loss"][client])
                    tests.append(part["tests"][client])
                    said.append(part["expected"]["loss"][client][0])
            if sum(tests) < 30:
                continue
            weight = np.array(tests) / sum(tests)
            gain, error = float(weight @ gains), float(np.sqrt((weight**2) @ np.array(errors) ** 2))
            pooled += 1
            harmed += gain < -2 * error
            if abs(gain) > 2 * error:
                clear += 1
                right += np.sign(np.mean(said)) == np.sign(gain)
    share, chance = 100 * harmed / pooled, 100 * (1 - NormalDist().cdf(2))
    print(f"Clients harmed beyond two standard errors: {share:.1f} % of {pooled} (chance: {chance:.1f} %).")
    print(f"Sign of clear gains right: {100 * right / max(clear, 1):.0f} % of {clear}.")
    for metric in ("loss", "accuracy"):
        inside: dict[str, list[bool]] = defaultdict(list)
        for cell in (cell for parts in federations for cell in parts):
            for gain, error, (mean, stderr), rows in zip(
                cell["gain"][metric], cell["stderr"][metric], cell["expected"][metric], cell["rows"], strict=True
            ):
                if gain is None or error is None or cell["advised"] == "alone":
                    continue
                size = "under 60 rows" if rows < 60 else "60 to 199" if rows < 200 else "200 or more"
                hit = abs(gain - mean) <= Z80 * np.hypot(error, stderr)
                inside["all"].append(hit)
                inside[size].append(hit)
        told = ", ".join(f"{size} {100 * np.mean(hits):.0f} % ({len(hits)})" for size, hits in sorted(inside.items()))
        print(f"80 % predictive intervals of gains in {metric} cover: {told}.")


def best_elsewhere(at: dict[str, Any], split: int, splits: range) -> str:
    """Return the fixed policy with the lowest mean loss on the other splits (on this one, if it is the only one)."""
    others = [s for s in splits if s != split] or [split]
    return min(at, key=lambda policy: at[policy][others, 0].mean())


def _means(cell: Any) -> tuple[float, float]:
    return float(np.mean(cell["loss"])), float(np.mean(cell["accuracy"]))


def _federation_stderr(cells: list[Any]) -> float:
    """Return the standard error of a federation's mean gain over clients and splits, from the noise of test rows."""
    errors = [
        np.sqrt(np.sum(np.square([e for e in cell["stderr"]["loss"] if e is not None]))) / len(cell["loss"])
        for cell in cells
    ]
    return float(np.sqrt(np.sum(np.square(errors))) / len(errors))


def _counted(labels: list[str]) -> str:
    return "; ".join(f"{label} ({labels.count(label)})" for label in dict.fromkeys(labels))


if __name__ == "__main__":
    main()
