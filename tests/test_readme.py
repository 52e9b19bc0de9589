"""What the README shows is what happens: its demo, its Python, its links."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def test_the_demo_tells_the_story_that_the_readme_shows(tmp_path: Path) -> None:
    program = "from fedcollab.cli import main; main()"
    command = [sys.executable, "-c", program, "demo", "--json", "--out", str(tmp_path / "demo")]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout)
    assert (tmp_path / "demo" / "report.html").stat().st_size < 3_000_000
    assert answer["optimal"]
    for number, members in enumerate(answer["coalitions"], 1):
        assert f"{number}. {members[0]} … {members[-1]}  ({len(members)} clients" in README
    means = {way: result["mean_accuracy"] for way, result in answer["results"].items()}
    assert means["global"] < means["local"] < means["coalitions"]
    assert answer["results"]["coalitions"]["ipr"] > answer["results"]["global"]["ipr"]


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
    assert shown.startswith(("[['east'], ['north', 'south']]", "[['north', 'south'], ['east']]"))
    assert "east" in shown.splitlines()[1]


def test_every_page_that_is_linked_is_there() -> None:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_benchmark_that_is_named_is_there() -> None:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"benchmarks/\w+\.py", page.read_text()):
            assert (ROOT / target).exists(), f"{page.name} names {target}"
