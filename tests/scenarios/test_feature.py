"""Feature shift: rotation without black corners, and the paper's counts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fedcollab.errors import InputError
from fedcollab.scenarios import Images, make
from fedcollab.scenarios.rotate import rotate

Counts = Callable[..., list[int]]


@pytest.fixture
def noise() -> np.ndarray:
    return np.random.default_rng(0).uniform(1, 255, (5, 3, 16, 16)).astype(np.float32)


def test_quarter_turns_are_exact(noise: np.ndarray) -> None:
    assert (rotate(noise, 0) == noise).all()
    assert (rotate(noise, 180) == noise[..., ::-1, ::-1]).all()
    assert (rotate(noise, 90) == np.rot90(noise, 1, axes=(2, 3))).all()
    assert (rotate(noise, -90) == np.rot90(noise, -1, axes=(2, 3))).all()
    assert (rotate(noise, 360) == noise).all()


@pytest.mark.parametrize("degrees", [25, -25, 155, -155])
def test_half_a_turn_later_is_the_same_picture_upside_down(noise: np.ndarray, degrees: float) -> None:
    assert np.allclose(rotate(noise, degrees + 180), rotate(noise, degrees)[..., ::-1, ::-1], atol=1e-3)


@pytest.mark.parametrize("degrees", [25, -25, 155, -155, 45])
def test_corners_are_reflections_not_a_constant(noise: np.ndarray, degrees: float) -> None:
    turned = rotate(noise, degrees)
    corners = turned[..., [0, 0, -1, -1], [0, -1, 0, -1]].reshape(-1, 4)
    assert (turned > 0).all()
    assert (corners.std(axis=0) > 10).all()
    assert rotate(np.full((1, 1, 8, 8), 7, np.float32), degrees) == pytest.approx(7)


@pytest.mark.parametrize("degrees", [25, -155])
def test_agrees_with_pillow_on_the_padded_image(noise: np.ndarray, degrees: float) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    whole = np.floor(noise[0, 0])
    padded = np.pad(whole, 8, mode="symmetric").astype(np.uint8)
    theirs = np.asarray(image.fromarray(padded).rotate(degrees, image.Resampling.BILINEAR))[8:24, 8:24]
    assert np.abs(rotate(whole[None, None], degrees)[0, 0] - theirs).max() < 1.001  # Pillow rounds down


def test_paper_counts_per_client_and_label(numbered: Callable[[int, int], Images], label_counts: Counts) -> None:
    made = make("feature-shift", dataset=numbered(10, 6000), quantity=(2500, 2500, 340, 340), test=500)
    for i, client in enumerate(made.clients):
        assert label_counts(client) == [250 if i < 10 else 34] * 10
        assert np.bincount(client.y_test).tolist() == [50] * 10
    assert made.truth is None


def test_each_type_is_turned_by_its_own_angle() -> None:
    angles = (0.0, 180.0, 90.0, 0.0)
    made = make("feature-shift", dataset="digits", angles=angles)
    plain = make("feature-shift", dataset="digits", angles=(0.0,) * 4)
    for client, same, kind in zip(made.clients, plain.clients, made.types, strict=True):
        turned = np.rot90(same.x, {0: 0, 1: 2, 2: 1, 3: 0}[kind], axes=(2, 3))
        assert np.allclose(client.x, turned, atol=1e-6)
        assert np.allclose(client.x_test[0], np.rot90(same.x_test, angles[kind] // 90, axes=(2, 3))[0], atol=1e-6)
        assert (client.y == same.y).all()


@pytest.mark.dataset("cifar-10")
def test_cifar_10_as_in_the_paper() -> None:
    made = make("feature-shift", dataset="cifar-10", clients=4)
    assert made.clients[0].x.shape == (2500, 3, 32, 32)
    assert made.clients[0].x.dtype == np.float32
    assert np.abs(made.clients[3].x.mean()) < 0.1
    assert made.settings["model"] == "cnn"


def test_bad_angles_are_named() -> None:
    with pytest.raises(InputError, match=r"`angles` \(=25\) must be a list of degrees"):
        make("feature-shift", dataset="digits", angles=25)
    with pytest.raises(InputError, match=r"`angles` \(='north'\) must be a finite number"):
        make("feature-shift", dataset="digits", angles=["north"])
    with pytest.raises(InputError, match=r"expected square ones"):
        rotate(np.zeros((1, 1, 3, 4), np.float32), 10)
