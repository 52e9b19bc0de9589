"""`estimate_distances`: clients in, `Distances` out, whatever the method and the runtime."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from fedcollab.data.client import list_clients
from fedcollab.distances.methods import cross, few_round, hypothesis, label, prototype, published
from fedcollab.distances.request import Method, Pair, Request, all_pairs, assemble
from fedcollab.distances.result import Distances
from fedcollab.errors import InputError, choose, unknown
from fedcollab.federation import Clients, Federation, federate
from fedcollab.progress import Progress, silent
from fedcollab.wire.runtime import Runtime

METHODS: dict[str, Method] = {
    "auto": cross.estimate,
    "cross": cross.estimate,
    "few-round": few_round.estimate,
    "hypothesis": hypothesis.estimate,
    "published": published.estimate,
    "label": label.estimate,
    "prototype": prototype.estimate,
}


def estimate_distances(
    clients: Clients,
    *,
    method: str = "auto",
    seed: int = 0,
    runtime: str | None = None,
    device: str | None = None,
    scale: str | None = None,
    encoder: Any = None,
    missing_indicators: bool | None = None,
    test_share: float | None = None,
    only: str | None = None,
    pairs: Sequence[Pair] | None = None,
    progress: Progress = silent,
    **options: Any,
) -> Distances:
    """Estimate how different every two clients' data are, without moving data.

    An estimate depends on the two clients of the pair, the schema, the settings and the seed alone: it is the same with
    `only`, in another order, and in every runtime.

    Parameters
    ----------
    clients : iterable of ClientData, mapping, Runtime or Federation
        The clients, in a mapping by name (see `federate`); a federation keeps the `scale`, `missing_indicators` and
        `test_share` that it was prepared with.
    method : str
        A name in `METHODS`; "auto" is "cross", or "few-round" where a round costs seconds (Flower) and through an
        encoder.
    seed : int
        Everything random is derived from it.
    runtime, device, scale, missing_indicators, test_share
        As in `fedcollab.federation.federate`.
    encoder : str, torch.nn.Module, callable or None
        A frozen encoder through which the samples (images) are seen: a name such as "efficientnet-lite0", a module, or
        a function of a batch; None: the samples as they are (or a federation's own encoder).
    only : str, optional
        One client's name: its distances to all others; every other pair is left unobserved.
    pairs : sequence of (str, str), optional
        These pairs of names alone; `only` is then not used.
    progress : callable
        Called with (done, total).
    **options
        Settings of the method; an unknown one lists those there are.

    Returns
    -------
    Distances
        In the order of `clients`.

    Raises
    ------
    InputError
        If the clients' data do not fit together, or a name or an option is unknown.
    Paused
        If too few clients answered.

    Examples
    --------
    >>> import numpy as np
    >>> x, y = np.zeros((8, 1)), np.array([0, 1] * 4)
    >>> rare = np.array([0] * 7 + [1])
    >>> found = estimate_distances({"north": (x, y), "south": (x, 1 - y), "east": (x, rare)}, method="label")
    >>> bool(found.matrix[0, 1] < found.matrix[0, 2])
    True
    """
    if method == "auto" and _prefers_moments(clients, encoder):
        method = "few-round"
    estimator = choose("method", method, METHODS)
    known = [
        name
        for name, parameter in inspect.signature(estimator).parameters.items()
        if parameter.kind == parameter.KEYWORD_ONLY
    ]
    for option in options:
        if option not in known:
            raise InputError(unknown(f"option of method {method!r}", option, known))
    listed = list_clients(clients)
    federation = federate(
        listed,
        runtime=runtime,
        device=device,
        scale=scale,
        missing_indicators=missing_indicators,
        test_share=test_share,
        seed=seed,
        encoder=encoder,
        progress=progress,
    )
    names = federation.in_order_of(listed)
    if only is not None and only not in names:
        raise InputError(unknown("only", only, names))
    asked = all_pairs(names, only) if pairs is None else _pairs_of(pairs, names)
    request = Request(federation, asked, seed, progress)
    cost = federation.runtime.cost
    before = cost.copy()
    found = estimator(request, **options)
    if found.cost is not None:
        cost.add(found.cost)
    moved = cost.since(before)
    settings = {"seed": seed, **found.settings}
    if federation.schema.encoding is not None:
        settings["encoder"] = federation.schema.encoding.encoder
    return assemble(request, replace(found, settings=settings), names, method=_plain(method), cost=moved)


def _pairs_of(pairs: Iterable[Any], names: Sequence[str]) -> list[Pair]:
    """Return the pairs that were asked for, each in order of name, after checking that they are pairs of clients."""
    found = set()
    for pair in pairs:
        if isinstance(pair, str) or len(set(pair)) != 2:
            raise InputError(f"`pairs` (={pair!r}) must hold pairs of two different clients")
        for name in pair:
            if name not in names:
                raise InputError(unknown("pairs", name, names))
        found.add((min(pair), max(pair)))
    return sorted(found)


def _prefers_moments(clients: Clients, encoder: Any) -> bool:
    """Return whether `auto` means `few-round`: if rounds are expensive, or an encoder gives many features."""
    through = encoder is not None or (isinstance(clients, Federation) and clients.schema.encoding is not None)
    runtime = clients.runtime if isinstance(clients, Federation) else clients
    return (through and encoder != "none") or (isinstance(runtime, Runtime) and runtime.few_rounds)


def _plain(method: str) -> str:
    """Return the name of the method that `auto` stands for."""
    return next(name for name, function in METHODS.items() if function is METHODS[method] and name != "auto")
