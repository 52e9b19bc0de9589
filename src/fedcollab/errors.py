"""What users see when their input is wrong: one line, naming the argument, its value and what was expected."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import TypeVar

T = TypeVar("T")
#: the longest error line
LONGEST = 2000


class InputError(ValueError):
    """Input that cannot be used. The command line prints it as one line and exits with code 2.

    Parameters
    ----------
    message : str
        What is wrong. It becomes one line of at most `LONGEST` characters, whatever names in it hold.

    Examples
    --------
    >>> str(InputError("`rounds` (=0) must be\\nat least 1"))
    '`rounds` (=0) must be at least 1'
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(one_line(message))


class Paused(RuntimeError):
    """Raised if too few clients answered.

    What was done so far is kept. The command line prints one line and exits with code 75.

    Parameters
    ----------
    message : str
        How many answered, and why others did not; it becomes one line, as that of an `InputError`.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(one_line(message))


def one_line(text: object, longest: int = LONGEST) -> str:
    """Return a text as one line that can be printed, whoever wrote it.

    Parameters
    ----------
    text : object
        The text.
    longest : int
        The most characters that are kept.

    Returns
    -------
    str
        The text with a space for every line break, and an escape for every other character that a terminal would not
        show, among them those that it takes for commands.

    Examples
    --------
    >>> one_line("its disk" + chr(10) + "is full" + chr(27) + "[2J")
    'its disk is full\\\\x1b[2J'
    """
    line = " ".join(str(text)[: 4 * longest].splitlines())
    if not line.isprintable():
        line = "".join(part if part.isprintable() else repr(part)[1:-1] for part in line)
    return line if len(line) <= longest else f"{line[: longest - 4]} ..."


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or its kind where it has none."""
    return (str(error) or type(error).__name__).splitlines()[0]


class FedcollabWarning(UserWarning):
    """A warning about input that is used all the same, but that its owner should know about."""


def choose(argument: str, value: str, choices: dict[str, T]) -> T:
    """Look a name up in a registry, or raise an error that lists the choices.

    Parameters
    ----------
    argument : str
        The name of the argument, for the error message.
    value : str
        The name that the user gave.
    choices : dict
        The registry: what each known name stands for.

    Raises
    ------
    InputError
        If `value` is not a key of `choices`.

    Examples
    --------
    >>> choose("algorithm", "fedavgg", {"fedavg": 1, "ditto": 2})
    Traceback (most recent call last):
        ...
    fedcollab.errors.InputError: `algorithm` (='fedavgg') must be one of: ditto, fedavg; did you mean 'fedavg'?
    """
    try:
        return choices[value]
    except (KeyError, TypeError):
        raise InputError(unknown(argument, value, choices)) from None


def unknown(argument: str, value: object, choices: Iterable[str]) -> str:
    """Return the error message for a name that is not among the choices, with the most similar choice if there is one.

    Parameters
    ----------
    argument : str
        The name of the argument.
    value : object
        What the user gave.
    choices : iterable of str
        The names that are known.

    Examples
    --------
    >>> unknown("runtime", "wires", ["wire", "vectorised"])
    "`runtime` (='wires') must be one of: vectorised, wire; did you mean 'wire'?"
    """
    known = sorted(choices)
    near = get_close_matches(str(value), known, n=1, cutoff=0.65)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    return f"`{argument}` (={value!r}) must be one of: {', '.join(known)}{hint}"


def number(
    argument: str,
    value: object,
    *,
    above: float | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    whole: bool = False,
) -> float:
    """Check a number given by the user and return it as a float.

    Parameters
    ----------
    argument : str
        The name of the argument, for the error message.
    value : object
        What the user gave.
    above : float, optional
        The number must be larger than this.
    at_least : float, optional
        The number must be this or larger.
    at_most : float, optional
        The number must be this or smaller.
    whole : bool
        Whether it must be a whole number.

    Raises
    ------
    InputError
        If it is not a finite number, or outside the limits.

    Examples
    --------
    >>> number("C", 10, above=0)
    10.0
    >>> number("rounds", 0, at_least=1, whole=True)
    Traceback (most recent call last):
        ...
    fedcollab.errors.InputError: `rounds` (=0) must be a whole number of at least 1
    """
    kind = "a whole number" if whole else "a finite number"
    limits = [
        f"above {above:g}" if above is not None else "",
        f"of at least {at_least:g}" if at_least is not None else "",
        f"of at most {at_most:g}" if at_most is not None else "",
    ]
    wanted = " ".join([kind, *filter(None, [" and ".join(filter(None, limits))])])
    try:
        checked = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InputError(f"`{argument}` (={value!r}) must be {wanted}") from None
    finite = checked == checked and abs(checked) != float("inf")
    if (
        isinstance(value, bool)
        or not finite
        or (whole and checked != int(checked))
        or (above is not None and checked <= above)
        or (at_least is not None and checked < at_least)
        or (at_most is not None and checked > at_most)
    ):
        raise InputError(f"`{argument}` (={value!r}) must be {wanted}")
    return checked


def is_number(text: str) -> bool:
    """Return whether a text can be read as a number; `1_0` is a number to Python, and a code to everybody else.

    >>> is_number("1e3"), is_number("three"), is_number("1_0")
    (True, False, False)
    """
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text
