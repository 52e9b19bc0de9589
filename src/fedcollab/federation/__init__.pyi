from .federate import Clients as Clients
from .federate import encode_clients as encode_clients
from .federate import federate as federate
from .federate import with_client as with_client
from .federation import Federation as Federation
from .fingerprint import describe_clients as describe_clients
