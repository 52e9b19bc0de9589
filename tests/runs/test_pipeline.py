"""The five stages together: both runtimes agree, order does not matter, what is there is not computed again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcollab import ClientData, FedCollab, baselines, estimate_distances, train
from fedcollab.errors import FedcollabWarning, InputError
from fedcollab.federation import federate
from fedcollab.runs import Run, read_learning_curve
from fedcollab.training.algorithms.fedprox import FedProx


@pytest.fixture
def consortium(clients: list[ClientData]) -> list[ClientData]:
    return clients


def test_both_runtimes_give_one_answer(consortium: list[ClientData]) -> None:
    few = {"rounds": 10, "repeats": 1}  # of the estimator's trainings: the runtimes are equal or not after any number
    fast, wire = (
        FedCollab(C=2.0, runtime=kind, seed=3, distance="cross", distance_options=few).fit(consortium)
        for kind in ("vectorised", "wire")
    )
    np.testing.assert_allclose(fast.distances.raw, wire.distances.raw, atol=1e-6)
    assert fast.collaboration.coalitions == wire.collaboration.coalitions
    one, other = (fit.train(model="logistic", rounds=4, lr=0.1) for fit in (fast, wire))
    np.testing.assert_allclose(one.models["last"], other.models["last"], atol=1e-5)


def test_the_order_of_clients_does_not_matter(consortium: list[ClientData]) -> None:
    forward, backward = (FedCollab(seed=1).fit(order) for order in (consortium, consortium[::-1]))
    assert forward.distances.names == backward.distances.names
    np.testing.assert_array_equal(forward.distances.raw, backward.distances.raw)
    assert forward.collaboration.coalitions == backward.collaboration.coalitions


def test_the_same_seed_gives_the_same_bytes(consortium: list[ClientData], tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        fitted = FedCollab(seed=5, run_dir=tmp_path / name).fit(consortium)
        fitted.train(model="logistic", rounds=3, lr=0.1)
    for file in ("distances.json", "path.json", "collaboration.json", "training/coalitions/training.safetensors"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file


def test_a_finished_stage_is_read_back(consortium: list[ClientData], tmp_path: Path) -> None:
    first = FedCollab(C=2.0, run_dir=tmp_path).fit(consortium)
    before = first.train(model="logistic", rounds=3, lr=0.1)
    again = FedCollab(C=2.0, run_dir=tmp_path).fit(consortium)
    np.testing.assert_allclose(again.distances.raw, first.distances.raw, atol=1e-6)
    assert again.collaboration.coalitions == first.collaboration.coalitions
    np.testing.assert_array_equal(again.train(model="logistic", rounds=3, lr=0.1).accuracy, before.accuracy)


def test_changed_settings_are_never_answered_from_an_old_file(consortium: list[ClientData], tmp_path: Path) -> None:
    first = FedCollab(C=2.0, run_dir=tmp_path).fit(consortium)
    first.train(model="logistic", rounds=2, lr=0.1)
    with pytest.warns(FedcollabWarning, match=r"distances.json was made with other settings .*distance: auto before"):
        second = FedCollab(C=500.0, distance="label", run_dir=tmp_path).fit(consortium)
    assert second.distances.method == "label"
    assert second.collaboration.C == 500.0
    assert (tmp_path / "set-aside/1/distances.json").is_file(), "nothing that was computed is lost"
    assert (tmp_path / "set-aside/1/training/coalitions/training.json").is_file()
    trained = second.train("ditto", "mlp", rounds=7, lr=0.1)
    assert (trained.settings["algorithm"], trained.settings["rounds"]) == ("ditto", 7)
    with pytest.warns(FedcollabWarning, match=r"training.json was made with other settings .*rounds: 7 before, 3 now"):
        again = second.train("ditto", "mlp", rounds=3, lr=0.1)
    assert again.settings["rounds"] == 3


def test_another_C_keeps_distances_and_what_does_not_depend_on_it(consortium: list[ClientData], tmp_path: Path) -> None:
    first = FedCollab(C=2.0, run_dir=tmp_path).fit(consortium)
    for way in ("local", "coalitions"):
        first.train(model="logistic", way=way, rounds=2, lr=0.1)
    files = [tmp_path / name for name in ("distances.json", "training/local/training.json")]
    kept = [file.read_bytes() for file in files]
    with pytest.warns(FedcollabWarning, match=r"collaboration.json was made with other .*C: 2.0 before, 500.0"):
        FedCollab(C=500.0, run_dir=tmp_path).fit(consortium)
    assert not (tmp_path / "training/coalitions").exists()
    assert kept == [file.read_bytes() for file in files]


def test_changed_data_and_changed_preparation_are_seen(consortium: list[ClientData], tmp_path: Path) -> None:
    FedCollab(C=2.0, run_dir=tmp_path).fit(consortium)
    other = [ClientData("a", np.array(consortium[0].x) + 1.0, consortium[0].y, consortium[0].x_test,
                        consortium[0].y_test), *consortium[1:]]  # fmt: skip
    with pytest.warns(FedcollabWarning, match="the data of `a`"):
        FedCollab(C=2.0, run_dir=tmp_path).fit(other)
    with pytest.warns(FedcollabWarning, match="prepared otherwise .*scale: features before, none now"):
        scaled = FedCollab(C=2.0, scale="none", run_dir=tmp_path).fit(other)
    assert scaled.federation.schema.mean == (0.0,)


def test_a_run_of_an_earlier_version_opens_and_is_computed_again(consortium: list[ClientData], tmp_path: Path) -> None:
    first = FedCollab(C=2.0, run_dir=tmp_path).fit(consortium)
    for name in ("distances.json", "path.json", "collaboration.json"):
        content = json.loads((tmp_path / name).read_text())
        del content["made"], content["content_sha256"]
        (tmp_path / name).write_text(json.dumps(content))
    assert Run.open(tmp_path).collaboration().coalitions == first.collaboration.coalitions
    with pytest.warns(FedcollabWarning, match="it does not say with which"):
        again = FedCollab(C=2.0, run_dir=tmp_path).fit(consortium)
    assert again.collaboration.coalitions == first.collaboration.coalitions


def test_a_collaboration_of_other_distances_is_refused(consortium: list[ClientData], tmp_path: Path) -> None:
    FedCollab(C=2.0, run_dir=tmp_path).fit(consortium)
    estimate_distances(consortium, method="label").save(tmp_path / "distances.json")
    with pytest.raises(InputError, match=r"was made of other distances than distances.json; make it again"):
        Run.open(tmp_path).collaboration()


def test_a_training_that_lacks_a_newcomer_is_made_again(consortium: list[ClientData], tmp_path: Path) -> None:
    fitted = FedCollab(C=2.0, run_dir=tmp_path).fit(consortium[:4])
    fitted.train(model="logistic", way="local", rounds=1, lr=0.1)
    joined = fitted.join(consortium[4]).fitted
    with pytest.warns(FedcollabWarning, match=f"`{consortium[4].name}` is new"):
        again = joined.train(model="logistic", way="local", rounds=1, lr=0.1)
    assert consortium[4].name in again.names


def test_defaults_and_objects_are_the_same_question(consortium: list[ClientData], tmp_path: Path) -> None:
    fitted = FedCollab(C=2.0, run_dir=tmp_path).fit(consortium)
    first = fitted.train(FedProx(mu=0.5), "logistic", rounds=1)
    again = fitted.train("fedprox", "logistic", options={"mu": 0.5}, rounds=1, lr=0.1, batch_size=32)
    assert again.settings == first.settings
    assert not (tmp_path / "set-aside").exists()


def test_a_file_without_a_record_is_trusted_in_runs_of_earlier_versions_only(
    consortium: list[ClientData], tmp_path: Path
) -> None:
    run = Run.start(tmp_path, {"C": 2})
    fitted = FedCollab(C=2.0, run_dir=run).fit(consortium)
    train(fitted.federation, "local", model="logistic", rounds=1, lr=0.9, run_dir=tmp_path / "training/local")
    with pytest.warns(FedcollabWarning, match="it does not say with which"):
        FedCollab(C=2.0, run_dir=Run.start(tmp_path, {"C": 2})).fit(consortium).train(
            model="logistic", way="local", rounds=1
        )


def test_a_federation_brings_its_own_settings(consortium: list[ClientData], tmp_path: Path) -> None:
    plain = [ClientData(c.name, c.x, c.y) for c in consortium]
    first = FedCollab(C=2.0, run_dir=tmp_path).fit(federate(plain))
    with pytest.warns(FedcollabWarning, match=r"prepared otherwise .*test_share: 0.2 before, 0.5 now"):
        second = FedCollab(C=2.0, run_dir=tmp_path).fit(federate(plain, test_share=0.5))
    assert second.distances.quantities.sum() < first.distances.quantities.sum()
    with pytest.raises(InputError, match=r"`test_share` \(=0.3\) is not that of the federation given"):
        FedCollab(test_share=0.3).fit(federate(plain, test_share=0.5))


def test_two_federations_may_share_a_runtime(consortium: list[ClientData]) -> None:
    first = federate(consortium)
    before = estimate_distances(first, method="published", rounds=5, hidden=4)
    federate(first.runtime, scale="none")
    after = estimate_distances(first, method="published", rounds=5, hidden=4)
    np.testing.assert_array_equal(before.raw, after.raw)


def test_settings_that_are_settled_cannot_be_given_again(consortium: list[ClientData]) -> None:
    federation = federate(consortium, test_share=0.3, scale="none")
    for given in ({"scale": "features"}, {"test_share": 0.1}, {"missing_indicators": True}, {"runtime": "wire"}):
        with pytest.raises(InputError, match=f"`{next(iter(given))}` .* cannot be given with a"):
            estimate_distances(federation, method="label", **given)
    with pytest.raises(InputError, match=r"`scale` .* cannot be given with a federation that is prepared"):
        train(federation, "global", scale="features", rounds=1, lr=0.1)


def test_clients_by_name_are_clients(consortium: list[ClientData]) -> None:
    pairs = {client.name: (client.x, client.y, client.x_test, client.y_test) for client in consortium}
    given = FedCollab(distance="label").fit(consortium)
    by_name = FedCollab(distance="label").fit(pairs)
    assert by_name.collaboration.coalitions == given.collaboration.coalitions
    assert np.array_equal(by_name.distances.raw, given.distances.raw)
    assert estimate_distances(pairs, method="label").names == tuple(pairs)
    assert train(pairs, "local", model="logistic", rounds=1).names == tuple(pairs)
    assert baselines.run("kmeans", pairs, k=2, rounds=1, lr=0.1, model="logistic").names == tuple(pairs)


def test_the_two_ends_are_there_too(consortium: list[ClientData]) -> None:
    fitted = FedCollab(C=2.0).fit(consortium)
    assert len(fitted.train(model="logistic", way="local", rounds=2, lr=0.1).coalitions) == len(consortium)
    assert len(fitted.train(model="logistic", way="global", rounds=2, lr=0.1).coalitions) == 1
    with pytest.raises(InputError, match="`way`"):
        fitted.train(way="both", rounds=2, lr=0.1)


@pytest.mark.parametrize("C", [0, -1, float("nan"), "ten"])
def test_a_bad_C_is_found_before_anything_runs(C: object) -> None:
    with pytest.raises(InputError, match="`C`"):
        FedCollab(C=C)  # type: ignore[arg-type]


def test_a_comparison_is_kept_and_the_same_after_an_interrupt(consortium: list[ClientData], tmp_path: Path) -> None:
    options: Any = {"model": "logistic", "rounds": 2}

    def ways(folder: Path) -> Any:
        fitted = FedCollab(C=2.0, run_dir=folder).fit(consortium)
        return fitted, {way: fitted.train(way=way, **options) for way in ("local", "coalitions")}

    fitted, results = ways(tmp_path / "whole")
    whole = fitted.compare(results)
    kept = tmp_path / "whole" / "training" / "comparison.json"
    written = kept.stat().st_mtime_ns
    fitted.compare(results)
    assert kept.stat().st_mtime_ns == written, "it is read back"
    FedCollab(C=2.0, run_dir=tmp_path / "again").fit(consortium).train(way="local", **options)
    resumed, read_back = ways(tmp_path / "again")  # new clients in memory; what was trained alone comes from its file
    np.testing.assert_array_equal(resumed.compare(read_back).right, whole.right)
    kept.unlink()
    fitted.compare(dict(reversed(results.items())))
    assert json.loads(kept.read_text())["models"] == ["coalitions", "local", "majority"]


def test_a_learning_curve_is_kept_with_its_training(consortium: list[ClientData], tmp_path: Path) -> None:
    options: Any = {"model": "logistic", "rounds": 2}

    def measured(folder: Path, **more: Any) -> Any:
        fitted = FedCollab(C=2.0, run_dir=folder).fit(consortium)
        return fitted.learning_curve(fitted.train(way="local", **options, **more), **options, **more)

    first = measured(tmp_path / "one")
    kept = tmp_path / "one" / "training" / "learning_curve.json"
    written, content = kept.stat().st_mtime_ns, json.loads(kept.read_text())
    again = measured(tmp_path / "one")
    assert kept.stat().st_mtime_ns == written, "it is read back"
    np.testing.assert_allclose(again.loss, first.loss, rtol=1e-12)
    FedCollab(C=2.0, run_dir=tmp_path / "two").fit(consortium).train(way="local", **options)  # interrupted here
    measured(tmp_path / "two")
    other = json.loads((tmp_path / "two" / "training" / "learning_curve.json").read_text())
    assert {key: other[key] for key in ("names", "rows", "loss", "accuracy")} == {
        key: content[key] for key in ("names", "rows", "loss", "accuracy")
    }
    np.testing.assert_allclose(measured(None).loss, first.loss, rtol=1e-12)  # type: ignore[arg-type]
    run = Run(tmp_path / "one")
    assert read_learning_curve(run) is not None
    with pytest.warns(FedcollabWarning, match=r"training/local/training.json was made with other settings"):
        FedCollab(C=2.0, run_dir=tmp_path / "one").fit(consortium).train(way="local", **options, lr=0.2)
    assert read_learning_curve(run) is None, "it is of another training alone"
    with pytest.warns(FedcollabWarning, match=r"learning_curve.json was made with other settings .*lr"):
        measured(tmp_path / "one", lr=0.2)
    assert read_learning_curve(run) is not None


def test_as_advised_is_training_alone_where_alone_is_advised() -> None:
    """The same models, to the last bit: else a page says that training alone is better than the advice to do so."""
    rng = np.random.default_rng(0)
    clients = []
    for name, sign in (("a", 1), ("b", -1)):
        x = rng.normal(size=(50, 2))
        clients.append(ClientData(name, x, (sign * x[:, 0] + rng.normal(size=50) > 0).astype(int)))
    fitted = FedCollab(seed=0, solve_options={"max_size": 1}).fit(clients)
    assert fitted.advise(rounds=40).candidate.kind == "alone"
    advised = fitted.train(rounds=40, stopping="held-out")
    alone = fitted.train(way="local", rounds=40, stopping="held-out")
    assert advised.rounds == alone.rounds, "not those that were chosen for the advice"
    np.testing.assert_array_equal(advised.models["last"], alone.models["last"])
