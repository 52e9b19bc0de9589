"""The clients of one run: the schema that they agreed on, and the description that each gave of its data."""

from __future__ import annotations

from fedcollab.federation.federate import Clients, encode_clients, federate, with_client
from fedcollab.federation.federation import Federation
from fedcollab.federation.fingerprint import describe_clients

__all__ = ["Clients", "Federation", "describe_clients", "encode_clients", "federate", "with_client"]
