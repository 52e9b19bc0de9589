"""How the coalitions are found and proven: searches, lower bounds and exact methods behind `solve` and `c_path`.

Begin with `instance`, the problem as all of them see it, and `local`, the paper's search (`moves`: Algorithm 2).

few clients     `subsets` (all coalitions at once), `exact` with `prices` and `columns` (the proven optimum)
many clients    `levels` and `merge`; `lower_bound` says how far from the optimum an answer can be
all             `feasible` (constraints that contradict each other), `envelope` (the path over C)
"""
