"""An advice on the page and on the terminal: verdict, expected gains, what was tried, what training may contradict."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedcollab.advice.gains import Expected
from fedcollab.advice.result import Advice
from fedcollab.coalitions import personal_weights
from fedcollab.distances import Distances
from fedcollab.report import read_run, show_advice, write, write_figures
from fedcollab.report.advised import client_sentence, expected_rows, gain_cell
from fedcollab.report.measured import advice_section, fit_words, weight_picture
from fedcollab.report.ways import follows, way_words
from fedcollab.runs.pipeline import FedCollab
from fedcollab.training import TrainingResult

from .conftest import make_advice, make_advised_run, make_distances, make_training
from .test_page import data_of

NAMES = ("north", "south", "east", "west")
PLACE = {name: place for place, name in enumerate(NAMES)}


@pytest.fixture(scope="module")
def advised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four clients that were trained as advised: together, by Ditto with an own intercept."""
    return make_advised_run(tmp_path_factory.mktemp("advised"), NAMES)


@pytest.fixture(scope="module")
def page(advised: Path) -> str:
    """Its page."""
    return write(advised).read_text(encoding="utf-8")


def plain(text: str) -> str:
    """The text of the page's sections without marks, in single spaces."""
    body = text[text.index("<main>") : text.index("</main>")]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


def test_the_verdict_and_the_gains_come_before_all_else(page: str) -> None:
    headline = "All 4 clients should train together, by Ditto with an own intercept."
    places = [
        page.index(part) for part in (headline, 'id="expected"', 'id="advice"', 'id="change"', 'id="matrix-fixed"')
    ]
    assert places == sorted(places)
    assert places[0] < page.index("Measured after training") < places[1], "the gain in words is above the picture"
    said = plain(page)
    assert "Expected on average, against training alone: +0.6 points (80 % interval +0.3 to +0.9)" in said
    assert "2 of 4 clients gain with a probability of at least 90 %; more likely to lose than to gain: west." in said
    assert "Too few training rows to be measured: west." in said
    assert "Measured after training: +3.0 points on average" in said


def test_every_client_has_its_sentence(page: str) -> None:
    """The row names client and coalition already: the gain alone is told, once a client."""
    said = plain(page).partition("Expected (80 % interval), and why")[2]
    assert "+5.0 points (+3.7 to +6.3), probability of gaining .99. By the bound:" in said
    assert said.count("probability of gaining") == len(NAMES)
    assert "by Ditto" not in said.partition("Settings")[0]


def test_a_client_that_trains_alone_and_one_with_few_rows_are_told_so() -> None:
    advice = make_advice(make_distances(NAMES))
    assert client_sentence(replace(advice, weights=np.eye(len(NAMES))), "north") == "Alone."
    assert client_sentence(advice, "west").endswith(", from the others' measurements: it has too few rows.")


def test_what_the_bound_says_otherwise_is_said_as_its_word(page: str) -> None:
    """The planted advice puts all together, though by the bound north would lower the total by leaving."""
    said = plain(page)
    assert "By the bound: More data saves it" in said
    assert re.search(r"Training alone: 0\.\d+ lower in total\.", said)


def test_gains_expected_and_measured_stand_side_by_side(advised: Path) -> None:
    run = read_run(advised)
    assert run.advice is not None
    rows = {(row["name"], row["kind"]): row for row in expected_rows(run, run.advice, PLACE)}
    assert len(rows) == 8
    north = rows["north", "expected"]
    assert (north["gain"], north["low"], north["high"]) == (5.0, 3.72, 6.28)
    measured = rows["west", "measured after training"]
    assert measured["gain"] == pytest.approx(3.0)
    assert measured["low"] < 3.0 < measured["high"]


def test_before_training_nothing_is_measured(tmp_path: Path) -> None:
    folder = make_advised_run(tmp_path, NAMES, trained=False)
    run = read_run(folder)
    assert run.advice is not None
    assert {row["kind"] for row in expected_rows(run, run.advice, PLACE)} == {"expected"}
    said = plain(write(folder).read_text(encoding="utf-8"))
    assert "Measured after training" not in said
    assert "No model has been trained yet" in said


def test_many_clients_are_drawn_in_groups(tmp_path: Path) -> None:
    """61 clients: in two coalitions they are those groups; all together they are quarters by training samples."""
    names = tuple(f"client-{i:02d}" for i in range(61))
    run = read_run(make_advised_run(tmp_path / "two", names, "coalitions", trained=False))
    assert run.advice is not None
    rows = expected_rows(run, run.advice, {})
    assert [row["name"] for row in rows] == ["coalition 1 (31 clients)", "coalition 2 (30 clients)"]
    means = 100 * np.array([run.advice.gains[name].accuracy.mean for name in names])
    assert [row["gain"] for row in rows] == pytest.approx([means[:31].mean(), means[31:].mean()], abs=0.005)
    run = read_run(make_advised_run(tmp_path / "all", names, "together", trained=False))
    assert run.advice is not None
    rows = expected_rows(run, run.advice, {})
    assert [row["place"] for row in rows] == [0, 1, 2, 3]
    assert rows[0]["name"] == "quarter 1: 20 to 20 samples"
    assert rows[3]["name"] == "quarter 4: 400 to 400 samples"


