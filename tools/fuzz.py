"""Feed every reader of fedcollab thousands of damaged files: each must be read, or refused with one clear line.

    python tools/fuzz.py                              100,000 inputs a reader (`make fuzz`)
    python tools/fuzz.py --inputs 1000 --reader npz   fewer, of one reader

Valid files of every kind are damaged at random: bits, bytes, numbers, parts; JSON and NPZ also by their structure, so
that the damage lies behind what a parser alone would notice. Anything but `InputError` is a finding, as is an input
that takes more than ten seconds of CPU time. Findings are written to `--keep`, to be made into tests
(tests/test_fuzz.py). The same seed gives the same inputs.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.numpy import save

from fedcollab import advise, c_path, estimate_distances, solve
from fedcollab.advice import Advice
from fedcollab.coalitions import Collaboration, CPath
from fedcollab.coalitions.tables import read_matrix, read_quantities
from fedcollab.data import ClientData
from fedcollab.data.own import load_own
from fedcollab.data.read import read_client
from fedcollab.data.schema import Schema
from fedcollab.distances import Distances
from fedcollab.errors import InputError
from fedcollab.federation import federate
from fedcollab.flower import FederationFolder
from fedcollab.flower.coordinator.certificates import make_certificates
from fedcollab.flower.keys import days_left
from fedcollab.flower.silo.config import Invitation, SiloConfig
from fedcollab.inspection import Inspection, inspect
from fedcollab.scenarios.file import load as load_scenario
from fedcollab.silo.plans import Plan, Training
from fedcollab.silo.review import review
from fedcollab.training import Comparison, LearningCurve, TrainingResult, compare, measure_learning_curve, train
from fedcollab.training.checkpoint import FILE as CHECKPOINT
from fedcollab.training.checkpoint import Checkpoint, Snapshot, Stopping
from fedcollab.training.history import History
from fedcollab.wire.action import ACTIONS
from fedcollab.wire.limits import Limits, make_limits
from fedcollab.wire.message import pack, unpack

SECONDS = 10.0  # of CPU time that one input may take
ODD = (
    0, -1, 1, 2**31, 2**63, -(2**63), 2**64, 10**400, 1e308, -1e308, 1e-320, float("nan"), float("inf"), True, None,
    "", "x", "\x00", "\ud800", "é" * 50, "1", [], {}, [[]], [None], {"": None}, [[[[1]]]], ["a", 1], 10**12, 0.5,
)  # fmt: skip
WORDS = (
    b"0", b"-1", b"1e999", b"NaN", b"null", b"true", b'"', b",", b"\n", b"[", b"]", b"{", b"}", b"=", b".", b"\x00",
    b"\xff\xfe", b"\xef\xbb\xbf", b"9" * 30, b"'", b"\r", b";", b"#", b"1979-02-31", b"inf", b"\\u0000", b"[[", b"0x1",
    b"99999999999", b"\t", b"1_0", b'"""', b"a.b.c",
)  # fmt: skip


class Hung(BaseException):
    """Raised where one input takes too long."""


@dataclass(frozen=True)
class Reader:
    """One reader and what it is fed with.

    Parameters
    ----------
    seeds : dict of str to bytes
        Valid files by name.
    read : callable
        Reads a file, and uses what it read as the next stage would.
    damage : callable
        Makes a damaged file of a valid one.
    """

    seeds: dict[str, bytes]
    read: Callable[[Path], Any]
    damage: Callable[[bytes, np.random.Generator], bytes]


