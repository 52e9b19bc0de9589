"""The cells of the study of real federations: one policy on one federation, split and model, kept as one line each.

    advice.jsonl      the advice, asked for and followed, and training alone: [[federation, split, model], result]
    policies.jsonl    the fixed policies: [[federation, split, model, policy], result]
    procedures.jsonl  own weights, the paper's procedure and clustered methods: as policies

All choose their rounds by the same rule, on training rows. Federations and splits are those of
`scenarios.federation_clients`: at most 20 clients of at most 400 training rows.
"""

from __future__ import annotations

import json
import multiprocessing
import time
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fedcollab import advise, baselines, distances, personal_weights, solve, train
from fedcollab.data import ClientData
from fedcollab.errors import FedcollabWarning, InputError, choose
from fedcollab.scenarios import federation_clients
from fedcollab.training import TREE_ALGORITHMS, TREES, TrainingResult, compare

Key = tuple[Any, ...]
Result = dict[str, Any]
MODELS = ("mlp", "logistic")
#: the fixed policies: who trains with whom, and how
POLICIES = {
    "alone": ("local", "fedavg"),
    "everyone": ("global", "fedavg"),
    "ditto": ("global", "ditto"),
    "own-intercept": ("global", "own-intercept"),
}


def policies_of(model: str) -> list[str]:
    """Return the fixed policies that a model can follow: trees know no Ditto.

    Parameters
    ----------
    model : str
        The model's name.
    """
    return [policy for policy, (_, how) in POLICIES.items() if model != TREES or how in TREE_ALGORITHMS]


#: the weight of the generalisation term in the paper's procedure
PAPER_C = 10.0
#: the distances that the paper's procedure is run with, by policy; FedAvg in the coalitions at C = 10
PAPER = {"paper-published": "published", "paper-cross": "cross", "paper-hypothesis": "hypothesis"}
#: clustered methods, and how many clusters they are told to make (fewer where there are fewer clients)
CLUSTERED = {"ifca": 4, "fedcluster": 4}
#: rounds and step of the clustered methods while they look for clusters: the defaults of `train`
ROUNDS, LR = 100, 0.1
PROCEDURES = ("own-weights", *PAPER, *CLUSTERED)
#: left out while the rules and defaults of the advice were chosen
ASIDE = ("exam_schools", "flights_carriers", "fries_raters", "loans_states", "support_disease")


def policy_cell(name: str, split: int, model: str, policy: str, *, task: str | None = None) -> Result:
    """Train one of the fixed policies.

    Parameters
    ----------
    name : str
        The federation.
    split : int
        The split, and the seed of the training.
    model : str
        "mlp" or "logistic".
    policy : str
        One of `POLICIES`.
    task : str, optional
        As in `fedcollab.train`; of a numeric target R2 stands for accuracy.
    """
    warnings.simplefilter("ignore", FedcollabWarning)
    who, how = choose("policy", policy, POLICIES)
    result = train(federation_clients(name, split), who, how, model, evaluate_every=None, seed=split, task=task)
    return {"loss": rounded(result.reported_loss), "accuracy": rounded(result.reported)}


def advice_cell(name: str, split: int, model: str, *, task: str | None = None) -> Result:
    """Ask for the advice, follow it, and compare it with training alone on the same test rows.

    Parameters
    ----------
    name : str
        The federation.
    split : int
        The split, and the seed of advice and training.
    model : str
        "mlp" or "logistic".
    task : str, optional
        As in `policy_cell`.

    Returns
    -------
    dict
        What was advised, loss and accuracy of each client, gains over training alone, measured and expected, with
        standard errors, and what it cost.
    """
    warnings.simplefilter("ignore", FedcollabWarning)
    clients = federation_clients(name, split)
    started = time.process_time()
    advice = advise(clients, model=model, seed=split, task=task)
    asked = time.process_time() - started
    followed = train(clients, advice, model=model, evaluate_every=None, seed=split, task=task)
    started = time.process_time()
    alone = train(clients, "local", "fedavg", model, evaluate_every=None, seed=split, task=task)
    trained = time.process_time() - started
    found = compare(clients, {"alone": alone, "advice": followed})
    loss, accuracy = found.loss_gain("advice", over="alone"), found.accuracy_gain("advice", over="alone")
    gains = [advice.gains[client] for client in followed.names]
    return {
        "verdict": advice.verdict,
        "advised": advice.candidate.label,
        "options": dict(advice.candidate.options),
        "coalitions": [len(members) for members in advice.candidate.coalitions],
        "loss": rounded(followed.reported_loss),
        "accuracy": rounded(followed.reported),
        "rows": [int(rows) for rows in advice.quantities],
        "tests": [int(samples) for samples in found.samples],
        "gain": {"loss": rounded(loss.mean), "accuracy": rounded(accuracy.mean)},
        "stderr": {"loss": rounded(loss.stderr), "accuracy": rounded(accuracy.stderr)},
        "expected": {
            "loss": [[round(g.loss.mean, 5), round(g.loss.stderr, 5)] for g in gains],
            "accuracy": [[round(g.accuracy.mean, 5), round(g.accuracy.stderr, 5)] for g in gains],
        },
        "candidates": [[c.label, c.options, round(c.gain.mean, 5), c.dropped] for c in advice.candidates],
        "alone": {"loss": rounded(alone.reported_loss), "accuracy": rounded(alone.reported)},
        "cpu": [round(asked, 2), round(trained, 2)],
        "rounds": advice.cost["rounds"],
    }


