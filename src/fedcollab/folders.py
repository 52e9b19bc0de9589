"""Folders of the user: where own data lies, and where things are kept that can be made again."""

from __future__ import annotations

import os
from pathlib import Path


def own_folder() -> Path | None:
    """The user's own data folder, if FEDCOLLAB_DATA names one."""
    value = os.environ.get("FEDCOLLAB_DATA", "").strip()
    return Path(value).expanduser() if value else None


def cache_folder() -> Path:
    """`fedcollab` in the user's cache folder (XDG_CACHE_HOME, or LOCALAPPDATA on Windows, or ~/.cache)."""
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(base) if base else Path.home() / ".cache") / "fedcollab"