def flip(content: bytes, rng: np.random.Generator) -> bytes:
    """Damage a file byte by byte: one to four changes."""
    changed = bytearray(content)
    for _ in range(int(rng.integers(1, 5))):
        size = len(changed)
        at = int(rng.integers(0, size + 1))
        end = min(size, at + int(2 ** rng.uniform(0, 8)))
        way = int(rng.integers(0, 7))
        if way == 0 and size:
            changed[min(at, size - 1)] ^= 1 << int(rng.integers(0, 8))
        elif way == 1:
            changed[at:at] = WORDS[int(rng.integers(0, len(WORDS)))]
        elif way == 2:
            changed[at:end] = WORDS[int(rng.integers(0, len(WORDS)))]
        elif way == 3:
            del changed[at:end]
        elif way == 4:
            changed[at:at] = changed[at:end] * int(2 ** rng.uniform(0, 6))
        elif way == 5:
            changed[at:end] = bytes(rng.integers(0, 256, end - at, dtype=np.uint8))
        elif rng.random() < 0.2:
            del changed[at:]
    return bytes(changed)


def restructure(content: bytes, rng: np.random.Generator) -> bytes:
    """Damage a JSON file by its structure: one to three values are replaced, removed, repeated or moved."""
    if rng.random() < 0.3:
        return flip(content, rng)
    value = json.loads(content)
    for _ in range(int(rng.integers(1, 4))):
        place, key = _place(value, rng)
        if place is None:
            continue
        way = rng.random()
        if way < 0.6:
            place[key] = deepcopy(ODD[int(rng.integers(0, len(ODD)))])
        elif way < 0.75:
            del place[key]
        elif way < 0.85 and isinstance(place, list):
            place.extend(deepcopy(place[key]) for _ in range(3))
        else:
            other, name = _place(value, rng)
            place[key] = deepcopy(other[name]) if other is not None else None
    return json.dumps(value).encode("utf-8", "surrogatepass")


def _place(value: Any, rng: np.random.Generator) -> tuple[Any, Any]:
    """Return a random list or object in a value, and a position in it."""
    found: tuple[Any, Any] = (None, None)
    while isinstance(value, (dict, list)) and value:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        found = value, keys[int(rng.integers(0, len(keys)))]
        value = found[0][found[1]]
        if rng.random() < 0.3:
            break
    return found


def rezip(content: bytes, rng: np.random.Generator) -> bytes:
    """Damage the arrays in an NPZ file before they are packed, so that its checksums fit."""
    if rng.random() < 0.4:
        return flip(content, rng)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    for _ in range(int(rng.integers(1, 3))):
        name = list(parts)[int(rng.integers(0, len(parts)))]
        way = rng.random()
        if way < 0.4:
            parts[name] = flip(parts[name], rng)
        elif way < 0.8:
            parts[name] = _npy(rng)
        elif way < 0.9:
            parts[("x:", "y_test", "groups", "missing:x:age", "name.npy")[int(rng.integers(0, 5))]] = _npy(rng)
        else:
            del parts[name]
            if not parts:
                break
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return buffer.getvalue()


def keep_snapshot(folder: Path) -> None:
    """Write a checkpoint with all that one can hold."""
    server = {"w": torch.zeros(1, 3), "change": torch.ones(1, 3)}
    stopping = Stopping({0: 4}, {0: True}, {"a": np.zeros((3, 2))})
    states = {"a": {"train": {"w": np.zeros(3, dtype=np.float32), "round": 2}}}
    snapshot = Snapshot(
        2,
        [server, server],
        {"a": 0, "b": 1},
        {1: "diverged"},
        stopping,
        [(1, "b", "silent")],
        {"a": 2},
        np.zeros((2, 2)),
        states,
        {"seconds": 1.0},
        {"groups": []},
    )
    checkpoint = Checkpoint(folder, {"rounds": 5}, "identity", always=True)
    checkpoint.keep(snapshot)


def resign(content: bytes, rng: np.random.Generator) -> bytes:
    """Damage a checkpoint behind its checksum, mostly in its plain values; its checksum is made again."""
    if rng.random() < 0.2:
        return flip(content, rng)
    message = unpack(content[:-32], arrays=None)
    if rng.random() < 0.2:
        changed = flip(content[:-32], rng)
    else:
        plain = {key: value for key, value in message.items() if not isinstance(value, np.ndarray)}
        changed = restructure(json.dumps(plain).encode(), rng)
        try:
            found = json.loads(changed)
            arrays = {key: value for key, value in message.items() if isinstance(value, np.ndarray)}
            order = json.dumps([[*arrays, *found], found]).encode()
            changed = save({**arrays, "__plain__": np.frombuffer(order, dtype=np.uint8)})
        except (ValueError, TypeError, RecursionError):
            changed = content[:-40] + changed
    return changed + hashlib.sha256(changed).digest()


