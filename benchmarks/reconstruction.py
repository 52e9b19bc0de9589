"""Attack our own messages: what can a curious server compute of a client's samples from one estimate's replies?

    python benchmarks/reconstruction.py --samples 1,2,3,5,7,10,20 --seeds 3

The server follows the protocol and reads what it gets; it knows weights, seed and settings anyway. Linear algebra
alone: an attack with a better idea of pictures may find more.

    published    the first update of the two-layer network: a hidden unit that only one sample reaches has
                 (its weights' change) / (its bias's change) = that sample
    cross        the first updates, at weights 0, are sums over known sets of samples: solve for the samples
    few-round    moments of a label in a fold: their mean and main directions; `floor` is the same with `min_samples`
                 at the number of samples a fold, so that rare labels are pooled

`samples` is the number of samples behind one update (published: training samples; cross, few-round: samples of a fold,
of which a client has five). The figure is the mean over a client's samples of the best correlation between the
sample's deviation from its label's mean and that of any candidate: 1 is the picture itself, and the mean of n samples,
which must leave, gives about 1 / sqrt(n). In brackets, the same candidates' best correlation with as many pictures of a
stranger with the same labels: what is found without knowing anything of them.
Public pictures (another seed's) give label means and, to come back from
the projection of `few-round`, the covariance around them.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

from fedcollab import scenarios
from fedcollab.data import ClientData
from fedcollab.distances import estimate_distances
from fedcollab.distances.methods import published_client
from fedcollab.distances.methods.cross_client import ClientPlan
from fedcollab.distances.methods.discriminator import unflatten
from fedcollab.distances.methods.few_round_client import project, triangle_side
from fedcollab.distances.sampling import folds as folding
from fedcollab.federation import federate
from fedcollab.wire import Wire
from fedcollab.wire.message import Message, unpack
from fedcollab.wire.silo import Silo

FOLDS = 5


def listen(clients: list[ClientData], victim: str, **options: object) -> dict[str, tuple[Message, Message]]:
    """The first message and reply of every action with one client, as the server sees them."""
    heard: dict[str, tuple[Message, Message]] = {}

    def spy(action: str, name: str, sent: bytes, returned: bytes) -> None:
        if name == victim:
            heard.setdefault(action, (unpack(sent), unpack(returned)))

    estimate_distances(federate(Wire(clients, spy=spy), scale="none"), **options)  # type: ignore[arg-type]
    return heard


def from_published(heard: dict[str, tuple[Message, Message]], features: int, classes: int) -> np.ndarray:
    """One candidate a hidden unit whose bias moved."""
    sent, returned = heard["published-step"]
    hidden = heard["published-open"][0]["hidden"]
    moved = torch.from_numpy(np.array(returned["w"])) - torch.from_numpy(np.array(sent["w"]))
    net = unflatten(moved[:1], features, classes, hidden)
    weight, bias = (part[0].numpy().astype(np.float64) for part in (net.w, net.b))
    reached = np.abs(bias) > 1e-3 * np.abs(bias).max()
    return weight[reached] / bias[reached, None]


def from_cross(heard: dict[str, tuple[Message, Message]], victim: str, count: int) -> np.ndarray:
    """Least squares for every sample from sums over the training sets of all models."""
    part = ClientPlan(**heard["cross-open"][0])
    moved = heard["cross-step"][1]["w"].astype(np.float64)  # from weights 0
    member, sums = [], []
    for (pair, _, repeat, fold), row in zip(part.models(), moved, strict=True):
        size, side = part.sizes[pair], 1 if part.targets[pair] else -1
        train, _ = folding.split(
            folding.cut(part.seed, victim, repeat, np.zeros(count), part.folds, part.label_counts),
            fold,
            size,
        )
        member.append(np.isin(np.arange(count), train).astype(float))
        sums.append(side * row[0, :-1] * size * part.scales[pair] / 0.5)
    return np.linalg.lstsq(np.array(member), np.array(sums), rcond=None)[0]


def from_few_round(heard: dict[str, tuple[Message, Message]]) -> np.ndarray:
    """Mean and main directions of every label in every fold, still projected."""
    reply = heard["few-moments"][1]
    side = triangle_side(reply["m"].shape[2])
    upper = np.triu_indices(side)
    found = []
    for triangle in reply["m"].reshape(-1, reply["m"].shape[2]).astype(np.float64):
        if triangle[-1] <= 0:
            continue
        matrix = np.zeros((side, side))
        matrix[upper] = matrix[upper[::-1]] = triangle
        values, vectors = np.linalg.eigh(matrix[:-1, :-1])
        kept = values > 1e-6 * values[-1]
        found += [matrix[-1, :-1] / matrix[-1, -1], *(vectors[:, kept] * np.sqrt(values[kept])).T]
    return np.array(found)


def score(
    candidates: np.ndarray,
    x: np.ndarray,
    means: np.ndarray,
    down: np.ndarray | None = None,
    up: np.ndarray | None = None,
) -> float:
    """The best correlation of deviations from the label's mean, in the mean over the samples.

    Where candidates are projected, `down` is the projection, and `up` takes deviations back to pixels.
    """
    down = np.eye(x.shape[1]) if down is None else down
    up = np.eye(x.shape[1]) if up is None else up
    both = np.concatenate([candidates, -candidates])
    return float(np.mean([np.max(correlation((both - m @ down) @ up, s - m)) for s, m in zip(x, means, strict=True)]))


def correlation(tried: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Cosines between rows and a vector."""
    return tried @ own / (np.linalg.norm(tried, axis=1) * np.linalg.norm(own) + 1e-12)


