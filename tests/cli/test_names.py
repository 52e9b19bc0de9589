"""Values of options: listed in the help, completed by the shell, refused at once; one spelling of `-o/--out`."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from fedcollab import distances, reproduce, scenarios, training
from fedcollab.cli import cli, names
from fedcollab.coalitions import solve
from fedcollab.encoders.encoder import ENCODERS
from fedcollab.errors import InputError
from fedcollab.training import defaults
from fedcollab.training.descend import OPTIMIZERS
from fedcollab.training.run import STOPPING
from fedcollab.training.secure_rounds import SECURE


def complete(*words: str) -> list[str]:
    """Return what the shell offers after these words, the last of which is incomplete."""
    shell = ShellComplete(cli, {}, "fedcollab", "_FEDCOLLAB_COMPLETE")
    return [item.value for item in shell.get_completions(list(words[:-1]), words[-1])]


def commands(group: click.Group = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Return every command of the program with the words that call it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A folder with the distances and the coalitions of three clients."""
    D = np.array([[0, 0.05, 0.9], [0.05, 0, 0.9], [0.9, 0.9, 0]])
    found = distances.Distances(D, ("north", "south", "night"), [100, 100, 100])
    found.save(tmp_path / "run" / "distances.json")
    solve(found).save(tmp_path / "run" / "collaboration.json")
    return tmp_path / "run"


def test_the_names_written_down_are_those_of_the_registries() -> None:
    assert set(names.DISTANCES) == set(distances.METHODS)
    assert set(names.ALGORITHMS) == set(training.ALGORITHMS)
    assert set(names.OPTIMIZERS) == set(OPTIMIZERS)
    assert set(names.STOPPING) == set(STOPPING)
    assert set(names.SECURE) == {"none", *SECURE}
    assert {"mlp", "logistic", "cnn", "resnet18", "xgboost"} == set(names.MODELS) - {"auto"} <= set(training.MODELS)
    assert set(names.ENCODERS) == {"none", *ENCODERS}
    assert set(names.DATA_SETS) == {*scenarios.data.DATA_SETS, "federations"}
    assert set(names.EXPERIMENTS) == set(reproduce.EXPERIMENTS)
    assert set(names.SCENARIOS) <= set(scenarios.SCENARIOS)


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("run", "--distance", "p"), ["published", "prototype"]),
        (("estimate", "--distance", ""), list(names.DISTANCES)),
        (("train", "--model", "c"), ["cnn"]),
        (("run", "--algorithm", "fedp"), ["fedprox"]),
        (("run", "--encoder", "eff"), ["efficientnet-lite0"]),
        (("solve", "--method", ""), ["auto", "local", "exact"]),
        (("data", "get", "ci"), ["cifar-10", "cifar-100"]),
        (("data", "path", "d"), ["digits"]),
        (("reproduce", "table"), ["table-1", "table-2"]),
        (("reproduce", "table-1", "--scenario", "l"), ["label-shift"]),
    ],
)
def test_the_shell_completes_values(words: tuple[str, ...], offered: list[str]) -> None:
    assert complete(*words) == offered


def test_the_shell_completes_the_clients_of_a_run(run_dir: Path) -> None:
    assert complete("explain", str(run_dir), "--client", "n") == ["north", "night"]
    assert complete("explain", str(run_dir / "collaboration.json"), "--client", "s") == ["south"]
    assert complete("leave", str(run_dir), "--client", "") == ["north", "south", "night"]
    assert complete("check", str(run_dir), "--client", "so") == ["south"]
    assert complete("leave", str(run_dir / "nowhere"), "--client", "") == []


def test_completion_loads_no_heavy_library() -> None:
    program = (
        "import sys, atexit; from fedcollab.cli import main\n"
        "atexit.register(lambda: print(*({'torch', 'pandas', 'flwr', 'sklearn', 'altair'} & set(sys.modules))))\n"
        "sys.argv = ['fedcollab']; main()"
    )
    words = {"COMP_WORDS": "fedcollab train --algorithm fedp", "COMP_CWORD": "3"}
    shell = {**os.environ, "_FEDCOLLAB_COMPLETE": "bash_complete", **words}
    done = subprocess.run([sys.executable, "-c", program], env=shell, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["plain,fedprox"], done.stderr


@pytest.mark.parametrize(
    ("command", "listed"),
    [
        (("run",), (*names.DISTANCES, *names.ALGORITHMS, *names.MODELS)),
        (("train",), (*names.ALGORITHMS, *names.MODELS)),
        (("estimate",), names.DISTANCES),
        (("data", "get"), names.DATA_SETS),
        (("reproduce",), names.EXPERIMENTS),
    ],
)
def test_the_help_lists_the_values(command: tuple[str, ...], listed: tuple[str, ...]) -> None:
    page = CliRunner().invoke(cli, [*command, "--help"], terminal_width=200).output
    assert [name for name in listed if name not in page] == []


def test_a_wrong_value_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    wanted = [
        (("train", "--coalitions", "local", "-o", "x", "--model", "cnnn"), "`model` (='cnnn').*did you mean 'cnn'"),
        (("estimate", "-o", "x", "--distance", "cros"), "`distance` (='cros').*did you mean 'cross'"),
        (("data", "get", "mnist"), "(='mnist').*fashion-mnist"),
        (("run", "--algorithm-option", "mu"), "`--algorithm-option` (='mu') must be KEY=VALUE"),
    ]
    for words, text in wanted:
        with pytest.raises(InputError, match=text.replace("(", r"\(").replace(")", r"\)")):
            CliRunner().invoke(cli, words, catch_exceptions=False)


def test_one_spelling_of_where_to_write() -> None:
    found = {}
    for words, command in commands():
        for option in command.params:
            if isinstance(option, click.Option) and {"-o", "--out", "--output"} & set(option.opts):
                found[words] = option.opts
    assert {("run",), ("estimate",), ("solve",), ("train",), ("report",), ("demo",), ("reproduce",)} <= set(found)
    assert {("check-encoder",), ("federation", "demo"), ("silo", "init")} <= set(found)
    assert all(opts[:2] == ["-o", "--out"] and "--output" not in opts for opts in found.values()), found


def test_the_command_line_and_train_have_the_same_defaults() -> None:
    declared = {key: each.default for key, each in inspect.signature(training.train).parameters.items()}
    for command in (("run",), ("train",)):
        options = {option.name: option.default for option in dict(commands())[command].params}
        assert options["algorithm"] in (None, click.core.UNSET)  # as advised
        for key in ("model", "rounds", "lr", "batch_size", "local_epochs"):
            assert options[key] == declared[key] == getattr(defaults, key.upper()), (command, key)