def _npy(rng: np.random.Generator) -> bytes:
    """Return an array of a random type and shape, as an NPY file; sometimes its header claims a huge shape."""
    kind = ("f4", "f8", "i1", "i8", "u8", "?", "c16", "U3", "S2", "M8[s]", "m8[D]", "f2", "V4", "i4,f8")
    shape = tuple(int(side) for side in rng.integers(0, 13, int(rng.integers(0, 4))))
    values = np.zeros(shape, dtype=kind[int(rng.integers(0, len(kind)))])
    if values.dtype.kind in "iuf" and rng.random() < 0.5:
        values[...] = rng.integers(-2, 3, shape) if values.dtype.kind != "u" else 1
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, values, allow_pickle=False)
    content = buffer.getvalue()
    if rng.random() < 0.2:
        content = content.replace(b"'shape': (", b"'shape': (99999999999, ", 1)
    return content


def clients() -> list[ClientData]:
    """Return four small clients of two kinds."""
    made = []
    for index, name in enumerate("abcd"):
        rng = np.random.default_rng(index)
        y = np.arange(40) % 2
        x = rng.normal(0, 1, (40, 3)) + np.outer(2 * y - 1, [1.0, 0, 0])
        made.append(ClientData(name, x[:24], y[:24] if index < 2 else 1 - y[:24], x[24:], y[24:]))
    return made


