"""`train`: a federated algorithm inside each coalition, from clients and coalitions to a `TrainingResult`."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from torch import nn

from fedcollab.data.client import list_clients
from fedcollab.errors import FedcollabWarning, InputError, number
from fedcollab.federation import Clients, federate
from fedcollab.files import write_bytes
from fedcollab.progress import Progress, silent
from fedcollab.threads import one_core_each
from fedcollab.training import defaults
from fedcollab.training.algorithms import Algorithm, make_algorithm
from fedcollab.training.callbacks import Callback
from fedcollab.training.checkpoint import Checkpoint, Snapshot, identity
from fedcollab.training.descend import Setting
from fedcollab.training.history import History, line
from fedcollab.training.models import Factory, Network, name_model
from fedcollab.training.result import MEASURES, TrainingResult, schema_of
from fedcollab.training.rounds import Grouping, Measures, Round, Session, run_rounds
from fedcollab.wire.runtime import Runtime


def train(
    clients: Clients,
    coalitions: Any,
    algorithm: str | Algorithm = defaults.ALGORITHM,
    model: str | Factory | nn.Module = defaults.MODEL,
    *,
    rounds: int = defaults.ROUNDS,
    lr: float = defaults.LR,
    batch_size: int = defaults.BATCH_SIZE,
    local_epochs: int = defaults.LOCAL_EPOCHS,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    model_options: Mapping[str, Any] | None = None,
    runtime: str | None = None,
    device: str | None = None,
    scale: str | None = None,
    participation: float = 1.0,
    evaluate_every: int | None = 10,
    early_stop: int | None = None,
    run_dir: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    progress: Progress = silent,
    made: Mapping[str, Any] | None = None,
) -> TrainingResult:
    """Train a federated algorithm inside each coalition.

    Parameters
    ----------
    clients : iterable of ClientData, Runtime or Federation
        The clients; for a federation, `scale` is settled already.
    coalitions : list of lists of str, str, object or Grouping
        Lists of client names, an object with `.coalitions`, "local" (each alone) or "global" (everyone); or a
        `Grouping` that changes them as training goes on (see `fedcollab.baselines`).
    algorithm : str or Algorithm
        A name (see `ALGORITHMS`) with its `options`, or an `Algorithm` object.
    model : str, callable or torch.nn.Module
        A name (see `MODELS`) with its `model_options`, a factory of torch.nn.Module, or a module.
    rounds : int
        Communication rounds.
    lr : float
        Step size of local SGD.
    batch_size : int
        Batch size of local SGD.
    local_epochs : int
        Passes over a client's training samples in a round.
    seed : int
        Everything random is derived from it: initial weights, batches, participation, hold-outs.
    options, model_options : mapping, optional
        Settings of the algorithm and of the model.
    runtime, device, scale
        As in `fedcollab.federation.federate`.
    participation : float
        The share of each coalition that takes part in a round, at least one client.
    evaluate_every : int, optional
        Rounds between evaluations; the last round is always evaluated. None: only at the end.
    early_stop : int, optional
        A coalition stops after so many evaluations without a better mean accuracy on the test splits.
    run_dir : str or Path, optional
        Where metrics are streamed (training.jsonl) and result and models are saved at the end; a training that was
        interrupted there goes on from its last saved round.
    callbacks : sequence of Callback
        Called at the start, after every round and at the end.
    progress : callable
        Called with (round, rounds).
    made : mapping, optional
        What a run records about settings and inputs; saved with the result.

    Returns
    -------
    TrainingResult
        Measures in the order of `clients`, models, history and cost.

    Raises
    ------
    InputError
        If an argument is out of range, a name is unknown, or `coalitions` do not partition the clients.
    """
    rounds = int(number("rounds", rounds, at_least=1, whole=True))
    number("lr", lr, above=0)
    number("batch_size", batch_size, at_least=1, whole=True)
    number("local_epochs", local_epochs, at_least=1, whole=True)
    number("participation", participation, above=0, at_most=1)
    for name, value in (("evaluate_every", evaluate_every), ("early_stop", early_stop)):
        if value is not None:
            number(name, value, at_least=1, whole=True)
    if early_stop is not None and evaluate_every is None:
        raise InputError("`early_stop` needs evaluations: give `evaluate_every` too")
    called, chosen = make_algorithm(algorithm, options)
    model_name = name_model(model)
    clients = list_clients(clients)
    federation = federate(clients, runtime=runtime, device=device, scale=scale, seed=seed)
    names = federation.in_order_of(clients)
    if isinstance(coalitions, Grouping):
        grouping, method = coalitions, coalitions.method
    else:
        grouping, method = Grouping(_coalitions(coalitions, names, federation.left_out, alone=chosen.alone)), called
    schema = federation.schema
    text = Network.describe(model_name, model_options or {}, schema.shape, len(schema.classes))
    network = Network(text, seed=seed)
    if model_name == "resnet18" and network.weights_from == "seed" and "weights" not in (model_options or {}):
        warnings.warn(
            "no ImageNet weights for resnet18 are on this machine: it starts from random ones (say so with "
            "model_options={'weights': 'none'}); or train a head on `federation.encode_clients(clients)`",
            FedcollabWarning,
            stacklevel=2,
        )
    setting = Setting(called, chosen.options(), text, float(lr), int(batch_size), int(local_epochs), int(seed))
    quantities = federation.quantities
    session = Session(federation, setting, chosen, network, quantities, participation)
    of_clients = json.dumps([quantities, getattr(grouping, "coalitions", None)], sort_keys=True)
    settings = {**asdict(setting), "model": model_name, "rounds": rounds, "participation": participation}
    settings |= {"method": method, "evaluate_every": evaluate_every, "early_stop": early_stop}
    settings["grouping"] = grouping.options()
    session.training = identity(settings, of_clients, schema.to_json(), session.initial.numpy().tobytes())
    carrier = federation.runtime
    history, started, before = History(), time.perf_counter(), _moved(carrier)
    checkpoint, resumed, earlier = None, None, dict.fromkeys(("calls", "bytes_down", "bytes_up", "seconds"), 0.0)
    if run_dir is not None:
        checkpoint = Checkpoint(Path(run_dir), settings, session.training, always=carrier.lasting)
        resumed = checkpoint.read(federation.left_out)
        if resumed is None:
            checkpoint.done()  # another training's: its rounds are about to be overwritten
        history = _history(Path(run_dir), resumed)
        earlier |= {} if resumed is None else resumed.spent

    def spent() -> dict[str, Any]:
        now = {**_spent(before, _moved(carrier)), "seconds": round(time.perf_counter() - started, 3)}
        return {key: type(value)(value + earlier[key]) for key, value in now.items()}

    def keep(snapshot: Snapshot) -> None:
        assert checkpoint is not None
        checkpoint.keep(replace(snapshot, spent=spent()))

    with ExitStack() as stack:
        stack.enter_context(one_core_each())
        if checkpoint is not None:
            stack.callback(checkpoint.write)  # however it ends: what was trained is kept
        if run_dir is not None and carrier.journal is None:
            carrier.keep_journal(Path(run_dir))
            stack.callback(setattr, carrier, "journal", None)  # the next training has a folder of its own
        stream = _stream(run_dir, history, stack)
        for callback in callbacks:
            callback.on_start(settings)

        def watch(session: Session, outcome: Round) -> None:
            rows = _rows(session, outcome)
            for row in rows:
                history.add(row)
            if stream is not None:
                stream.write(b"".join(line(row) for row in rows))
                stream.flush()
            for callback in callbacks:
                callback.on_round(outcome.number, rows)
            progress(outcome.number, rounds)

        best, final = run_rounds(
            session,
            grouping,
            rounds,
            evaluate_every=evaluate_every,
            early_stop=early_stop,
            watch=watch,
            keep=None if checkpoint is None else keep,
            resumed=resumed,
        )
    order = list(dict.fromkeys(session.assignment[name] for name in names))
    models = {"last": np.stack([session.servers[label]["w"].numpy() for label in order])}
    if best:
        fallback = [session.servers[label]["w"] for label in order]
        pairs = zip(order, fallback, strict=True)
        models["best"] = np.stack([(best[label][1] if label in best else w).numpy() for label, w in pairs])
    if final.kept:  # for a client that did not answer at the end, its coalition's model stands in
        served = {name: session.servers[session.assignment[name]]["w"].numpy() for name in names}
        models["personal"] = np.stack([final.kept.get(name, served[name]) for name in names])
    result = TrainingResult(
        models={which: rows[:, : network.parameters + network.buffers] for which, rows in models.items()},
        names=tuple(names),
        coalitions=[[name for name in names if session.assignment[name] == label] for label in order],
        measures=_columns(final.measures, names),
        personal=_columns(final.personal, names) if final.personal else {},
        history=history,
        layout=network.layout,
        method=method,
        model={**json.loads(text), "weights_from": network.weights_from, "parameters": network.parameters},
        schema=schema_of(schema.to_json()),
        settings=settings,
        cost=spent(),
        stopped={order.index(label): why for label, why in session.stopped.items() if label in order},
        failures=session.failures,
        distances=_reordered(grouping, federation.names, names),
    )
    if run_dir is not None:
        result.save(Path(run_dir) / "training.json", made)
    if checkpoint is not None:
        checkpoint.done()
    for callback in callbacks:
        callback.on_end(result)
    return result


def _coalitions(coalitions: Any, names: Sequence[str], left_out: Mapping[str, str], *, alone: bool) -> list[list[str]]:
    """Return coalitions as lists of names, without absent clients, after checking that they partition the clients."""
    given = getattr(coalitions, "coalitions", coalitions)
    if alone or (isinstance(given, str) and given == "local"):
        return [[name] for name in names]
    if isinstance(given, str):
        if given != "global":
            raise InputError(f"`coalitions` (={given!r}) must be lists of client names, 'local' or 'global'")
        return [list(names)]
    try:
        lists = [[name for name in members if name not in left_out] for members in given]
    except TypeError:
        raise InputError(f"`coalitions` (={given!r}) must be lists of client names, 'local' or 'global'") from None
    flat = [name for members in lists for name in members]
    unknown = [name for name in flat if name not in names]
    if unknown:
        raise InputError(f"`coalitions` names {unknown[0]!r}, which is not a client; clients: {', '.join(names)}")
    twice = [name for name in flat if flat.count(name) > 1]
    if twice:
        raise InputError(f"`coalitions` has the client {twice[0]!r} twice; coalitions must not overlap")
    missing = [name for name in names if name not in flat]
    if missing:
        raise InputError(f"`coalitions` lacks the client {missing[0]!r}; every client must be in one")
    return [members for members in lists if members]


def _rows(session: Session, outcome: Round) -> list[dict[str, Any]]:
    """Return one row of the history for each client that was trained or evaluated in the round."""
    rows = []
    for name in session.names:
        if name not in outcome.losses and name not in outcome.evaluation.measures:
            continue
        row: dict[str, Any] = {"round": outcome.number, "client": name, "coalition": session.assignment[name]}
        row["train_loss"] = outcome.losses.get(name)
        for prefix, source in (("", outcome.evaluation.measures), ("personal_", outcome.evaluation.personal)):
            if name in source:
                row |= {f"{prefix}{key}": float(v) for key, v in zip(MEASURES, source[name], strict=True)}
        rows.append(row)
    return rows


def _columns(measures: Measures, names: Sequence[str]) -> dict[str, Any]:
    """Return measures by client as one array for each measure, in the order of `names`; NaN for absent clients."""
    missing = np.full(len(MEASURES), np.nan)
    table = np.stack([measures.get(name, missing) for name in names])
    return {key: table[:, position] for position, key in enumerate(MEASURES)}


def _stream(run_dir: str | Path | None, history: History, stack: ExitStack) -> BinaryIO | None:
    """Open the file that rounds are appended to, after writing the rounds before the one that training goes on from."""
    if run_dir is None:
        return None
    path = Path(run_dir) / "training.jsonl"
    write_bytes(path, history.lines())
    return stack.enter_context(path.open("ab"))


def _history(folder: Path, resumed: Snapshot | None) -> History:
    """Read the rounds up to the one that training goes on from."""
    path = folder / "training.jsonl"
    if resumed is None or not path.exists():
        return History()
    return History([row for row in History.read(path) if row["round"] <= resumed.number])


def _moved(runtime: Runtime) -> tuple[int, int, int]:
    """Return a runtime's calls, bytes down and bytes up so far."""
    cost = runtime.cost
    return cost.rounds, sum(cost.down.values()), sum(cost.up.values())


def _spent(before: tuple[int, int, int], after: tuple[int, int, int]) -> dict[str, int]:
    """Return the calls and bytes between two readings of `_moved`."""
    keys = ("calls", "bytes_down", "bytes_up")
    return {key: late - early for key, early, late in zip(keys, before, after, strict=True)}


def _reordered(grouping: Grouping, ordered: Sequence[str], names: Sequence[str]) -> Any:
    """Return the grouping's distances in the order of `names`, or None if it has none."""
    if grouping.distances is None:
        return None
    rows = [list(ordered).index(name) for name in names]
    return grouping.distances[np.ix_(rows, rows)]
