"""Every table and figure of the paper by one command each: `fedcollab reproduce NAME`.

One file a table or figure, with only its difference in it. They share one cache of results (`cells`), one runner
(`runner`), one way to set a scenario up (`setups`) and one to show a number beside the paper's (`output`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcollab.lazy import lazily

if TYPE_CHECKING:
    from fedcollab.reproduce.cells import Cells
    from fedcollab.reproduce.document import write_docs
    from fedcollab.reproduce.experiment import Experiment
    from fedcollab.reproduce.experiments import EXPERIMENTS, METHODS, find
    from fedcollab.reproduce.runner import compute_missing, cores
    from fedcollab.reproduce.workspace import Choices, Workspace

__all__ = [
    "EXPERIMENTS",
    "METHODS",
    "Cells",
    "Choices",
    "Experiment",
    "Workspace",
    "compute_missing",
    "cores",
    "find",
    "write_docs",
]

# Altair is imported when an experiment is used, not when this package is.
__getattr__ = lazily(
    __name__,
    {
        "Cells": "cells",
        "Choices": "workspace",
        "EXPERIMENTS": "experiments",
        "Experiment": "experiment",
        "METHODS": "experiments",
        "Workspace": "workspace",
        "compute_missing": "runner",
        "cores": "runner",
        "find": "experiments",
        "write_docs": "document",
    },
)
