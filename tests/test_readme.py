"""What the README shows is what happens: its demo, its commands, its Python. Links are held by `test_docs`."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from fedcollab.cli import cli

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
PROGRAM = [sys.executable, "-c", "from fedcollab.cli import main; main()"]


def test_the_demo_tells_the_story_that_the_readme_shows(tmp_path: Path) -> None:
    command = [*PROGRAM, "demo", "--json", "--out", str(tmp_path / "demo")]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout)
    assert (tmp_path / "demo" / "report.html").stat().st_size < 3_000_000
    for number, members in enumerate(answer["coalitions"], 1):
        assert f"{number}. {members[0]} … {members[-1]}  ({len(members)} clients" in README
    means = {way: result["mean_accuracy"] for way, result in answer["results"].items()}
    assert means["global"] < means["local"] < means["coalitions"]
    assert answer["results"]["coalitions"]["ipr"] > answer["results"]["global"]["ipr"]


def hospital(path: Path, seed: int, flip: bool = False) -> None:
    """Write a table of 300 patients with three measurements, a category and an outcome; `flip` swaps the outcomes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 300)
    table = pd.DataFrame(rng.normal(0, 1, (300, 3)) + 2 * np.outer(2 * y - 1, [1, 0, 0]), columns=["a", "b", "c"])
    table["smoker"] = rng.choice(["yes", "no"], 300)
    path.parent.mkdir(parents=True, exist_ok=True)
    table.assign(outcome=1 - y if flip else y).to_csv(path, index=False)


def commands_shown() -> list[str]:
    """Return the commands of the README's indented blocks and those in running text that have arguments."""
    blocks = re.findall(r"^    (fedcollab .*)$", README, re.MULTILINE)
    return [*blocks, *re.findall(r"`(fedcollab \S+ [^`]+)`", README)]


def single_stages() -> list[str]:
    """Return the commands of the tutorial's section on single stages."""
    text = (ROOT / "docs" / "tutorials" / "own-csv.md").read_text()
    return re.findall(r"^\$ (fedcollab .*)$", text.split("One stage at a time")[1], re.MULTILINE)


def test_every_command_of_the_readme_works_without_data_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Type every command that the README shows, then the tutorial's single stages, in a folder with three hospitals.

    `silo start` waits for a coordinator: `tests/federation` starts silos. What `make demo` and `make federation-demo`
    show is tested above and there.
    """
    for seed, name in enumerate(("north", "south", "east")):
        hospital(tmp_path / "hospitals" / f"{name}.csv", seed, flip=name == "east")
    hospital(tmp_path / "patients.csv", 3)
    (tmp_path / "D.csv").write_text("0,.1,.9\n.1,0,.9\n.9,.9,0\n")
    (tmp_path / "m.csv").write_text("100\n50\n200\n")
    monkeypatch.setenv("FEDCOLLAB_DATA", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)

    def type_in(command: str) -> str:
        done = CliRunner().invoke(cli, shlex.split(command)[1:])
        assert done.exit_code == 0, f"{command}: {done.output} {done.exception}"
        return done.stdout

    type_in("fedcollab federation init fed")
    (tmp_path / "fed" / "invitation.toml").rename(tmp_path / "invitation.toml")
    shown = [*commands_shown(), *single_stages()]
    assert len(shown) == 14
    shown.remove("fedcollab new hospitals")  # the folder is there: three hospitals, not the example's
    type_in("fedcollab new example")
    answers = {command: type_in(command.removesuffix(" && fedcollab silo start")) for command in shown}
    answer = answers["fedcollab run --clients hospitals/ --label outcome"]
    assert "as advised" in answer
    assert not re.search(r"\d\. .*east, .*north|\d\. .*north, .*east", answer), "east means the opposite"
    assert (tmp_path / "runs" / "hospitals" / "report.html").stat().st_size > 10_000
    assert (tmp_path / "north.key").exists()
    assert 'scope="row">in coalitions<' in (tmp_path / "runs" / "stages" / "report.html").read_text()

    # the commands that the README only names
    hospital(tmp_path / "new" / "west.csv", 4)
    own = "--clients hospitals/ --label outcome"
    joined = type_in(f"fedcollab join runs/hospitals --client new/west.csv {own} --quiet")
    assert "west" in joined
    (tmp_path / "new" / "west.csv").rename(tmp_path / "hospitals" / "west.csv")
    checked = CliRunner().invoke(cli, shlex.split(f"check runs/hospitals {own} --quiet"))
    assert checked.exit_code in (0, 3)  # 3: by the bound, regrouping is advised
    assert "south" in type_in(f"fedcollab leave runs/hospitals --client south {own} --quiet")


def test_the_python_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    rng = np.random.default_rng(0)
    data = {}
    for number, flip in enumerate((False, False, True), 1):
        y = rng.integers(0, 2, 300)
        data[f"x{number}"] = rng.normal(0, 1, (300, 3)) + 2 * np.outer(2 * y - 1, [1, 0, 0])
        data[f"y{number}"] = 1 - y if flip else y
    exec(compile(code, "README.md", "exec"), data)
    shown = capsys.readouterr().out
    assert "3 clients" in shown.splitlines()[0]
    assert "east: " in shown
    assert "'north': 0.9" in shown.splitlines()[-1]
