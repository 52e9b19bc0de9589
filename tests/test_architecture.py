"""The map in CONTRIBUTING is true, and imports stand where it says; the order of packages is import-linter's."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "fedcollab"


def test_the_map_lists_every_package_and_module_in_import_order() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    block = text.split("    src/fedcollab/\n")[1].split("\n\n")[0]
    listed = re.findall(r"^ {6}(\w+)/", block, flags=re.MULTILINE)
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert set(listed) == packages
    assert len(listed) == len(packages)
    modules = set(re.findall(r"\b(\w+)\.py\b", block.splitlines()[0]))
    assert modules == {path.stem for path in SOURCE.glob("*.py")} - {"__init__"}
    layers = re.findall(r'^  "([a-z]+)",$', (ROOT / "pyproject.toml").read_text().split("layers = [")[1], re.MULTILINE)
    order = [layer for layer in layers if layer in packages]
    assert listed == order[::-1]
    rooms = {name for room in re.findall(r"\(([\w/, ]+/[^)]*)\)", block) for name in re.findall(r"(\w+)/", room)}
    for room in rooms:
        assert list(SOURCE.glob(f"*/{room}/__init__.py")), room


def test_what_a_package_says_is_in_it_is_there() -> None:
    """A name in backquotes is a module of the package, or a function or class of fedcollab."""
    defined = set(
        re.findall(r"^(?:def|class) (\w+)", "".join(p.read_text() for p in SOURCE.rglob("*.py")), re.MULTILINE)
    )
    missing = []
    for init in sorted(SOURCE.rglob("__init__.py")):
        text = ast.get_docstring(ast.parse(init.read_text())) or ""
        missing += [
            f"{init.parent.relative_to(SOURCE)}: {name}"
            for name in re.findall(r"`(\w+)`", text)
            if name not in defined and not any((init.parent / part).exists() for part in (name, f"{name}.py"))
        ]
    assert missing == []


def test_own_modules_are_imported_at_the_top() -> None:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            for node in ast.walk(function):
                named = node.module if isinstance(node, ast.ImportFrom) else None
                named = node.names[0].name if isinstance(node, ast.Import) else named
                if named is not None and named.split(".")[0] == "fedcollab":
                    found.append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert found == []


def test_help_and_a_matrix_need_no_heavy_library() -> None:
    """`fedcollab --help` imports every command; PyTorch, pandas and Flower must wait until they are used."""
    code = """
import sys
from fedcollab.cli import cli
cli.main(["--help"], standalone_mode=False)
import fedcollab
fedcollab.solve([[0, 0.1], [0.1, 0]], [5, 5], C=10)
heavy = {"torch", "pandas", "flwr", "sklearn", "scipy", "altair"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_a_silo_knows_every_action_that_is_declared() -> None:
    """What a silo's process imports declares all actions; one that is forgotten would be refused over the network."""
    declared = {
        name
        for path in SOURCE.rglob("*.py")
        for name in re.findall(r'^@action\(\s*"([\w-]+)"', path.read_text(), flags=re.MULTILINE)
    }
    code = "import fedcollab.flower.silo.client_app; from fedcollab.wire.action import ACTIONS; print(*sorted(ACTIONS))"
    known = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert known == sorted(declared)
    assert len(declared) > 15
