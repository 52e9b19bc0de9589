"""Have one client lie in every field of every reply: each lie must leave it absent, be refused, or be believed.

    python tools/lies.py                              every procedure, up to 200 lies each
    python tools/lies.py --most 40 --only inspect advise

Over the wire runtime, one of four clients replaces one field of one of its replies by something else: another type,
shape, size or value, text with odd characters; or it leaves a field out, adds one, or sends bytes that are no message.
Some lies begin with its second reply of a kind. Others fit together: from some action on it is another client, with
other rows, labels or units, or it answers what an honest client did.
A finding is anything but a result, or one line (`InputError`, `Paused`) that names the liar; an absence of an honest
client; a lie that takes more than twenty seconds of CPU time or a gigabyte of memory; and distances between honest
clients, or a model of a coalition of theirs, that are not those without the lie. The same seed gives the same lies.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import fuzz
import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from safetensors.numpy import save

from fedcollab import advise, estimate_distances
from fedcollab.data import ClientData
from fedcollab.errors import InputError, Paused
from fedcollab.federation import federate
from fedcollab.inspection import inspect
from fedcollab.report import write
from fedcollab.runs import Run, membership
from fedcollab.runs.pipeline import FedCollab
from fedcollab.training import compare, train
from fedcollab.training.algorithms import ALGORITHMS
from fedcollab.wire import Wire
from fedcollab.wire.absence import Policy
from fedcollab.wire.action import Action
from fedcollab.wire.message import Message, unpack

SECONDS = 20.0  # of CPU time that one lie may take
MEMORY = 1000.0  # megabytes
LIAR = "b"
HONEST = (0, 2, 3)  # the places of the others, in order of name
#: what every procedure begins with; lied about once, and believed where it is possible: then others' figures change
FIRST = ("describe", "spread", "prepare", "fingerprint", "encode", "encode-spread", "count-rows")
PAIRS = [["a", "b"], ["c", "d"]]
HOW: dict[str, Any] = {"model": "logistic", "rounds": 2, "lr": 0.1}
#: among them values just inside the bounds that replies are held to, the smallest ones, and those of other types
NUMBERS = (
    0, 1, -1, 0.5, 1e6, -1e6, 1e11, 1e30, 1e300, 1e-300, np.nan, np.inf, -np.inf, 255, 2**31 - 1, 2**62, -0.0, 5e-324,
    0.99e12, -0.99e12, 0.99e18, 0.99e45, 0.99e80, 10**9, 2**53 + 1, -(2**63),
)  # fmt: skip
PLAIN = (
    0, -1, 1, 2, 10**6, 10**9, 2**62, 2**63, 10**40, 0.5, 1e308, True, False, None, "", "x", "\x1b[2J\n", "\ud800", "1",
    [], {}, [[]], [None], {"": None}, {"x": 1}, ["a"], [0, 1, 2], "y" * 300, "9" * 5000, -0.0, 5e-324, 10**9 - 1,
    "\u0430ge", "a\u0301", "\u202e", "\x00", {"\u0430": 1, "a": 1}, [True], [1.0],
)  # fmt: skip


class Lying(Wire):
    """The liar sends what `lie` makes of one of its honest replies; `honest` keeps those by action.

    Parameters
    ----------
    clients : list of ClientData
        All of them.
    action : str
        What the liar lies about.
    lie : callable, optional
        What it says instead of its honest reply.
    since : int
        From which of its replies of that kind on.
    becomes : ClientData or str, optional
        In place of `lie`: from that reply on, whatever it is asked, it answers from these data; or what the client of
        that name answered.
    """

    def __init__(
        self,
        clients: list[ClientData],
        action: str = "",
        lie: Callable[[Message], bytes] | None = None,
        since: int = 0,
        becomes: ClientData | str | None = None,
    ):
        super().__init__(clients)
        self.policy = Policy(quorum=0.5, retries=0)
        self.about, self.lie, self.since, self.becomes = action, lie, since, becomes
        self.honest: dict[str, Message] = {}
        self.counts = Counter[str]()
        self._others: dict[str, bytes] = {}

    def _serve(self, action: Action, name: str, content: bytes) -> bytes:
        begun = self.counts[self.about] > self.since
        if name == LIAR:
            self.counts[action.name] += 1
            begun = self.counts[self.about] > self.since
            if begun and isinstance(self.becomes, ClientData):
                self._data[LIAR] = self.becomes
        try:
            reply = super()._serve(action, name, content)
        except InputError as error:  # a silo that is not of this process says why it cannot answer
            reply = packed({"error": str(error)})
        if name != LIAR:
            self._others[action.name if name == self.becomes else ""] = reply
            return reply
        self.honest.setdefault(action.name, unpack(reply))
        if begun and isinstance(self.becomes, str):
            return self._others.get(action.name, reply)
        return self.lie(unpack(reply)) if begun and self.lie is not None and action.name == self.about else reply


def clients(table: bool, numbers: bool = False) -> list[ClientData]:
    """Return four small clients of two kinds, whose label may be a number that depends on their features."""
    made = []
    for name in "abcd":
        rng = np.random.default_rng(ord(name))
        y = np.arange(60) % 2
        x = rng.normal(0, 1, (60, 3)) + np.outer(2 * y - 1, [1.5, 0, 0])
        frame = pd.DataFrame(x, columns=["age", "dose", "town"]).assign(town=["rome", "oslo", "bern"] * 20)
        label = y if name in "ab" else 1 - y
        if numbers:
            label = label + x[:, 0] + 0.1 * rng.normal(size=60)
        made.append(ClientData(name, frame if table else x, label))
    return made


def others(client: ClientData) -> Iterator[tuple[str, ClientData]]:
    """Yield who else a client could be, and words for it."""
    x, y = client.x, np.asarray(client.y)
    turned = y[::-1].copy()
    yield "its labels turned round", ClientData(client.name, x, turned)
    yield "half of its rows", ClientData(client.name, x[:31], y[:31])
    yield "three times its rows", ClientData(client.name, pd.concat([x] * 3) if isinstance(x, pd.DataFrame) else
                                             np.concatenate([x] * 3), np.concatenate([y] * 3))  # fmt: skip
    yield "other labels", ClientData(client.name, x, y + 7 if y.dtype.kind == "f" else np.array(["x", "y"])[y])
    yield "one label", ClientData(client.name, x, y * 0)
    if isinstance(x, pd.DataFrame):
        yield "other columns", ClientData(client.name, x.rename(columns={"age": "\u0430ge"}), y)
        yield "a column of another kind", ClientData(client.name, x.assign(age="old"), y)
        yield "other categories", ClientData(client.name, x.assign(town="paris"), y)
        yield "other units", ClientData(client.name, x.assign(age=x["age"] * 1e17), y)
    else:
        yield "other columns", ClientData(client.name, x[:, :2], y)
        yield "other units", ClientData(client.name, x * 1e17, y)
        yield "constants", ClientData(client.name, x * 0, y)


def procedures() -> dict[str, Callable[[Wire], ArrayLike]]:
    """Return what is done with the clients, by name; those whose name begins with "table" have tables.

    Each returns figures that no lie may change, unless it is one of those that everybody's data are prepared with.
    Where a name has "numbers" in it the clients predict a numeric target.
    """
    trees: dict[str, Any] = {"model": "xgboost", "model_options": {"max_depth": 2, "max_bin": 8}, "lr": 0.3}
    found: dict[str, Callable[[Wire], ArrayLike]] = {
        "table-inspect": lambda runtime: len(str(inspect(runtime))) * 0,
        "table-advise": lambda runtime: len(str(advise(federate(runtime), **HOW))) * 0,
        "table-few-round": lambda runtime: _distances(runtime, method="few-round"),
        "prototype": lambda runtime: _distances(runtime, method="prototype"),
        "label": lambda runtime: _distances(runtime, method="label"),
        "cross": lambda runtime: _distances(runtime, method="cross", rounds=3, repeats=1),
        "hypothesis": lambda runtime: _distances(runtime, method="hypothesis", rounds=3, repeats=1),
        "published": lambda runtime: _distances(runtime, method="published", rounds=2),
        "rounds": lambda runtime: _trained(runtime)[:, :0],
        "encoded": lambda runtime: _distances(runtime, encoder=double, method="prototype"),
        "table-run": _run,
        "masked": lambda runtime: _trained(runtime, "global", stopping="none", secure_aggregation="dropouts")[:0],
        "compare": _compared,
        "trees": lambda runtime: _trained(runtime, **trees, stopping="none")[-1],
        "table-trees-own": lambda runtime: _trained(
            runtime, PAIRS, "own-intercept", keep=["output-bias"], **trees, stopping="none"
        )[-1],
        "trees-rounds": lambda runtime: _trained(runtime, **trees)[:, :0],
        "trees-advise": lambda runtime: len(str(advise(federate(runtime), rounds=2, **trees))) * 0,
        "table-numbers-inspect": lambda runtime: len(str(inspect(runtime))) * 0,
        "numbers-few-round": lambda runtime: _distances(runtime, method="few-round"),
        "numbers-train": lambda runtime: _trained(runtime, stopping="none")[-1],
        "numbers-rounds": lambda runtime: _trained(runtime)[:, :0],
        "numbers-trees": lambda runtime: _trained(runtime, **trees)[:, :0],
        "numbers-compare": _compared,
        "numbers-advise": lambda runtime: len(str(advise(federate(runtime), **HOW))) * 0,
        "table-join": lambda runtime: _changed(runtime, "join"),
        "table-check": lambda runtime: _changed(runtime, "check"),
        "table-leave": lambda runtime: _changed(runtime, "leave"),
    }
    for name in ALGORITHMS:
        weights = {"weights": np.kron(np.eye(2), [[0.75, 0.25], [0.25, 0.75]])} if name == "own-weights" else {}
        found[f"train-{name}"] = lambda runtime, name=name, weights=weights: _trained(  # type: ignore[misc]
            runtime, PAIRS, name, stopping="none", **weights
        )[-1]
    return found


def double(x: Any) -> Any:
    """Encode samples, as an encoder of images does."""
    return 2 * x[:, :2]


def _run(runtime: Wire) -> ArrayLike:
    """Have a run directory made, and what clients said of themselves written there and read back."""
    with tempfile.TemporaryDirectory() as folder:
        fitted = FedCollab(distance="few-round", C=5.0, run_dir=Path(folder) / "run").fit(runtime)
        fitted.train(**HOW, stopping="none")
        run = Run.open(Path(folder) / "run")
        found = run.distances()
        write(run.path)
    places = [found.names.index(name) for name in found.names if name != LIAR]
    return found.raw[np.ix_(places, places)]


def _changed(runtime: Wire, how: str) -> ArrayLike:
    """Have a client join a run of honest ones, or leave it, or be looked at again; return how far apart the others are.

    The liar joins, trains on with those who stay, or is looked at.
    """
    everyone = runtime.clients
    leaver = everyone[0].name
    with tempfile.TemporaryDirectory() as folder:
        there = [client for client in everyone if how != "join" or client.name != LIAR]
        fitted = FedCollab(distance="few-round", C=5.0, run_dir=Path(folder) / "run", quiet=True).fit(there)
        fitted.train(**HOW, stopping="none")
        run, state = membership.open_state(Path(folder) / "run")
        federation = federate(runtime, schema=run.schema())
        if how == "join":
            found = membership.join(state, federation, LIAR, training=membership.Training(rounds=1))
            membership.keep_joining(run, state, found, federation)
        elif how == "leave":
            stay = federation.part(name for name in federation.names if name != leaver)
            membership.keep_leaving(run, state, membership.leave(state, leaver, federation=stay, retrain=True))
        else:
            checked = membership.check(state, federation, [LIAR])
            after, trained = membership.apply(checked, state, federation, membership.Training(rounds=1))
            membership.keep_change(run, state, after, checked, trained, federation)
        opened = Run.open(Path(folder) / "run")
        write(opened.path)
        known = opened.distances()
    places = [known.names.index(name) for name in known.names if name not in (LIAR, leaver)]
    return known.raw[np.ix_(places, places)]


def _distances(runtime: Wire, encoder: Any = None, **settings: Any) -> ArrayLike:
    """Return the distances between the honest clients."""
    found = estimate_distances(federate(runtime, encoder=encoder), **settings)
    assert np.isfinite(found.raw[found.observed]).all()
    places = [found.names.index(name) for name in found.names if name != LIAR]
    return found.raw[np.ix_(places, places)]


def _trained(runtime: Wire, coalitions: Any = PAIRS, algorithm: str = "fedavg", **settings: Any) -> Any:
    """Return the models; the last is that of the coalition of honest clients, if there is one."""
    result = train(federate(runtime), coalitions, algorithm, **{**HOW, **settings})
    assert np.isfinite(result.models["last"]).all()
    return result.models["last"]


def _compared(runtime: Wire) -> ArrayLike:
    federation = federate(runtime)
    found = compare(federation, {"alone": train(federation, "local", **HOW, stopping="none")})
    return found.loss[HONEST, 0]


def lies(reply: Message, rng: np.random.Generator) -> Iterator[tuple[str, Message]]:
    """Yield what else a reply could be, and words for it."""
    for key, value in reply.items():
        yield f"without {key}", {name: other for name, other in reply.items() if name != key}
        others = _arrays(value, rng) if isinstance(value, np.ndarray) else _plain(value, rng)
        yield from ((f"{key}: {words}", {**reply, key: other}) for words, other in others)
    yield "one more", {**reply, "one more": 1}
    yield "nothing", {}
    yield from ((kind, {kind: "\x1b[2J\nx" * 1000}) for kind in ("error", "refused", "garbage"))


def _arrays(value: Any, rng: np.random.Generator) -> Iterator[tuple[str, Any]]:
    """Yield other arrays in place of one, and what is no array."""
    flat = value.reshape(-1)
    yield from (("empty", flat[:0]), ("flat", flat.copy()), ("one dimension more", value[None].copy()))
    yield from (("twice", np.concatenate([flat, flat])), ("text", "x"), ("none", None), ("list", [1]))
    yield from ((kind, np.zeros(value.shape, dtype=kind)) for kind in ("f2", "f4", "f8", "i8", "u1", "?"))
    yield "in another order", rng.permutation(flat).reshape(value.shape)
    if value.ndim and len(value):
        yield "shorter", value[:-1].copy()
    for number in NUMBERS if value.dtype.kind in "fiu" and value.size else ():
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if value.dtype.kind == "f" or (
                float(number).is_integer() and np.iinfo(value.dtype).min <= int(number) <= np.iinfo(value.dtype).max
            ):
                yield f"all {number}", np.full_like(value, number)
                changed = flat.copy()
                changed[int(rng.integers(0, len(flat)))] = number
                yield f"one {number}", changed.reshape(value.shape)
                if value.dtype.kind == "f":
                    yield f"times {number}", (value * np.float64(number)).astype(value.dtype)


def _plain(value: Any, rng: np.random.Generator, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield other values in place of a plain one: odd ones, and the same with another part."""
    yield from ((repr(odd)[:20], odd) for odd in PLAIN)
    if isinstance(value, (list, dict)) and value and depth < 2:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = keys[int(rng.integers(0, len(keys)))]
        yield "a part less", [*value[:-1]] if isinstance(value, list) else {k: value[k] for k in keys if k != key}
        yield "more parts", value * 100 if isinstance(value, list) else {**value, "\x1b[2J": value[key]}
        for words, other in _plain(value[key], rng, depth + 1):
            changed = value.copy()
            changed[key] = other
            yield f"[{key}] {words}", changed


