"""The clients of one run: the schema that they agreed on, and what each said of itself."""

from __future__ import annotations

from fedcollab.federation.federate import Clients, encode_clients, federate, with_client
from fedcollab.federation.federation import Federation
from fedcollab.federation.fingerprint import describe_clients

__all__ = ["Clients", "Federation", "describe_clients", "encode_clients", "federate", "with_client"]