def procedure_cell(name: str, split: int, model: str, policy: str) -> Result:
    """Train own weights, the paper's procedure or the clusters of a clustered method, and compare it with alone.

    Own weights are those of the bound at C = 10 and the distances `cross`. The paper's procedure takes the coalitions
    that are best at C = 10 for a kind of distance, and trains FedAvg in them. Of a clustered method the clusters of its
    last round are taken, and FedAvg is trained in them, so that all choose their rounds alike.

    Parameters
    ----------
    name : str
        The federation.
    split : int
        The split, and the seed.
    model : str
        "mlp" or "logistic".
    policy : str
        One of `PROCEDURES`.

    Returns
    -------
    dict
        Names of the clients, coalitions by size, loss and accuracy of each client, measured gains over training alone
        with standard errors, and the CPU seconds it took beside training alone.
    """
    warnings.simplefilter("ignore", FedcollabWarning)
    choose("policy", policy, dict.fromkeys(PROCEDURES))
    clients, alone = trained_alone(name, split, model)
    started = time.process_time()
    options: dict[str, Any] = {}
    who: Any = "global"
    if policy == "own-weights":
        found = measured_distances(name, split, "cross")
        options["weights"] = personal_weights(found, None, PAPER_C)[0]
    elif policy in PAPER:
        who = solve(measured_distances(name, split, PAPER[policy]), C=PAPER_C).coalitions
    else:
        count = min(CLUSTERED[policy], len(clients))
        clustered = baselines.run(
            policy, clients, count, model=model, rounds=ROUNDS, lr=LR, evaluate_every=None, seed=split
        )
        who = clustered.coalitions
    how = "own-weights" if policy == "own-weights" else "fedavg"
    result = train(clients, who, how, model, evaluate_every=None, seed=split, **options)
    seconds = time.process_time() - started
    compared = compare(clients, {"alone": alone, policy: result})
    loss, accuracy = compared.loss_gain(policy, over="alone"), compared.accuracy_gain(policy, over="alone")
    return {
        "names": list(result.names),
        "coalitions": [len(members) for members in result.coalitions],
        "loss": rounded(result.reported_loss),
        "accuracy": rounded(result.reported),
        "tests": [int(samples) for samples in compared.samples],
        "gain": {"loss": rounded(loss.mean), "accuracy": rounded(accuracy.mean)},
        "stderr": {"loss": rounded(loss.stderr), "accuracy": rounded(accuracy.stderr)},
        "cpu": round(seconds, 2),
    }


@lru_cache(maxsize=1)
def trained_alone(name: str, split: int, model: str) -> tuple[list[ClientData], TrainingResult]:
    """Return the clients of a split and their training alone; the last one is kept, since its policies follow."""
    clients = federation_clients(name, split)
    return clients, train(clients, "local", "fedavg", model, evaluate_every=None, seed=split)


@lru_cache(maxsize=4)
def measured_distances(name: str, split: int, method: str) -> distances.Distances:
    """Return the distances between the clients of a split; the last ones are kept."""
    return distances.estimate_distances(federation_clients(name, split), method=method, seed=split)


#: the files of the cells, and what computes a cell of each
FILES: dict[str, Callable[..., Result]] = {
    "advice.jsonl": advice_cell,
    "policies.jsonl": policy_cell,
    "procedures.jsonl": procedure_cell,
}


def read_cells(path: Path) -> dict[Key, Result]:
    """Return the cells of a file by key; none where there is no file.

    Raises
    ------
    InputError
        If a line cannot be read.
    """
    known: dict[Key, Result] = {}
    if path.exists():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                key, value = json.loads(line)
                known[tuple(key)] = value
            except (ValueError, TypeError):
                raise InputError(f"`{path}`, line {number}, is not a cell; delete it to compute it again") from None
    return known


def cached(
    path: Path,
    keys: Iterable[Key],
    compute: Callable[..., Result],
    *,
    jobs: int = 1,
    fresh: bool = False,
    say: Callable[[str], None] | None = None,
) -> dict[Key, Result]:
    """Return what `compute(*key)` gives for each key; the file lets a later call go on where this one stopped.

    Parameters
    ----------
    path : Path
        The file, with one line a cell; the last line of a key counts.
    keys : iterable of tuples
        The cells that are wanted.
    compute : function
        Computes a cell from its key.
    jobs : int
        How many to compute at a time, each in a process of its own; with 1, in this one.
    fresh : bool
        Compute also cells that are there.
    say : function of str, optional
        Called with a line for every cell that was computed; by default it is printed.
    """
    known = read_cells(path)
    wanted = list(keys)
    missing = [key for key in wanted if fresh or key not in known]
    for count, (key, result) in enumerate(_computed(missing, compute, jobs), len(wanted) - len(missing) + 1):
        known[key] = json.loads(json.dumps(result))
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([key, known[key]]) + "\n")
        line = f"{count} of {len(wanted)}: {' '.join(map(str, key))}"
        print(line, flush=True) if say is None else say(line)
    return {key: known[key] for key in wanted}


def _computed(keys: list[Key], compute: Callable[..., Result], jobs: int) -> Iterable[tuple[Key, Result]]:
    """Yield every key with its result, as soon as it is there."""
    if jobs == 1 or len(keys) < 2:
        for key in keys:
            yield key, compute(*key)
        return
    with ProcessPoolExecutor(min(jobs, len(keys)), mp_context=multiprocessing.get_context("spawn")) as pool:
        running: dict[Future[Result], Key] = {pool.submit(compute, *key): key for key in keys}
        for future in as_completed(running):
            yield running[future], future.result()


def rounded(values: Any) -> list[float | None]:
    """Return numbers, rounded, as a plain list; None where one is not finite."""
    return [None if not np.isfinite(value) else round(float(value), 6) for value in values]
