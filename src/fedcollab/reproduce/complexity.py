"""The appendix's table of complexities: multiply-accumulate operations and parameters, counted in our own networks.

The paper's table is titled CIFAR-100 but counts a head of 10 labels; both heads stand here. Its MACs are those of the
convolutions and the last layer (37,016,576), of batch norm with 4 a value (202,752) and of the average pool with 2 a
value (1,024).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from fedcollab import training
from fedcollab.reproduce.experiment import Experiment, paper
from fedcollab.reproduce.output import Comparison, Output, Row, Table
from fedcollab.reproduce.setups import TITLES
from fedcollab.reproduce.workspace import Workspace

FEATURES, HIDDEN, OTHERS = 512, 200, 19
#: operations a value of batch norm and of the last average pool, as the paper counts
NORM, POOL = 4, 2


class Complexity(Experiment):
    """One forward pass of one sample, and one exchange of parameters; then what our runs really moved.

    It has no cells of its own: it reads what the distances and FedAvg cost, where they are there.
    """

    name = "complexity"
    title = "Computation and communication of the discriminator beside the FL model"
    place = "Table 5, Appendix B.4"
    time = "2 s"

    def output(self, workspace: Workspace) -> Output:
        """Return the counts, the two ratios of the text, and bytes."""
        rows: list[Row] = []
        ratios: list[Row] = []
        for labels in (10, 20):
            known = paper()["complexity"] if labels == 10 else {}
            small, large = discriminator(labels), resnet18(labels)
            for title, key, values in (("client discriminator", "discriminator", small), ("ResNet-18", "model", large)):
                published = (known[key]["macs"], known[key]["params"]) if known else (None, None)
                rows.append((f"{title}, {labels} labels", *_compared(values, published, 0)))
            extra = [100 * OTHERS * own / whole for own, whole in zip(small, large, strict=True)]
            published = (known["extra"]["computation"], known["extra"]["communication"]) if known else (None, None)
            ratios.append((f"{labels} labels", *_compared(extra, published, 1)))
        tables = [
            Table("Multiply-accumulates of one forward pass, and parameters", ("network", "MACs", "parameters"), rows),
            Table(
                f"{OTHERS} discriminators against one FL model, percent",
                ("head", "computation", "communication"),
                ratios,
                ("One forward pass and one exchange, as the paper compares them; not totals.",),
            ),
        ]
        moved = self._moved(workspace)
        if moved:
            columns = ("scenario", "distances by", "MB", "FedAvg, MB", "rounds of FedAvg", "percent of FedAvg")
            note = "`cross` is for one machine; over a network the same question takes `few-round`'s two rounds."
            tables.append(Table("What our runs moved, MB a client, both ways", columns, moved, (note,)))
        return Output(tables)

    def _moved(self, workspace: Workspace) -> list[Row]:
        """Return what the distances and FedAvg moved in each scenario that has both."""
        rows: list[Row] = []
        for scenario, setup in workspace.chosen(self.scenarios).items():
            found = workspace.get(workspace.distances_cell(setup, 0))
            trained = workspace.get(workspace.training_cell(setup, 0, "fedavg", "global"))
            if found is None or trained is None or not found["bytes"]:
                continue
            own = sum(found["bytes"].values()) / len(found["bytes"]) / 1e6
            whole = (trained["cost"]["bytes_down"] + trained["cost"]["bytes_up"]) / len(trained["names"]) / 1e6
            rows.append((TITLES[scenario], found["method"], own, whole, setup.rounds, 100 * own / whole))
        return rows


def _compared(ours: Iterable[float], published: Iterable[float | None], digits: int) -> list[Comparison]:
    """Return each of `ours` beside what the paper `published`, with as many `digits`."""
    return [
        Comparison((value,), None if known is None else (known, None), digits)
        for value, known in zip(ours, published, strict=True)
    ]


def discriminator(labels: int) -> tuple[int, int]:
    """Return the operations of one sample's forward pass of a client discriminator, and its parameters.

    Features and label each have a linear layer to the hidden units, and these one to the score.

    >>> discriminator(10)
    (104600, 105001)
    """
    layers = ((FEATURES, HIDDEN), (labels, HIDDEN), (HIDDEN, 1))
    return sum(inputs * units for inputs, units in layers), sum((inputs + 1) * units for inputs, units in layers)


def resnet18(labels: int, shape: tuple[int, ...] = (3, 32, 32)) -> tuple[int, int]:
    """Return the operations of one image's forward pass of ResNet-18, as the paper counts them, and its parameters."""
    import torch
    from torch import nn

    network = training.MODELS["resnet18"](shape, labels)
    total = 0

    def count(layer: nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        """Add the operations of a `layer`, from the shapes of its `inputs` and `output`."""
        nonlocal total
        if isinstance(layer, nn.BatchNorm2d):
            total += NORM * output.numel()
        elif isinstance(layer, nn.Linear):
            total += layer.weight.numel() + POOL * inputs[0].numel()
        elif isinstance(layer, nn.Conv2d):
            total += layer.weight.numel() * prod(output.shape[2:])

    for layer in network.modules():
        layer.register_forward_hook(count)
    network.eval()
    with torch.no_grad():
        network(torch.zeros(1, *shape))
    return total, sum(value.numel() for value in network.parameters())
