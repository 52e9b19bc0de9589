from .comparing import keep_comparison as keep_comparison
from .comparing import read_comparison as read_comparison
from .pipeline import FedCollab as FedCollab
from .pipeline import Fitted as Fitted
from .run import WAYS as WAYS
from .run import Run as Run
from .run import command as command
from .run import versions as versions
