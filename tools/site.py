"""Build the documentation site: docs/, CONTRIBUTING.md and CHANGELOG.md as pages, with a reference made from the code.

Run by `make site`. Nothing is fetched, and nothing on the pages asks the network. Every warning is an error: a link to
a page, heading or file that is not there, a page that no menu has, a docstring that cannot be read. The result is in
build/site.

In a page, `<!-- generated: NAME -->` is replaced by what `GENERATED[NAME]` makes of the code.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
import sys
import types
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

import click
from sphinx.application import Sphinx

from fedcollab import __version__
from fedcollab.cli import TOUR, cli
from fedcollab.wire.action import ACTIONS
from fedcollab.wire.fields import Sides

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "site"
STAGE = ROOT / "build" / "site-source"

#: the menu: section -> pages, as paths in docs/ without `.md`
MENU: dict[str, tuple[str, ...]] = {
    "Start": ("should-we-federate", "install", "comparison"),
    "Tutorials": ("tutorials/own-csv", "tutorials/own-python", "tutorials/real-federation", "tutorials/real-hospitals"),
    "How to": (
        "howto/use-the-models",
        "howto/choose-c",
        "howto/constraints",
        "howto/add-a-client",
        "howto/privacy",
        "howto/regression",
        "howto/own-model",
        "howto/trees",
        "howto/own-algorithm",
        "howto/tracking",
        "howto/resume",
        "howto/services",
        "report",
    ),
    "Guides": (
        "inspect",
        "distances",
        "coalitions",
        "advice",
        "training",
        "membership",
        "federation",
        "secure-aggregation",
        "data",
    ),
    "Theory": ("theory/bound", "theory/estimator", "theory/own-weights", "theory/solver", "theory/slips"),
    "Reference": (
        "reference/commands",
        "reference/python",
        "reference/run-directory",
        "reference/messages",
        "reference/stability",
    ),
    "Results": (
        "federations",
        "heart",
        "results",
        "questions",
        "distances-measured",
        "coalitions-measured",
        "training-measured",
        "trees-measured",
        "regression-measured",
        "benchmarks",
        "reliability",
        "threats",
    ),
    "Project": ("design", "decisions", "contributing", "changelog"),
}
#: packages of the API reference, beside `fedcollab` itself: every name in `__all__` that has a docstring of its own
PACKAGES = ("coalitions", "distances", "inspection", "training", "advice", "baselines", "scenarios", "data", "metrics")
SETTINGS: dict[str, Any] = {
    "project": "fedcollab",
    "copyright": "the fedcollab authors, Apache-2.0",
    "release": __version__,
    "version": __version__,
    "extensions": ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"],
    "html_theme": "furo",
    "html_title": "fedcollab",
    "html_show_sourcelink": False,
    "html_copy_source": False,
    "myst_heading_anchors": 4,
    "napoleon_google_docstring": False,
    "napoleon_use_rtype": False,
    "napoleon_use_ivar": True,
    "autodoc_typehints": "none",
    "autodoc_member_order": "bysource",
    "autodoc_class_signature": "mixed",
    "suppress_warnings": ["misc.highlighting_failure"],
    "templates_path": [],
    "exclude_patterns": [],
}


def commands() -> str:
    """Describe every command with its arguments and options, from click."""
    text = []
    for section, names in TOUR.items():
        text.append(f"## {section}\n")
        for name in names:
            with click.Context(cli, info_name="fedcollab") as parent:
                command = cli.get_command(parent, name)
                assert command is not None
                text.extend(_command(command, name, parent, 3))
    return "\n".join(text)


def _command(command: click.Command, name: str, parent: click.Context, level: int) -> Iterator[str]:
    """Describe one command, and the commands inside it."""
    with click.Context(command, info_name=name, parent=parent) as context:
        yield f"{'#' * level} {context.command_path}\n"
        usage = command.get_usage(context).removeprefix("Usage: ")
        yield f"```text\n{usage}\n```\n"
        for paragraph in re.split(r"\n\s*\n", (command.help or "").strip()):
            plain = re.sub(r"\s+", " ", paragraph.replace("\b", "")).strip()
            yield f"```text\n{paragraph.strip(chr(8)).strip(chr(10))}\n```\n" if "\b" in paragraph else f"{plain}\n"
        found = (each.get_help_record(context) for each in command.get_params(context))
        rows = [record for record in found if record and record[1]]  # arguments without a text stand in the usage line
        if rows:
            yield "| option | meaning |\n|---|---|"
            yield "\n".join(f"| `{_cell(left)}` | {_cell(right, escape=True)} |" for left, right in rows) + "\n"
        if command.epilog:
            title, _, lines = command.epilog.replace("\b", "").strip().partition(":")
            shown = "\n".join(line.strip() for line in lines.strip().splitlines())
            yield f"{title}:\n\n```text\n{shown}\n```\n"
        if isinstance(command, click.Group):
            for inner in command.list_commands(context):
                found = command.get_command(context, inner)
                if found is not None and not found.hidden:
                    yield from _command(found, inner, context, level + 1)


def _cell(text: str, escape: bool = False) -> str:
    """Make one line of a text that stands in a table."""
    line = re.sub(r"\s+", " ", text).replace("|", "\\|")
    return re.sub(r"([<*_\[\]])", r"\\\1", line) if escape else line


def messages() -> str:
    """Describe every action: what it is for, what its reply releases, the fields of message and reply."""
    import_module("fedcollab.flower.silo.client_app")
    text = []
    for name in sorted(ACTIONS):
        found = ACTIONS[name]
        text.append(f"## {name}\n")
        text.append(f"The silo {found.purpose}. Its reply releases {found.release.value}.\n")
        if found.limit is not None:
            text.append("The silo's own limits apply: it may refuse.\n")
        for title, kind in (("message", found.message), ("reply", found.reply)):
            fields = _fields(kind)
            if not fields:
                text.append(
                    f"The {title} has no fields of its own.\n"
                    if fields is not None
                    else f"The {title} is {_type(kind)}.\n"
                )
                continue
            text.append(f"| field of the {title} | type | may be missing |\n|---|---|---|")
            text.append(
                "\n".join(f"| `{key}` | {_cell(of)} | {'yes' if optional else 'no'} |" for key, of, optional in fields)
                + "\n"
            )
    return "\n".join(text)


def _fields(kind: Any) -> list[tuple[str, str, bool]] | None:
    """Return name, type and whether it may be missing of each field of a message type; None if it has no fields."""
    if get_origin(kind) is Annotated:
        return _fields(get_args(kind)[0])
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind, include_extras=True)
        missing = dataclasses.MISSING
        return [
            (field.name, _type(hints[field.name]), field.default is not missing or field.default_factory is not missing)
            for field in dataclasses.fields(kind)
        ]
    if is_typeddict(kind):
        hints = get_type_hints(kind)
        full = get_type_hints(kind, include_extras=True)
        return [(key, _type(full[key]), key in kind.__optional_keys__) for key in hints]
    return None


def _type(kind: Any) -> str:
    """Write a type for people: arrays with their sides, numbers with their limits."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        sides = next((extra for extra in inner[1:] if isinstance(extra, Sides)), None)
        base = _type(inner[0])
        return base if sides is None else f"{base}, {_sides(sides)}"
    if origin is not None and getattr(origin, "__name__", "") == "ndarray":
        element = get_args(inner[-1])
        return f"array of {element[0].__name__ if element and hasattr(element[0], '__name__') else 'numbers'}"
    if origin in (Union, types.UnionType):
        return " or ".join(_type(part) for part in inner)
    if origin is Literal:
        return " or ".join(f"`{value!r}`" for value in inner)
    if origin is list:
        return f"list of {_type(inner[0])}"
    if origin is dict:
        return f"mapping from {_type(inner[0])} to {_type(inner[1])}"
    if origin is tuple:
        return "tuple of " + ", ".join(_type(part) for part in inner)
    if origin is not None and getattr(origin, "__name__", "") in ("NotRequired", "Required"):
        return _type(inner[0])
    if kind is type(None):
        return "nothing"
    names = {"int": "whole number", "float": "number", "str": "text", "bool": "yes or no", "Any": "any value"}
    name = getattr(kind, "__name__", str(kind))
    fields = _fields(kind)
    if fields:
        return "object with " + "; ".join(f"`{key}`: {of}" for key, of, _ in fields)
    return names.get(name, name)