def test_the_candidates_are_listed_and_the_advised_one_is_marked(advised: Path) -> None:
    run = read_run(advised)
    section = advice_section(run)
    assert section is not None
    rows = section["candidates"]
    assert [row["label"] for row in rows if row["advised"]] == ["everyone, Ditto with an own intercept"]
    assert [row["remark"] for row in rows] == ["", "advised", "", "", "ended early: clearly behind"]
    assert rows[0]["loss"] == "–", "alone is what gains are against"
    assert rows[2]["loss"] == "+0.050 (+0.024 to +0.076)"
    assert rows[2]["accuracy"] == "+0.5 (+0.2 to +0.8)"
    assert (rows[2]["held_out"], rows[2]["rounds"]) == ("0.450", "4 to 6")


def test_hard_coalitions_are_held_against_own_weights(advised: Path) -> None:
    """By the bound: everyone in one coalition at C = 5, against the sum of the lowest bounds."""
    run = read_run(advised)
    section, distances = advice_section(run), run.distances
    assert section is not None
    m = distances.quantities / distances.quantities.sum()
    everyone = 5 / np.sqrt(distances.quantities.sum()) + (distances.matrix @ m).mean()
    least = personal_weights(distances, None, 5.0)[1].mean()
    hard, own = section["against"]
    assert float(hard["bound"]) == pytest.approx(everyone, rel=0.005)
    assert float(own["bound"]) == pytest.approx(least, rel=0.005)
    assert (hard["label"], own["label"]) == ("everyone, Ditto with an own intercept", "own weights")
    assert f"own weights are better by {100 * (1 - least / everyone):.1f} % than these" in section["against_words"]
    assert "the loss that is expected of them is higher by 0.020 than in coalitions" in section["against_words"]


@pytest.mark.parametrize("kind", ["together", "coalitions", "own weights"])
def test_the_picture_of_the_weights(tmp_path: Path, kind: str) -> None:
    folder = make_advised_run(tmp_path, NAMES, kind, trained=False)
    run = read_run(folder)
    assert run.advice is not None
    picture = weight_picture(run, run.advice)
    assert picture is not None
    assert picture.matrix.sum(axis=1) == pytest.approx(np.ones(4))
    text = write(folder).read_text(encoding="utf-8")
    assert data_of(text)["weights"] == np.rint(1000 * picture.matrix).astype(int).tolist()
    heat = data_of(text, "charts")["weights"]["layer"][0]["encoding"]["color"]["scale"]
    assert heat["domain"] == [0, 1]
    assert ("these would be best:" in text) == (kind == "own weights")


def test_alone_has_no_chart_of_gains_and_no_weights(tmp_path: Path) -> None:
    text = write(make_advised_run(tmp_path, NAMES, "alone")).read_text(encoding="utf-8")
    assert not {"expected", "weights"} & set(data_of(text, "charts"))
    assert "Each of the 4 clients should train alone." in text
    assert 'id="advice"' in text


@pytest.mark.parametrize(
    ("fit", "words"),
    [
        ({"pairs": 0}, "could not be fitted"),
        ({"a": 0.8, "b": 0.2, "C": 4.0, "explained": 0.4, "pairs": 9}, "C = a / b = 4 for this model and these data; "
         "it explains 40 % of how gains differ"),
        ({"a": 0.8, "b": 0.0, "C": None, "explained": -0.1, "pairs": 9}, "distance does not matter, as far as could be "
         "measured, and there is no C; it explains nothing"),
        ({"a": 0.0, "b": 0.3, "C": None, "explained": 0.1, "pairs": 9}, "distance alone matters"),
    ],
)  # fmt: skip
def test_the_fitted_bound_in_words(fit: dict[str, float], words: str) -> None:
    advice = replace(make_advice(make_distances(NAMES)), fit=fit)
    assert words in fit_words(advice)


def test_what_separates_the_clients_and_whether_it_matters(page: str) -> None:
    assert "Clients differ most in scanner and &lt;b&gt;dose; the rule changes with &lt;b&gt;dose." in page
    assert "scanner: clients&#39; means differ by 2.5 times its spread within a client" in page
    assert "<b>dose" not in page


def test_a_gain_that_nobody_could_measure_is_not_known() -> None:
    nothing = Expected(0.0, float("inf"))
    assert gain_cell(nothing, "accuracy") == "not known"
    advice = make_advice(make_distances(NAMES))
    gains = {name: replace(gain, accuracy=nothing) for name, gain in advice.gains.items()}
    assert client_sentence(replace(advice, gains=gains), "north") == "Gain not known: nobody could be measured."


