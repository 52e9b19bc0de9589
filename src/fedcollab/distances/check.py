"""Does an encoder see what matters to the task? Its distances against those of the samples themselves.

    seen_ij   = max(D_ij, H_ij)    D: free discriminators through the encoder; H: classifiers through it (`hypothesis`)
    task_ij   = T_ij               classifiers on the samples as they are (`hypothesis`, no encoder)
    missed    pairs with  T - seen  above noise: the task differs, and the encoder does not show it
    beside    pairs with  D - max(H, T)  above noise and max(H, T) within noise: a difference that no classifier minds

A function of the samples cannot make two clients more different than the samples make them; one that makes them less
different, where classifiers differ, has lost what matters. Above noise means z standard errors, z the normal quantile
of 1 - .05 / pairs (Bonferroni). Classifiers here are linear: where the samples themselves show them nothing
(photographs, often), nothing can be missed, and the verdict rests on H.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab import files as artefact
from fedcollab.distances.estimate import estimate_distances
from fedcollab.distances.result import Distances
from fedcollab.errors import InputError
from fedcollab.federation import Clients, federate
from fedcollab.progress import Progress, silent

Pairs = list[tuple[str, str]]

VERDICTS = {
    "good": "The encoder sees what matters: where the task differs between clients, so do the distances.",
    "blind": "The encoder is blind: all its distances are within noise, although the task differs between clients.",
    "wrong": "The encoder sees the wrong thing: its distances are not those that matter to the task.",
    "nothing": "Nothing to see: neither through the encoder nor on the samples is a difference above noise.",
}


@dataclass(frozen=True, eq=False)
class EncoderCheck:
    """Whether an encoder suits the task of these clients: a verdict and its evidence.

    Parameters
    ----------
    encoder : str
        The encoder's name.
    distances : Distances
        D: `cross` through the encoder.
    through : Distances
        H: `hypothesis` through the encoder.
    samples : Distances
        T: `hypothesis` on the samples themselves.
    limit : float
        z: how many standard errors count as above noise.
    """

    encoder: str
    distances: Distances
    through: Distances
    samples: Distances
    limit: float

    @property
    def differing(self) -> Pairs:
        """Return the pairs of clients that the encoder's distances distinguish."""
        return self._pairs(_above(self.distances, self.limit))

    @property
    def task(self) -> Pairs:
        """Return the pairs for which the task differs: a classifier that is right at one client fails at the other."""
        return self._pairs(_above(self.samples, self.limit) | _above(self.through, self.limit))

    @property
    def missed(self) -> Pairs:
        """Return the pairs that the task distinguishes more than the encoder does."""
        lost = _beyond(self.samples, self.distances, self.limit) & _beyond(self.samples, self.through, self.limit)
        return self._pairs(lost)

    @property
    def beside(self) -> Pairs:
        """Return the pairs that the encoder distinguishes although the same classifier serves both clients."""
        extra = _beyond(self.distances, self.samples, self.limit) & _beyond(self.distances, self.through, self.limit)
        return self._pairs(extra & ~_above(self.samples, self.limit) & ~_above(self.through, self.limit))

    @property
    def verdict(self) -> str:
        """Return "good", "blind", "wrong" or "nothing"; see `VERDICTS`.

        One missed pair is enough for an objection; pairs in `beside` must be more than half of those in `differing`.
        """
        if self.missed:
            return "wrong" if self.differing else "blind"
        if len(self.beside) > len(self.differing) / 2:
            return "wrong"
        if not self.differing:
            return "blind" if self.task else "nothing"
        return "good"

    @property
    def passed(self) -> bool:
        """Return whether the verdict is no objection: "good" or "nothing"."""
        return self.verdict in ("good", "nothing")

    def as_dict(self) -> dict[str, Any]:
        """Return verdict and evidence as plain values, for JSON."""
        names = ("differing", "task", "missed", "beside")
        return {
            "encoder": self.encoder,
            "verdict": self.verdict,
            "words": str(self),
            "limit": self.limit,
            **{name: [list(pair) for pair in getattr(self, name)] for name in names},
            "names": list(self.distances.names),
            **{key: value.raw for key, value in self._matrices().items()},
        }

    def save(self, path: str | Path) -> None:
        """Write the verdict and its evidence as JSON.

        Parameters
        ----------
        path : str or Path
            The file; `encoder.json` in a run directory is shown in the run's report.
        """
        artefact.write_json(path, "encoder", self.as_dict())

    def _matrices(self) -> dict[str, Distances]:
        return {"distances": self.distances, "through": self.through, "samples": self.samples}

    def _pairs(self, chosen: NDArray[np.bool_]) -> Pairs:
        names = self.distances.names
        return [(names[i], names[j]) for i, j in np.argwhere(np.triu(chosen, 1)).tolist()]

    def __str__(self) -> str:
        upper = np.triu_indices(len(self.distances.names), 1)
        spans = {key: value.raw[upper] for key, value in self._matrices().items()}
        words = {"distances": "distances", "through": "hypothesis through it", "samples": "hypothesis without it"}
        figures = "; ".join(f"{words[key]} {span.min():.2f} to {span.max():.2f}" for key, span in spans.items())
        lines = [
            VERDICTS[self.verdict],
            f"Encoder {self.encoder}, {len(upper[0])} pairs: {figures}.",
            f"Above noise ({self.limit:.1f} standard errors): {len(self.differing)} pairs through the encoder, "
            f"{len(self.task)} by the task; missed {len(self.missed)}, beside the task {len(self.beside)}.",
        ]
        for kind, pairs in (("Missed", self.missed), ("Beside the task", self.beside)):
            if pairs:
                first, second = max(pairs, key=lambda pair: abs(self._gap(pair)))
                of = [f"{part.raw[part.index(first), part.index(second)]:.2f}" for part in self._matrices().values()]
                lines.append(
                    f"{kind}, for example: {first} and {second}: distance {of[0]}, hypothesis {of[1]} through the "
                    f"encoder and {of[2]} without it."
                )
        return "\n".join(lines)

    def _gap(self, pair: tuple[str, str]) -> float:
        at = tuple(self.distances.index(name) for name in pair)
        return float(self.distances.raw[at] - self.samples.raw[at])


