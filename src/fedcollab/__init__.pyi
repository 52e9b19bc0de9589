from . import baselines as baselines
from . import metrics as metrics
from . import scenarios as scenarios
from .advice import Advice as Advice
from .advice import advise as advise
from .coalitions import Collaboration as Collaboration
from .coalitions import c_path as c_path
from .coalitions import objective as objective
from .coalitions import personal_weights as personal_weights
from .coalitions import place as place
from .coalitions import solve as solve
from .data import ClientData as ClientData
from .distances import Distances as Distances
from .distances import estimate_distances as estimate_distances
from .errors import InputError as InputError
from .inspection import Inspection as Inspection
from .inspection import inspect as inspect
from .runs.pipeline import FedCollab as FedCollab
from .training import TrainingResult as TrainingResult
from .training import load_model as load_model
from .training import train as train

__version__: str
