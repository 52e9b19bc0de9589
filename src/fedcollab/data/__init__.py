"""What the clients have: their samples, people's own files, and how samples become model inputs."""

from __future__ import annotations

from fedcollab.data.client import ClientData
from fedcollab.data.read import read_client, read_clients
from fedcollab.data.schema import Schema

__all__ = ["ClientData", "Schema", "read_client", "read_clients"]