def readers(folder: Path) -> dict[str, Reader]:
    """Return every reader with valid files of its kind, made in this folder."""
    four = clients()
    federation = federate(four)
    table = pd.DataFrame({"age": [50.5, 61, None, 48], "town": ["rome", "oslo", None, "rome"], "ill": [0, 1, 1, 0]})
    table = pd.concat([table] * 3, ignore_index=True)
    table.to_csv(folder / "table.csv", index=False)
    table.to_parquet(folder / "table.parquet")
    four[0].save(folder / "client.npz")
    ClientData("t", table[["age", "town"]], table["ill"]).save(folder / "table.npz")
    distances = estimate_distances(federation, method="few-round")
    distances.save(folder / "distances.json")
    solve(distances, C=5.0).save(folder / "collaboration.json")
    c_path(distances).save(folder / "path.json")
    settings: dict[str, Any] = {"rounds": 2, "model_options": {"widths": [2]}, "stopping": "none"}
    alone = train(federation, "local", **settings)
    alone.save(folder / "training.json")
    compare(federation, {"alone": alone}).save(folder / "comparison.json")
    measure_learning_curve(federation, alone, **settings).save(folder / "learning_curve.json")
    inspect(four).save(folder / "inspection.json")
    federation.schema.save(folder / "schema.json")
    (folder / "scenario.toml").write_text(
        '[scenario]\nname = "digits"\nclients = 4\nseed = 3\niid = false\nquantity = [5, 6, 7, 8]\ntest = 3\n'
        '[settings]\nrounds = 5\nC = 10.0\nmodel = "mlp"\n'
    )
    (folder / "own.toml").write_text(
        '[data]\nclients = "hospitals"\nlabel = "ill"\ndrop = ["record", "date"]\ncolumns = "common"\n'
        'merge_labels = true\nid = "patient"\n[data.label_map]\nja = "yes"\n[settings]\nrounds = 5\n'
    )
    (folder / "silo.toml").write_text(
        'name = "north"\ndata = "table.csv"\nlabel = "ill"\n[limits]\nmin_samples = 20\n'
        "max_runs_per_day = 5\nrequire_privacy = { epsilon = 1.0, delta = 1e-5 }\n"
    )
    (folder / "matrix.csv").write_text(",a,b,c\na,0,0.5,1\nb,0.5,0,0.25\nc,1,0.25,0\n")
    (folder / "quantities.csv").write_text("name,samples\na,10\nb,20\nc,30\n")
    models = (folder / "training.safetensors").read_bytes()
    history = (folder / "training.jsonl").read_bytes()
    advised = advise(federation, model="logistic", rounds=2, distances=distances, C=5.0)
    advised.save(folder / "advice.json")
    how = Training("logistic", "fedavg", 32, 5, 0.1, options={"mu": 0.1}, model_options={"widths": [2]})
    partners = {"a": "0" * 64, "b": ""}
    Plan("heart", "train", partners, {"rounds": 9, "models": 3}, training=how, coalitions=(("a", "b"),),
         purpose="to find out").save(folder / "plan.json")  # fmt: skip
    (folder / "federation.toml").write_text(
        'name = "heart"\nhost = "127.0.0.1"\nport = 9443\nsecure = true\ndeadline = 60.0\nquorum = 0.5\nretries = 1\n'
    )
    make_certificates(folder / "keys", "heart", "127.0.0.1")
    authority = (folder / "keys" / "ca.crt").read_text()
    invitation = f'name = "heart"\naddress = "127.0.0.1:9443"\ncertificate = """\n{authority}"""\n'
    (folder / "invitation.toml").write_text(invitation)
    keep_snapshot(folder)

    def files(*names: str) -> dict[str, bytes]:
        return {name: (folder / name).read_bytes() for name in names}

    def unsigned(name: str) -> bytes:
        content = json.loads((folder / name).read_bytes())
        content.pop("content_sha256", None)
        content.pop("checksums", None)
        return json.dumps(content).encode()

    def artefacts(path: Path) -> None:
        if path.stem == "training":
            path.with_suffix(".safetensors").write_bytes(models)
        use(LOADERS[path.stem](path))

    def weights(path: Path) -> None:
        path.with_suffix(".json").write_bytes(unsigned("training.json"))
        use(TrainingResult.load(path.with_suffix(".json")))

    def toml(path: Path) -> Any:
        if path.stem == "silo":
            return make_limits(SiloConfig.read(path).limits, ACTIONS)
        if path.stem == "federation":
            return FederationFolder.read(path.parent).policy
        if path.stem == "invitation":
            found = Invitation.read(path)
            return days_left(str(found.certificate).encode())
        return load_own(path) or load_scenario(path)

    def plan(path: Path) -> None:
        review(Plan.load(path), Limits(), [], [])

    def resumed(path: Path) -> None:
        if Checkpoint(path.parent, {"rounds": 5}, "identity").read() is None:
            raise InputError("training starts over")

    message = pack({"w": np.zeros((2, 3), dtype=np.float32), "round": 3, "names": ["a", "b"], "n": np.arange(4)})
    return {
        "csv": Reader(files("table.csv"), lambda path: repr(read_client(path, "ill")), flip),
        "matrix": Reader(
            files("matrix.csv", "quantities.csv"),
            lambda path: read_matrix(path) if path.stem == "matrix" else read_quantities(path, ("a", "b", "c")),
            flip,
        ),
        "parquet": Reader(files("table.parquet"), lambda path: repr(read_client(path, "ill")), flip),
        "npz": Reader(files("client.npz", "table.npz"), lambda path: repr(ClientData.load(path)), rezip),
        "toml": Reader(
            files("scenario.toml", "own.toml", "silo.toml", "federation.toml", "invitation.toml"), toml, flip
        ),
        "plan": Reader(files("plan.json"), plan, restructure),
        "checkpoint": Reader(files(CHECKPOINT), resumed, resign),
        "history": Reader({"training.jsonl": history}, lambda path: list(History.read(path)), flip),
        "json": Reader({f"{name}.json": unsigned(f"{name}.json") for name in LOADERS}, artefacts, restructure),
        "safetensors": Reader({"training.safetensors": models}, weights, flip),
        "message": Reader({"message.bin": message}, lambda path: unpack(path.read_bytes(), most=10**6), flip),
    }


