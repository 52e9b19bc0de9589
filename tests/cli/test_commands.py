"""The command line as a person meets it: real processes, real files."""

from __future__ import annotations

import csv
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

OWN = ("--clients", "hospitals", "--label", "outcome")
PROGRAM = "from fedcollab.cli import main; main()"


def fedcollab(*arguments: str | Path, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the program in its own process and check its exit code."""
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=240)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def write_client(path: Path, seed: int, flip: bool, rows: int = 240) -> None:
    """A small table: two numeric columns, a category, missing values, and a label that `flip` turns round."""
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["age", "dose", "sex", "outcome"])
        for _ in range(rows):
            ill = bool(rng.integers(2))
            age = "" if rng.random() < 0.1 else f"{rng.normal(50 + 15 * (ill != flip), 4):.1f}"
            out.writerow([age, f"{rng.normal():.2f}", rng.choice(["f", "m", "?"]), "yes" if ill else "no"])


@pytest.fixture
def hospitals(tmp_path: Path) -> Path:
    folder = tmp_path / "hospitals"
    folder.mkdir()
    for seed, name in enumerate(["north", "south", "east", "west"]):
        write_client(folder / f"{name}.csv", seed, flip=name in ("east", "west"))
    return folder


def test_own_files_end_to_end(hospitals: Path, tmp_path: Path) -> None:
    arguments = ("run", "--clients", hospitals, "--label", "outcome", "--rounds", "5", "--algorithm", "fedavg",
                 "--model", "logistic")  # fmt: skip
    shown = fedcollab(*arguments, cwd=tmp_path)
    assert "coalitions" in shown.stdout
    run = tmp_path / "runs" / "hospitals"
    assert (run / "report.html").stat().st_size < 3_000_000
    kinds = {
        name: json.loads((run / name).read_text())["fedcollab"] for name in ("distances.json", "collaboration.json")
    }
    assert kinds == {"distances.json": "distances", "collaboration.json": "collaboration"}
    assert str(tmp_path) not in (run / "report.html").read_text(), "where the data lie is nobody's business"

    before = {path: path.stat().st_mtime_ns for path in run.rglob("*.json") if path.name != "run.json"}
    answer = json.loads(fedcollab(*arguments, "--json", cwd=tmp_path).stdout)
    assert before == {path: path.stat().st_mtime_ns for path in before}, "a finished run is not computed again"
    assert sorted(name for group in answer["coalitions"] for name in group) == ["east", "north", "south", "west"]
    assert {frozenset(group) for group in answer["coalitions"]} == {
        frozenset({"north", "south"}),
        frozenset({"east", "west"}),
    }
    assert answer["results"]["coalitions"]["mean_accuracy"] > answer["results"]["global"]["mean_accuracy"]
    for way, words in (("coalitions", "In coalitions"), ("global", "Everyone together")):
        sentence = f"{words}: {answer['results'][way]['equivalent_rows']['sentence']}"
        assert sentence in " ".join(shown.stdout.split())
        assert sentence in (run / "report.html").read_text()

    fedcollab(*arguments[:-2], "--model", "mlp", cwd=tmp_path, code=2)


def test_the_advice_is_a_stage_that_run_and_train_follow(hospitals: Path, tmp_path: Path) -> None:
    source = ("--clients", hospitals, "--label", "outcome")
    training = ("--rounds", "20", "--model", "logistic", "--lr", "0.3")
    said = fedcollab("advise", *source, *training, "-o", "advised", cwd=tmp_path)
    advice = json.loads((tmp_path / "advised" / "advice.json").read_text())
    following = shlex.split(said.stdout.rpartition("Next:    fedcollab ")[2])
    assert following[:5] == ["train", "--coalitions", "advised", "-o", "advised"]
    assert set(advice["gains"]) == {"north", "south", "east", "west"}
    assert all(0 <= gain["probability"] <= 1 for gain in advice["gains"].values())
    place = {name: number for number, members in enumerate(advice["coalitions"]) for name in members}
    assert place["north"] != place["east"], "what means ill at one is healthy at the other"
    again = json.loads(fedcollab("advise", *source, *training, "-o", "advised", "--json", cwd=tmp_path).stdout)
    assert again["coalitions"] == advice["coalitions"]
    fedcollab(*following, cwd=tmp_path)
    trained = json.loads((tmp_path / "advised" / "training" / "coalitions" / "training.json").read_text())
    assert (trained["method"], trained["model"]["name"]) == (advice["algorithm"], "logistic")
    assert (trained["settings"]["rounds"], trained["settings"]["lr"]) == (20, 0.3)
    answer = json.loads(fedcollab("run", *source, *training, "--json", cwd=tmp_path).stdout)
    assert answer["advice"]["coalitions"] == advice["coalitions"]
    assert answer["coalitions"] == advice["coalitions"]
    fedcollab("advise", *source, "--metric", "auc", "-o", "x", cwd=tmp_path, code=2)


def test_one_stage_at_a_time(hospitals: Path, tmp_path: Path) -> None:
    fedcollab("estimate", "--clients", hospitals, "--label", "outcome", "-o", "d.json", cwd=tmp_path)
    solved = fedcollab("solve", "d.json", "--C", "2", "-o", "c.json", "--json", cwd=tmp_path)
    assert {frozenset(group) for group in json.loads(solved.stdout)["coalitions"]} == {
        frozenset({"north", "south"}),
        frozenset({"east", "west"}),
    }
    assert "north" in fedcollab("explain", "c.json", "--client", "north", cwd=tmp_path).stdout
    source = ("--clients", hospitals, "--label", "outcome")
    fedcollab("train", *source, "--coalitions", "c.json", "--rounds", "3", "-o", "trained", cwd=tmp_path)
    assert list((tmp_path / "trained").rglob("*.safetensors"))
    assert not list(tmp_path.rglob("*.pkl")) + list(tmp_path.rglob("*.pt"))


def test_a_plain_matrix(tmp_path: Path) -> None:
    (tmp_path / "D.csv").write_text("0,.05,.9\n.05,0,.9\n.9,.9,0\n")
    (tmp_path / "m.csv").write_text("100\n100\n5000\n")
    done = fedcollab("solve", "--matrix", "D.csv", "--quantities", "m.csv", "--C", "5", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["coalitions"] == [[0, 1], [2]]


def break_file(name: str, content: str):
    return lambda folder: (folder / name).write_text(content)


@pytest.mark.parametrize(
    ("damage", "arguments", "line"),
    [
        (None, ("--clients", "nowhere", "--label", "outcome"), "`--clients` (='nowhere') must be a folder"),
        (None, ("--clients", "hospitals"), "`--label` must name the label column"),
        (None, ("--clients", "hospitals", "--label", "result"), "`--label` (='result') is not a column"),
        (None, (*OWN, "--C", "0"), "`C` (='0') must be a finite number above 0"),
        (None, (*OWN, "--C", "-3"), "`C` (='-3') must be"),
        (None, (*OWN, "--C", "nan"), "`C` (='nan') must be"),
        (None, (*OWN, "--algorithm", "fedavgg"), "did you mean 'fedavg'?"),
        (None, (*OWN, "--distance", "none"), "must be one of"),
        (None, (*OWN, "--model", "gpt"), "must be one of"),
        (None, (*OWN, "--task", "regression"), "has text as labels"),
        (None, (), "give either a SCENARIO.toml or --clients FOLDER"),
        (None, ("missing.toml",), "`SCENARIO` (='missing.toml') does not exist"),
        (None, (".",), "`SCENARIO` (='.') is a folder; give it as --clients, with --label COLUMN"),
        (None, ("--rounds", "many"), "'many' is not a valid integer"),
        (break_file("north.csv", ""), OWN, "is empty"),
        (break_file("north.csv", "age,dose,sex,outcome\n1,2,f,yes\n"), OWN, "1 training sample"),
        (break_file("north.csv", "age,outcome\n1,yes\n2,no\n3,yes\n4,no\n"), OWN, "lacks the column 'dose'"),
        (break_file("north.npz", "x"), OWN, "more than one file for client `north`"),
        (break_file("new.npz", "no npz"), OWN, "cannot be read as NPZ"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_leaves_nothing(
    hospitals: Path, tmp_path: Path, damage, arguments, line: str
) -> None:
    if damage is not None:
        damage(hospitals)
    done = fedcollab("run", *arguments, cwd=tmp_path, code=2)
    assert line in done.stderr
    assert len([row for row in done.stderr.splitlines() if not row.startswith("note:")]) == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not list((tmp_path / "runs").rglob("*.json")) if (tmp_path / "runs").exists() else True


def test_one_client_is_not_a_federation(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    write_client(tmp_path / "c" / "only.csv", 0, False)
    done = fedcollab("run", "--clients", "c", "--label", "outcome", cwd=tmp_path, code=2)
    assert "has 1 client(s); at least 2 are needed" in done.stderr


def test_label_counts_from_the_command_line(hospitals: Path, tmp_path: Path) -> None:
    source = ("estimate", "--clients", hospitals, "--label", "outcome", "-o", "d.json", "--label-counts")
    assert json.loads(fedcollab(*source, "set", "--json", cwd=tmp_path).stdout)["settings"]["label_counts"] == "set"
    refused = fedcollab(*source, "exact", cwd=tmp_path, code=2)
    assert "`label_counts` (='exact') must be 'auto', 'drawn' or 'set'" in refused.stderr


def test_a_scenario_file_sets_C_and_the_command_line_overrides_it(tmp_path: Path) -> None:
    text = '[scenario]\nname = "digits"\nclients = 8\n[settings]\nrounds = 1\nC = 0.001\n'
    (tmp_path / "mine.toml").write_text(text)
    options = (
        "run",
        "mine.toml",
        "--distance",
        "label",
        "--json",
        "--fresh",
        "--model",
        "logistic",
        "--no-learning-curve",
    )
    assert json.loads(fedcollab(*options, cwd=tmp_path).stdout)["C"] == 0.001
    assert json.loads(fedcollab(*options, "--C", "1000", cwd=tmp_path).stdout)["C"] == 1000


def test_privacy_and_the_floor(hospitals: Path, tmp_path: Path) -> None:
    pytest.importorskip("opacus", reason="opacus is not installed: pip install 'fedcollab[privacy]'")
    source = ("--clients", hospitals, "--label", "outcome", "-o", "d.json")
    private = ("estimate", *source, "--distance", "few-round", "--privacy-epsilon", "3", "--privacy-delta", "1e-4")
    answer = json.loads(fedcollab(*private, "--json", cwd=tmp_path).stdout)
    assert answer["method"] == "few-round"
    assert {part["delta"] for part in answer["privacy"].values()} == {1e-4}
    assert all(2.9 < part["epsilon"] <= 3 for part in answer["privacy"].values())
    refused = fedcollab("estimate", *source, "--min-samples", "1000", cwd=tmp_path, code=2)
    assert "`min_samples` (=1000)" in refused.stderr
    refused = fedcollab("estimate", *source, "--privacy-epsilon", "3", cwd=tmp_path, code=2)
    assert "`option of method 'auto'` (='privacy')" in refused.stderr
    refused = fedcollab("estimate", *source, "--privacy-delta", "1e-4", cwd=tmp_path, code=2)
    assert "goes with --privacy-epsilon" in refused.stderr


def test_a_client_with_one_class_is_taken_with_a_note(hospitals: Path, tmp_path: Path) -> None:
    rows = (hospitals / "west.csv").read_text().splitlines()
    kept = [rows[0], *(row for row in rows[1:] if row.endswith("yes"))]
    (hospitals / "west.csv").write_text("\n".join(kept) + "\n")
    done = fedcollab("estimate", "--clients", hospitals, "--label", "outcome", "-o", "d.json", cwd=tmp_path)
    assert "note: client `west` has one class only: yes" in done.stderr


def test_help_reads_like_a_tour(tmp_path: Path) -> None:
    text = fedcollab("--help", cwd=tmp_path).stdout
    assert text.index("Start here") < text.index("The stages") < text.index("Data sets")
    for command in ("demo", "run", "estimate", "solve", "train", "report", "explain", "path", "data"):
        page = fedcollab(command, "--help", cwd=tmp_path).stdout
        assert "fedcollab" in page
        assert "Example" in page or command == "data"


def test_an_unknown_command_lists_the_known_ones(tmp_path: Path) -> None:
    done = fedcollab("slove", cwd=tmp_path, code=2)
    assert "did you mean 'solve'?" in done.stderr


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    assert "Traceback" in fedcollab("--debug", "report", "nowhere", cwd=tmp_path, code=2).stderr


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_an_interrupted_run_goes_on(hospitals: Path, tmp_path: Path) -> None:
    arguments = ["run", "--clients", str(hospitals), "--label", "outcome", "--rounds", "20000", "--model", "logistic"]
    running = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )
    run = tmp_path / "runs" / "hospitals"
    deadline = time.monotonic() + 240
    while not (run / "collaboration.json").exists() and time.monotonic() < deadline and running.poll() is None:
        time.sleep(0.1)
    time.sleep(0.5)
    running.send_signal(signal.SIGINT)
    try:
        _, errors = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == 130, errors
    assert "run the same command again" in errors
    assert "Traceback" not in errors
    assert (run / "collaboration.json").exists()


def test_the_demo_ends_with_a_line_that_works_as_it_stands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where the shell does not find `fedcollab`, the line activates the environment that the demo runs in."""
    demo = import_module("fedcollab.cli.demo")
    script = tmp_path / "the env" / "bin" / "activate"
    script.parent.mkdir(parents=True)
    script.touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "the env"))
    monkeypatch.setenv("PATH", "/nowhere")
    assert demo.next_command() == f". 'the env/bin/activate' && {demo.NEXT}"
    script.unlink()
    assert demo.next_command() == demo.NEXT
