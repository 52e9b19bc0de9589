"""The page as text: sections, escaping, size, and runs at every stage."""

import html
import json
import re
import shutil

import numpy as np
import pytest

from fedcollab import files as artefact
from fedcollab.coalitions import solve
from fedcollab.distances import Distances
from fedcollab.errors import InputError
from fedcollab.report import charts, write, write_figures
from fedcollab.report.clients import client_rows
from fedcollab.report.document import as_json
from fedcollab.report.run import read_run
from fedcollab.runs.pipeline import FedCollab

from .conftest import make_distances

NAMES = tuple("abcdef")


def page_of(folder, out):
    return write(folder, out / "report.html").read_text(encoding="utf-8")


def without_runtime(text):
    """The page without the chart library, which is not ours to judge."""
    return max(re.split(r"<script>", text), key=lambda part: part.count("<section")) + text.rpartition("<script>")[2]


def data_of(text, name="data"):
    return json.loads(re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', text, re.S)[1])


def test_the_sections_come_in_the_order_in_which_people_ask(run_of, tmp_path):
    text = page_of(run_of(NAMES), tmp_path)
    places = [
        text.index(f'<section id="{key}"') for key in ("answer", "change", "clients", "distances", "training", "made")
    ]
    assert places == sorted(places)
    assert "6 clients should train in 2 coalitions." in text
    assert "Proven: for these distances" in text
    assert text.count('class="missing"') == 1, "only the line for readers without JavaScript"


@pytest.mark.parametrize(("stage", "missing"), [("distances", 4), ("coalitions", 1)])
def test_a_stage_that_is_missing_says_what_to_run(run_of, tmp_path, stage, missing):
    text = page_of(run_of(NAMES, stage), tmp_path)
    assert text.count('class="missing"') - ("<noscript>" in text) == missing
    assert "Next: <code>fedcollab run --clients test</code>" in text


def test_a_path_that_a_membership_change_outdated_is_drawn_again(run_of, tmp_path):
    directory = shutil.copytree(run_of(NAMES), tmp_path / "run")
    whole = page_of(directory, tmp_path)
    (directory / "path.json").unlink()
    again = page_of(directory, tmp_path)
    assert again.count('class="missing"') == whole.count('class="missing"')
    assert "has not been computed" not in again


def test_any_name_stays_text(run_of, tmp_path, nasty):
    text = page_of(run_of(nasty), tmp_path)
    assert "<script>alert" not in text
    assert text.count("<script") == text.count("</script>") == 4
    assert data_of(text)["names"] == list(nasty)
    for name in nasty:
        assert html.escape(name).replace("&#x27;", "&#39;").replace("&quot;", "&#34;") in text
    assert "49" not in re.findall(r"<th scope=\"row\"[^>]*>([^<]*)<", text)


def test_json_cannot_leave_its_script_element():
    text = as_json({"<!--": "</script>\u2028&"})
    assert not set(text) & set("<>&\u2028")
    assert json.loads(text) == {"<!--": "</script>\u2028&"}


def test_the_page_asks_no_network_and_names_no_folder(run_of, tmp_path):
    folder = run_of(NAMES)
    text = page_of(folder, tmp_path)
    ours = without_runtime(text)
    assert not re.search(r"(src|href)=\"(?!#|data:)", ours)
    assert "default-src 'none'" in text
    assert str(folder) not in text


def test_two_hundred_clients_fit_in_three_megabytes(run_of, many, tmp_path):
    page = write(run_of(many), tmp_path)
    assert page == tmp_path / "report.html"
    assert page.stat().st_size < 3_000_000
    assert len(data_of(page.read_text(encoding="utf-8"))["slider"]["segments"]) == 200


def test_a_page_can_be_made_again(run_of, tmp_path):
    folder = run_of(NAMES)
    assert page_of(folder, tmp_path) == page_of(folder, tmp_path)
    assert write(folder) == folder / "report.html"


@pytest.mark.parametrize("count", [1, 2])
def test_few_clients(run_of, tmp_path, count):
    text = page_of(run_of(NAMES[:count], stderr=False), tmp_path)
    assert ("There is one client" in text) == (count == 1)


def test_pairs_that_were_never_measured_are_said(tmp_path):
    raw = np.array([[0, np.nan, 0.2], [np.nan, 0, 0.3], [0.2, 0.3, 0]])
    distances = Distances(raw, ("a", "b", "c"), np.array([10, 20, 30]))
    distances.save(tmp_path / "distances.json")
    text = page_of(tmp_path, tmp_path)
    assert "1 pair was never measured" in text
    assert data_of(text)["distance"] == [None, 200, 300]
    assert "not measured" in text


def test_replicates_tell_how_stable_the_answer_is(run_of, tmp_path):
    text = page_of(run_of(NAMES, "coalitions", replicates=4), tmp_path)
    assert "With resampled data (4 times), a client keeps exactly its partners in 100 % of the cases." in text


def test_gains_and_verdicts_after_training(run_of, tmp_path):
    text = page_of(run_of(NAMES), tmp_path)
    assert "In coalitions: 6 of 6 clients clearly gain against training alone, none clearly loses." in text
    assert "On average +10.0 points (90 % interval +8.9 to +11.1): a clear gain." in text
    assert "Everyone together: none of 6 clients clearly gains against training alone, 6 clearly lose." in text
    assert "a gains 10.0 points over training alone (90.0 against 80.0; 90 % interval of the gain" in text
    assert 'class="contradiction"' not in text
    charts = data_of(text, "charts")
    assert {"gains", "curve-1", "curve-2"} <= set(charts)
    rounds = {row["round"] for spec in charts["curve-1"]["datasets"].values() for row in spec}
    assert rounds == {1, 2, 3, 4}


def test_rows_of_clients_agree_with_the_answer(run_of):
    run = read_run(run_of(NAMES))
    rows = client_rows(run)
    assert sum(row.now for row in rows) == pytest.approx(run.collaboration.objective)
    assert {row.name: row.coalition - 1 for row in rows} == dict(
        zip(run.names, run.collaboration.assignment, strict=True)
    )
    assert all(row.margin >= -1e-9 for row in rows)
    assert all(row.gain == pytest.approx(0.1) for row in rows)


def test_a_client_alone_is_told_why(run_of, tmp_path):
    D = [[0, 0.05, 0.9], [0.05, 0, 0.9], [0.9, 0.9, 0]]
    distances = Distances(np.array(D), ("n", "s", "e"), np.array([100, 100, 5000]))
    distances.save(tmp_path / "distances.json")
    solve(distances, C=5).save(tmp_path / "collaboration.json")
    text = page_of(tmp_path, tmp_path)
    assert "2 of 3 clients should train in 1 coalition, 1 should train alone." in text
    assert "No partner is worth it: in coalition 1" in text


def test_bad_runs_end_in_one_clear_line(tmp_path, run_of):
    with pytest.raises(InputError, match="does not exist"):
        write(tmp_path / "nothing")
    with pytest.raises(InputError, match="holds no distances"):
        write(tmp_path)
    make = run_of(NAMES, "distances")
    (tmp_path / "distances.json").write_bytes((make / "distances.json").read_bytes())
    solve([[0, 0.1], [0.1, 0]], [1, 2], C=1, names=["x", "y"]).save(tmp_path / "collaboration.json")
    with pytest.raises(InputError, match="other clients"):
        write(tmp_path)
    artefact.write_json(tmp_path / "collaboration.json", "path", {})
    with pytest.raises(InputError, match="expected a collaboration"):
        write(tmp_path)


def test_a_real_run(clients, tmp_path):
    """What the stages themselves leave, at every stage of a run."""
    fitted = FedCollab(C=1.0, run_dir=tmp_path).fit(clients)
    assert "No model has been trained yet" in page_of(tmp_path, tmp_path)
    for way in ("local", "coalitions"):
        fitted.train(way=way, rounds=2, lr=0.1, evaluate_every=1)
    text = page_of(tmp_path, tmp_path)
    assert "Not trained yet: with everyone." in text
    assert "In coalitions: " in text
    assert {"labels", "gains", "curve-1"} <= set(data_of(text, "charts"))


def test_figures_for_papers(run_of, tmp_path):
    written = write_figures(run_of(tuple("abcd")), tmp_path / "figures", ("png", "svg", "pdf"))
    begins = {".png": b"\x89PNG", ".svg": b"<svg", ".pdf": b"%PDF"}
    assert {path.stem for path in written} >= {"matrix", "bounds", "path", "gains", "spread", "quantities", "labels"}
    for path in written:
        assert path.read_bytes().startswith(begins[path.suffix])
    with pytest.raises(InputError, match="formats"):
        write_figures(run_of(NAMES), tmp_path, ("bmp",))


def test_above_sixty_clients_the_matrix_names_coalitions() -> None:
    def texts(count: int) -> str:
        names = [f"client {k}" for k in range(count)]
        return charts.matrix(make_distances(names), np.arange(count) * 2 // count).to_json()

    assert "'coalition ' + datum.coalition" in texts(70)
    assert "'coalition ' + datum.coalition" not in texts(60)
