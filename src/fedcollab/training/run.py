"""`train`: a federated algorithm inside each coalition, from clients and coalitions to a `TrainingResult`."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from torch import nn

from fedcollab.data.client import list_clients
from fedcollab.errors import FedcollabWarning, InputError, number, unknown
from fedcollab.federation import Clients, federate
from fedcollab.progress import Progress, silent
from fedcollab.threads import one_core_each
from fedcollab.training import defaults
from fedcollab.training.algorithms import Algorithm, make_algorithm
from fedcollab.training.callbacks import Callback
from fedcollab.training.checkpoint import Checkpoint, Snapshot, Stopping, identity, without_state
from fedcollab.training.descend import OPTIMIZERS
from fedcollab.training.groups import checked_coalitions, weighted_grouping
from fedcollab.training.history import History, line
from fedcollab.training.models import Factory, name_model
from fedcollab.training.opening import AVERAGING, Steps, decisive, open_session
from fedcollab.training.recording import (
    by_measure,
    distances_in_order,
    history_before,
    open_stream,
    rows_of_round,
    traffic,
    traffic_between,
)
from fedcollab.training.result import TrainingResult
from fedcollab.training.rounds import Grouping, Round, run_rounds
from fedcollab.training.scores import SCORES
from fedcollab.training.secure_rounds import SecureSums, check_secure, read_secure
from fedcollab.training.session import Session
from fedcollab.training.stopping import choose_rounds
from fedcollab.training.trees.forest import TREES, with_rounds

#: how the number of rounds is decided, and the models that "auto" chooses from, the simplest first
STOPPING = ("held-out", "none")
AUTO_MODELS = ("logistic", "mlp")


def train(
    clients: Clients,
    coalitions: Any,
    algorithm: str | Algorithm | None = None,
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
    weight_decay: float = defaults.WEIGHT_DECAY,
    optimizer: str = defaults.OPTIMIZER,
    keep: Sequence[str] | None = None,
    weights: ArrayLike | None = None,
    rows: int = defaults.ROWS,
    averaging: float | None = None,
    stopping: str = defaults.STOPPING,
    secure_aggregation: bool | str = False,
    task: str | None = None,
    loss: str | None = None,
    run_dir: str | Path | None = None,
    afresh: Collection[str] = (),
    callbacks: Sequence[Callback] = (),
    progress: Progress = silent,
    made: Mapping[str, Any] | None = None,
) -> TrainingResult:
    """Train a federated algorithm inside each coalition.

    Parameters
    ----------
    clients : iterable of ClientData, mapping, Runtime or Federation
        The clients, in a mapping by name (see `federate`); for a federation, `scale` is settled already.
    coalitions : list of lists of str, str, object or Grouping
        Lists of client names, an object with `.coalitions`, "local" (each alone) or "global" (everyone); or a
        `Grouping` that changes them as training goes on (see `fedcollab.baselines`). An `Advice` also decides how:
        its algorithm with its options and weights, unless `algorithm` is given.
    algorithm : str or Algorithm, optional
        A name (see `ALGORITHMS`) with its `options`, or an `Algorithm` object; None: "fedavg", or the advice's.
    model : str, callable or torch.nn.Module
        A name (see `MODELS`) with its `model_options`, a factory of torch.nn.Module, or a module; "auto" takes
        logistic regression or the MLP, whichever has the lower loss on training rows that it has not seen.
    rounds : int
        Communication rounds; with `stopping="held-out"` the most that may be chosen.
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
    weight_decay : float
        After each local step the weights shrink by this share of the step size.
    optimizer : str
        What takes the local steps: "sgd", or "adam" (whose moments begin anew in every round).
    keep : sequence of str, optional
        Parameters that stay with each client, trained there and never sent: names of parameters or layers of the
        model, or "output-bias". None: what the algorithm or the advice says.
    weights : array_like, optional
        For `algorithm="own-weights"`: N x N in the order of `clients`, row i what every client weighs in client i's
        model (see `fedcollab.personal_weights`). None: the advice's.
    rows : int
        For `algorithm="own-weights"`: the most models; clients with like rows of weights share one.
    averaging : float, optional
        Use a mean over rounds as the model, in which the last round weighs 1 - `averaging` and every round before it
        `averaging` times what the next one weighs; 0 uses the last round's model. By default each coalition uses the
        mean (.8) where that is better on the held-out rows; with `stopping="none"` the last round's model.
    stopping : str
        "held-out": each coalition trains as many rounds as are best on training rows that a model has not seen (see
        `training.stopping`), which takes as long as one more training. "none": all coalitions train `rounds` rounds.
    secure_aggregation : bool or str
        Whether clients send their updates under masks that cancel in the sum over a coalition of at least three, so
        that the server sees sums alone (docs/secure-aggregation.md). True or "dropouts": a sum is formed without
        members that drop out as long as more than two thirds are left, for one more message a round. "everyone": no
        further messages, and the training pauses where a member does not answer.
    task : str, optional
        As in `fedcollab.federation.federate`: "classification", "regression" or "auto" (numbers with fractions mean
        regression).
    loss : str, optional
        What models are trained with: "cross-entropy" for classes; "squared" (default) or "absolute" for a numeric
        target (see `training.losses`).
    run_dir : str or Path, optional
        Where metrics are streamed (training.jsonl) and result and models are saved at the end; a training that was
        interrupted there goes on from its last saved round.
    afresh : collection of str
        Of a training that goes on: clients that lost what they kept of it (a silo's disk failed), and start anew with
        their coalition's model as it is.
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

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(40.0)[:, None] % 20
    >>> halves = {"north": (x[:20], x[:20, 0] > 9), "south": (x[20:], x[20:, 0] > 9)}
    >>> result = train(halves, [["north", "south"]], model="logistic", rounds=2)
    >>> result.names, result.accuracy.shape
    (('north', 'south'), (2,))
    """
    rounds = int(number("rounds", rounds, at_least=1, whole=True))
    number("lr", lr, above=0)
    number("batch_size", batch_size, at_least=1, whole=True)
    number("local_epochs", local_epochs, at_least=1, whole=True)
    number("participation", participation, above=0, at_most=1)
    number("weight_decay", weight_decay, at_least=0)
    number("averaging", averaging or 0.0, at_least=0, at_most=0.99)
    if optimizer not in OPTIMIZERS:
        raise InputError(unknown("optimizer", optimizer, OPTIMIZERS))
    if evaluate_every is not None:
        number("evaluate_every", evaluate_every, at_least=1, whole=True)
    if stopping not in STOPPING:
        raise InputError(unknown("stopping", stopping, STOPPING))
    plan = getattr(coalitions, "plan", None)  # an advice's
    if algorithm is None:
        algorithm = defaults.ALGORITHM if plan is None else plan["algorithm"]
        if plan is not None:
            options = plan["options"] if options is None else options
            keep = plan["keep"] if keep is None else keep
            rows = plan["rows"]
            weights = getattr(coalitions, "weights", None) if weights is None else weights
    called, chosen = make_algorithm(algorithm, options)
    if optimizer != defaults.OPTIMIZER and not chosen.plain_steps:
        raise InputError(f"`optimizer` (={optimizer!r}) must be 'sgd': the steps of '{called}' are its own")
    model_name = "auto" if isinstance(model, str) and model == "auto" else name_model(model)
    clients = list_clients(clients)
    federation = federate(clients, runtime=runtime, device=device, scale=scale, seed=seed, task=task)
    names = federation.in_order_of(clients)
    if isinstance(coalitions, Grouping):
        grouping, method = coalitions, coalitions.method
    else:
        method = called
        if chosen.weighted:
            grouping = weighted_grouping(weights, rows, names, names if plan is None else plan["names"])
        else:
            grouping = Grouping(checked_coalitions(coalitions, names, federation.left_out, alone=chosen.alone))
    fixed = grouping.method == Grouping.method  # clustered baselines change who is in which coalition as they train
    way = read_secure(secure_aggregation)
    check_secure(way, called, chosen, fixed=fixed, participation=participation)
    secure = SecureSums(federation, grouping.coalitions, way) if way else None
    chooses = stopping == "held-out" and fixed
    if model_name == TREES and (way or not fixed or averaging):
        what = "`secure_aggregation`" if way else "`averaging`" if averaging else "coalitions that change"
        raise InputError(f"`model` (='{TREES}') does not go with {what}: histograms are summed as they are")

    def session_of(name: str) -> Session:
        steps = Steps(
            name,
            with_rounds(name, model_options, rounds),
            lr,
            batch_size,
            local_epochs,
            seed,
            weight_decay,
            optimizer,
            participation,
            loss,
        )
        mean = float(AVERAGING if averaging is None and chooses else averaging or 0.0) if fixed else 0.0
        opened = open_session(federation, called, chosen, steps, keep=keep or None, averaging=mean)
        opened.secure = secure
        return opened

    carrier = federation.runtime
    started, before = time.perf_counter(), traffic(carrier)
    stopped: Stopping | None = None
    if model_name == "auto":
        if not chooses or model_options:
            raise InputError(
                "`model` (='auto') needs `stopping` (='held-out'), fixed coalitions and no `model_options`"
            )
        model_name, stopped = _better_model(session_of, grouping, rounds, progress)
    session = session_of(model_name)
    network, setting, schema = session.network, session.setting, federation.schema
    if model_name == "resnet18" and network.weights_from == "seed" and "weights" not in (model_options or {}):
        warnings.warn(
            "no ImageNet weights for resnet18 are on this machine: it starts from random ones (say so with "
            "model_options={'weights': 'none'}); or train a head on `federation.encode_clients(clients)`",
            FedcollabWarning,
            stacklevel=2,
        )
    sources = getattr(grouping, "source_weights", {})
    of_clients = json.dumps(
        [federation.quantities, getattr(grouping, "coalitions", None), *([sources] if sources else [])], sort_keys=True
    )
    settings = {**asdict(setting), "model": model_name, "rounds": rounds, "participation": participation}
    settings |= {"method": method, "evaluate_every": evaluate_every, "stopping": stopping if chooses else "none"}
    settings["grouping"] = grouping.options()
    if way:
        settings["secure_aggregation"] = way
    session.training = identity(settings, of_clients, schema.to_json(), session.initial.numpy().tobytes())
    history = History()
    for name in afresh:
        if name not in names:
            raise InputError(unknown("afresh", name, names))
    checkpoint, resumed, earlier = None, None, dict.fromkeys(("calls", "bytes_down", "bytes_up", "seconds"), 0.0)
    if run_dir is not None:
        checkpoint = Checkpoint(Path(run_dir), settings, session.training, always=carrier.lasting)
        resumed = checkpoint.read(federation.left_out)
    if afresh:
        if resumed is None:
            raise InputError(
                f"`afresh` (={list(afresh)!r}) is for a training that goes on; none is unfinished in `{run_dir}`"
            )
        resumed = without_state(resumed, afresh)
    if run_dir is not None and checkpoint is not None:
        if resumed is None:
            checkpoint.done()  # another training's: its rounds are about to be overwritten
        history = history_before(Path(run_dir), resumed)
        earlier |= {} if resumed is None else resumed.spent

    def spent() -> dict[str, Any]:
        now = {**traffic_between(before, traffic(carrier)), "seconds": round(time.perf_counter() - started, 3)}
        return {key: type(value)(value + earlier[key]) for key, value in now.items()}

    def keep_snapshot(snapshot: Snapshot) -> None:
        assert checkpoint is not None
        checkpoint.keep(replace(snapshot, spent=spent()))

    with ExitStack() as stack:
        stack.enter_context(one_core_each())
        if checkpoint is not None:
            stack.callback(checkpoint.write)  # however it ends: what was trained is kept
        if run_dir is not None and carrier.journal is None:
            carrier.keep_journal(Path(run_dir))
            stack.callback(setattr, carrier, "journal", None)  # the next training has a folder of its own
        if resumed is not None:
            stopped = resumed.stopping
        elif (
            chooses
            and plan is not None
            and method == plan["algorithm"]
            and plan["settings"] == decisive(session, rounds)
        ):
            stopped = Stopping(dict(enumerate(plan["stopping"]["rounds"])), dict(enumerate(plan["stopping"]["means"])))
        elif chooses and stopped is None:
            begun = replace(session, training=f"{session.training} folds", failures=[], seen={})
            stopped = choose_rounds(begun, grouping, rounds, lambda done, total: progress(done, 2 * total))
        stopped = stopped or Stopping()
        if averaging is not None:
            stopped = replace(stopped, means={})  # what was asked for, whatever was measured
        session.stopping = stopped
        longest = max(stopped.rounds.values(), default=rounds)
        earlier_rounds = rounds if chooses else 0
        stream = open_stream(run_dir, history, stack)
        for callback in callbacks:
            callback.on_start(settings)

        def watch(session: Session, outcome: Round) -> None:
            rows = rows_of_round(session, outcome)
            for row in rows:
                history.add(row)
            if stream is not None:
                stream.write(b"".join(line(row) for row in rows))
                stream.flush()
            for callback in callbacks:
                callback.on_round(outcome.number, rows)
            progress(earlier_rounds + outcome.number, earlier_rounds + longest)

        final = run_rounds(
            session,
            grouping,
            rounds,
            evaluate_every=evaluate_every,
            watch=watch,
            keep=None if checkpoint is None else keep_snapshot,
            resumed=resumed,
        )
    order = list(dict.fromkeys(session.assignment[name] for name in names))
    models = {"last": np.stack([session.model(label).numpy() for label in order])}
    if final.kept:  # for a client that did not answer at the end, its coalition's model stands in
        theirs = {name: session.model(session.assignment[name]).numpy() for name in names}
        models["personal"] = np.stack([final.kept.get(name, theirs[name]) for name in names])
    result = TrainingResult(
        models={which: rows[:, : network.parameters + network.buffers] for which, rows in models.items()},
        names=tuple(names),
        coalitions=[[name for name in names if session.assignment[name] == label] for label in order],
        measures=by_measure(final.measures, names, SCORES[schema.task].measures),
        personal=by_measure(final.personal, names, SCORES[schema.task].measures) if final.personal else {},
        history=history,
        layout=network.layout,
        method=method,
        model={**json.loads(network.text), "weights_from": network.weights_from, "parameters": network.parameters},
        schema=schema.as_dict(),
        settings=settings,
        cost=spent(),
        stopped={order.index(label): why for label, why in session.stopped.items() if label in order},
        failures=session.failures,
        rounds=[min(stopped.rounds.get(label, session.number), session.number) for label in order],
        averaged=[session.uses_mean(label) for label in order],
        held_out={name: curve.min(1) for name, curve in stopped.curves.items()},
        distances=distances_in_order(grouping, federation.names, names),
        training=session.training,
    )
    if run_dir is not None:
        result.save(Path(run_dir) / "training.json", made)
    if checkpoint is not None:
        checkpoint.done()
    for callback in callbacks:
        callback.on_end(result)
    return result


def _better_model(
    session_of: Callable[[str], Session], grouping: Grouping, rounds: int, progress: Progress
) -> tuple[str, Stopping]:
    """Return which of the models for tables has the lower mean loss on held-out training rows, and its rounds."""
    found: dict[str, tuple[float, Stopping]] = {}
    for position, name in enumerate(AUTO_MODELS):
        session = session_of(name)
        session.training = f"model {name}"

        def tell(done: int, total: int, position: int = position) -> None:
            progress(position * total + done, (len(AUTO_MODELS) + 1) * total)

        with one_core_each():
            chosen = choose_rounds(session, grouping, rounds, tell)
        losses = [
            curve[min(chosen.rounds[session.assignment[client]], len(curve) - 1)].min()
            for client, curve in chosen.curves.items()
        ]
        found[name] = (float(np.mean(losses)) if losses else float("inf"), chosen)
    best = min(found, key=lambda name: found[name][0])
    return best, found[best][1]
