"""Stage 3: a federated algorithm inside each coalition."""

from __future__ import annotations

from fedcollab.training.algorithms import ALGORITHMS, Algorithm, register
from fedcollab.training.callbacks import Callback, MLflow, TensorBoard
from fedcollab.training.models import MODELS, register_model
from fedcollab.training.result import TrainingResult
from fedcollab.training.run import train
from fedcollab.training.trained import TrainedModel, load_model

__all__ = [
    "ALGORITHMS",
    "MODELS",
    "Algorithm",
    "Callback",
    "MLflow",
    "TensorBoard",
    "TrainedModel",
    "TrainingResult",
    "load_model",
    "register",
    "register_model",
    "train",
]
