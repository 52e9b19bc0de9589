"""The study of real federations: on a made-up folder end to end, resumed and extended; figures from cells by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from fedcollab.cli import cli
from fedcollab.errors import InputError
from fedcollab.reproduce.federation_cells import POLICIES, cached, policy_cell, read_cells
from fedcollab.reproduce.federation_page import Page
from fedcollab.reproduce.federation_pictures import calibration, curve_of, gains, harmed
from fedcollab.reproduce.federation_study import Pooled, make_study, text_lines
from fedcollab.scenarios import federation_clients

ROOT = Path(__file__).resolve().parents[2]


def run(*words: str) -> Any:
    done = CliRunner().invoke(cli, ["reproduce", *words])
    if isinstance(done.exception, InputError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with two made-up federations of three clients."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    for name, flip in (("alike", False), ("other", True)):
        (folder / "federations" / name).mkdir(parents=True)
        for client in range(3):
            y = rng.integers(0, 2, 80)
            x = rng.normal(0, 1, (80, 2)) + np.outer(2 * y - 1, [1, 0])
            y = 1 - y if flip and client == 2 else y
            table = pd.DataFrame(x, columns=["a", "b"]).assign(label=np.where(y == 1, "yes", "no"))
            table.to_csv(folder / "federations" / name / f"c{client}.csv", index=False)
    return folder


def test_the_command_computes_resumes_extends_and_writes_the_page(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDCOLLAB_DATA", str(data))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    out = tmp_path / "results"
    words = ("federations", "--tiny", "--jobs", "1", "--out", str(out))
    run(*words, "--federations", "alike")
    cells = {file: read_cells(out / file) for file in ("advice.jsonl", "policies.jsonl", "procedures.jsonl")}
    assert [list(map(list, found)) for found in cells.values()] == [
        [["alike", 0, "logistic"]],
        [["alike", 0, "logistic", policy] for policy in ("everyone", "ditto", "own-intercept")],
        [["alike", 0, "logistic", policy] for policy in ("paper-hypothesis", "ifca")],
    ]
    assert cells["procedures.jsonl"]["alike", 0, "logistic", "ifca"]["names"] == ["c0", "c1", "c2"]
    before = {file: (out / file).read_text() for file in cells}

    def kept(*new: str) -> None:
        for file, text in before.items():
            assert (out / file).read_text().startswith(text)
        added = [len((out / file).read_text().splitlines()) for file in before]
        assert added == [int(number) for number in new]

    run(*words, "--federations", "alike")
    kept("1", "3", "2")  # nothing was computed again
    lines = before["policies.jsonl"].splitlines(keepends=True)
    (out / "policies.jsonl").write_text("".join(lines[:-1]))
    shown = run(*words, "--federations", "alike")
    assert "3 of 3: alike 0 logistic own-intercept" in shown
    kept("1", "3", "2")  # the one that was missing, with the same result
    run(*words)  # all that is here
    kept("2", "6", "4")
    assert {"federations.md", "federations.csv", "federations-gains.svg"} <= {path.name for path in out.iterdir()}

    docs = tmp_path / "docs"
    docs.mkdir()
    page = (ROOT / "docs" / "federations.md").read_text()
    (docs / "federations.md").write_text(page)
    (tmp_path / "README.md").write_text(
        "<!-- readme: begin -->\n<!-- readme: end -->\n<!-- ran: begin -->\n<!-- ran: end -->\n"
    )
    run("federations", "--tiny", "--out", str(out), "--write-docs", str(docs))
    made = (docs / "federations.md").read_text()
    assert "| alike | " in made
    assert "| heart | " not in made.split("<!-- logistic: begin -->")[1].split("<!-- logistic: end -->")[0]
    assert "12 cells" in made
    assert "## What these sets can show" in made
    readme = (tmp_path / "README.md").read_text()
    assert "| Logistic regression (1) | " in readme
    assert readme.endswith("<!-- ran: begin -->\n<!-- ran: end -->\n")


def test_refusals_are_one_line(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDCOLLAB_DATA", str(data))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    words = ("federations", "--tiny", "--out", str(tmp_path / "out"))
    with pytest.raises(InputError, match="run `fedcollab data get loans_states`"):
        run(*words, "--federations", "alike,loans_states")
    with pytest.raises(InputError, match=r"`federations` .*alikee.* did you mean 'alike'"):
        run(*words, "--federations", "alikee")
    with pytest.raises(InputError, match="`--rounds` and `--methods` are not for federations"):
        run(*words, "--rounds", "3")
    with pytest.raises(InputError, match="has no page of federations"):
        run(*words, "--write-docs", str(tmp_path))
    (tmp_path / "federations.md").write_text("")
    with pytest.raises(InputError, match="no complete cells of federations: run `fedcollab reproduce federations`"):
        run(*words, "--write-docs", str(tmp_path))
    (tmp_path / "cells.jsonl").write_text('[["a", 0], {}]\nnothing\n')
    with pytest.raises(InputError, match=r"cells.jsonl`, line 2, is not a cell"):
        read_cells(tmp_path / "cells.jsonl")
    with pytest.raises(InputError, match="policy"):
        policy_cell("alike", 0, "logistic", "everybody")


def test_the_last_line_of_a_key_counts(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    said: list[str] = []
    assert cached(path, [("a", 0), ("b", 0)], lambda name, split: {"v": name}, say=said.append)["b", 0] == {"v": "b"}
    assert said == ["1 of 2: a 0", "2 of 2: b 0"]
    assert cached(path, [("a", 0)], lambda name, split: {"v": "new"}, say=said.append)["a", 0] == {"v": "a"}
    assert cached(path, [("a", 0)], lambda name, split: {"v": "new"}, fresh=True, say=said.append)["a", 0]["v"] == "new"
    assert read_cells(path)["a", 0] == {"v": "new"}
    assert len(path.read_text().splitlines()) == 3


@pytest.mark.dataset("heart", "federations")
def test_cells_of_two_real_federations_are_those_in_results(tmp_path: Path) -> None:
    """The fixed policies are deterministic: what results/ holds is what the command computes today."""
    known = read_cells(ROOT / "results" / "policies.jsonl")
    for key in (("lalonde_cohorts", 0, "logistic", "everyone"), ("stackoverflow", 0, "logistic", "own-intercept")):
        made = json.loads(json.dumps(policy_cell(*key)))
        for measure in ("accuracy", "loss"):
            assert np.mean(made[measure]) == pytest.approx(np.mean(known[key][measure]), abs=0.02)
        assert len(made["loss"]) == len(federation_clients(key[0], 0))


def advice(alone: list[float], loss: list[float], expected: list[float], advised: str = "everyone, FedAvg") -> Any:
    """A cell of the advice with 40 test rows a client and a standard error of .01."""
    gain = [a - b for a, b in zip(alone, loss, strict=True)]
    return {
        "advised": advised, "verdict": "together", "loss": loss, "accuracy": [0.8] * len(loss),
        "rows": [50] * len(loss), "tests": [40] * len(loss),
        "gain": {"loss": gain, "accuracy": [0.0] * len(loss)},
        "stderr": {"loss": [0.01] * len(loss), "accuracy": [0.01] * len(loss)},
        "expected": {"loss": [[e, 0.01] for e in expected], "accuracy": [[0.0, 0.01]] * len(loss)},
        "alone": {"loss": alone, "accuracy": [0.7] * len(loss)}, "cpu": [10.0, 2.0],
    }  # fmt: skip


def by_hand() -> Any:
    """Two federations of two clients, one split: one gains as predicted, of the other one client is harmed."""
    advised = {
        ("north", 0, "mlp"): advice([0.5, 0.5], [0.4, 0.4], [0.1, 0.1]),
        ("south", 0, "mlp"): advice([0.5, 0.5], [0.6, 0.5], [0.05, 0.05]),
    }
    losses = {"everyone": 0.45, "ditto": 0.48, "own-intercept": 0.5}
    policies = {
        (name, 0, "mlp", policy): {"loss": [value] * 2, "accuracy": [0.75] * 2}
        for name in ("north", "south")
        for policy, value in losses.items()
    }
    policies |= {(*key, "alone"): cell["alone"] for key, cell in advised.items()}
    return advised, policies


def test_the_figures_by_hand() -> None:
    advised, policies = by_hand()
    study = make_study("mlp", ["north", "south"], range(1), advised, policies)
    north, south = study.lines
    assert north.gain == pytest.approx(0.1)
    assert north.noise == pytest.approx(np.sqrt(2) * 0.01 / 2)
    assert south.regret == pytest.approx(0.55 - 0.45)
    assert study.captured[0] == pytest.approx(100 * (0.5 - 0.475) / (0.5 - 0.45))
    assert study.worse == ["south"]
    assert [(client.federation, client.client) for client in study.harmed] == [("south", 0)]
    assert study.signs == (2, 3)
    assert study.sure_signs == (2, 3)  # .05 and .1 with a standard error of .01
    for wide in ("north", "south"):
        advised[wide, 0, "mlp"]["expected"]["loss"][0][1] = 0.2  # now nobody is sure of the first client of each
    assert make_study("mlp", ["north", "south"], range(1), advised, policies).sure_signs == (1, 1)
    assert study.coverage["loss"]["all"] == (0.5, 4)
    assert study.coverage["loss"]["under 60 rows"] == (0.5, 4)
    assert study.cost == 5
    text = "\n".join(text_lines(study))
    assert "Captured: 50 % in loss" in text
    assert "Clients harmed beyond two standard errors: 25.0 % of 4 (chance: 2.3 %)." in text
    assert set(study.means) == {*POLICIES, "oracle", "advice"}


def test_the_page_says_where_it_was_wrong_and_why(tmp_path: Path) -> None:
    advised, policies = by_hand()
    study = make_study("mlp", ["north", "south"], range(1), advised, policies)
    (tmp_path / "explanations.toml").write_text('[federations]\nsouth = "the wind."\n')
    page = Page([study], advised, policies, {}, tmp_path)
    wrong = page.wrong()
    assert "**south**. MLP: advised everyone, FedAvg (1); -0.050 ± 0.007 over alone, 0.100 behind the oracle" in wrong
    assert "Harmed: 1 of 2 clients (0 -0.100, predicted +0.050)." in wrong
    assert "*Why:* the wind." in wrong
    assert "north" not in wrong
    assert [table.key for table in page.tables()] == ["mlp", "clients"]
    for chart in (gains([study]), calibration([study]), harmed([study])):
        assert chart.to_dict()


def test_the_calibration_curve_has_the_means_of_equal_bins() -> None:
    clients = [Pooled("f", at, gain=at / 10, error=0.1, predicted=at / 20, tests=40) for at in range(8)]
    curve = curve_of(clients, bins=2)
    assert [round(part["measured"], 3) for part in curve] == [0.15, 0.55]
    assert [round(part["predicted"], 4) for part in curve] == [0.075, 0.275]
    assert curve[0]["low"] < 0.15 < curve[0]["high"]
    assert curve_of(clients[:1]) == []
