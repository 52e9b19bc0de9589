"""Stage 3: a federated algorithm inside each coalition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcollab.lazy import lazily

if TYPE_CHECKING:
    from fedcollab.training.algorithms import ALGORITHMS, Algorithm, register
    from fedcollab.training.callbacks import Callback, MLflow, TensorBoard
    from fedcollab.training.models import MODELS, name_model, register_model
    from fedcollab.training.result import TrainingResult
    from fedcollab.training.retraining import retrain
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
    "name_model",
    "register",
    "register_model",
    "retrain",
    "train",
]

# PyTorch is imported when something is trained, not when this package is named.
__getattr__ = lazily(
    __name__,
    {
        **dict.fromkeys(("ALGORITHMS", "Algorithm", "register"), "algorithms"),
        **dict.fromkeys(("Callback", "MLflow", "TensorBoard"), "callbacks"),
        **dict.fromkeys(("MODELS", "name_model", "register_model"), "models"),
        **dict.fromkeys(("TrainedModel", "load_model"), "trained"),
        "TrainingResult": "result",
        "retrain": "retraining",
        "train": "run",
    },
)
