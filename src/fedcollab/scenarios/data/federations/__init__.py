"""Real federations: sixteen tables with natural clients; where each comes from, and how clients and label are made."""

from __future__ import annotations

from fedcollab.scenarios.data.federations.tables import (
    COLLECTION,
    TABLES,
    Table,
    find,
    get,
    located,
    read_table,
    tables_here,
)

__all__ = ["COLLECTION", "TABLES", "Table", "find", "get", "located", "read_table", "tables_here"]
