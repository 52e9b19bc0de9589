"""Secure aggregation between real processes: three silos add up what the coordinator cannot read."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from fedcollab.errors import Paused
from fedcollab.federation import federate
from fedcollab.flower import connect_federation
from fedcollab.flower.keys import make_silo_key
from fedcollab.flower.silo.state_store import StateStore
from fedcollab.secure import member
from fedcollab.silo.audit import Audit
from fedcollab.training import train
from fedcollab.wire import Wire

from .conftest import Running

THREE = ["east", "north", "south"]
TRAINING = {"rounds": 2, "lr": 0.1, "batch_size": 16, "seed": 3}


@pytest.mark.filterwarnings("ignore::fedcollab.errors.FedcollabWarning")
def test_three_silos_train_under_masks(running: Running) -> None:
    """North was given its partners' keys: it trains with these silos, and not with another under the same name."""
    partners = running.root / "north" / "partners"
    partners.mkdir()
    for name in ("east", "south"):
        shutil.copy(running.root / name / f"{name}.pub", partners / f"{name}.pub")
    clients = [client for client in running.clients if client.name in THREE]
    expected = train(federate(Wire(clients), seed=3), "global", **TRAINING)
    with connect_federation(running.folder, names=THREE) as flower:
        there = federate(flower, seed=3)
        before = flower.cost.rounds
        secure = train(there, "global", secure_aggregation=True, **TRAINING)
        assert secure.failures == []
        assert secure.rounds == expected.rounds
        np.testing.assert_allclose(secure.models["last"], expected.models["last"], rtol=0, atol=1e-5)
        np.testing.assert_allclose(secure.loss, expected.loss, rtol=0, atol=1e-5)
        # keys once; folds and rounds as without masks, because of three members none may drop out
        assert flower.cost.rounds - before == 1 + 2 * (TRAINING["rounds"] + 1)
        make_silo_key(running.root / "stranger", "south")
        shutil.copy(running.root / "stranger.pub", partners / "south.pub")
        with pytest.raises(Paused, match="certificate of `south` is signed by another key than that of the silo"):
            train(there, "global", secure_aggregation=True, stopping="none", **TRAINING)
    shutil.rmtree(partners)
    for name in THREE:
        entries = Audit(running.root / name / "state" / "audit.jsonl").entries()
        sent = [entry["sent"] for entry in entries if entry["action"] == "train" and entry["outcome"] == "answered"]
        assert sum(any(array.startswith("masked uint32") for array in arrays) for arrays in sent) >= TRAINING["rounds"]
        assert member.GROUP in StateStore(running.root / name / "state")


def test_four_silos_reveal_shares_of_their_masks(running: Running) -> None:
    """Of four members one may drop out, so that each round has one more call. With the seed of the test before, three
    of them would refuse: they have added up the same first model without the fourth."""
    settings = {**TRAINING, "seed": 4, "rounds": 1, "stopping": "none"}
    expected = train(federate(Wire(running.clients), seed=3), "global", **settings)
    with connect_federation(running.folder) as flower:
        there = federate(flower, seed=3)
        before = flower.cost.rounds
        secure = train(there, "global", secure_aggregation=True, **settings)
        assert flower.cost.rounds - before == 4  # keys, updates, shares, evaluation
    np.testing.assert_allclose(secure.models["last"], expected.models["last"], rtol=0, atol=1e-5)
    entries = Audit(running.root / "west" / "state" / "audit.jsonl").entries()
    assert [entry["outcome"] for entry in entries if entry["action"] == "secure-unmask"] == ["answered"]
