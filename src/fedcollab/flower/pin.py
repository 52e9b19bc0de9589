"""Which code a silo runs for a coordinator: fedcollab's own, as installed here, unless its administrator allows more.

With Flower the coordinator sends an app (a zip file, the FAB) with every run, and the silo runs the ClientApp in it.
fedcollab's app holds no code: it names `fedcollab.flower.client:app`, which is installed at the silo. At a silo
that `fedcollab silo start` started, Flower's `flwr-clientapp` is this program: it is Flower's own, but looks at an app
before installing it. Anything else than an app without code that names that one is refused, unless silo.toml says

    [app]
    allow = ["9f2c..."]     # SHA-256 of apps that may run here as well, or "any"

Flower's own check (`--trusted-entities`) is for apps signed on its hub: see docs/threats.md.
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
import tomllib
import zipfile
from collections.abc import Collection
from importlib import import_module, metadata
from typing import Any

from fedcollab.errors import InputError
from fedcollab.flower.config import CONFIG, SIMULATION, SiloConfig

PROGRAM = "flwr-clientapp"
CLIENT = "fedcollab.flower.client:app"
TEXT = (".md", ".toml", ".txt", "LICENSE")  # files of an app that nothing runs
LARGEST = 1 << 20


def check_app(content: bytes, allow: Collection[str] | str = ()) -> None:
    """Refuse an app that is neither fedcollab's nor allowed."""
    digest = hashlib.sha256(content).hexdigest()
    if allow == "any" or (not isinstance(allow, str) and digest in allow):
        return
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as app:
            files = [
                entry for entry in app.infolist() if not entry.filename.startswith(".info/") and not entry.is_dir()
            ]
            code = [entry.filename for entry in files if not entry.filename.endswith(TEXT)]
            project = app.getinfo("pyproject.toml")
            if project.file_size > LARGEST:
                raise ValueError("its pyproject.toml is too large")
            components = tomllib.loads(app.read(project).decode())["tool"]["flwr"]["app"]["components"]
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError, OSError) as error:
        raise InputError(f"an app (SHA-256 {digest}) that cannot be read was refused: {error}") from None
    if code or components.get("clientapp") != CLIENT:
        what = f"it holds {code[0]}" if code else f"it runs {components.get('clientapp')}"
        raise InputError(
            f"an app with other code than fedcollab's was refused ({what}); to let it run at this silo: "
            f'[app] allow = ["{digest}"] in silo.toml'
        )


def allowed() -> Collection[str] | str:
    """What this silo's config allows beside fedcollab's own app."""
    if os.environ.get(SIMULATION):
        return "any"
    table = SiloConfig.read(os.environ[CONFIG]).more.get("app", {})
    allow = table.get("allow", [])
    if set(table) - {"allow"} or not (allow == "any" or (isinstance(allow, list) and all(map(_is_hash, allow)))):
        raise InputError('silo.toml: [app] must be allow = ["SHA-256", ...], or allow = "any"')
    return list(allow) if isinstance(allow, list) else str(allow)


def stand_guard() -> None:
    """From now on, Flower's program in this process installs no app that was not looked at."""
    program: Any = import_module("flwr.supernode.runtime.run_clientapp")
    install = program.install_from_fab  # fails loudly where a new Flower does it otherwise

    def checked(content: bytes, *rest: Any, **more: Any) -> Any:
        check_app(content, allowed())
        return install(content, *rest, **more)

    program.install_from_fab = checked


def main() -> None:
    """Flower's program, guarded."""
    stand_guard()
    (entry,) = (each for each in metadata.entry_points(group="console_scripts") if each.name == PROGRAM)
    sys.argv[0] = PROGRAM
    sys.exit(entry.load()())


def _is_hash(text: Any) -> bool:
    return isinstance(text, str) and len(text) == 64 and set(text) <= set("0123456789abcdef")


if __name__ == "__main__":
    main()
