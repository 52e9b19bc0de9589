"""The stage's one door: clients in, `Distances` out, whatever the method and the runtime."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from fedcollab.data.client import ClientData
from fedcollab.distances.methods import cross, few_round, hypothesis, label, prototype, published
from fedcollab.distances.methods.pairs import Method, Pair, Request, all_pairs, assemble
from fedcollab.distances.result import Distances
from fedcollab.errors import InputError, choose, unknown
from fedcollab.federation.prepare import federate
from fedcollab.progress import Progress, silent
from fedcollab.wire.runtime import Cost, Runtime

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
    clients: Iterable[ClientData] | Runtime,
    *,
    method: str = "auto",
    seed: int = 0,
    runtime: str = "vectorised",
    device: str = "auto",
    scale: str = "auto",
    encoder: Any = None,
    missing_indicators: bool = False,
    test_share: float = 0.2,
    only: str | None = None,
    pairs: Sequence[Pair] | None = None,
    progress: Progress = silent,
    **options: Any,
) -> Distances:
    """How different every two clients' data are, estimated without moving data.

    clients    ClientData, or a federation that is prepared already (`runtime` to `test_share` then do not matter)
    method     a name in `METHODS`; "auto" is "cross", or "few-round" where a round costs seconds (Flower) and
               through an encoder
    encoder    a frozen encoder through which the samples (images) are seen: a name such as "efficientnet-lite0", a
               torch.nn.Module or a function of a batch; None: the samples as they are (a prepared federation's own)
    only       one client's name: its distances to all others; every other pair is left unobserved
    pairs      these pairs of names alone
    progress   called with (done, total)
    options    settings of the method; an unknown one lists those there are

    The result is in the order of `clients`. An estimate depends on the two clients of the pair, the schema, the
    settings and the seed alone: it is the same with `only`, in another order, and in every runtime.
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
    listed = clients if isinstance(clients, Runtime) else list(clients)
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
    given = federation.names if isinstance(listed, Runtime) else tuple(client.name for client in listed)
    names = tuple(name for name in given if name in federation.names)
    if only is not None and only not in names:
        raise InputError(unknown("only", only, names))
    asked = all_pairs(names, only) if pairs is None else sorted((min(pair), max(pair)) for pair in pairs)
    request = Request(federation, asked, seed, progress)
    before = _copy(federation.cost)
    found = estimator(request, **options)
    if found.cost is not None:
        _add(federation.cost, found.cost)
    moved = _difference(federation.cost, before)
    settings = {"seed": seed, **found.settings}
    if federation.schema is not None and federation.schema.encoding is not None:
        settings["encoder"] = federation.schema.encoding.encoder
    return assemble(request, replace(found, settings=settings), names, method=_plain(method), cost=moved)


def _prefers_moments(clients: Iterable[ClientData] | Runtime, encoder: Any) -> bool:
    """Whether `auto` is `few-round`: where rounds are dear, and where an encoder gives many features to few samples."""
    schema = clients.schema if isinstance(clients, Runtime) else None
    through = encoder is not None or (schema is not None and schema.encoding is not None)
    return (through and encoder != "none") or (isinstance(clients, Runtime) and clients.few_rounds)


def _plain(method: str) -> str:
    """What `auto` stands for."""
    return next(name for name, function in METHODS.items() if function is METHODS[method] and name != "auto")


def _copy(cost: Cost) -> Cost:
    return Cost(cost.rounds, dict(cost.down), dict(cost.up))


def _add(cost: Cost, more: Cost) -> None:
    cost.rounds += more.rounds
    for mine, theirs in ((cost.down, more.down), (cost.up, more.up)):
        for name, amount in theirs.items():
            mine[name] = mine.get(name, 0) + amount


def _difference(after: Cost, before: Cost) -> dict[str, Any]:
    """Rounds, and bytes to and from each client together."""
    names = sorted({*after.down, *after.up})
    moved = {
        name: sum(part.get(name, 0) for part in (after.down, after.up))
        - sum(part.get(name, 0) for part in (before.down, before.up))
        for name in names
    }
    return {"rounds": after.rounds - before.rounds, "bytes": moved}
