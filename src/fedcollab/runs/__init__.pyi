from .pipeline import FedCollab as FedCollab
from .pipeline import Fitted as Fitted
from .run import WAYS as WAYS
from .run import Run as Run
from .run import command as command
from .run import versions as versions
