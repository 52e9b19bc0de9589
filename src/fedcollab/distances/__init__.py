"""How different are two clients' data, without moving data, and how sure are we?

Begin with `estimate`, and with `methods.cross`, the default method. A method gets a `Request` (which pairs of which
federation) and returns an `Estimate`; both are in `request`, and `result` is what users see.

`methods`     a file for each method, and another for its client side (`*_client`)
`sampling`    folds, resampling and standard errors
`update`      clients that come, go or change: only their pairs are measured
`samples`     what a client's samples look like to a method; `plausible`: what its replies can be
`check`       whether an encoder sees what matters
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
