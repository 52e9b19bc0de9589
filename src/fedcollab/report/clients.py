"""Client by client: what it gains, why it is where it is, and which alternative was closest; in plain words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.coalitions import Stability, stability
from fedcollab.coalitions.explain import more_in_words
from fedcollab.report.advised import client_sentence
from fedcollab.report.words import figure, signed
from fedcollab.uncertainty import BETTER, UNCLEAR, UNKNOWN, WORSE, Estimate

if TYPE_CHECKING:
    from fedcollab.coalitions import Collaboration
    from fedcollab.coalitions.explain import Choice, Explanation
    from fedcollab.report.run import RunContents

#: differences below this share of a bound read as "the same"
SAME = 0.005
#: replicates times clients squared that are solved again to tell how stable the answer is, and restarts for each
WORK, RESTARTS = 400_000, 5


@dataclass(frozen=True)
class ClientRow:
    """One client's line of the report.

    Parameters
    ----------
    name : str
        The client.
    coalition : int
        Its coalition, counted from 1.
    partners : int
        With how many others it trains.
    samples : int
        Its training samples.
    alone, now : float
        Its bound alone, and in its coalition.
    why : str
        Why it is where it is, in words.
    closest : str
        The closest alternative, in words.
    margin : float
        What that alternative adds to the objective.
    sure : float, optional
        How often resampled distances give it the same partners.
    accuracy_alone, accuracy : float, optional
        Its measured accuracy alone and in its coalition.
    measured : Estimate, optional
        How much better its measured accuracy is than alone, and how sure that is.
    advised : str
        What the advice says for it, in a sentence; empty where there is none.
    """

    name: str
    coalition: int
    partners: int
    samples: int
    alone: float
    now: float
    why: str
    closest: str
    margin: float
    sure: float | None = None
    accuracy_alone: float | None = None
    accuracy: float | None = None
    measured: Estimate | None = None
    advised: str = ""

    @property
    def change(self) -> float:
        """By which share the bound differs from the one alone; negative is better."""
        return (self.now - self.alone) / self.alone if self.alone else 0.0

    @property
    def gain(self) -> float | None:
        """How much better the measured accuracy is than alone; None where one of the two is missing."""
        if self.accuracy is None or self.accuracy_alone is None:
            return None
        return self.accuracy - self.accuracy_alone

    @property
    def gain_words(self) -> str:
        """The interval of the gain and what it says, in words; empty where it is not known."""
        if self.measured is None or self.measured.verdict == UNKNOWN:
            return ""
        clear = {BETTER: "clearly better", WORSE: "clearly worse"}.get(self.measured.verdict, UNCLEAR)
        if self.measured.low == self.measured.high:
            return "the same model"
        return f"{signed(self.measured.low)} to {signed(self.measured.high)}: {clear}"


def stability_of(run: RunContents) -> Stability | None:
    """Return how often resampled distances give the same partners.

    None where the distances carry no replicates, or where not they but measurements (an advice) decided on partners.
    """
    draws, collaboration = run.distances.replicates, run.collaboration
    if draws is None or collaboration is None or len(run.names) < 2 or run.advice is not None:
        return None
    most = int(np.clip(WORK // len(run.names) ** 2, 1, len(draws)))
    return stability(run.distances, collaboration, replicates=draws[:most], restarts=RESTARTS)


def client_rows(run: RunContents, stable: Stability | None = None) -> list[ClientRow]:
    """Return one row for each client, in the order of the coalitions."""
    collaboration = run.collaboration
    if collaboration is None:
        return []
    measured = {way: run.accuracy(way) for way in ("local", "coalitions")}
    both = run.judgement is not None and set(measured) <= set(run.results)
    gains = run.judgement.gain("coalitions") if both and run.judgement is not None else None
    alone = run.advice is not None and run.advice.candidate.kind == "alone"  # then the bound decided nothing
    rows = []
    for client in np.argsort(collaboration.assignment, kind="stable").tolist():
        explanation = explain(collaboration, client)
        choice = closest(explanation)
        known = {way: _known(values, client) for way, values in measured.items()}
        rows.append(
            ClientRow(
                name=run.names[client],
                coalition=int(collaboration.assignment[client]) + 1,
                partners=len(explanation.now.members) - 1,
                samples=int(run.distances.quantities[client]),
                alone=explanation.alone.bound,
                now=explanation.now.bound,
                why="" if alone else why(explanation),
                closest="–" if alone else _closest_words(choice, explanation, collaboration.objective),
                sure=None if stable is None else float(stable.same[client]),
                margin=0.0 if choice is None else extra(choice, explanation),
                accuracy_alone=known["local"],
                accuracy=known["coalitions"],
                measured=None if gains is None else gains[client],
                advised="" if run.advice is None else client_sentence(run.advice, run.names[client]),
            )
        )
    return rows


def _known(values: NDArray[np.float64] | None, client: int) -> float | None:
    """Return a client's value, or None where it is missing."""
    return None if values is None or not np.isfinite(values[client]) else float(values[client])


