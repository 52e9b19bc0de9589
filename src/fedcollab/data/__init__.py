"""What the clients have: ClientData, reading people's own files, and federated preprocessing."""

from __future__ import annotations

from fedcollab.data.client import ClientData
from fedcollab.data.read import read_client, read_clients

__all__ = ["ClientData", "read_client", "read_clients"]
