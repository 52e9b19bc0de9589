"""The reproduction of the paper is a user of the library: it may use what the library exports, and nothing else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import fedcollab
from fedcollab import reproduce

#: packages of which every name in `__all__` may be used
PACKAGES = ("baselines", "coalitions", "data", "distances", "encoders", "federation", "report", "scenarios",
            "training")  # fmt: skip
#: small modules of which every public name may be used
MODULES = ("errors", "files", "metrics", "progress", "seeds", "tasks")
FOLDER = Path(reproduce.__file__).parent


def offences(tree: ast.Module) -> Iterator[str]:
    """Every use of fedcollab in a module that is not of its public names, and every import inside a function."""
    bound = {}  # names in this module that stand for fedcollab itself, or for one of its packages
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "fedcollab" and alias.asname is None:
                    bound["fedcollab"] = "fedcollab"
                elif alias.name.split(".")[0] == "fedcollab":
                    yield f"import {alias.name}"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "fedcollab":
            assert node.module is not None
            for alias in node.names:
                if not allowed(node.module, alias.name):
                    yield f"from {node.module} import {alias.name}"
                elif node.module == "fedcollab" and alias.name in PACKAGES:
                    bound[alias.asname or alias.name] = f"fedcollab.{alias.name}"
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield "a relative import"
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            inner = [part for part in ast.walk(node) if isinstance(part, (ast.Import, ast.ImportFrom))]
            names = [getattr(part, "module", None) or part.names[0].name for part in inner]
            yield from (f"{node.name} imports {name}" for name in names if name.split(".")[0] == "fedcollab")
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in bound:
            package = bound[node.value.id]
            if node.attr not in import_module(package).__all__:
                yield f"{package}.{node.attr}"


def allowed(module: str, name: str) -> bool:
    """Whether the reproduction may import a name from a module."""
    if module == "fedcollab":
        return name in (*fedcollab.__all__, *PACKAGES, *MODULES, "reproduce", "__version__")
    part = module.split(".")[1]
    if part == "reproduce":
        return True
    if module == f"fedcollab.{part}" and part in PACKAGES:
        return name in import_module(module).__all__
    return part in MODULES and not name.startswith("_")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("**/*.py")), ids=lambda path: path.stem)
def test_only_public_names_are_used(path: Path) -> None:
    assert list(offences(ast.parse(path.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    "line",
    [
        "import fedcollab.training.run",
        "from fedcollab.training.run import train",
        "from fedcollab.training import run",
        "from fedcollab import runs",
        "from fedcollab.runs.directory import now",
        "from fedcollab.errors import _private",
        "from . import cells",
        "from fedcollab import training\ntraining.run.train",
        "import fedcollab\nfedcollab.runs",
        "def late():\n    from fedcollab import train",
    ],
)
def test_what_is_not_public_is_found(line: str) -> None:
    assert list(offences(ast.parse(line)))


def test_what_is_public_is_not() -> None:
    line = "import fedcollab\nfrom fedcollab import solve, training\nfrom fedcollab.coalitions import c_path\n"
    line += "fedcollab.FedCollab(), training.train, training.TrainingResult\ndef late():\n    import torch\n"
    assert list(offences(ast.parse(line))) == []


def test_every_exported_name_is_there() -> None:
    for package in (*PACKAGES, "reproduce"):
        module = import_module(f"fedcollab.{package}")
        assert all(getattr(module, name) is not None for name in module.__all__), package