def _said(content: bytes, reply: Message) -> bytes:
    """Return what the liar says, whatever it would say honestly."""
    return content


def packed(message: Message) -> bytes:
    """Pack a message as `wire.message.pack` does, NaN and all."""
    arrays = {key: np.ascontiguousarray(value) for key, value in message.items() if isinstance(value, np.ndarray)}
    plain = {key: value for key, value in message.items() if not isinstance(value, np.ndarray)}
    order = json.dumps([list(message), plain]).encode()
    return bytes(save({**arrays, "__plain__": np.frombuffer(order, dtype=np.uint8)}))


def attempt(procedure: Callable[[Wire], ArrayLike], runtime: Lying, expected: ArrayLike) -> str:
    """Carry a procedure out; return "" or what went wrong."""
    begun, before = time.process_time(), megabytes()
    wrong = ""
    try:
        with warnings.catch_warnings(), fuzz.time_limit(SECONDS):
            warnings.simplefilter("ignore")
            found = procedure(runtime)
        if runtime.about not in FIRST and not np.array_equal(found, expected, equal_nan=True):
            wrong = "other figures of honest clients than without the lie"
    except (InputError, Paused) as error:
        told = ("which one cannot be told", f"`{LIAR}`", f"'{LIAR}'")
        if not any(words in str(error) for words in told):
            wrong = f"the line does not name the liar: {error}"
    except fuzz.Hung:
        wrong = f"it takes more than {time.process_time() - begun:.0f} s"
    except Exception as error:
        wrong = str(fuzz.where(error))
    blamed = {each.client for each in runtime.absences} - {LIAR}
    if blamed:
        return f"blames {', '.join(sorted(blamed))}: {runtime.absences[-1].why[:100]}"
    if megabytes() - before > MEMORY:
        return f"it takes {megabytes() - before:.0f} MB"
    return wrong