def _sides(sides: Sides) -> str:
    """Write the shape of an array or the length of a list."""
    return (
        "any shape"
        if not sides.sides
        else "shape " + " x ".join("any" if side == "_" else str(side) for side in sides.sides)
    )


def python() -> str:
    """Write the directives that turn docstrings into the API reference."""
    package = import_module("fedcollab")
    text = ["## fedcollab\n", _entries("fedcollab", sorted(package.__all__, key=str.lower), skip=PACKAGES)]
    known = set(package.__all__)
    for name in PACKAGES:
        module = import_module(f"fedcollab.{name}")
        public = getattr(module, "__all__", None) or [key for key in vars(module) if _own(module, key)]
        names = [key for key in sorted(public, key=str.lower) if key not in known]
        head = (module.__doc__ or "").strip().splitlines()[0]
        text += [f"## fedcollab.{name}\n", f"{head}\n", _entries(f"fedcollab.{name}", names)]
    return "\n".join(text)


def _own(module: types.ModuleType, key: str) -> bool:
    """Return whether a public name is defined in this module."""
    return not key.startswith("_") and getattr(getattr(module, key), "__module__", "") == module.__name__


def _entries(package: str, names: list[str], skip: tuple[str, ...] = ()) -> str:
    """Write one directive for each function and class of a package."""
    lines = []
    module = import_module(package)
    for name in names:
        found = getattr(module, name)
        if name in skip or isinstance(found, types.ModuleType) or not getattr(found, "__doc__", None):
            continue
        if isinstance(found, type):
            inherited = any(base.__module__.startswith("fedcollab.") for base in found.__mro__[1:])
            members = ["   :members:", *(["   :inherited-members: BaseException, object"] if inherited else [])]
            lines += [f".. autoclass:: {package}.{name}", *members, ""]
        elif callable(found):
            lines += [f".. autofunction:: {package}.{name}", ""]
    return "```{eval-rst}\n" + "\n".join(lines) + "\n```\n"


