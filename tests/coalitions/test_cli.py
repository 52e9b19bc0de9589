import json

import numpy as np
import pytest
from click.testing import CliRunner

from fedcollab.cli.coalitions import explain, path, solve
from fedcollab.coalitions import Collaboration
from fedcollab.distances.result import Distances
from fedcollab.errors import InputError


@pytest.fixture
def files(reference, tmp_path):
    D, m, _ = reference.planted(2, 3, 0)
    Distances(D, tuple(f"site-{letter}" for letter in "abcdef"), m.astype(int)).save(tmp_path / "distances.json")
    np.savetxt(tmp_path / "D.csv", D, delimiter=",")
    np.savetxt(tmp_path / "m.csv", m)
    return tmp_path


def run(command, *arguments):
    return CliRunner().invoke(command, [str(argument) for argument in arguments], catch_exceptions=False).output


def test_solve_answers_first_and_in_words(files):
    output = run(solve, files / "distances.json", "--C", "10", "-o", files / "answer.json")
    assert output.startswith("6 clients should train in 2 coalitions; proven optimal for C = 10.")
    assert "1. site-a, site-b, site-c  (3 clients" in output
    assert Collaboration.load(files / "answer.json").optimal


def test_solve_prints_json_for_programs(files):
    content = json.loads(run(solve, files / "distances.json", "--method", "exact", "--json"))
    assert content["coalitions"] == [["site-a", "site-b", "site-c"], ["site-d", "site-e", "site-f"]]
    assert content["optimal"] is True
    assert content["gap"] == 0


def test_plain_csv_needs_no_names(files):
    content = json.loads(run(solve, "--matrix", files / "D.csv", "--quantities", files / "m.csv", "--json"))
    assert content["coalitions"] == [[0, 1, 2], [3, 4, 5]]
    apart = ["--matrix", files / "D.csv", "--quantities", files / "m.csv", "--cannot-link", "0,1", "--json"]
    assert all(not {0, 1} <= set(members) for members in json.loads(run(solve, *apart))["coalitions"])


@pytest.mark.parametrize(
    ("matrix", "quantities"),
    [
        ("a;b\n0;0.1\n0.1;0\n", "b;20\na;10\n"),
        (",a,b\na,0,0.1\nb,0.1,0\n", "client,samples\na,10\nb,20\n"),
        ("a,0,0.1\nb,0.1,0\n", "10,20\n"),
        ("0 0.1\n0.1 0\n", "10\n20\n"),
        ("0\t0.1\n\n0.1\t0\n", "samples\n10\n20\n"),
    ],
)
def test_csv_in_the_shapes_people_have(tmp_path, matrix, quantities):
    (tmp_path / "D.csv").write_text(matrix)
    (tmp_path / "m.csv").write_text(quantities)
    output = run(solve, "--matrix", tmp_path / "D.csv", "--quantities", tmp_path / "m.csv", "-o", tmp_path / "o.json")
    assert output.startswith("Both clients should train together")
    assert Collaboration.load(tmp_path / "o.json").quantities.tolist() == [10, 20]


def test_explain_one_client_and_all(files):
    run(solve, files / "distances.json", "-o", files / "answer.json")
    words = run(explain, files / "answer.json", "--client", "site-a")
    assert words.startswith("site-a (")
    assert "Alone it would be" in words
    assert "With everyone it would be" in words
    assert "With site-d, site-e, site-f it would be" in words
    one = json.loads(run(explain, files / "answer.json", "--client", "site-a", "--json"))
    assert one["now"]["bound"] == pytest.approx(one["now"]["generalisation"] + one["now"]["shift"])
    everyone = json.loads(run(explain, files / "answer.json", "--json"))
    assert sum(story["now"]["bound"] for story in everyone) == pytest.approx(
        Collaboration.load(files / "answer.json").objective
    )
    assert "best elsewhere" in run(explain, files / "answer.json")


def test_path_shows_every_partition_and_a_suggestion(files):
    output = run(path, files / "distances.json")
    assert output.startswith("Suggested C = ")
    assert "everyone alone" in output
    assert "everyone together" in output
    assert output.count("<- suggested") == 1
    content = json.loads(run(path, files / "distances.json", "--json"))
    assert content["segments"][content["suggested"]]["coalitions"][0] == ["site-a", "site-b", "site-c"]
    assert content["segments"][-1]["c_high"] is None
    chosen = json.loads(run(solve, files / "distances.json", "--json"))
    assert chosen["C"] == pytest.approx(content["suggested_C"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "either a distances file or --matrix"),
        (["--matrix", "D.csv"], "--matrix needs --quantities"),
        (["--matrix", "nothing.csv", "--quantities", "m.csv"], "`nothing.csv` does not exist"),
        (["distances.json", "--quantities", "m.csv"], "--quantities goes with --matrix"),
        (["distances.json", "--C", "-1"], "`C`"),
        (["distances.json", "--must-link", "site-a,site-z"], "`must_link` (='site-z')"),
        (["--matrix", "ragged.csv", "--quantities", "m.csv"], "row 2 holds 1 numbers"),
        (["--matrix", "word.csv", "--quantities", "m.csv"], "'x'; expected a number"),
        (["--matrix", "empty.csv", "--quantities", "m.csv"], "is empty"),
        (["--matrix", "D.csv", "--quantities", "word.csv"], "expected a number of samples"),
    ],
)
def test_bad_input_is_one_line(files, monkeypatch, arguments, words):
    monkeypatch.chdir(files)
    (files / "ragged.csv").write_text("0,0.1\n0.1\n")
    (files / "word.csv").write_text("0,0.1\n0.1,x\n")
    (files / "empty.csv").write_text("\n")
    with pytest.raises(InputError) as error:
        run(solve, *arguments)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("command", [solve, explain, path])
def test_help_has_examples(command):
    assert "Examples:" in run(command, "--help")