def check_encoder(
    clients: Clients,
    encoder: Any = None,
    *,
    seed: int = 0,
    runtime: str | None = None,
    device: str | None = None,
    scale: str | None = None,
    progress: Progress = silent,
    **options: Any,
) -> EncoderCheck:
    """Check whether an encoder is blind, or sees the wrong thing, by three estimates of the distances.

    Parameters
    ----------
    clients : iterable of ClientData, Runtime or Federation
        The clients; a federation keeps the encoder that it has.
    encoder : str, torch.nn.Module, callable or None
        As in `estimate_distances`; None: the federation's own.
    seed, runtime, device, scale, progress
        As in `estimate_distances`.
    **options
        Options of `cross` and `hypothesis`: folds, rounds, cap, repeats, replicates.

    Returns
    -------
    EncoderCheck
        The verdict and its evidence.

    Raises
    ------
    InputError
        If there is no encoder to check.
    """
    federation = federate(clients, runtime=runtime, device=device, scale=scale, seed=seed)
    own = federation.schema.encoding
    wanted = encoder if encoder is not None else None if own is None else own.encoder
    if wanted is None or wanted == "none":
        raise InputError(f"`encoder` (={encoder!r}) must be the encoder to check")

    def estimate(method: str, through: Any) -> Distances:
        return estimate_distances(federation, method=method, seed=seed, encoder=through, progress=progress, **options)

    seen, within = estimate("cross", wanted), estimate("hypothesis", wanted)
    samples = estimate("hypothesis", "none")
    pairs = len(seen.names) * (len(seen.names) - 1) // 2
    return EncoderCheck(str(seen.settings["encoder"]), seen, within, samples, NormalDist().inv_cdf(1 - 0.05 / pairs))


def _above(distances: Distances, limit: float) -> NDArray[np.bool_]:
    """Return a mask of the pairs whose distance is above noise."""
    error = _error(distances)
    above: NDArray[np.bool_] = distances.raw > limit * error
    return above


def _beyond(larger: Distances, smaller: Distances, limit: float) -> NDArray[np.bool_]:
    """Return a mask of the pairs whose distance in `larger` exceeds that in `smaller` by more than noise."""
    error = np.hypot(_error(larger), _error(smaller))
    beyond: NDArray[np.bool_] = larger.raw - smaller.raw > limit * error
    return beyond


def _error(distances: Distances) -> NDArray[np.float64]:
    assert distances.stderr is not None
    return np.where(np.eye(len(distances.names), dtype=bool), np.inf, distances.stderr)
