"""The defaults of a training, for `fedcollab.train` and the command line alike. Importing them costs nothing."""

from __future__ import annotations

ALGORITHM = "fedavg"
MODEL = "mlp"
#: communication rounds
ROUNDS = 100
#: step size of local SGD
LR = 0.1
#: batch size of local SGD
BATCH_SIZE = 32
#: passes over a client's training samples in a round
LOCAL_EPOCHS = 1
#: what takes a local step, and by how much weights shrink after it
OPTIMIZER = "sgd"
WEIGHT_DECAY = 0.0
#: the most models of a training with own weights
ROWS = 6
#: how the number of rounds is decided
STOPPING = "held-out"
