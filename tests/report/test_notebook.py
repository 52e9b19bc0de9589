"""How results look in a notebook."""

import ast
import json
from pathlib import Path

import pytest

from fedcollab.report import notebook
from fedcollab.report.run import read_run


@pytest.fixture
def run(run_of, nasty):
    return read_run(run_of(nasty))


def test_tables_escape_names(run):
    tables = [
        run.distances._repr_html_(),
        run.collaboration._repr_html_(),
        run.results["coalitions"]._repr_html_(),
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
        run.distances.plot(),
        run.distances.plot(run.collaboration),
        run.collaboration.plot(),
        run.results["coalitions"].plot(),
    ]
    for chart in charts:
        assert chart.to_dict()["$schema"].startswith("https://vega.github.io/schema/vega-lite/")


def test_the_example_notebook_runs():
    """Every cell, in order; what a cell ends with must show itself as a notebook would."""
    content = json.loads((Path(__file__).parents[2] / "examples" / "notebook.ipynb").read_text(encoding="utf-8"))
    space: dict[str, object] = {}
    shown = []
    for cell in content["cells"]:
        if cell["cell_type"] != "code":
            continue
        cell_code = ast.parse("".join(cell["source"]))
        last = cell_code.body[-1]
        if isinstance(last, ast.Expr):
            kept = ast.Assign([ast.Name("_", ast.Store())], last.value)  # as an interactive session keeps a value
            cell_code.body[-1] = ast.fix_missing_locations(ast.copy_location(kept, last))
        exec(compile(cell_code, "notebook", "exec"), space)
        if isinstance(last, ast.Expr):
            value = space["_"]
            shown.append(type(value).__name__)
            assert (
                value is None or isinstance(value, list) or hasattr(value, "_repr_html_") or hasattr(value, "to_dict")
            )
    assert shown == [
        "Distances",
        "LayerChart",
        "Collaboration",
        "LayerChart",
        "NoneType",
        "list",
        "TrainingResult",
        "LayerChart",
    ]