def megabytes() -> float:
    """Return the most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def main() -> int:
    """Lie, print a line for each procedure and finding, and return 1 where there was one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=200, help="lies of each procedure")
    parser.add_argument("--only", nargs="+", help="procedures whose names have one of these in them")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)  # threads that wait for each other count as CPU time
    findings, known = 0, set[str]()
    for name, procedure in procedures().items():
        if given.only and not any(part in name for part in given.only):
            continue
        honest = Lying(four := clients(name.startswith("table"), "numbers" in name))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = procedure(honest)
        told: list[tuple[str, str, dict[str, Any]]] = []
        rng = np.random.default_rng(given.seed)
        for action, reply in honest.honest.items():
            later = honest.counts[action] > 1
            becomes = [*others(four[1]), *((f"as {each.name}", each.name) for each in four if each.name != LIAR)]
            told += [(action, f"from here on {words}", {"becomes": other}) for words, other in becomes]
            if action in known:
                continue
            for words, lie in lies(reply, np.random.default_rng(given.seed)):
                since = int(later and rng.random() < 0.3)
                content = packed(lie)
                told.append((action, words + " (later)" * since, {"lie": partial(_said, content), "since": since}))
        known |= {action for action in honest.honest if action in FIRST and name != "table-inspect"}
        begun, found = time.process_time(), 0
        chosen = np.random.default_rng(given.seed).permutation(len(told))[: given.most]
        for action, words, how in (told[place] for place in sorted(chosen)):
            wrong = attempt(procedure, Lying(four, action, **how), expected)
            if wrong:
                found += 1
                print(f"  {name}, {action}, {words}: {wrong}", flush=True)
        findings += found
        spent = time.process_time() - begun
        shown = f"{len(chosen):5} of {len(told):5} lies {found:4} findings {spent:6.0f} s of CPU {megabytes():6.0f} MB"
        print(f"{name:20} {shown}: {', '.join(honest.honest)}", flush=True)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
