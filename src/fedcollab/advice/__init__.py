"""Who should train with whom, how, and what each client will gain: measured before anyone commits.

Begin with `advise`, which goes through these in order:

`sums`, `proxy`    every client's sums of products, from which the server fits ridge classifiers for any grouping
`candidates`       the groupings on the path over C, cut down to a few by those classifiers
`pilot`            the candidates trained on a part of the training rows and measured on the rest
`fit`, `decide`    from these measurements to gains that are true on average, and the plan with the least expected loss
`result`           the `Advice`; `words` writes it in sentences, `separates` says which columns separate the clients
`promises`         afterwards: coalitions whose members lost where a gain was expected
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
