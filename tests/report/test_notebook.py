"""How results look in a notebook."""

import pytest

from fedcollab.report import notebook
from fedcollab.report.run import read_run


@pytest.fixture
def run(run_of, nasty):
    return read_run(run_of(nasty))


def test_tables_escape_names(run):
    tables = [
        notebook.distances_html(run.distances),
        notebook.collaboration_html(run.collaboration),
        notebook.training_html(run.results["coalitions"]),
    ]
    for table in tables:
        assert "<script" not in table
        assert "&lt;script&gt;" in table
        assert table.count("<table") == table.count("</table>") == 1
    assert "2 coalitions" in tables[1]
    assert "mean accuracy 90.3 %" in tables[2]


def test_many_clients_are_summed_up(run_of, many):
    run = read_run(run_of(many))
    assert "<td" not in notebook.distances_html(run.distances)
    assert len(notebook.collaboration_html(run.collaboration)) < 10_000


def test_plots_are_charts(run):
    charts = [
        notebook.plot_distances(run.distances),
        notebook.plot_distances(run.distances, run.collaboration),
        notebook.plot_collaboration(run.collaboration),
        notebook.plot_training(run.results["coalitions"]),
    ]
    for chart in charts:
        assert chart.to_dict()["$schema"].startswith("https://vega.github.io/schema/vega-lite/")
