"""The appendix's table of complexities: multiply-accumulate operations and parameters, counted in our own networks.

The paper's table is titled CIFAR-100 but counts a head of 10 labels; both heads stand here. Its MACs are those of the
convolutions and the last layer (37,016,576), of batch norm with 4 a value (202,752) and of the average pool with 2 a
value (1,024).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from fedcollab.reproduce.cells import Cell
from fedcollab.reproduce.experiment import Experiment, paper
from fedcollab.reproduce.lab import Lab
from fedcollab.reproduce.output import Figure, Output, Table
from fedcollab.reproduce.setups import TITLES

FEATURES, OTHERS = 512, 19
#: operations a value of batch norm and of the last average pool, as the paper counts
NORM, POOL = 4, 2


class Complexity(Experiment):
    """One forward pass of one sample, and one exchange of parameters; then what our runs really moved."""

    name = "complexity"
    title = "Computation and communication of the discriminator beside the FL model"
    place = "Table 5, Appendix B.4"
    time = "2 s"

    def cells(self, lab: Lab) -> Iterator[Cell]:
        """None of its own: it reads what the distances and FedAvg cost, where they are there."""
        yield from ()

    def output(self, lab: Lab) -> Output:
        """Counts, the two ratios of the text, and bytes."""
        from fedcollab.distances.methods.discriminator import macs, parameters

        rows: list[tuple[Any, ...]] = []
        ratios: list[tuple[Any, ...]] = []
        for labels in (10, 20):
            known = paper()["complexity"] if labels == 10 else None
            model_macs, model_params = count(labels)
            small = macs(FEATURES, labels), parameters(FEATURES, labels)
            for title, key, values in (
                ("client discriminator", "discriminator", small),
                ("ResNet-18", "model", (model_macs, model_params)),
            ):
                both = [None, None] if known is None else [(known[key][what], None) for what in ("macs", "params")]
                figures = [Figure((value,), of, digits=0) for value, of in zip(values, both, strict=True)]
                rows.append((f"{title}, {labels} labels", *figures))
            extra = [100 * OTHERS * own / whole for own, whole in zip(small, (model_macs, model_params), strict=True)]
            said = (
                [None, None] if known is None else [(known["extra"][k], None) for k in ("computation", "communication")]
            )
            ratios.append(
                (f"{labels} labels", *(Figure((value,), of, digits=1) for value, of in zip(extra, said, strict=True)))
            )
        tables = [
            Table("Multiply-accumulates of one forward pass, and parameters", ("network", "MACs", "parameters"), rows),
            Table(
                f"{OTHERS} discriminators against one FL model, percent",
                ("head", "computation", "communication"),
                ratios,
                ("One forward pass and one exchange, as the paper compares them; not totals.",),
            ),
        ]
        moved = self._moved(lab)
        if moved:
            columns = ("scenario", "distances by", "MB", "FedAvg, MB", "rounds of FedAvg", "percent of FedAvg")
            note = "`cross` is for one machine; over a network the same question takes `few-round`'s two rounds."
            tables.append(Table("What our runs moved, MB a client, both ways", columns, moved, (note,)))
        return Output(tables)

    def _moved(self, lab: Lab) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        for scenario in lab.scenarios(self.scenarios):
            setup = lab.setups[scenario]
            found = lab.get(lab.distances_cell(setup, 0))
            trained = lab.get(lab.training_cell(setup, 0, "fedavg", "global"))
            if found is None or trained is None or not found["bytes"]:
                continue
            own = sum(found["bytes"].values()) / len(found["bytes"]) / 1e6
            whole = (trained["cost"]["bytes_down"] + trained["cost"]["bytes_up"]) / len(trained["names"]) / 1e6
            rows.append((TITLES[scenario], found["method"], own, whole, setup.rounds, 100 * own / whole))
        return rows


def count(labels: int, shape: tuple[int, ...] = (3, 32, 32)) -> tuple[int, int]:
    """Operations of one image's forward pass of ResNet-18, as the paper counts them, and parameters."""
    import torch
    from torch import nn

    from fedcollab.training.models import MODELS

    network = MODELS["resnet18"](shape, labels)
    total = 0

    def note(layer: nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        nonlocal total
        if isinstance(layer, nn.BatchNorm2d):
            total += NORM * output.numel()
        elif isinstance(layer, nn.Linear):
            total += layer.weight.numel() + POOL * inputs[0].numel()
        elif isinstance(layer, nn.Conv2d):
            total += layer.weight.numel() * prod(output.shape[2:])

    for layer in network.modules():
        layer.register_forward_hook(note)
    network.eval()
    with torch.no_grad():
        network(torch.zeros(1, *shape))
    return total, sum(value.numel() for value in network.parameters())
