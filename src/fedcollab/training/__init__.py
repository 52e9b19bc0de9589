"""Stage 3: a federated algorithm inside each coalition.

Begin with `run` (`train`), then `rounds` (the one round loop) and `algorithms` (one file each; `hooks` is their base).

setting up       `opening`, `groups`, `defaults`, `models`, `losses`, `callbacks`
server side      `session` (who is asked what), `rounds`, `stopping` (how many rounds, chosen on folds), `checkpoint`,
                 `secure_rounds`, `plausible` (replies that cannot be)
client side      `client`, `evaluate_client`, `folds_client`, `alone_client`, `compare_client`, `secure_client`; what
                 they share is in `client_side`, `folds`, `measures`, `outcomes`, `scores` and `kept`
a local step     `descend` (the one loop of local training), `batches`, `gradient`, `optimizers`, `averaging`
what is left     `result` and its files, `history`, `trained` (`load_model`), `exporting`
afterwards       `comparing` and `comparison`, `learning_curve`, `retraining`
safety           `honest` and `blur`: what a silo refuses to train from, and what it adds to an update
`trees`          boosted trees, which are grown from histograms instead
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
