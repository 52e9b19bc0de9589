"""Your own algorithm: FedAvg with a server that goes only part of the way."""

from dataclasses import dataclass

import fedcollab
from fedcollab.training import Algorithm, register


@register("careful")
@dataclass(frozen=True)
class Careful(Algorithm):
    """The server moves by `share` of the mean update; with share 1 this is FedAvg."""

    share: float = 0.5

    def aggregate(self, server, replies, weights):
        """Move the server's weights a part of the way to the clients' mean."""
        mean = super().aggregate(server, replies, weights)
        return {**mean, "w": server["w"] + self.share * (mean["w"] - server["w"])}


clients = fedcollab.scenarios.make("digits", seed=0).clients[:4]
plain = fedcollab.train(clients, "global", rounds=5)
same = fedcollab.train(clients, "global", "careful", options={"share": 1.0}, rounds=5)
slow = fedcollab.train(clients, "global", "careful", options={"share": 0.3}, rounds=5)
print("FedAvg", plain.accuracy.round(3), "share 1", same.accuracy.round(3), "share .3", slow.accuracy.round(3))
