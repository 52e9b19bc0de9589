"""Who should train with whom, how, and what will each gain? Each stage is one sub-package and one command.

    clients ──▶ inspection ──▶ distances ──▶ coalitions ──▶ advice ──▶ training ──▶ report

`ClientData` holds what one client has. `inspect` lists what is doubtful about the data. `estimate_distances` says how
different every two clients' data are without moving data. `solve` finds the coalitions that minimise a bound on every
client's error; `c_path` shows how they change with C; `personal_weights` weighs all clients' data for each client on
its own. `advise` tries the best of these on parts of the training rows, and says who should train with whom and what
each will gain. `train` runs a federated algorithm inside each coalition; `load_model` reads a trained model back.
`FedCollab` is the stages in one object.

Nothing heavy is imported until it is used: a person with a distance matrix never waits for PyTorch.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
