"""`join`, `leave` and `check` as a person meets them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fedcollab import cli

from .conftest import write_table

Command = Callable[..., tuple[str, str]]
SOURCE = ("--clients", "hospitals", "--label", "outcome")


@pytest.fixture
def fedcollab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The program, in this process: arguments in, standard output and error out, the exit code checked."""
    section = {name: f"fedcollab.cli.membership:{name}" for name in ("join", "leave", "check")}
    monkeypatch.setattr(cli, "TOUR", {**cli.TOUR, "After the first day": section})
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path, code: int = 0) -> tuple[str, str]:
        monkeypatch.setattr("sys.argv", ["fedcollab", *map(str, arguments)])
        monkeypatch.setattr("warnings.showwarning", None)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        shown = capsys.readouterr()
        assert ended.value.code == code, shown
        return shown.out, shown.err

    return run


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with four hospitals' files and a run of them; the last two have the labels swapped."""
    folder = tmp_path_factory.mktemp("consortium")
    for name in ("north", "south", "east", "west"):
        write_table(folder / "hospitals" / f"{name}.csv", flip=name in ("east", "west"))
    options = ("--rounds", "5", "--model", "logistic", "--C", "2", "--quiet")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("warnings.showwarning", None)
        patch.setattr("sys.argv", ["fedcollab", "run", *SOURCE, *options])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    assert ended.value.code == 0
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path / "runs" / "hospitals"


def test_a_year_of_a_consortium(run: Path, tmp_path: Path, fedcollab: Command) -> None:
    quiet, _ = fedcollab("check", run, *SOURCE)
    assert quiet.startswith("Regrouping is not advised")
    assert "No client's data changed." in quiet
    assert not (run / "history").exists(), "a check writes nothing"

    new = write_table(tmp_path / "new" / "coast.csv", flip=True)
    shown, _ = fedcollab("join", run, "--client", new, *SOURCE)
    assert shown.startswith("coast should join east, west: bound ")
    assert "4 pairs were estimated" in shown
    assert "History:  " in shown
    assert "coast" in (run / "report.html").read_text()
    told = json.loads(fedcollab("explain", run, "--client", "coast", "--json")[0])["differences"]
    assert set(told) == {"north", "south", "east", "west"}, "the newcomer's columns are known too"
    assert "the run has a client `coast`" in fedcollab("join", run, "--client", new, *SOURCE, code=2)[1]

    new.rename(tmp_path / "hospitals" / "coast.csv")
    answer = json.loads(fedcollab("check", run, "--clients", "hospitals", "--json")[0])
    assert answer["changes"] == []
    assert answer["pairs_estimated"] == 0

    write_table(tmp_path / "hospitals" / "coast.csv", flip=False, rows=90, seed=5)
    advice, _ = fedcollab("check", run, *SOURCE, code=3)
    assert advice.startswith("Regrouping is advised")
    assert "coast: " in advice
    assert json.loads(fedcollab("check", run, *SOURCE, "--json", code=3)[0])["changes"][0]["client"] == "coast"
    fedcollab("check", run, *SOURCE, "--apply", "--rounds", "2")
    assert fedcollab("check", run, *SOURCE)[0].startswith("Regrouping is not advised")
    groups = json.loads((run / "collaboration.json").read_text())["coalitions"]
    assert {frozenset(group) for group in groups} == {
        frozenset({"north", "south", "coast"}),
        frozenset({"east", "west"}),
    }

    gone, _ = fedcollab("leave", run, "--client", "coast")
    assert gone.startswith("coast left north, south, who stay together.")
    trained = json.loads(fedcollab("leave", run, "--client", "west", *SOURCE, "--retrain", "--json")[0])
    assert trained["training"]["again"] == [["east"]]
    causes = [entry["cause"] for entry in json.loads((run / "history/index.json").read_text())["collaborations"]]
    assert causes == ["run", "join coast", "regroup", "leave coast", "leave west"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("join", "nowhere", "--client", "new/coast.csv", *SOURCE), "(='nowhere') does not exist; expected a run"),
        (("join", "RUN", "--client", "new/nothing.csv", *SOURCE), "does not exist"),
        (("join", "RUN", "--client", "hospitals/west.csv", *SOURCE), "the run has a client `west`"),
        (("join", "RUN", "--client", "new/coast.csv"), "`--clients` must name the folder"),
        (("join", "RUN", "--client", "new/coast.csv", "--clients", "new"), "has no file of client `east`"),
        (("join", "RUN", "--client", "new/wide.csv", *SOURCE), "has other columns than the run: has also ward"),
        (("join", "RUN", "--client", "new/coast.csv", "--clients", "hospitals", "--label", "sex"), "has the label 'f'"),
        (("leave", "RUN", "--client", "wets"), "did you mean 'west'?"),
        (("leave", "RUN", "--client", "west", "--retrain"), "needs the data of those who stay"),
        (("check", "RUN", *SOURCE, "--client", "nobody"), "must be one of"),
        (("check", "RUN", *SOURCE, "--threshold", "-1"), "`threshold` (=-1.0) must be"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_changes_nothing(
    run: Path, tmp_path: Path, fedcollab: Command, arguments: tuple[str, ...], line: str
) -> None:
    write_table(tmp_path / "new" / "coast.csv", flip=True)
    write_table(tmp_path / "new" / "wide.csv", flip=True, columns=("ward",))
    (run / "sources.json").unlink()
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    out, error = fedcollab(*(str(run) if word == "RUN" else word for word in arguments), code=2)
    assert line in error
    assert "Traceback" not in error
    assert out == ""
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_a_join_does_not_ask_for_files_that_an_earlier_one_was_given(
    run: Path, tmp_path: Path, fedcollab: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_table(tmp_path / "new" / "coast.csv", flip=True)
    write_table(tmp_path / "newer" / "hill-top run.csv", flip=True, seed=8)
    assert "coast" in fedcollab("join", run, "--client", tmp_path / "new" / "coast.csv", *SOURCE, "--quiet")[0]
    shown, _ = fedcollab("join", run, "--client", tmp_path / "newer" / "hill-top run.csv", *SOURCE, "--quiet")
    assert "5 pairs were estimated" in shown
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert fedcollab("check", run, "--quiet")[0].startswith("Regrouping is not advised")
    assert str(tmp_path) not in (run / "sources.json").read_text()
    assert "newer" not in (run / "report.html").read_text(), "where the data lie is nobody's business"

    fedcollab("leave", run, "--client", "coast", "--retrain", "--quiet")
    assert "coast" not in (run / "sources.json").read_text()
    (tmp_path / "newer" / "hill-top run.csv").unlink()
    gone = fedcollab("check", run, code=2)[1]
    assert "has no file of client `hill-top run`; if it left: fedcollab leave" in gone


def test_the_threshold_is_the_documented_one() -> None:
    from fedcollab.cli import membership as commands
    from fedcollab.runs.membership import THRESHOLD

    for command in (commands.join, commands.leave, commands.check):
        assert {option.name: option.default for option in command.params}["threshold"] == THRESHOLD


def test_help_has_an_example(fedcollab: Command) -> None:
    for command in ("join", "leave", "check"):
        assert f"fedcollab {command} runs/hospitals" in fedcollab(command, "--help")[0]
