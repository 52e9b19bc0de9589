"""The model that is used is a mean over rounds: single rounds go up and down with the batches, their mean does not.

    mean_t = b_t mean_{t-1} + (1 - b_t) w_t,     b_t = min(averaging, 1 - 1 / t)

Training goes on from w_t as ever. The server keeps the mean of each coalition's model under "mean"; a client keeps
the mean of what is its own (a personal model, parameters that stay) beside the last value, under the same name with
"mean " before it.

Polyak, Juditsky: Acceleration of stochastic approximation by averaging. SIAM J. Control and Optimization 30, 1992.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from fedcollab.training.hooks import State

PREFIX = "mean "


def blend(mean: Tensor | None, new: Tensor, number: int, averaging: float) -> Tensor:
    """Return the mean after a round.

    Parameters
    ----------
    mean : Tensor or None
        The mean before; None if there is none yet.
    new : Tensor
        The weights after the round.
    number : int
        The round.
    averaging : float
        What the mean before weighs at most, from 0 (no averaging) to below 1.
    """
    if mean is None:
        return new.clone()
    return new.lerp(mean, min(averaging, 1 - 1 / number))


def add_means(state: State, before: State, keys: Iterable[str], number: int, averaging: float) -> State:
    """Return a client's state after a round with the means of some of its values.

    Parameters
    ----------
    state : dict of Tensor
        The state after the round, without means.
    before : dict of Tensor
        The means before the round, by the names that they are kept under.
    keys : iterable of str
        Which values are averaged.
    number, averaging
        As in `blend`.
    """
    if not averaging:
        return state
    means = {f"{PREFIX}{key}": blend(before.get(f"{PREFIX}{key}"), state[key], number, averaging) for key in keys}
    return {**state, **means}


def split_means(state: State) -> tuple[State, State]:
    """Return a client's state without its means, and the means alone."""
    means = {key: value for key, value in state.items() if key.startswith(PREFIX)}
    return {key: value for key, value in state.items() if key not in means}, means


def use_means(state: State, means: State) -> State:
    """Return a client's state with the means in the place of the values that they are means of."""
    return {**state, **{key.removeprefix(PREFIX): value for key, value in means.items()}}
