"""Is a blind encoder called blind, one that sees something else called wrong, and a good one good?"""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from fedcollab.cli import cli
from fedcollab.data import ClientData
from fedcollab.distances import check_encoder
from fedcollab.errors import InputError
from fedcollab.federation.prepare import federate

from .conftest import pictures

OPTIONS = {"folds": 3, "repeats": 1}


def columns(x):
    return x.mean(2).flatten(1)


def constant(x):
    return np.ones((len(x), 3))


def corner(x):
    return x[:, 0, 7, 7].reshape(-1, 1)


def noise(x):
    """Noise, but the same for the same image."""
    seeds = np.abs(np.asarray(x)).sum(axis=(1, 2, 3)) * 1e6
    return np.stack([np.random.default_rng(int(seed)).normal(size=4) for seed in seeds])


def group(bright: str, flipped: str, names: str = "abcd") -> list[ClientData]:
    """Clients that agree about the labels but for `flipped`; those in `bright` have another lower right corner."""
    made = []
    for name in names:
        plain = pictures(name, 150, flip=name in flipped)
        x = np.array(plain.x)
        x[:, :, 7, 7] += 5.0 * (name in bright)
        made.append(ClientData(name, x, plain.y, x[:6], plain.y[:6]))
    return made


@pytest.fixture
def flipped() -> list[ClientData]:
    """Labels are swapped at c and d; the corner is bright at b and d."""
    return group(bright="bd", flipped="cd")


@pytest.mark.parametrize("encoder", [constant, noise])
def test_an_encoder_that_shows_nothing_is_blind(encoder) -> None:
    found = check_encoder(group(bright="", flipped="cd"), encoder, **OPTIONS)
    assert found.verdict == "blind"
    assert set(found.missed) == {("a", "c"), ("a", "d"), ("b", "c"), ("b", "d")}
    assert not found.passed
    assert "blind" in str(found)
    assert "for example: " in str(found)


def test_an_encoder_that_sees_only_what_does_not_matter_is_wrong(flipped) -> None:
    found = check_encoder(flipped, corner, **OPTIONS)
    assert found.verdict == "wrong"
    assert {("a", "b"), ("c", "d")} <= set(found.differing)
    assert {("a", "c"), ("b", "d")} <= set(found.missed)


def test_a_good_encoder_passes(flipped) -> None:
    found = check_encoder(group(bright="", flipped="cd"), columns, **OPTIONS)
    assert found.verdict == "good"
    assert set(found.differing) == set(found.task) == {("a", "c"), ("a", "d"), ("b", "c"), ("b", "d")}
    assert found.missed == found.beside == []
    assert check_encoder(flipped, lambda x: x, **OPTIONS).passed


def test_clients_that_are_alike_give_nothing_to_see() -> None:
    assert check_encoder(group(bright="", flipped=""), columns, **OPTIONS).verdict == "nothing"


def test_told_apart_by_what_no_classifier_minds() -> None:
    """The spread of a pixel differs, not its mean: no linear classifier cares, the encoder sees nothing else."""
    clients = []
    for name in "abc":
        plain = pictures(name, 300)
        x = np.array(plain.x)
        x[:, :, 7, 7] = np.random.default_rng([*name.encode()]).normal(0, 4.0 if name == "c" else 0.5, (300, 3))
        clients.append(ClientData(name, x, plain.y, x[:6], plain.y[:6]))
    found = check_encoder(clients, lambda x: x[:, :, 7, 7].abs(), **OPTIONS)
    assert set(found.differing) == {("a", "c"), ("b", "c")}
    assert found.missed == []
    assert found.verdict == "wrong"
    assert found.beside == found.differing


def test_a_federation_keeps_its_own_encoder(flipped) -> None:
    federation = federate(flipped, encoder=columns)
    schema = federation.schema
    assert check_encoder(federation, constant, **OPTIONS).verdict == "blind"
    assert federation.schema == schema
    assert federation.silos["a"].features.shape == (150, 24)
    assert check_encoder(federation, **OPTIONS).encoder == schema.encoding.encoder
    with pytest.raises(InputError, match="must be the encoder to check"):
        check_encoder(flipped)


def test_the_command(flipped, tmp_path) -> None:
    from fedcollab.encoders import register_encoder

    for client in flipped:
        client.save(tmp_path / "clients" / f"{client.name}.npz")
    register_encoder("constant", constant)
    register_encoder("columns", columns)
    kept = tmp_path / "encoder.json"
    words = ["check-encoder", "--clients", str(tmp_path / "clients"), "--json", "-o", str(kept)]
    bad = CliRunner().invoke(cli, [*words, "--encoder", "constant"])
    assert bad.exit_code == 3
    assert json.loads(bad.stdout)["verdict"] == json.loads(kept.read_text())["verdict"] == "blind"
    told = CliRunner().invoke(cli, [*words[:3], "--encoder", "constant"])
    assert told.exit_code == 3
    assert "The encoder is blind" in told.stdout


def test_the_report_says_through_which_encoder_and_what_was_found(tmp_path) -> None:
    from fedcollab import FedCollab
    from fedcollab.report.differences import distance_words
    from fedcollab.report.run import read_run

    clients = group(bright="", flipped="cd")
    FedCollab(C=1.0, encoder=constant, run_dir=tmp_path / "run").fit(clients)
    before = " ".join(distance_words(read_run(tmp_path / "run"))["facts"])
    assert "frozen encoder constant" in before
    assert "was not checked" in before
    check_encoder(clients, constant, **OPTIONS).save(tmp_path / "run" / "encoder.json")
    after = " ".join(distance_words(read_run(tmp_path / "run"))["facts"])
    assert "The encoder is blind" in after
    assert "was not checked" not in after