#: what stands in a page for `<!-- generated: NAME -->`
GENERATED: dict[str, Callable[[], str]] = {"commands": commands, "messages": messages, "python": python}


def stage() -> Path:
    """Copy the pages to a folder beside which figures and examples are, fill in what is generated, and add the menu."""
    shutil.rmtree(STAGE, ignore_errors=True)
    pages = STAGE / "docs"
    shutil.copytree(ROOT / "docs", pages)
    for name in ("results", "examples", "benchmarks"):
        (STAGE / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "CONTRIBUTING.md", pages / "contributing.md")
    shutil.copy(ROOT / "CHANGELOG.md", pages / "changelog.md")
    for page in sorted(pages.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        text = re.sub(r"<!-- generated: (\w+) -->", lambda found: GENERATED[found[1]](), text)
        text = re.sub(r"\[([^\]]*)\]\((\.\./)+results/cells\)", r"`\1`", text)  # a folder: no page, no file
        if page.name == "contributing.md":
            text = re.sub(r"\]\(docs/", "](", text)
        page.write_text(text, encoding="utf-8")
    index = pages / "index.md"
    menu = "".join(
        f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n" + "\n".join(names) + "\n```\n"
        for title, names in MENU.items()
    )
    index.write_text(index.read_text(encoding="utf-8") + menu, encoding="utf-8")
    return pages


def build() -> int:
    """Build the site; return 0 if nothing was wrong."""
    pages = stage()
    shutil.rmtree(OUT, ignore_errors=True)
    trees = ROOT / "build" / "site-trees"
    shutil.rmtree(trees, ignore_errors=True)
    app = Sphinx(pages, None, OUT, trees, "html", confoverrides=SETTINGS, warningiserror=True, status=None)
    app.build()
    foreign = sorted(set(_foreign()))
    for line in foreign:
        print(f"a page asks the network: {line}", file=sys.stderr)
    return 1 if foreign else app.statuscode


def _foreign() -> Iterator[str]:
    """Yield what a browser would load from elsewhere: scripts, styles, fonts and pictures with an address."""
    for page in OUT.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for found in re.findall(r"""<(?:script|img|iframe)[^>]*\ssrc=["'](?:https?:)?//[^"']+""", text):
            yield f"{page.name}: {found[:120]}"
        for found in re.findall(
            r"""<link[^>]*rel=["'](?:stylesheet|preconnect|preload)["'][^>]*https?://[^>]+""", text
        ):
            yield f"{page.name}: {found[:120]}"
    for sheet in OUT.rglob("*.css"):
        for found in re.findall(
            r"url\([\"']?https?://[^)]+|@import[^;]*https?://[^;]+", sheet.read_text(encoding="utf-8")
        ):
            yield f"{sheet.name}: {found[:120]}"


if __name__ == "__main__":
    sys.exit(build())
