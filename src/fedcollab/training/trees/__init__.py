"""Gradient-boosted trees inside coalitions, by summed histograms: the same trees that XGBoost grows from all rows.

`objectives`  gradients, hessians and base scores: logistic, softmax, squared error
`forest`      the trees as flat weights, and as a module that scores samples
`growth`      splits and leaves from summed histograms, by XGBoost's formulas
`histograms`  rows to bins, and gradients to histograms; cells of few rows join their neighbours
`cuts`        the thresholds that all clients bin their features by, agreed on from counts
`client`      what happens at a silo
`boosting`    the server's side of a round, and of the choice of rounds on folds
`files`       XGBoost's own JSON
"""