def attack(clients: list[ClientData], public: list[ClientData], count: int) -> dict[str, tuple[float, float]]:
    """Every attack on the first client: its score, and the same candidates' score on as many strangers."""
    client, features = clients[0], int(np.prod(clients[0].x.shape[1:]))
    classes = len({label for one in clients for label in [*one.y, *one.y_test]})
    means, spread = label_statistics(public)
    own, strangers = (deviations(one, len(client.y), means) for one in (client, public[0]))
    heard = listen(clients, client.name, method="published", train=count, rounds=1, batch=count)
    plan = published_client.ClientPlan(**heard["published-open"][0])
    train, _ = published_client.split(plan, Silo(client, {"prepare": heard["prepare"][0]}))
    candidates = from_published(heard, features, classes)
    found = {
        "published": (
            score(candidates, *(part[train] for part in own)),
            score(candidates, *(part[train] for part in strangers)),
        )
    }
    heard = listen(clients, client.name, method="cross", rounds=1, replicates=0, label_counts="drawn")
    candidates = from_cross(heard, client.name, len(client.y))
    found["cross"] = (score(candidates, *own), score(candidates, *strangers))
    for name, least in (("few-round", 1), ("floor", count)):
        heard = listen(clients, client.name, method="few-round", min_samples=least, replicates=0)
        plan = heard["few-moments"][0]
        down = project(np.eye(features), plan["width"], plan["seed"])
        up = np.linalg.pinv(down.T @ spread @ down, rcond=1e-6) @ down.T @ spread
        candidates = from_few_round(heard)
        found[name] = (score(candidates, *own, down, up), score(candidates, *strangers, down, up))
    return found


def deviations(client: ClientData, count: int, means: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first `count` samples of a client, and the means of their labels."""
    return flat(client)[:count], means[np.asarray(client.y)[:count]]


def flat(client: ClientData) -> np.ndarray:
    """One row a sample."""
    return np.asarray(client.x, dtype=np.float64).reshape(len(client.y), -1)


def label_statistics(clients: list[ClientData]) -> tuple[np.ndarray, np.ndarray]:
    """Means of labels 0 to 9 and the covariance around them: what public data tells."""
    x = np.concatenate([flat(client) for client in clients])
    y = np.concatenate([np.asarray(client.y) for client in clients])
    means = np.stack([x[y == k].mean(axis=0) if (y == k).any() else x.mean(axis=0) for k in range(10)])
    return means, np.cov(x - means[y], rowvar=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", default="1,2,3,5,7,10,20")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    names = ("published", "cross", "few-round", "floor")
    print(f"{'samples':>8} {'1/sqrt':>7}  " + "  ".join(f"{name:>9} (none)" for name in names))
    for count in (int(text) for text in options.samples.split(",")):
        scores = []
        for seed in range(options.seeds):
            made = scenarios.make(
                "label-shift", seed=seed, iid=True, clients=4, quantity=[FOLDS * count] * 3 + [2100], test=7
            )
            public = scenarios.make("label-shift", seed=seed + 100, iid=True, clients=4, quantity=[700] * 4, test=7)
            scores.append(attack(list(made.clients), list(public.clients), count))
        line = "  ".join(
            f"{np.mean([s[name][0] for s in scores]):>9.2f} ({np.mean([s[name][1] for s in scores]):.2f})"
            for name in names
        )
        print(f"{count:>8} {count**-0.5:>7.2f}  {line}", flush=True)


if __name__ == "__main__":
    main()
