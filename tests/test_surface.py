"""The public surface: the names that stay (docs/reference/stability.md), each with a docstring."""

from __future__ import annotations

import inspect

import pytest

import fedcollab

NAMES = {
    "Advice", "ClientData", "Collaboration", "Distances", "FedCollab", "InputError", "Inspection", "TrainingResult",
    "advise", "baselines", "c_path", "estimate_distances", "inspect", "load_model", "metrics", "objective",
    "personal_weights", "place", "scenarios", "solve", "train",
}  # fmt: skip
FUNCTIONS = sorted(name for name in NAMES if inspect.isfunction(getattr(fedcollab, name)))


def test_the_surface_is_what_was_decided() -> None:
    """A name that is added or removed is a decision: change this list with it, and the changelog."""
    assert set(fedcollab.__all__) == NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_public_name_is_documented(name: str) -> None:
    text = inspect.getdoc(getattr(fedcollab, name)) or ""
    assert len(text.splitlines()[0]) > 20


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_public_function_says_what_it_takes_and_gives_and_has_an_example(name: str) -> None:
    function = getattr(fedcollab, name)
    text = inspect.getdoc(function) or ""
    for section in ("Parameters\n----------", "Returns\n-------"):
        assert section in text, section
    taken = text.split("Parameters\n----------")[1].split("Returns\n-------")[0]
    for parameter in inspect.signature(function).parameters:
        assert parameter in taken, f"`{parameter}` of {name} is not described"
    assert ">>> " in text, "an example that runs as a doctest"
