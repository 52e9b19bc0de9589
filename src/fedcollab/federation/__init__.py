"""The clients of one run: the schema that they agreed on, and the description that each gave of its data.

Begin with `federate`, the one function that makes a `Federation`: `prepare` has new clients agree on a schema, `adopt`
has them take over one that was agreed on earlier, `encode` adds a frozen encoder. `prepare_client` is their side of it.
`present` keeps who still answers, `task` decides what models predict, `fingerprint` shows whether data changed.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
