"""Your own CSV files: who should train with whom? Run with a folder of one file a client, and the label's column.

    python examples/own_csv.py hospitals outcome

Without arguments it writes an example federation into a temporary folder and uses that.
"""

import sys
import tempfile

import fedcollab
from fedcollab.data import read_clients

folder, label = sys.argv[1:3] if len(sys.argv) > 2 else (tempfile.mkdtemp(), "outcome")
if len(sys.argv) <= 2:
    fedcollab.scenarios.write_example(folder)
clients = read_clients(folder, label)
for finding in fedcollab.inspect(clients).warnings:
    print("careful:", finding.client, finding.message)
fitted = fedcollab.FedCollab(model="logistic", seed=0).fit(clients)
print(fitted.collaboration)  # by distances and bound
print(fitted.collaboration.explain(clients[0].name))
result = fedcollab.train(clients, fitted.collaboration, model="logistic", rounds=20)
alone = fedcollab.train(clients, "local", model="logistic", rounds=20)
for name, here, there in zip(result.names, result.reported, alone.reported, strict=True):
    print(f"{name}: {100 * there:.0f} % alone, {100 * here:.0f} % in its coalition")
