"""The report as a product: one scale of colours, names or groups in pictures, words instead of powers of ten."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fedcollab.report import charts, read_run, write
from fedcollab.report.pictures import pictures

from .conftest import make_distances


@pytest.mark.parametrize("field", ["d", "e"])
def test_every_matrix_has_one_scale_of_colours(field: str) -> None:
    heat = charts.matrix(make_distances(tuple("abcd")), field=field).to_dict()["layer"][0]
    assert heat["encoding"]["color"]["condition"]["scale"]["domain"] == [0, 1]


@pytest.mark.parametrize("count", [30, 60])
def test_a_matrix_names_every_client(count: int) -> None:
    """Vega thins the values of an axis to its count of ticks, which is one for every 40 pixels unless it is given."""
    heat = charts.matrix(make_distances(tuple(f"client-{i:02d}" for i in range(count)))).to_dict()["layer"][0]
    for side in ("x", "y"):
        axis = heat["encoding"][side]["axis"]
        assert len(axis["values"]) == axis["tickCount"] == count


@pytest.mark.parametrize("count", [60, 61])
def test_clients_are_named_up_to_sixty_and_in_groups_above(run_of: Callable[..., Path], count: int) -> None:
    names = tuple(f"client-{i:02d}" for i in range(count))
    made = pictures(read_run(run_of(names)), None, live=False)
    for key in ("quantities", "gains", "bounds", "labels"):
        spec = made[key].to_dict()
        encoding = (spec["layer"][0] if "layer" in spec else spec)["encoding"]
        assert encoding["x"]["axis"]["labels"], key
        data = spec["data"] if "data" in spec else spec["layer"][0]["data"]
        values = data["values"] if "values" in data else spec["datasets"][data["name"]]
        shown = {row["name"] for row in values}
        assert shown == set(names) if count == 60 else all("client" in name or "quarter" in name for name in shown)
        assert count == 60 or len(shown) < 20, key


def test_the_page_has_a_scale_of_c_and_folds_its_small_print(run_of: Callable[..., Path]) -> None:
    text = write(run_of(tuple("abcdef"))).read_text(encoding="utf-8")
    scale = re.search(r'<p class="scale"[^>]*>(.*?)</p>', text)
    assert scale is not None
    values = [float(value.replace(",", "")) for value in re.findall(r"<span>(?:C = )?([\d.,]+)</span>", scale[1])]
    assert len(values) >= 2
    assert values == sorted(values)
    made = text.split('<section id="made"')[1]
    assert made.index("<details>") < made.index("<dl>") < made.index("</details>")
    assert not re.search(r"\de\+\d\d (%|samples)", text)
