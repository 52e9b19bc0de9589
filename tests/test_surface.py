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
CLASSES = sorted(name for name in NAMES if inspect.isclass(getattr(fedcollab, name)))
MODULES = sorted(name for name in NAMES if inspect.ismodule(getattr(fedcollab, name)))
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


def _undescribed(function: object) -> list[str]:
    """The parameters of a function that its docstring does not name."""
    text = inspect.getdoc(function) or ""
    parameters = inspect.signature(function).parameters  # type: ignore[arg-type]
    taken = text.partition("Parameters\n----------")[2].partition("Returns\n-------")[0]
    return [name for name in parameters if name not in ("self", "cls") and name not in taken]


@pytest.mark.parametrize("name", CLASSES)
def test_every_public_class_and_its_methods_say_what_they_take(name: str) -> None:
    kind = getattr(fedcollab, name)
    assert "Parameters\n----------" in (inspect.getdoc(kind) or "")
    assert ">>> " in inspect.getdoc(kind), "an example that runs as a doctest"
    for key, value in vars(kind).items():
        method = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if inspect.isfunction(method) and not key.startswith("_"):
            assert inspect.getdoc(method), f"{name}.{key}"
            assert not _undescribed(method), f"{name}.{key}: {_undescribed(method)}"


@pytest.mark.parametrize("name", MODULES)
def test_the_functions_of_public_modules_too(name: str) -> None:
    module = getattr(fedcollab, name)
    public = getattr(module, "__all__", None) or [key for key in vars(module) if not key.startswith("_")]
    for key in public:
        function = getattr(module, key)
        if inspect.isfunction(function) and function.__module__.startswith("fedcollab"):
            assert not _undescribed(function), f"{name}.{key}: {_undescribed(function)}"
            assert ">>> " in (inspect.getdoc(function) or ""), f"{name}.{key} has no example"