def explain(collaboration: Collaboration, client: int) -> Explanation:
    """Return the explanation of the client at this position, whether the collaboration has names or not."""
    return collaboration.explain(client if collaboration.names is None else collaboration.names[client])


def extra(choice: Choice, explanation: Explanation) -> float:
    """Return what a choice adds to the objective: the client's own change and that of the others."""
    return choice.bound - explanation.now.bound + choice.others


def closest(explanation: Explanation) -> Choice | None:
    """Return the allowed other place that would add least to the objective, or None if there is none."""
    options = [choice for choice in explanation.elsewhere if choice.allowed]
    if len(explanation.now.members) > 1 and explanation.alone.allowed:
        options.append(explanation.alone)
    return min(options, key=lambda choice: extra(choice, explanation), default=None)


def why(explanation: Explanation) -> str:
    """Return a sentence or two on why a client is where it is."""
    now, alone = explanation.now, explanation.alone
    if len(now.members) == 1:
        options = [choice for choice in explanation.elsewhere if choice.allowed]
        if not options:
            return "It trains alone: there is no other coalition that it may join."
        best = min(options, key=lambda choice: choice.bound)
        saved, cost = now.generalisation - best.generalisation, best.shift
        if best.bound < now.bound:
            return (
                f"It would gain {figure(now.bound - best.bound)} in coalition {_number(best)}, but the clients there "
                "would lose more by taking it in."
            )
        return (
            f"No partner is worth it: in coalition {_number(best)}, the best for it, more data would save "
            f"{figure(saved)}, but differing data cost {figure(cost)}."
        )
    less = figure(alone.generalisation - now.generalisation)
    if now.shift <= SAME * alone.bound:
        return f"More data saves it {less}, and its partners' data hardly differ."
    text = f"More data saves it {less}; that its partners' data differ costs {figure(now.shift)}."
    if now.bound > alone.bound:
        text += " By itself it would be better off alone, but its partners gain more."
    return text


def _closest_words(choice: Choice | None, explanation: Explanation, objective: float) -> str:
    """Describe the closest alternative and what it would cost."""
    if choice is None:
        return "There is no other place for it."
    place = "Training alone" if choice.kind == "alone" else f"Coalition {_number(choice)}"
    added = extra(choice, explanation)
    own = choice.bound - explanation.now.bound
    share = more_in_words(added / objective) if objective else f"{figure(added)} more"
    if added < -1e-9:  # only where measurements, not the bound, decided
        return f"{place}: {figure(-added)} lower in total."
    if added <= 1e-9:
        return f"{place}: just as good in total."
    feels = "better" if own < 0 else "worse"
    return f"{place}: {share} in total, {figure(abs(own))} {feels} for itself."


def _number(choice: Choice) -> int:
    """Return the number of a choice's coalition, counted from 1."""
    return int(choice.coalition or 0) + 1


def weakest(rows: list[ClientRow], objective: float) -> dict[str, Any] | None:
    """Return the client whose closest alternative adds least to the objective, or None if no place is uncertain."""
    rows = [row for row in rows if row.margin > 0]
    if not rows or objective <= 0:
        return None
    row = min(rows, key=lambda candidate: candidate.margin)
    return {"name": row.name, "share": row.margin / objective, "closest": row.closest.split(":")[0]}