def test_the_training_that_follows_an_advice_is_called_that(advised: Path, page: str) -> None:
    run = read_run(advised)
    assert run.judgement is not None
    assert run.judgement.ways == {"local": "alone", "global": "everyone together", "coalitions": "as advised"}
    assert run.judgement.sentences()[0].startswith("As advised: 4 of 4 clients clearly gain against training alone")
    said = plain(page)
    assert "in coalitions" not in said.partition("What training gave")[2].partition("Verdict for each")[0]
    ways = {row["way"] for data in data_of(page, "charts")["gains"]["datasets"].values() for row in data}
    assert ways == {"alone", "everyone together", "as advised"}
    assert way_words({}, None)["coalitions"] == "in coalitions"


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"method": "fedavg"}, False),
        ({"settings": {"options": {"lam": 0.3}, "keep": ["2.bias"]}}, False),
        ({"settings": {"options": {"lam": 1.0}, "keep": []}}, False),
        ({"settings": {"options": {"lam": 1.0, "steps": 2}, "keep": ["2.bias"]}}, True),
        ({"coalitions": [["north", "south"], ["east", "west"]]}, False),
    ],
)
def test_which_training_follows_an_advice(advised: Path, change: dict[str, object], same: bool) -> None:
    advice = Advice.load(advised)
    result = TrainingResult.load(advised / "training" / "coalitions")
    assert follows(replace(result, **change), advice) == same  # type: ignore[arg-type]


def test_what_was_advised_is_what_training_can_contradict(tmp_path: Path) -> None:
    """Training alone is better by ten points: than the advice if that was trained, else nothing is contradicted."""
    folder = make_advised_run(tmp_path, NAMES)
    target = folder / "training/coalitions/training.json"
    followed = TrainingResult.load(target)
    worse = make_training(NAMES, followed.coalitions, 0.7).measures
    replace(followed, measures=worse).save(target)
    judgement = read_run(folder).judgement
    assert judgement is not None
    (line,) = judgement.contradictions()
    assert "training alone is better than what was advised: by 10.0 points" in line
    replace(followed, measures=worse, method="fedavg").save(target)
    other = read_run(folder).judgement
    assert other is not None
    assert other.contradictions() == []
    assert other.ways["coalitions"] == "in coalitions"
    assert "is not what was advised (everyone, Ditto with an own intercept)" in other.remarks()[0]
    assert "Measured after training" not in write(folder).read_text(encoding="utf-8")


def test_clients_in_another_order_keep_their_gains(tmp_path: Path) -> None:
    folder = make_advised_run(tmp_path, NAMES)
    text = write(folder).read_text(encoding="utf-8")
    Advice.load(folder).in_order(NAMES[::-1]).save(folder / "advice.json")
    assert write(folder).read_text(encoding="utf-8") == text


def test_two_hundred_clients_with_an_advice_fit_in_three_megabytes(many: tuple[str, ...], tmp_path: Path) -> None:
    assert write(make_advised_run(tmp_path, many, "own weights")).stat().st_size < 3_000_000


def test_figures_of_an_advice(advised: Path, tmp_path: Path) -> None:
    written = {path.stem: path for path in write_figures(advised, tmp_path, ("png",))}
    assert {"expected", "weights"} <= set(written)
    assert written["weights"].read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("count", [4, 40])
def test_the_terminal_shows_the_gain_of_each_client(count: int, capsys: pytest.CaptureFixture[str]) -> None:
    names = tuple(f"site-{i:02d}" for i in range(count))
    show_advice(make_advice(make_distances(names)))
    printed = capsys.readouterr().out
    assert printed.startswith(f"All {count} clients should train together, by Ditto with an own intercept.")
    lines = [line for line in printed.splitlines() if line.startswith("site-")]
    assert lines[0].split() == ["site-00", "+5.0", "+3.7", "to", "+6.3", "99", "%"]
    assert len(lines) == min(count, 30)
    assert ("The 15 clients that gain most and least, of 40:" in printed) == (count == 40)


def test_a_real_advice(clients: list[object], tmp_path: Path) -> None:
    """What the stages themselves leave: advice, training as advised, and the page of both."""
    fitted = FedCollab(run_dir=tmp_path).fit(clients)
    asked = {"rounds": 3, "lr": 0.1}
    for way in ("coalitions", "local"):
        fitted.train(way=way, **asked)
    run = read_run(tmp_path)
    assert run.advice is not None
    assert run.judgement is not None
    assert run.judgement.ways["coalitions"] == "as advised"
    assert Distances.load(tmp_path).names == run.advice.names
    text = write(tmp_path).read_text(encoding="utf-8")
    assert str(run.advice).partition("\n")[0] in text
    assert text.count(' class="best"') == 2, "the advised candidate, and the training that follows it"
