"""A run: its directory, its stages, and its clients that come and go.

Begin with `pipeline` (`FedCollab.fit`, and what it returns in `fitted`) and `run`, which knows what each stage left and
whether that still answers what is asked now. `folder`, `transaction` and `provenance` are its files; `comparing` and
`learning_curve` keep what is measured after training; `membership` is for clients that join, leave or change.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
