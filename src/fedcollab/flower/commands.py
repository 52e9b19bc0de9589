"""Several of Flower's commands in one process: importing Flower takes seconds, its commands do not.

    python -m fedcollab.flower.commands '[["supernode", "list", ...], ...]'

prints what each command prints, with a separator after each.
"""

from __future__ import annotations

import contextlib
import json
import sys
from importlib import metadata

SEPARATOR = "\x1e"


def main() -> None:
    """Run the commands, one after the other; one that fails does not stop the next."""
    (entry,) = (each for each in metadata.entry_points(group="console_scripts") if each.name == "flwr")
    flwr = entry.load()
    for arguments in json.loads(sys.argv[1]):
        sys.argv = ["flwr", *arguments]
        with contextlib.suppress(SystemExit):
            flwr()
        print(SEPARATOR, flush=True)


if __name__ == "__main__":
    main()
