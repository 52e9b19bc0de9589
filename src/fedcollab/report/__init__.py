"""Stage 5: what to show to the partners. A page from a run directory, its pictures as figures, a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcollab.lazy import lazily
from fedcollab.report import theme

if TYPE_CHECKING:
    from fedcollab.report.figures import save_chart
    from fedcollab.report.page import need_charts, write, write_figures
    from fedcollab.report.run import read_run
    from fedcollab.report.terminal import (
        console,
        show_demo_start,
        show_distances,
        show_run,
        show_training,
    )
    from fedcollab.report.words import answer_sentence, coalition_line, range_of_names

__all__ = [
    "answer_sentence",
    "coalition_line",
    "console",
    "need_charts",
    "range_of_names",
    "read_run",
    "save_chart",
    "show_demo_start",
    "show_distances",
    "show_run",
    "show_training",
    "theme",
    "write",
    "write_figures",
]

# Altair, Jinja and Rich are imported when something is shown.
__getattr__ = lazily(
    __name__,
    {
        "read_run": "run",
        **dict.fromkeys(("answer_sentence", "coalition_line", "range_of_names"), "words"),
        **dict.fromkeys(("console", "show_demo_start", "show_distances", "show_run", "show_training"), "terminal"),
        **dict.fromkeys(("need_charts", "write", "write_figures"), "page"),
        "save_chart": "figures",
    },
)
