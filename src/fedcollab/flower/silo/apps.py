"""Apps of others, which a silo's administrator has allowed: installed for one message.

Flower's installer takes 17 MB and is imported when the first such app comes: a silo that serves fedcollab's own app
alone never has it in memory.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, cast

from flwr.clientapp import ClientApp
from flwr.common.config import get_metadata_from_config, get_project_config

INSTALLER, LOADER = "flwr.cli.install", "flwr.clientapp.utils"


def import_installer() -> None:
    """Import Flower's installer, so that every child that is forked for an app has it."""
    for module in (INSTALLER, LOADER):
        import_module(module)


def install_app(fab: bytes, folder: Path) -> ClientApp:
    """Install an app into an empty folder, and load its ClientApp.

    Parameters
    ----------
    fab : bytes
        The app, as a zip file.
    folder : Path
        The folder; nothing that an earlier installation has left broken can be in it.
    """
    from flwr.cli.install import install_from_fab
    from flwr.clientapp.utils import get_load_client_app_fn

    placed = install_from_fab(fab, install_dir=folder, skip_prompt=True)
    load: Any = get_load_client_app_fn(default_app_ref="", app_path=str(placed), multi_app=True)
    identifier, version = get_metadata_from_config(get_project_config(placed))
    return cast(ClientApp, load(identifier, version, ""))
