"""How often do 90 % intervals of gains hold the true gain? On repeated splits of real federations.

    python benchmarks/coverage.py --splits 4 --draws 50

Every client with many rows gives `--rows` of them for training; the others are its population. Logistic regression is
trained alone and with everyone. Then test splits of 20, 40 and 100 rows are drawn from the population, again and again,
and the interval of the gain of everyone over alone is held against the gain over the whole population: accuracy for
each client, for its mean over clients, and log loss (from 40 rows on). Federations are folders with one CSV a client
and a column `label`, in `federations` of FEDCOLLAB_DATA; without them there is nothing to measure.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd

from fedcollab import ClientData, load_model, train, uncertainty
from fedcollab.federation import federate
from fedcollab.files import own_folder

FEDERATIONS = (
    "support_disease",
    "flights_carriers",
    "stackoverflow",
    "weather_cities",
    "rodent_plots",
    "arrests_years",
    "hpc_protocols",
    "chile_regions",
)
TESTS = (20, 40, 100)
#: a population has at least so many times the rows of the largest test split
LARGE = 4

Outcomes = tuple[np.ndarray, np.ndarray]


def tables(folder: Path, rows: int) -> dict[str, pd.DataFrame]:
    """The clients of a federation that have rows enough."""
    read = {path.stem: pd.read_csv(path, dtype={"label": str}, keep_default_na=False, na_values=[""])
            for path in sorted(folder.glob("*.csv"))}  # fmt: skip
    return {name: table for name, table in read.items() if len(table) >= rows + LARGE * max(TESTS)}


def trained(found: dict[str, pd.DataFrame], rows: int, seed: int) -> dict[str, dict[str, Outcomes]]:
    """Whether each row of each client's population is right, and its loss, with the model alone and with everyone."""
    clients = []
    for position, (name, table) in enumerate(found.items()):
        mixed = table.sample(frac=1, random_state=1000 * seed + position).reset_index(drop=True)
        x, y = mixed.drop(columns="label"), mixed["label"].to_numpy()
        clients.append(ClientData(name, x[:rows], y[:rows], x[rows:], y[rows:]))
    federation = federate(clients, seed=seed)
    classes = list(federation.schema.classes)
    outcomes: dict[str, dict[str, Outcomes]] = defaultdict(dict)
    for way in ("local", "global"):
        result = train(federation, way, model="logistic", rounds=30, lr=0.1, seed=seed, evaluate_every=None)
        with tempfile.TemporaryDirectory() as folder:
            result.save(Path(folder) / "training.json")
            for client in clients:
                model = load_model(folder, client=client.name)
                chances = model.predict_proba(client.x_test).astype(np.float64)
                truth = np.array([classes.index(label) for label in client.y_test])
                loss = -np.log(np.maximum(chances[np.arange(len(truth)), truth], 1e-12))
                outcomes[client.name][way] = (chances.argmax(1) == truth, loss)
    return outcomes


def held(outcomes: dict[str, dict[str, Outcomes]], samples: int, draws: int, seed: int) -> dict[str, list[float]]:
    """Whether the intervals of each draw of test rows hold the gain over the population."""
    found: dict[str, list[float]] = defaultdict(list)
    rng = np.random.default_rng([seed, samples])
    everyone, alone = ([outcomes[name][way] for name in outcomes] for way in ("global", "local"))
    pairs = list(zip(everyone, alone, strict=True))
    accuracy_gain = np.array([one[0].mean() - two[0].mean() for one, two in pairs])
    loss_gain = np.array([two[1].mean() - one[1].mean() for one, two in pairs])
    many = np.full(len(pairs), samples)
    for _ in range(draws):
        counts, losses = [], []
        for (right, loss), (other_right, other_loss) in pairs:
            drawn = rng.choice(len(right), samples, replace=False)
            counts.append([right[drawn].sum(), other_right[drawn].sum(), (right & other_right)[drawn].sum()])
            difference = (other_loss - loss)[drawn]
            losses.append([difference.mean(), difference.std(ddof=1) / np.sqrt(samples)])
        gain = uncertainty.accuracy_gains(*np.array(counts).T, many)
        apart = uncertainty.accuracy_gains(*np.array(counts).T[:2], np.full(len(pairs), np.nan), many)
        lower = uncertainty.means(*np.array(losses).T, many)
        for key, interval, truth in (("accuracy", gain, accuracy_gain), ("loss", lower, loss_gain)):
            found[key] += ((interval.low <= truth) & (truth <= interval.high))[np.isfinite(interval.low)].tolist()
            mean = interval.average
            found[f"mean {key}"].append(mean.low <= truth.mean() <= mean.high)
        found["width"].append(float((gain.high - gain.low).mean()))
        found["width unpaired"].append(float((apart.high - apart.low).mean()))
        clear = np.array(gain.verdicts)
        wrong = ((clear == uncertainty.BETTER) & (accuracy_gain < 0)) | (
            (clear == uncertainty.WORSE) & (accuracy_gain > 0)
        )
        found["clear"].append(float((clear != uncertainty.UNCLEAR).mean()))
        found["clear and wrong"].append(float(wrong.mean()))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=4, help="Training splits of each federation.")
    parser.add_argument("--draws", type=int, default=50, help="Test splits of each training split.")
    parser.add_argument("--rows", type=int, default=100, help="Training rows of each client.")
    asked = parser.parse_args()
    folder = (own_folder() or Path()) / "federations"
    whole: dict[int, dict[str, list[float]]] = {samples: defaultdict(list) for samples in TESTS}
    print("Coverage of 90 % intervals of the gain of everyone over alone, in %.\n")
    heads = "federation, clients, test rows, accuracy, mean accuracy, loss, mean loss, width paired / not, clear, wrong"
    print(f"| {heads.replace(', ', ' | ')} |\n{'|---' * 10}|")
    for name in FEDERATIONS:
        found = tables(folder / name, asked.rows) if (folder / name).is_dir() else {}
        if len(found) < 2:
            continue
        own: dict[int, dict[str, list[float]]] = {samples: defaultdict(list) for samples in TESTS}
        for seed in range(asked.splits):
            outcomes = trained(found, asked.rows, seed)
            for samples in TESTS:
                for key, values in held(outcomes, samples, asked.draws, seed).items():
                    own[samples][key] += values
                    whole[samples][key] += values
        for samples in TESTS:
            print(line(name, str(len(found)), samples, own[samples]), flush=True)
    for samples in TESTS if whole[TESTS[0]] else ():
        print(line("all", "", samples, whole[samples]))
    if not whole[TESTS[0]]:
        print(f"\nno federations in {folder}")


def line(name: str, clients: str, samples: int, found: dict[str, list[float]]) -> str:
    """One row of the table."""
    keys = ("accuracy", "mean accuracy", "loss", "mean loss")
    cells = [f"{100 * np.mean(found[key]):.1f}" if found[key] else "" for key in keys]
    widths = f"{100 * np.mean(found['width']):.1f} / {100 * np.mean(found['width unpaired']):.1f}"
    shares = [f"{100 * np.mean(found[key]):.1f}" for key in ("clear", "clear and wrong")]
    return f"| {' | '.join([name, clients, str(samples), *cells, widths, *shares])} |"


if __name__ == "__main__":
    main()
