from .check import inspect as inspect
from .check import renewed as renewed
from .differences import Difference as Difference
from .result import FILE as FILE
from .result import Finding as Finding
from .result import Inspection as Inspection
from .result import read_beside as read_beside
