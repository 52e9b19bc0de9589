"""The four hospitals: rows, missing values, targets and splits."""

from __future__ import annotations

import numpy as np
import pytest

from fedcollab.errors import InputError
from fedcollab.scenarios import heart_clients, make
from fedcollab.scenarios.hospitals import hospitals

needs_heart = pytest.mark.dataset("heart")


@needs_heart
def test_rows_and_targets() -> None:
    clients = heart_clients(test=0)
    assert [client.name for client in clients] == ["cleveland", "hungarian", "switzerland", "va"]
    assert [client.quantity for client in clients] == [303, 294, 123, 200]
    assert [int((client.y == 0).sum()) for client in clients] == [164, 188, 8, 51]
    assert all(client.x_test is None and client.x.shape[1] == 10 for client in clients)


@needs_heart
def test_missing_values_and_codes() -> None:
    cleveland, _, switzerland, va = heart_clients(test=0, features="all")
    assert cleveland.x.shape[1] == 13
    assert switzerland.x["chol"].isna().all()
    assert va.x["chol"].isna().sum() == 49 + 7
    assert va.x["trestbps"].isna().sum() == 56 + 1
    assert cleveland.x["ca"].isna().sum() == 4
    assert set(cleveland.x["cp"]) == {"1", "2", "3", "4"}
    assert set(cleveland.x["thal"].dropna()) == {"3", "6", "7"}


@needs_heart
def test_split_is_stratified_and_decided_by_the_seed() -> None:
    one, same, other = (heart_clients(seed=seed)[2] for seed in (0, 0, 1))
    assert (one.quantity, len(one.y_test), int((one.y_test == 0).sum())) == (98, 25, 2)
    assert one.x.equals(same.x)
    assert not one.x.equals(other.x)
    assert make("heart", seed=1).clients[2].x.equals(other.x)


def test_bad_options_are_named() -> None:
    rows = {"a": np.ones((10, 14))}
    with pytest.raises(InputError, match=r"`features` \(='some'\) must be one of: all, usable"):
        hospitals(rows, features="some")
    with pytest.raises(InputError, match=r"`test` \(=2\) must be a finite number"):
        hospitals(rows, test=2)
    with pytest.raises(InputError, match=r"`iid` \(=True\) must be false"):
        hospitals(rows, iid=True)
    with pytest.raises(InputError, match=r"`dataset` \(='digits'\) must be 'heart'"):
        make("heart", dataset="digits")
