"""An ordinary Flower app, its FedAvg unmodified; `CoalitionGrid` is the one line that makes it train inside coalitions.

flwr run examples/flower-coalitions CONNECTION --stream --run-config 'coalitions="north south|east west"'
"""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from fedcollab.flower import CoalitionGrid, own_data

server = ServerApp()
client = ClientApp()


@client.train()
def train(message, context):
    """At a silo, with data that stays there."""
    data = own_data()
    (w,) = message.content["arrays"].to_numpy_ndarrays()
    for _ in range(20):  # logistic regression, by gradient descent
        w = w - 0.5 * data.x.T @ (1 / (1 + np.exp(-data.x @ w)) - data.y) / len(data.y)
    reply = {"arrays": ArrayRecord([w]), "metrics": MetricRecord({"num-examples": len(data.y)})}
    return Message(RecordDict(reply), reply_to=message)


@server.main()
def main(grid, context):
    """At the coordinator."""

    def together(members):
        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
        start = ArrayRecord([np.zeros(4)])
        part = CoalitionGrid(grid, members)  # the one line
        result = strategy.start(grid=part, initial_arrays=start, num_rounds=context.run_config["rounds"], timeout=300)
        return result.arrays.to_numpy_ndarrays()[0].tolist()

    coalitions = [group.split() for group in context.run_config["coalitions"].split("|")]
    with ThreadPoolExecutor() as threads:  # the coalitions train at the same time
        models = list(threads.map(together, coalitions))
    print("MODELS", json.dumps(models))
