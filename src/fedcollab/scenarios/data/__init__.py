"""Data sets: where they are, how to get them, and their content as arrays. No file is ever unpickled."""

from __future__ import annotations

from fedcollab.files import cache_folder, own_folder
from fedcollab.scenarios.data.base import DataSet, Images, silent
from fedcollab.scenarios.data.federations import TABLES
from fedcollab.scenarios.data.store import DATA_SETS, Place, arrays, get, images, place

__all__ = ["DATA_SETS", "DataSet", "Images", "Place", "arrays", "cache_folder", "get", "images", "own_folder", "place"]
__all__ += ["TABLES", "silent"]
