"""The project's own files agree: imports and declared packages, pinned versions, make targets, citation, workflow."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "fedcollab"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: extras that a folder of the source may rely on, beside what is always installed
EXTRAS = {
    "data": ("parquet",),
    "silo": ("privacy",),
    "encoders": ("encoders", "torchvision"),
    "flower": ("flower", "simulation"),
    "report": ("report",),
    "reproduce": ("report",),
    "scenarios": ("images",),
    "training": ("trees",),
}
#: what an extra of another project brings: requirement -> distribution
BROUGHT = {"flwr[simulation]": "ray"}
#: extras that no target of the Makefile installs
NEVER_INSTALLED = ("mlflow", "simulation", "torchvision")


def declared(requirements: list[str]) -> set[str]:
    """Return the names of the distributions in a list of requirements, those of our own extras included."""
    names: set[str] = set()
    for requirement in map(Requirement, requirements):
        if requirement.name == "fedcollab":
            for extra in requirement.extras:
                names |= declared(PROJECT["optional-dependencies"][extra])
            continue
        names.add(canonicalize_name(requirement.name))
        names |= {BROUGHT[key] for extra in requirement.extras if (key := f"{requirement.name}[{extra}]") in BROUGHT}
    return names


def imported(path: Path) -> Iterator[str]:
    """Yield the first part of every absolute import in a file, wherever in the file it stands."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.partition(".")[0]


def test_every_import_is_declared_where_it_is_needed() -> None:
    owned = packages_distributions()
    always = declared(PROJECT["dependencies"])
    missing = set()
    for path in sorted(SOURCE.rglob("*.py")):
        part = path.relative_to(SOURCE).parts[0]
        allowed = set(always)
        for extra in EXTRAS.get(part, ()):
            allowed |= declared(PROJECT["optional-dependencies"][extra])
        for name in set(imported(path)) - sys.stdlib_module_names - {"fedcollab"}:
            if not allowed & {canonicalize_name(owner) for owner in owned.get(name, [name])}:
                missing.add((str(path.relative_to(SOURCE)), name))
    assert not missing


@pytest.mark.parametrize("group", ["dependencies", *PROJECT["optional-dependencies"]])
def test_every_dependency_that_is_installed_here_has_a_version(group: str) -> None:
    pinned = {
        canonicalize_name(line.partition("==")[0])
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if not line.startswith("#")
    }
    wanted = declared(PROJECT["dependencies"] if group == "dependencies" else PROJECT["optional-dependencies"][group])
    assert wanted
    if group not in NEVER_INSTALLED:
        assert wanted <= pinned


def test_the_citation_is_of_this_version() -> None:
    lines = (ROOT / "CITATION.cff").read_text().splitlines()
    assert f"version: {PROJECT['version']}" in lines
    assert f"license: {PROJECT['license']}" in lines


def test_the_workflow_runs_targets_that_exist_on_every_python_that_is_supported() -> None:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert f'python: ["{PROJECT["requires-python"].removeprefix(">=")}", ' in text
    assert [line.split()[-1] for line in text.splitlines() if "run: make" in line] == ["lint", "test"]


def test_the_files_name_only_targets_of_the_makefile_that_exist() -> None:
    targets = {line.partition(":")[0] for line in (ROOT / "Makefile").read_text().splitlines() if ":" in line}
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "constraints.txt", *(ROOT / "docs").glob("*.md")]
    for page in [*pages, ROOT / ".ci" / "run", ROOT / "pyproject.toml"]:
        named = {line.split()[1].strip("`;,.)") for line in commands(page.read_text())}
        assert named <= targets, f"{page.name} names make targets that do not exist"


def commands(text: str) -> Iterator[str]:
    """Yield every `make TARGET`: at the start of a line, indented or not, or between backticks."""
    for line in text.splitlines():
        if line.strip().startswith("make "):
            yield line.strip()
        yield from (f"make {rest.partition('`')[0]}" for rest in line.split("`make ")[1:])
