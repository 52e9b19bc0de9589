"""Models: sizes, seeds, batch-norm statistics, users' modules, and loading what was trained."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fedcollab.data import ClientData
from fedcollab.encoders.resnet import ResNet18
from fedcollab.errors import InputError
from fedcollab.training import MODELS, load_model, register_model, train
from fedcollab.training.models import Network


def network(name: str, shape: tuple[int, ...], classes: int, seed: int = 0, **options) -> Network:
    return Network(Network.describe(name, options, shape, classes), seed=seed)


def test_sizes_of_the_papers_models() -> None:
    assert network("mlp", (1, 28, 28), 10).parameters == 784 * 200 + 200 + 200 * 200 + 200 + 200 * 10 + 10
    assert network("cnn", (3, 32, 32), 10).parameters == 896 + 18496 + 36928 + 1024 * 64 + 64 + 650
    assert network("resnet18", (3, 32, 32), 10, weights="none").parameters == 11_181_642
    assert network("resnet18", (3, 32, 32), 20, weights="none").parameters == 11_186_772


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 18, 21), (2, 19, 20)])
def test_cnn_equals_its_layers_one_after_the_other(shape: tuple[int, ...]) -> None:
    """Rows and columns that are left out, and the layout of the values, change neither scores nor gradients."""
    made = network("cnn", shape, 4).module
    plain = nn.Sequential(*made)
    x = torch.randn((5, *shape), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(made(x), plain(x), atol=1e-6, rtol=1e-5)
    y = torch.tensor([0, 1, 2, 3, 0])
    ours, theirs = (
        torch.autograd.grad(nn.functional.cross_entropy(each(x), y), list(plain.parameters())) for each in (made, plain)
    )
    for ours_part, theirs_part in zip(ours, theirs, strict=True):
        torch.testing.assert_close(ours_part, theirs_part, atol=1e-6, rtol=1e-4)
    assert made(x[:0]).shape == (0, 4)


def test_initial_weights_come_from_the_seed_and_leave_global_state_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    first, again, other = (network("mlp", (4,), 2, seed=seed).initial() for seed in (1, 1, 2))
    torch.testing.assert_close(torch.rand(3), expected)
    torch.testing.assert_close(first, again)
    assert not torch.equal(first, other)


def test_resnet_says_where_its_weights_are_from(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("FEDCOLLAB_DATA", raising=False)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    assert network("resnet18", (3, 32, 32), 4).weights_from == "seed"
    torch.manual_seed(5)
    source = ResNet18(3, 1000)
    save_file(source.state_dict(), tmp_path / "resnet18.safetensors")
    monkeypatch.setenv("FEDCOLLAB_DATA", str(tmp_path))
    found = network("resnet18", (3, 32, 32), 4)
    assert found.weights_from == "file resnet18.safetensors"
    torch.testing.assert_close(found.split(found.initial())[0][0], source.conv1.weight.data)
    (tmp_path / "broken.safetensors").write_bytes(b"x")
    with pytest.raises(InputError, match="cannot be read as safetensors"):
        network("resnet18", (3, 32, 32), 4, weights=str(tmp_path / "broken.safetensors"))
    with pytest.raises(InputError, match=r"needs images"):
        network("resnet18", (4,), 4)


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))


@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox", "scaffold", "fedadam", "pfedme"])
def test_batch_norm_statistics_are_averaged(ragged: list[ClientData], algorithm: str) -> None:
    """One sample at the end of an epoch (33 = 32 + 1) is skipped; statistics move and stay variances."""
    results = [
        train(ragged, "global", algorithm, normed, rounds=2, lr=0.05, runtime=runtime)
        for runtime in ("vectorised", "wire")
    ]
    np.testing.assert_allclose(results[0].models["last"], results[1].models["last"], atol=2e-6)
    arrays = results[0].weights(coalition=0)
    assert np.abs(arrays["1.running_mean"]).max() > 0.01
    assert (arrays["1.running_var"] > 0).all()
    assert not np.allclose(arrays["1.running_var"], 1.0)


def test_pfedme_counts_batch_norm_statistics_on(ragged: list[ClientData]) -> None:
    """With steps of (nearly) 0 nothing is pulled, and K batches of statistics are still seen, as FedAvg sees one."""
    common = {"model": normed, "rounds": 4, "lr": 1e-9}
    seen = train(ragged, "global", "fedavg", **common).weights(coalition=0)
    own = train(ragged, "global", "pfedme", options={"K": 1, "personal_lr": 1e-9}, **common).weights(coalition=0)
    for key in ("1.running_mean", "1.running_var"):
        np.testing.assert_allclose(own[key], seen[key], atol=1e-6)


def test_a_module_is_copied_with_its_weights(clients: list[ClientData]) -> None:
    module = nn.Linear(4, 2)
    before = module.weight.detach().clone()
    result = train(clients, "global", model=module, rounds=1, lr=1e-9)
    torch.testing.assert_close(module.weight.detach(), before)
    np.testing.assert_allclose(result.weights(coalition=0)["weight"], before.numpy(), atol=1e-6)


def test_registered_factories(clients: list[ClientData]) -> None:
    @register_model("tiny")
    def tiny(shape, classes, width: int = 3) -> nn.Module:
        return nn.Sequential(nn.Linear(shape[0], width), nn.Tanh(), nn.Linear(width, classes))

    try:
        result = train(clients, "global", model="tiny", model_options={"width": 5}, rounds=2, lr=0.1)
        assert result.model["parameters"] == 4 * 5 + 5 + 5 * 2 + 2
    finally:
        del MODELS["tiny"]


def test_load_model_predicts_on_raw_samples(clients: list[ClientData], tmp_path) -> None:
    named = [
        ClientData(c.name, pd.DataFrame(c.x), np.where(c.y, "ill", "well"), pd.DataFrame(c.x_test),
                   np.where(c.y_test, "ill", "well"))
        for c in clients
    ]  # fmt: skip
    result = train(named, [["a", "b", "c"], ["d", "e", "f"]], "ditto", rounds=5, lr=0.1, run_dir=tmp_path)
    for position, client in enumerate(named):
        model = load_model(tmp_path, client=client.name, which="last")
        assert (model.predict(client.x_test) == client.y_test).mean() == pytest.approx(result.accuracy[position])
        own = load_model(tmp_path, client=client.name)
        correct = (own.predict(client.x_test) == client.y_test).mean()
        assert correct == pytest.approx(result.personal_accuracy[position])
    model = load_model(tmp_path, coalition=1, which="last")
    np.testing.assert_allclose(model.predict_proba(named[0].x).sum(1), 1, atol=1e-6)
    for options, message in (
        ({"client": "x"}, "`client` .* must be one of: a, b, c"),
        ({"coalition": 2}, r"`coalition` \(=2\) must be from 0 to 1"),
        ({}, "either `client` or `coalition`"),
        ({"coalition": 0, "which": "worst"}, r"`which` \(='worst'\) must be one of: last, personal"),
        ({"coalition": 0, "which": "personal"}, "give `client`"),
        ({"coalition": 0, "model": "logistic"}, "has other parameters"),
    ):
        with pytest.raises(InputError, match=message):
            load_model(tmp_path, **options)


def test_load_model_of_a_factory_needs_it(clients: list[ClientData], tmp_path) -> None:
    def factory() -> nn.Module:
        return nn.Linear(4, 2)

    result = train(clients, "global", model=factory, rounds=1, lr=0.1, run_dir=tmp_path)
    del MODELS[result.model["name"]]
    with pytest.raises(InputError, match="is not registered here; give its factory"):
        load_model(tmp_path)
    assert load_model(tmp_path, model=factory).predict(clients[0].x).shape == (60,)