LOADERS: dict[str, Callable[[Path], Any]] = {
    "advice": Advice.load,
    "distances": Distances.load,
    "collaboration": Collaboration.load,
    "path": CPath.load,
    "training": TrainingResult.load,
    "comparison": Comparison.load,
    "learning_curve": LearningCurve.load,
    "inspection": Inspection.load,
    "schema": Schema.load,
}


def use(value: Any) -> None:
    """Use what was read as the next stage and the report would."""
    repr(value)
    if isinstance(value, Distances):
        solve(value, C=5.0)
        value.between(value.names[0], value.names[-1])
    elif isinstance(value, Collaboration):
        repr(value.coalitions), value.terms, value.gap, value.explain(value.names[0] if value.names else 0)
    elif isinstance(value, CPath):
        repr(value.suggested), value.as_dict()
    elif isinstance(value, TrainingResult):
        value.reported.mean(), value.assignment, value.used, value.personal_accuracy
        value.weights(client=value.names[0])
    elif isinstance(value, Advice):
        str(value), value.explain(value.names[0]), value.as_dict(), value.followed
    elif isinstance(value, Inspection):
        str(value), value.errors, value.warnings
    elif isinstance(value, Schema):
        value.to_json()


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `Hung` where the block takes more CPU time than this."""

    def ring(*_: Any) -> None:
        raise Hung

    before = signal.signal(signal.SIGVTALRM, ring)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def damaged(reader: Reader, count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Yield so many damaged files of a reader: their names and contents."""
    names = sorted(reader.seeds)
    for index in range(count):
        rng = np.random.default_rng([seed, index])
        name = names[index % len(names)]
        yield name, reader.damage(reader.seeds[name], rng)


def attempt(reader: Reader, path: Path) -> str:
    """Read one file; return "read", "refused", or else what went wrong."""
    try:
        with warnings.catch_warnings(), time_limit(SECONDS):
            warnings.simplefilter("ignore")
            reader.read(path)
    except InputError as error:
        if not str(error).strip() or "\n" in str(error):
            return f"the refusal is not one line: {str(error)!r}"
        return "refused"
    except (Exception, Hung) as error:
        return where(error)
    return "read"


def where(error: BaseException) -> str:
    """Return what an error says, and the innermost line of fedcollab that it passed."""
    frames = traceback.extract_tb(error.__traceback__)
    inner = next((frame for frame in reversed(frames) if "fedcollab" in frame.filename), frames[-1])
    return f"{type(error).__name__}: {str(error)[:100]} ({Path(inner.filename).name}:{inner.lineno})"


def main() -> int:
    """Feed the readers, print a table of what came of it, and return 1 where there was a finding."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=100_000, help="inputs a reader")
    parser.add_argument("--reader", action="append", help="only this reader; may be repeated")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-findings"), help="where findings are written")
    given = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as made:
        (Path(made) / "valid").mkdir()
        known = readers(Path(made) / "valid")
        print(f"{'reader':12} {'inputs':>8} {'read':>8} {'refused':>8} {'findings':>8} {'CPU s':>8} {'memory MB':>10}")
        for name in given.reader or known:
            reader, counts, begun = known[name], Counter[str](), time.process_time()
            for file, content in damaged(reader, given.inputs, given.seed):
                path = Path(made) / file
                path.write_bytes(content)
                outcome = attempt(reader, path)
                if outcome not in ("read", "refused"):
                    where = outcome.split(" (")[-1]
                    counts["wrong"] += 1
                    counts[where] += 1
                    if counts[where] == 1:
                        given.keep.mkdir(exist_ok=True)
                        (given.keep / f"{name}-{len(counts)}-{file}").write_bytes(content)
                        print(f"  {name}: {outcome}", file=sys.stderr)
                else:
                    counts[outcome] += 1
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
            spent = time.process_time() - begun
            columns = " ".join(f"{counts[key]:8}" for key in ("read", "refused", "wrong"))
            print(f"{name:12} {given.inputs:8} {columns} {spent:8.0f} {memory:10.0f}", flush=True)
            failed += counts["wrong"]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
