"""How each scenario is run: in full as the paper does (as far as two cores allow), quickly, or in a tiny version.

`full` has the paper's settings, with the differences that a setup's notes name and the tables of accuracies repeat:
other distances than Algorithm 1's, and on concept shift a frozen encoder with a trained linear head in place of the
ResNet-18. On feature shift most rows were only run with 100 of the 500 rounds: they have a table of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from fedcollab import scenarios

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
PUBLISHED: dict[str, int] = {name: scenarios.SETTINGS[name]["rounds"] for name in SCENARIOS}
THROUGH = "distances by `few-round` through EfficientNet-Lite0 (block 10) instead of Algorithm 1 through ResNet-18"


@dataclass(frozen=True)
class Setup:
    """One scenario with everything that decides a result.

    Parameters
    ----------
    scenario, dataset, model : str
        Names of the scenario, of the data set and of the model.
    rounds, lr, batch_size, local_epochs : int, float, int, int
        Settings of the training.
    C : float
        The weight of the generalisation term when coalitions are solved for.
    options, model_options, distance_options : dict
        Options of the scenario, of the model and of the estimated distances.
    encoder : str, optional
        Through which distances see the images; None: pixels.
    features : str, optional
        The encoder whose features models are trained on; None: the images themselves.
    seeds : (int, int)
        How many seeds the main rows (Local, FedAvg, FedAvg + FedCollab) get, and the others.
    methods : tuple of str, optional
        The methods that are run unless others are chosen; None: all.
    k : int
        Clusters of the clustered baselines.
    late : (int, int)
        Rounds before and after a client joins.
    shorter : tuple of int
        Smaller numbers of rounds, whose runs are shown in tables of their own.
    tag : str
        What tells the setup's cells from others of the scenario, in file names.
    notes : tuple of str
        What differs from the paper, beside the number of rounds.
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
    shorter: tuple[int, ...] = ()
    tag: str = ""
    notes: tuple[str, ...] = ()

    @property
    def lengths(self) -> tuple[Setup, ...]:
        """The setup, and the same with each of its smaller numbers of rounds."""
        return (self, *(replace(self, rounds=rounds, shorter=()) for rounds in self.shorter))

    @property
    def title(self) -> str:
        """The scenario's title, with the number of rounds where it is not the paper's."""
        usual = self.rounds == PUBLISHED.get(self.scenario, self.rounds)
        return TITLES[self.scenario] if usual else f"{TITLES[self.scenario]}, {self.rounds} rounds"

    @property
    def differences(self) -> tuple[str, ...]:
        """What differs from the paper, in one sentence if anything does."""
        usual = PUBLISHED.get(self.scenario, self.rounds)
        fewer = [f"{self.rounds} rounds (the paper: {usual})"] if self.rounds != usual else []
        listed = "; ".join((*fewer, *self.notes))
        return (f"Differs from the paper: {listed}.",) if listed else ()

    def file(self, text: str, seed: int) -> str:
        """Return the name of a cell of one seed."""
        return f"{self.scenario}/{self.tag}{text}_s{seed}"

    def data(self, seed: int) -> dict[str, Any]:
        """Return the settings that decide the clients."""
        return {"scenario": self.scenario, "dataset": self.dataset, "options": self.options, "seed": seed}

    def training(self, rounds: int | None = None) -> dict[str, Any]:
        """Return the settings that decide the training, beside the method."""
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
    """Return the paper's settings, as far as two cores allow."""
    return {
        "label-shift": Setup(
            "label-shift",
            "fashion-mnist",
            "mlp",
            200,
            **scenario_settings("label-shift"),
            notes=("distances by `cross`, the default, instead of Algorithm 1 (docs/distances.md)",),
        ),
        "feature-shift": Setup(
            "feature-shift",
            "cifar-10",
            "cnn",
            500,
            **scenario_settings("feature-shift"),
            encoder=ENCODER,
            seeds=(1, 1),
            methods=("fedavg", "fednova", "ditto", "ifca"),
            late=(50, 20),
            shorter=(100,),
            notes=(THROUGH,),
        ),
        "concept-shift": Setup(
            "concept-shift",
            "cifar-100",
            "logistic",
            200,
            **{**scenario_settings("concept-shift"), "lr": 0.01},
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
    """Return settings that take minutes instead of hours."""
    rounds = {"label-shift": 20, "feature-shift": 2, "concept-shift": 20}
    return {
        name: replace(
            setup,
            rounds=rounds[name],
            seeds=(1, 1),
            late=(rounds[name], max(1, rounds[name] // 5)),
            shorter=(),
            notes=(*setup.notes, f"quick: {rounds[name]} rounds, one seed"),
        )
        for name, setup in full().items()
    }


def tiny() -> dict[str, Setup]:
    """Return settings that take seconds, on the digits that scikit-learn brings: for tests. Results mean nothing."""
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
            shorter=(),
            notes=("tiny: 8 small clients of handwritten digits, 2 rounds; the figures mean nothing",),
        )
        for name, setup in full().items()
    }


def scenario_settings(scenario: str) -> dict[str, Any]:
    """Return the paper's training settings of a scenario."""
    return {key: scenarios.SETTINGS[scenario][key] for key in KEYS}
