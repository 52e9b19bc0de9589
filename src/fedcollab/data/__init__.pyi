from .client import ClientData as ClientData
from .read import read_client as read_client
from .read import read_clients as read_clients
from .schema import Schema as Schema
