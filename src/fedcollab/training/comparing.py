"""`compare`: trained models of the same clients on the same test samples, so that differences can be told from chance.

Every client is asked once, about the model that it would use of each training. It answers counts, means and covariances
over its test samples (`compare_client`).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from fedcollab.data.schema import Schema
from fedcollab.errors import FedcollabWarning, InputError, Paused
from fedcollab.federation import Clients, Federation, federate
from fedcollab.training import compare_client
from fedcollab.training.comparison import MAJORITY, Comparison
from fedcollab.training.descend import Setting
from fedcollab.training.losses import CROSS_ENTROPY
from fedcollab.training.models import MODELS, Network, size_of
from fedcollab.training.result import TrainingResult
from fedcollab.wire.message import Message


def compare(clients: Clients, results: Mapping[str, TrainingResult]) -> Comparison:
    """Compare the models of several trainings on the test samples of every client, in one round.

    Parameters
    ----------
    clients : iterable of ClientData, Runtime or Federation
        The clients, prepared as they were for the trainings.
    results : mapping of TrainingResult
        The trainings to compare, by name: a client of all of them is asked about the model that it would use of each.

    Returns
    -------
    Comparison
        Intervals of accuracies and of gains. What a client does not answer is taken from the results, as far as they
        know it.

    Raises
    ------
    InputError
        If there is no result, one is called "majority", or one was trained on clients that were prepared otherwise.

    Examples
    --------
    >>> alone, together = train(clients, "local"), train(clients, "global")       # doctest: +SKIP
    >>> found = compare(clients, {"alone": alone, "together": together})            # doctest: +SKIP
    >>> found.accuracy_gain("together", over="alone").verdicts                       # doctest: +SKIP
    """
    if not results or MAJORITY in results:
        raise InputError(f"`results` (={sorted(results)}) must name at least one training, none of them {MAJORITY!r}")
    first = next(iter(results.values()))
    federation = clients if isinstance(clients, Federation) else federate(clients, schema=Schema.of(first.schema))
    prepared = federation.schema.as_dict()
    for name, result in results.items():
        if result.schema != prepared:
            raise InputError(
                f"`results` {name!r} was trained on clients that were prepared otherwise; its test samples may differ"
            )
    known = Comparison.of_results(results)
    there = [name for name in federation.names if all(name in result.names for result in results.values())]
    messages = {name: _message(results, name) for name in there}
    try:
        answers = federation.call(compare_client.compare, messages, partial=True)
    except Paused as error:
        text = f"the models could not be compared on the same test samples, so that intervals are wider: {error}"
        warnings.warn(text, FedcollabWarning, stacklevel=2)
        return known
    widths = {2: ((0, 0), (0, 1)), 3: ((0, 0), (0, 1), (0, 1))}
    given = {key: getattr(known, key) for key in ("right", "loss", "spread", "unexplained", "unexplained_spread")}
    wider = {
        key: np.pad(part, widths[part.ndim], constant_values=np.nan) for key, part in given.items() if part is not None
    }
    samples = known.samples.copy()
    for row, name in enumerate(known.names):
        answer = answers.get(name)
        if answer is None or "loss" not in answer:
            continue
        samples[row] = answer["samples"]
        compared = np.flatnonzero(answer["known"])
        for key in wider.keys() & answer.keys():
            where = np.ix_(*[compared] * answer[key].ndim)
            wider[key][row][where] = answer[key][where]
    return Comparison(known.names, (*results, MAJORITY), samples, **wider)


def _message(results: Mapping[str, TrainingResult], name: str) -> Message:
    """Return what one client is asked."""
    message: Message = {
        "trainings": [result.training_of(name) for result in results.values()],
        "settings": [_setting(result) for result in results.values()],
    }
    for position, result in enumerate(results.values()):
        weights = _weights(result, name)
        if weights is not None:
            message[f"w{position}"] = weights
    return message


def _weights(result: TrainingResult, name: str) -> NDArray[np.float32] | None:
    """Return the flat weights of the model that a client would use, or None if they are not to be had here."""
    row = result.names.index(name)
    if result.model.get("name") not in MODELS:
        return None  # a model of the caller's own, in a result of another process
    if not result.personal:
        saved = result.models["last"][result.assignment[row]]
    elif "personal" in result.models:
        saved = result.models["personal"][row]
    else:
        return None
    whole = np.zeros(size_of(_network(result)), dtype=np.float32)
    whole[: len(saved)] = saved
    return whole


def _setting(result: TrainingResult) -> str:
    """Return the setting of a training as messages carry it."""
    known = {each.name: result.settings[each.name] for each in fields(Setting) if each.name in result.settings}
    return Setting(**{**known, "model": _network(result)}).to_json()


def _network(result: TrainingResult) -> str:
    """Return the text that names a result's network."""
    spec = result.model
    return Network.describe(
        spec["name"], spec["options"], spec["shape"], int(spec["classes"]), spec.get("loss", CROSS_ENTROPY)
    )
