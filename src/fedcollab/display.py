"""How results look in a notebook: drawn by whatever package registers under the entry points `fedcollab.display`.

Stages must not import the report, which comes after them; their `_repr_html_` and `.plot` find it here by name.
"""

from __future__ import annotations

from typing import Any

GROUP = "fedcollab.display"


def display(name: str, *values: Any) -> Any:
    """Return what the function registered under this name makes of the values.

    Parameters
    ----------
    name : str
        The entry point, such as "distances_html".
    *values
        What to show.
    """
    from importlib.metadata import entry_points  # costs more than all else at start-up

    (entry,) = entry_points(group=GROUP, name=name)
    return entry.load()(*values)
