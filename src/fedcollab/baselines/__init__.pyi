from .registry import BASELINES as BASELINES
from .registry import IFCA as IFCA
from .registry import FedCluster as FedCluster
from .registry import FeSEM as FeSEM
from .registry import KMeans as KMeans
from .registry import run as run
