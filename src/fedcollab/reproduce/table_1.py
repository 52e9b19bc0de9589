"""Table 1: does FedCollab keep seven algorithms from negative transfer?"""

from __future__ import annotations

from fedcollab.reproduce.accuracy import LOCAL, AccuracyTable, Method

NAMES = {
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "fednova": "FedNova",
    "finetune": "Finetune",
    "perfedavg": "Per-FedAvg",
    "pfedme": "pFedMe",
    "ditto": "Ditto",
}


class Table1(AccuracyTable):
    """Seven algorithms with everyone, and inside the coalitions."""

    name = "table-1"
    title = "Alleviating negative transfer: seven algorithms without and with FedCollab"
    place = "Table 1, Section 5.2 (RQ1)"
    time = "7 h (label shift 1 h)"
    rows = (
        LOCAL,
        *(
            row
            for key, label in NAMES.items()
            for row in (
                Method(key, label, key, "global", main=key == "fedavg"),
                Method(f"{key}+fedcollab", f"{label} + FedCollab", key, "fedcollab", main=key == "fedavg"),
            )
        ),
    )
