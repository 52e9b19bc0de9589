"""Every reader of fedcollab, the valid files that it is fed damaged copies of, and what is done with what it reads."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import torch
from fuzz_damage import flip, recell, reorder, resave, resign, restructure, retable, rezip

from fedcollab import advise, c_path, estimate_distances, solve
from fedcollab.advice import Advice
from fedcollab.cli import cli
from fedcollab.cli.sources import locate, remember
from fedcollab.coalitions import Collaboration, CPath
from fedcollab.coalitions.tables import read_matrix, read_quantities
from fedcollab.data import ClientData
from fedcollab.data.own import load_own, read_columns, read_label_map
from fedcollab.data.read import read_client
from fedcollab.data.rows import read_rows
from fedcollab.data.schema import Column, Schema
from fedcollab.distances import Distances
from fedcollab.errors import InputError
from fedcollab.federation import Federation, federate
from fedcollab.files import write_json
from fedcollab.flower import FederationFolder, init_silo
from fedcollab.flower.coordinator.certificates import make_certificates
from fedcollab.flower.keys import days_left, read_public_key, sign
from fedcollab.flower.silo.approvals import FOLDER as PLANS
from fedcollab.flower.silo.approvals import approve_plan
from fedcollab.flower.silo.config import Invitation, SiloConfig
from fedcollab.inspection import Inspection, inspect
from fedcollab.report import write
from fedcollab.report.differences import encoder_facts
from fedcollab.report.run import read_run
from fedcollab.runs import Run
from fedcollab.runs.membership.history import entries
from fedcollab.runs.pipeline import FedCollab
from fedcollab.runs.transaction import NEXT
from fedcollab.scenarios.file import load as load_scenario
from fedcollab.silo.audit import FILE as LOG
from fedcollab.silo.audit import Audit, Entry
from fedcollab.silo.plans import Plan, Training
from fedcollab.silo.review import review
from fedcollab.training import Comparison, LearningCurve, TrainingResult, compare, measure_learning_curve, train
from fedcollab.training.checkpoint import FILE as CHECKPOINT
from fedcollab.training.checkpoint import Checkpoint, Snapshot, Stopping
from fedcollab.training.history import History
from fedcollab.training.trained import TrainedModel
from fedcollab.wire.absence import FILE as ABSENCES
from fedcollab.wire.absence import Absence, words
from fedcollab.wire.absence import write as write_absences
from fedcollab.wire.action import ACTIONS
from fedcollab.wire.limits import Limits, make_limits
from fedcollab.wire.message import pack, unpack

#: what a file of a run is signed with: taken off, so that damage lies behind it
SIGNED = ("content_sha256", "checksums", "made")
SHOWN = 250  # of so many run directories one is also shown as a report: it takes as long as all the others


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


def clients() -> list[ClientData]:
    """Return four small clients of two kinds."""
    made = []
    for index, name in enumerate("abcd"):
        rng = np.random.default_rng(index)
        y = np.arange(40) % 2
        x = rng.normal(0, 1, (40, 3)) + np.outer(2 * y - 1, [1.0, 0, 0])
        made.append(ClientData(name, x[:24], y[:24] if index < 2 else 1 - y[:24], x[24:], y[24:]))
    return made


#: how a table like `table.csv` becomes inputs
MIXED = Schema((0, 1), (3,), (Column("age", 50.0, 5.0), Column("town", categories=("oslo", "rome"))))


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
    (folder / "columns.txt").write_text("age\n blood pressure\n\nétat\n")
    (folder / "labels.csv").write_text("ja,yes\n1,yes\n'nein,no\n")
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

    def predicted(path: Path) -> None:
        schema = federation.schema if path.stem == "client" else MIXED
        model = TrainedModel(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(2)), schema)
        assert all(map(np.isfinite, model.predict_proba(read_rows(path, schema).x).ravel()))

    def plan(path: Path) -> None:
        review(Plan.load(path), Limits(), [], [])

    def resumed(path: Path) -> None:
        if Checkpoint(path.parent, {"rounds": 5}, "identity").read() is None:
            raise InputError("training starts over")

    message = pack({"w": np.zeros((2, 3), dtype=np.float32), "round": 3, "names": ["a", "b"], "n": np.arange(4)})
    return {
        "run": run_reader(folder / "run", federation, settings),
        "commands": commands_reader(folder / "commands"),
        "silo": silo_reader(folder / "silo", invitation),
        "csv": Reader(files("table.csv"), lambda path: repr(read_client(path, "ill")), recell),
        "matrix": Reader(
            files("matrix.csv", "quantities.csv", "columns.txt", "labels.csv"),
            lambda path: LISTS[path.stem](path),
            flip,
        ),
        "rows": Reader(files("table.csv"), predicted, recell),
        "rows-parquet": Reader(files("table.parquet"), predicted, retable),
        "rows-npz": Reader(files("client.npz", "table.npz"), predicted, rezip),
        "parquet": Reader(files("table.parquet"), lambda path: repr(read_client(path, "ill")), retable),
        "npz": Reader(files("client.npz", "table.npz"), lambda path: repr(ClientData.load(path)), rezip),
        "toml": Reader(
            files("scenario.toml", "own.toml", "silo.toml", "federation.toml", "invitation.toml"), toml, flip
        ),
        "plan": Reader(files("plan.json"), plan, restructure),
        "checkpoint": Reader(files(CHECKPOINT), resumed, resign),
        "history": Reader({"training.jsonl": history}, lambda path: list(History.read(path)), flip),
        "json": Reader({f"{name}.json": unsigned(f"{name}.json") for name in LOADERS}, artefacts, restructure),
        "safetensors": Reader({"training.safetensors": models}, weights, resave),
        "message": Reader({"message.bin": message}, lambda path: unpack(path.read_bytes(), most=10**6), reorder),
    }


def run_reader(place: Path, federation: Federation, settings: Mapping[str, Any]) -> Reader:
    """Return the reader of a whole run directory: one of its files is damaged, and all is read, and now and then shown.

    Checksums are taken off, so that damage lies behind them.
    """
    fitted = FedCollab(distance="few-round", C=5.0, run_dir=place).fit(federation)
    results = {way: fitted.train(way=way, **settings) for way in ("local", "coalitions")}
    fitted.compare(results)
    inspect(clients()).save(place / "inspection.json")
    run = Run.open(place)
    remember(run, place, {"a": place / "a.csv"})
    listed = {"number": 0, "date": "2026-01-01", "cause": "run", "summary": "first", "file": "history/000-run.json"}
    write_json(place / "history" / "index.json", "history", {"collaborations": [listed, {**listed, "number": 1}]})
    write_json(place / "encoder.json", "encoder", {"encoder": "x", "words": "it is fine"})
    write_absences(place / ABSENCES, [Absence("2026-01-01T00:00:00+00:00", "train", 3, "a", "silent", "no answer")] * 2)
    write_json(place / NEXT / "ready.json", "change", {"aside": {"encoder.json": "history/old.json"}, "files": ["x"]})
    for path in place.rglob("*.json"):
        content = {key: value for key, value in json.loads(path.read_text()).items() if key not in SIGNED}
        path.write_text(json.dumps(content))
    whole = {
        str(path.relative_to(place)): path.read_bytes()
        for path in sorted(place.rglob("*"))
        if path.suffix in (".json", ".jsonl", ".safetensors")
    }

    def read(path: Path) -> None:
        name = path.name.replace("+", "/")
        content = path.read_bytes()
        for other in (name, "encoder.json", f"{NEXT}/ready.json"):
            (place / other).parent.mkdir(parents=True, exist_ok=True)
            (place / other).write_bytes(content if other == name else whole[other])
        try:
            contents = read_run(place)
            repr(contents.judgement), words(contents.absences), encoder_facts(contents), entries(run), locate(run, None)
            if zlib.crc32(content) % SHOWN == 0:
                write(place)
        finally:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(whole[name])

    def damage(content: bytes, rng: np.random.Generator) -> bytes:
        if not content.startswith(b"{"):
            return resave(content, rng)
        return restructure(content, rng) if content.count(b"\n") < 2 else flip(content, rng)

    return Reader({name.replace("/", "+"): content for name, content in whole.items()}, read, damage)


def commands_reader(place: Path) -> Reader:
    """Return the reader of runs by command: a file of one of two runs is damaged, and a command looks at that run.

    The runs have models of trees and of a regression. What is printed for programs must have no NaN.
    """
    place.mkdir()
    for kind in ("trees", "numbers"):
        made = [ClientData(f"{name}", *_rows(name, kind == "numbers")) for name in "ab"]
        fitted = FedCollab(distance="few-round", C=5.0, run_dir=place / kind, quiet=True).fit(made)
        how: dict[str, Any] = {"model": "xgboost", "model_options": {"max_depth": 2}} if kind == "trees" else {}
        for way in ("local", "coalitions"):
            fitted.train(way=way, rounds=2, stopping="none", **{"model": "logistic", **how})
        inspect(made).save(place / kind / "inspection.json")
        for path in (place / kind).rglob("*.json"):
            content = {key: value for key, value in json.loads(path.read_text()).items() if key not in SIGNED}
            path.write_text(json.dumps(content))
    made[0].x.to_csv(place / "new.csv", index=False)
    whole = {
        str(path.relative_to(place)): path.read_bytes()
        for path in sorted(place.rglob("*.json"))
        if "xgboost" not in path.name
    }
    for kind in ("trees", "numbers"):
        shutil.copytree(place / kind, place / f"{kind}-before")

    def read(path: Path) -> None:
        name, content, told = path.name.replace("+", "/"), path.read_bytes(), io.StringIO()
        run, elsewhere = str(place / name.split("/")[0]), place / "exported"
        new, way = str(place / "new.csv"), "local" if "local" in name else "coalitions"
        commands = (
            ["predict", run, "--client", "a", "--way", way, new, "--json"],
            ["explain", run, "--client", "b", "--json"],
            ["compare", run, f"{run}-before", "--way", way, "--json"],
            ["export", run, "--to", str(elsewhere), "--way", way, "--json"],
            ["solve", run, "--C", "3", "--json"],
            ["path", run, "--json"],
        )
        (place / name).write_bytes(content)
        try:
            with contextlib.redirect_stdout(told), contextlib.redirect_stderr(io.StringIO()):
                cli.main(commands[zlib.crc32(content) % len(commands)], standalone_mode=False)
            json.loads(told.getvalue(), parse_constant=lambda text: [][text])
        except click.ClickException as error:
            raise InputError(error.format_message()) from None
        finally:
            (place / name).write_bytes(whole[name])
            shutil.rmtree(elsewhere, ignore_errors=True)

    return Reader({name.replace("/", "+"): content for name, content in whole.items()}, read, restructure)


def _rows(name: str, numbers: bool) -> tuple[pd.DataFrame, Any]:
    """Return a small table and its label."""
    rng = np.random.default_rng(ord(name))
    table = pd.DataFrame({"age": rng.normal(50, 9, 40).round(2), "town": ["rome", "oslo"] * 20})
    return table, table["age"] / 3 + rng.normal(size=40) if numbers else np.where(table["age"] > 50, "yes", "no")


def silo_reader(place: Path, invitation: str) -> Reader:
    """Return the reader of a silo's state: its log, its approvals, its keys; and a partner's key."""
    place.mkdir()
    (place / "invitation.toml").write_text(invitation)
    clients()[0].save(place / "data.npz")
    init_silo(place, "a", place / "data.npz", None, place / "invitation.toml")
    config = SiloConfig.read(place / "silo.toml")
    plan = Plan("heart", "look", {"a": "", "b": ""}, {"models": 3}, methods=("label",), purpose="to find out")
    approve_plan(config, plan, Limits())
    audit = Audit(config.state / LOG)
    for number in range(4):
        audit.add(Entry("2026-01-01T00:00:00+00:00", f"run{number}", "describe", "said", 10, 20, ["w float32[2]"], [],
                        ["a", "b"], "answered", "", "0" * 64, cost={"models": 1}))  # fmt: skip
    approval = next((config.state / PLANS).glob("*.json"))
    whole = {
        path.name: path.read_bytes() for path in (audit.path, approval, config.key, config.key.with_suffix(".pub"))
    }
    places = {path.name: path for path in (audit.path, approval, config.key, config.key.with_suffix(".pub"))}

    def read(path: Path) -> None:
        places[path.name].write_bytes(path.read_bytes())
        told = io.StringIO()
        try:
            with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
                if path.suffix == ".pub":
                    read_public_key(places[path.name])
                elif path.name == audit.path.name:
                    log, config_file = Audit(audit.path), str(place / "silo.toml")
                    list(log.since("2025")), log.latest(), log.hashes()
                    cli.main(["silo", "plans", "--config", config_file], standalone_mode=False)
                    cli.main(["silo", "log", config_file, "--json"], standalone_mode=False)
                    cli.main(["silo", "log", config_file, "--verify"], standalone_mode=False)
                else:
                    cli.main(["silo", "plans", "--config", str(place / "silo.toml")], standalone_mode=False)
                    sign(config.key, b"content")
        finally:
            places[path.name].write_bytes(whole[path.name])

    return Reader(whole, read, lambda content, rng: (restructure if content.startswith(b"{\n") else flip)(content, rng))


LISTS: dict[str, Callable[[Path], Any]] = {
    "matrix": read_matrix,
    "quantities": lambda path: read_quantities(path, ("a", "b", "c")),
    "columns": lambda path: read_columns(str(path)),
    "labels": read_label_map,
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
