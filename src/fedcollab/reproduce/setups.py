"""How each scenario is run: in full as the paper does (as far as two cores allow), quickly, or in a tiny version.

`full` has the paper's settings, with the differences that a setup's notes name and the tables of accuracies repeat:
other distances than Algorithm 1's, 100 of 500 rounds on feature shift, and on concept shift a frozen encoder with a
trained linear head in place of the ResNet-18.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from fedcollab.scenarios import concept, feature, label

SCENARIOS = ("label-shift", "feature-shift", "concept-shift")
TITLES = {
    "label-shift": "Label shift (Fashion-MNIST)",
    "feature-shift": "Feature shift (CIFAR-10)",
    "concept-shift": "Concept shift (CIFAR-100)",
}
#: the encoder that distances see images through, and the one whose features a head is trained on; with all options,
#: so that a cell says what it was made with
ENCODER = "efficientnet-lite0:block=10,size=64,pool=1"
HEAD_ENCODER = "efficientnet-lite0:block=final,size=64,pool=1"
KEYS = ("lr", "batch_size", "local_epochs", "C")
#: rounds that the paper trains for
PUBLISHED: dict[str, Any] = {
    name: module.SETTINGS["rounds"] for name, module in zip(SCENARIOS, (label, feature, concept), strict=True)
}
THROUGH = "distances by `few-round` through EfficientNet-Lite0 (block 10) instead of Algorithm 1 through ResNet-18"


@dataclass(frozen=True)
class Setup:
    """One scenario with everything that decides a result.

    encoder     through which distances see the images; None: pixels
    features    the encoder whose features models are trained on; None: the images themselves
    seeds       how many seeds the main rows (Local, FedAvg, FedAvg + FedCollab) get, and the others
    methods     the methods that are run unless others are asked for; None: all
    k           clusters of the clustered baselines
    late        rounds before and after a client joins
    tag         what tells the setup's cells from others of the scenario, in file names
    notes       what differs from the paper, beside the number of rounds
    """

    scenario: str
    dataset: str
    model: str
    rounds: int
    lr: float
    batch_size: int
    local_epochs: int
    C: float
    options: dict[str, Any] = field(default_factory=dict)
    model_options: dict[str, Any] = field(default_factory=dict)
    encoder: str | None = None
    features: str | None = None
    distance_options: dict[str, Any] = field(default_factory=dict)
    seeds: tuple[int, int] = (5, 2)
    methods: tuple[str, ...] | None = None
    k: int = 4
    late: tuple[int, int] = (200, 40)
    tag: str = ""
    notes: tuple[str, ...] = ()

    @property
    def differences(self) -> tuple[str, ...]:
        """What differs from the paper, in one sentence if anything does."""
        usual = PUBLISHED.get(self.scenario, self.rounds)
        fewer = [f"{self.rounds} rounds (the paper: {usual})"] if self.rounds != usual else []
        said = "; ".join((*fewer, *self.notes))
        return (f"Differs from the paper: {said}.",) if said else ()

    def file(self, text: str, seed: int) -> str:
        """The name of a cell."""
        return f"{self.scenario}/{self.tag}{text}_s{seed}"

    def data(self, seed: int) -> dict[str, Any]:
        """What decides the clients."""
        return {"scenario": self.scenario, "dataset": self.dataset, "options": self.options, "seed": seed}

    def training(self, rounds: int | None = None) -> dict[str, Any]:
        """What decides the training, beside the method."""
        return {
            "encoder": self.features,
            "model": self.model,
            "model_options": self.model_options,
            "rounds": self.rounds if rounds is None else rounds,
            "lr": self.lr,
            "batch_size": self.batch_size,
            "local_epochs": self.local_epochs,
        }


def full() -> dict[str, Setup]:
    """The paper's settings, as far as two cores allow."""
    return {
        "label-shift": Setup(
            "label-shift",
            "fashion-mnist",
            "mlp",
            200,
            **_of(label.SETTINGS),
            notes=("distances by `cross`, the default, instead of Algorithm 1 (docs/distances.md)",),
        ),
        "feature-shift": Setup(
            "feature-shift",
            "cifar-10",
            "cnn",
            100,
            **_of(feature.SETTINGS),
            encoder=ENCODER,
            seeds=(1, 1),
            methods=("fedavg", "fednova", "ditto", "ifca"),
            late=(50, 20),
            notes=(THROUGH,),
        ),
        "concept-shift": Setup(
            "concept-shift",
            "cifar-100",
            "logistic",
            200,
            **_of({**concept.SETTINGS, "lr": 0.01}),
            encoder=ENCODER,
            features=HEAD_ENCODER,
            seeds=(2, 2),
            notes=(
                "a frozen pretrained encoder (EfficientNet-Lite0) and a trained linear head instead of a ResNet-18 "
                "trained throughout (step size 0.01 instead of 0.001)",
                THROUGH,
                "samples from a subset of 40,000 of the 60,000 images, where the whole set is not there",
            ),
        ),
    }


def quick() -> dict[str, Setup]:
    """Minutes instead of hours."""
    rounds = {"label-shift": 20, "feature-shift": 2, "concept-shift": 20}
    return {
        name: replace(
            setup,
            rounds=rounds[name],
            seeds=(1, 1),
            late=(rounds[name], max(1, rounds[name] // 5)),
            notes=(*setup.notes, f"quick: {rounds[name]} rounds, one seed"),
        )
        for name, setup in full().items()
    }


def tiny() -> dict[str, Setup]:
    """Seconds, on the digits that scikit-learn brings: for tests. Its figures mean nothing."""
    sizes: dict[str, Any] = {"clients": 8, "quantity": [40, 40, 10, 10], "test": 10}
    return {
        name: replace(
            setup,
            dataset="digits",
            options=sizes,
            model="mlp",
            model_options={"widths": [8]},
            rounds=2,
            lr=0.1,
            C=2.7,
            encoder=None,
            features=None,
            distance_options={"rounds": 3, "repeats": 1, "replicates": 5},
            seeds=(2, 1),
            methods=None,
            late=(2, 1),
            notes=("tiny: 8 small clients of handwritten digits, 2 rounds; the figures mean nothing",),
        )
        for name, setup in full().items()
    }


def _of(settings: dict[str, Any]) -> dict[str, Any]:
    return {key: settings[key] for key in KEYS}
