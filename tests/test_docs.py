"""The documentation is true: its Python runs, its commands parse, links and menu are whole, files are described.

A Python block that cannot run here has `<!-- not run: REASON -->` before it, and is run by a test beside what it needs
(`test_blocks_that_do_not_run_here_are_run_elsewhere`). Pages run one after the other in the folder of a small example
run; trainings and pilots are cut to a few rounds, which changes figures and not whether the lines work.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner

import fedcollab
from fedcollab import ClientData, scenarios
from fedcollab.cli import cli

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs").rglob("*.md"))
SHOWN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]
PYTHON = re.compile(r"(<!-- not run: [^>]+ -->\n)?```python\n(.*?)```", re.DOTALL)
#: the most rounds that anything trains here
ROUNDS = 3


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example federation in `hospitals` and a run of it in `runs/hospitals`."""
    folder = tmp_path_factory.mktemp("docs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        scenarios.write_example("hospitals")
        command = f"run --clients hospitals --label outcome --model logistic --rounds {ROUNDS} --quiet"
        done = CliRunner().invoke(cli, shlex.split(command))
        assert done.exit_code == 0, done.output
    return folder


def clients(rows: int = 40) -> list[ClientData]:
    """Four small clients; in two of them labels mean the opposite."""
    rng = np.random.default_rng(0)
    made = []
    for name, sign in (("north", 1), ("south", 1), ("east", -1), ("west", -1)):
        x = rng.normal(size=(rows, 3))
        made.append(ClientData(name, x, (sign * x[:, 0] > 0).astype(int)))
    return made


def given(page: str) -> dict[str, Any]:
    """Return what the lines of a page take as given."""
    names = ["north", "south", "east", "west", "hill", "port", "lake", "moor"]
    rng = np.random.default_rng(1)
    D = rng.uniform(0.2, 0.8, (8, 8))
    D = (D + D.T) / 2
    np.fill_diagonal(D, 0)
    space: dict[str, Any] = {"fedcollab": fedcollab, "D": D, "m": [100] * 8, "names": names}
    if page.split("/")[0] in ("howto", "theory", "tutorials"):
        return {}  # these pages bring all they use
    if page == "data.md":
        return {"pixels": rng.integers(0, 256, (2000, 1, 8, 8)), "labels": np.arange(2000) % 2}
    coalitions = [["north", "south"], ["east", "west"]]
    if page == "secure-aggregation.md":
        coalitions = [["north", "south", "east", "west"]]
    if page == "membership.md":
        space["fitted"] = fedcollab.FedCollab(model="logistic", distance="few-round", C=5.0).fit(clients())
        space["fitted"].train("fedavg", rounds=2, stopping="none")
    known = {"clients": clients(), "coalitions": coalitions, "collaboration": coalitions, "train": fedcollab.train}
    return {**space, **known, "new_rows": clients()[0].x[:2], "x": clients()[0].x, "y": clients()[0].y}


def cut(function: Any) -> Any:
    """Let a function train a few rounds at most."""

    @functools.wraps(function)
    def few(*arguments: Any, **named: Any) -> Any:
        return function(*arguments, **{**named, "rounds": min(ROUNDS, named.get("rounds", ROUNDS))})

    return few


def with_python() -> Iterator[Any]:
    """Yield every page that has Python to run."""
    for page in PAGES:
        if any(not skipped for skipped, _ in PYTHON.findall(page.read_text())):
            yield pytest.param(page, id=page.relative_to(ROOT / "docs").as_posix())


@pytest.mark.parametrize("page", list(with_python()))
def test_the_python_of_a_page_runs(
    page: Path, example: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(example)
    monkeypatch.setattr(fedcollab, "train", cut(fedcollab.train))
    monkeypatch.setattr(fedcollab, "advise", cut(fedcollab.advise))
    monkeypatch.setattr(fedcollab.training, "train", fedcollab.train)
    monkeypatch.setattr(fedcollab.advice, "advise", fedcollab.advise)
    if page.name == "tracking.md":  # its console block, which writes what its Python reads
        command = (
            "train --clients hospitals --label outcome --coalitions local --rounds 2 --model logistic -o runs/tracked"
        )
        assert CliRunner().invoke(cli, shlex.split(command)).exit_code == 0
    if page.name == "trees.md":
        pytest.importorskip("xgboost", reason="the extra `trees` is not installed")
    if page.name == "distances.md":
        pytest.importorskip("opacus", reason="the extra `privacy` is not installed")
    space = given(page.relative_to(ROOT / "docs").as_posix())
    text = page.read_text()
    for found in PYTHON.finditer(text):
        if not found[1]:
            lines = "\n" * text[: found.start(2)].count("\n")  # so that errors name the line of the page
            exec(compile(lines + found[2], str(page), "exec"), space)
    capsys.readouterr()


@pytest.mark.dataset("heart")
def test_the_python_of_the_tutorial_on_real_hospitals_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = PYTHON.findall((ROOT / "docs/tutorials/real-hospitals.md").read_text())
    exec(compile(found[1], "real-hospitals.md", "exec"), {})
    assert "chol" in capsys.readouterr().out


def test_blocks_that_do_not_run_here_are_run_elsewhere() -> None:
    """Each names the test that runs it; three show how real federations are used, which tests do in longer words."""
    found = [
        (page.relative_to(ROOT / "docs").as_posix(), reason)
        for page in PAGES
        for reason in re.findall(r"<!-- not run: ([^>]+) -->\n```python", page.read_text())
    ]
    assert len(found) == 9
    for page, reason in found:
        (named,) = re.findall(r"tests/[\w/]+(?:\.py)?", reason)
        assert (ROOT / named).exists(), f"{page}: {reason}"
        if named.endswith(".py"):
            assert Path(page).name in (ROOT / named).read_text(), f"{named} does not run the block of {page}"


def test_the_figures_worked_out_by_hand_are_right() -> None:
    D = [[0.0, 0.1, 0.8], [0.1, 0.0, 0.9], [0.8, 0.9, 0.0]]
    assert "Together 1.2441." in (ROOT / "docs/theory/bound.md").read_text()
    assert fedcollab.objective(D, [100, 60, 200], [0, 0, 1], C=5) == pytest.approx(1.2441, abs=5e-5)
    weights, bounds = fedcollab.personal_weights([[0, 0.08], [0.08, 0]], [100, 100], C=1)
    assert bounds[0] < 0.0985 < 0.1
    assert weights[0][0] > 0.5


def typed(text: str) -> Iterator[str]:
    """Yield every `fedcollab` command that a page shows: in blocks, and between backticks where it has arguments."""
    for line in re.findall(r"^(?:    |\$ )(fedcollab .*)$", text, re.MULTILINE):
        command = re.split(r"(?<=\S)\s{3,}(?=\S)", line)[0]  # what stands further right says what it does
        yield from (part.strip() for part in command.split("&&"))
    for block in re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield from re.findall(r"^fedcollab .*$", block, re.MULTILINE)
    yield from re.findall(r"`(fedcollab [a-z][\w-]* [^`]+)`", text)


@pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_of_a_page_is_one_of_the_program(page: Path) -> None:
    for line in typed(page.read_text()):
        words = shlex.split(line, comments=True)
        if "&&" in words:
            words = words[: words.index("&&")]
        command: click.Command = cli
        context = click.Context(cli)
        rest = words[1:]
        while isinstance(command, click.Group):
            found = command.get_command(context, rest[0])
            assert found is not None, f"{page.name}: `{line}`: there is no command `{rest[0]}`"
            command, rest = found, rest[1:]
            context = click.Context(command, parent=context)
        rest = [word for word in rest if word not in ("...", "--help", "-h")]
        _, left, _ = command.make_parser(context).parse_args(list(rest))
        assert not left, f"{page.name}: `{line}`: `{left[0]}` is no argument of {command.name}"


def links(page: Path) -> Iterator[str]:
    """Yield the targets of a page's links to files of this repository."""
    yield from re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())


@pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_file_that_is_linked_is_there(page: Path) -> None:
    for target in links(page):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_benchmark_that_is_named_is_there() -> None:
    for page in SHOWN:
        for target in re.findall(r"benchmarks/\w+\.py", page.read_text()):
            assert (ROOT / target).exists(), f"{page.name} names {target}"


def test_files_and_functions_that_pages_name_are_there() -> None:
    """In backquotes: `distances/update.py` is the end of a path, `measure(...)` a name in the source."""
    folders = ("src", "tests", "tools", "benchmarks", "experiments", "examples")
    paths = "".join(f"{path}\n" for folder in folders for path in (ROOT / folder).rglob("*.py"))
    source = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    missing = []
    for page in (page for page in SHOWN if page.name != "decisions.md"):  # which also says what was tried and went
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        files = {file for file in re.findall(r"`([\w/.-]+\.py)[^`]*`", text) if f"/{file}\n" not in paths}
        called = {name for name in re.findall(r"`[\w.]*?(\w+)\(", text) if not re.search(rf"\b{name}\b", source)}
        missing += [f"{page.name}: {name}" for name in sorted(files | called)]
    assert missing == []


def test_the_menu_of_the_site_has_every_page_once() -> None:
    tree = ast.parse((ROOT / "tools" / "site.py").read_text())
    (menu,) = (
        node.value for node in tree.body if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "MENU"
    )
    assert menu is not None
    listed = [name for names in ast.literal_eval(menu).values() for name in names]
    pages = [page.relative_to(ROOT / "docs").with_suffix("").as_posix() for page in PAGES]
    assert sorted([*listed, "index"]) == sorted([*pages, "contributing", "changelog"])


def test_the_files_of_a_run_and_their_fields_are_described(example: Path) -> None:
    text = (ROOT / "docs/reference/run-directory.md").read_text()
    run = example / "runs" / "hospitals"
    for file in sorted(path for path in run.rglob("*") if path.is_file()):
        name = "report.html" if file.name == "report.html" else file.name
        assert name in text or f"`{file.suffix}`" in text, f"{file.relative_to(run)} is not described"
        lines = [file.read_text()] if file.suffix == ".json" else []
        if file.suffix == ".jsonl":
            lines = file.read_text().splitlines()
        for line in lines:
            for key in json.loads(line):
                assert f"`{key}`" in text or f"`{key.removeprefix('personal_')}`" in text, f"{file.name}: `{key}`"


def test_the_example_is_found(example: Path) -> None:
    """What was planted is what the distances say: the plain with the plain, the hills with the hills."""
    found = fedcollab.Collaboration.load(example / "runs" / "hospitals" / "collaboration.json")
    kinds = [{name.split("-")[0] for name in members} for members in found.coalitions]
    assert all(len(kind) == 1 for kind in kinds)


def test_new_writes_files_and_says_what_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["new", "hospitals"])
    assert done.exit_code == 0
    assert "fedcollab run --clients hospitals --label outcome" in done.output
    assert len(list((tmp_path / "hospitals").glob("*.csv"))) == 7
    for line in re.findall(r"^    fedcollab (.*)$", (tmp_path / "hospitals" / "README.md").read_text(), re.MULTILINE):
        name, *rest = shlex.split(line)
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        assert command.make_parser(click.Context(command)).parse_args(rest)[1] == []
    checked = CliRunner().invoke(cli, ["inspect", "--clients", "hospitals", "--label", "outcome", "--json"])
    assert checked.exit_code == 0
    with pytest.raises(fedcollab.InputError, match="not an empty folder"):
        CliRunner().invoke(cli, ["new", "hospitals"], catch_exceptions=False)
    answer = json.loads(CliRunner().invoke(cli, ["new", "others", "--json"]).stdout)
    assert answer["label"] == "outcome"
