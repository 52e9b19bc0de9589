"""Only a matrix of distances and sample counts: the coalitions, how sure, and how they change with C. NumPy alone."""

import fedcollab

names = ["north", "south", "east", "west"]
distances = [
    [0.00, 0.10, 0.80, 0.75],
    [0.10, 0.00, 0.85, 0.80],
    [0.80, 0.85, 0.00, 0.15],
    [0.75, 0.80, 0.15, 0.00],
]
samples = [120, 60, 200, 40]

path = fedcollab.c_path(distances, samples, names=names)
for part in path:
    print(f"C from {part.c_low:.2f} to {part.c_high:.2f}: {part.coalitions}")
answer = fedcollab.solve(distances, samples, names=names)  # the suggested C
print(answer.coalitions, "proven optimal" if answer.optimal else f"within {answer.gap:.1%}")
print(answer.explain("west"))
weights, bounds = fedcollab.personal_weights(distances, samples, C=answer.C)
print("west learns from", dict(zip(names, weights[3].round(2).tolist(), strict=True)))
