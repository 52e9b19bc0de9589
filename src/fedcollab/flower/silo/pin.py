"""Which code a silo runs for a coordinator: fedcollab's own, as installed here, unless its administrator allows more.

With Flower the coordinator sends an app (a zip file, the FAB) with every run, and the silo runs the ClientApp in it.
fedcollab's app holds no code: it names `fedcollab.flower.silo.client_app:app`, which is installed at the silo. The
silo's worker checks the app before every message. Anything else than an app without code that names that one is
refused, unless silo.toml says

    [app]
    allow = ["9f2c..."]     # SHA-256 of apps that may run here as well, or "any"

An app of fedcollab's with another protocol version is refused too. Flower's own check (`--trusted-entities`) is for
apps signed on its hub: see docs/threats.md.
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
import tomllib
import zipfile
from collections.abc import Collection

from fedcollab.errors import InputError
from fedcollab.flower.protocol import APP_NAME, CLIENT_APP, PROTOCOL, UNVERSIONED, check_protocol
from fedcollab.flower.silo.config import CONFIG, SIMULATION, SiloConfig

TEXT = (".md", ".toml", ".txt", "LICENSE")  # files of an app that nothing runs
LARGEST = 1 << 20


def check_app(content: bytes, allow: Collection[str] | str = ()) -> bool:
    """Refuse an app that is neither fedcollab's own nor allowed.

    Parameters
    ----------
    content : bytes
        The app, as the coordinator sent it.
    allow : collection of str or "any"
        SHA-256 of other apps that may run.

    Returns
    -------
    bool
        Whether it is fedcollab's own: without code, and of this protocol version.

    Raises
    ------
    InputError
        If the app must not run here.
    """
    digest = hashlib.sha256(content).hexdigest()
    try:
        _check_own(content, digest)
    except InputError:
        if allow == "any" or (not isinstance(allow, str) and digest in allow):
            return False
        raise
    return True


def _check_own(content: bytes, digest: str) -> None:
    """Raise InputError if an app is not fedcollab's own."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as app:
            files = [each.filename for each in app.infolist() if not each.is_dir()]
            code = [name for name in files if not name.startswith(".info/") and not name.endswith(TEXT)]
            project = app.getinfo("pyproject.toml")
            if project.file_size > LARGEST:
                raise ValueError("its pyproject.toml is too large")
            settings = tomllib.loads(app.read(project).decode())
        name, flower = settings["project"]["name"], settings["tool"]["flwr"]["app"]
        component = flower["components"].get("clientapp")
        version = int(flower.get("config", {}).get("protocol", UNVERSIONED))
    except (zipfile.BadZipFile, KeyError, TypeError, AttributeError, ValueError, OSError) as error:
        raise InputError(f"an app (SHA-256 {digest}) that cannot be read was refused: {error}") from None
    if not code and name == APP_NAME:
        check_protocol(coordinator=version, silo=PROTOCOL)
    if code or component != CLIENT_APP:
        what = f"it holds {code[0]}" if code else f"it runs {component}"
        raise InputError(
            f"an app with other code than fedcollab's was refused ({what}); to let it run at this silo: "
            f'[app] allow = ["{digest}"] in silo.toml'
        )


def check_received_app(content: bytes) -> bool:
    """Refuse an app that this silo's config does not allow, with a line in the silo's log and to the coordinator.

    Parameters
    ----------
    content : bytes
        The app, as the coordinator sent it.

    Returns
    -------
    bool
        Whether it is fedcollab's own.

    Raises
    ------
    InputError
        If it must not run here.
    """
    try:
        return check_app(content, allowed_apps())
    except InputError as error:
        print(f"fedcollab: {error}", file=sys.stderr, flush=True)
        raise


def allowed_apps() -> Collection[str] | str:
    """Return the apps that this silo's config allows beside fedcollab's own: their SHA-256, or "any"."""
    return "any" if os.environ.get(SIMULATION) else SiloConfig.read(os.environ[CONFIG]).app.allow
