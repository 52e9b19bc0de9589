"""The page's last section: settings, seeds, versions, what it cost to communicate, and what to run next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedcollab.report.run import RunContents

Facts = list[tuple[str, str]]


def setting_facts(run: RunContents) -> Facts:
    """Return what was asked, and by which methods it was answered."""
    facts = [("Clients", str(len(run.names))), ("Distances", f"method {run.distances.method}")]
    if run.collaboration is not None:
        method = "measured (advice)" if run.advice is not None else f"method {run.collaboration.method}"
        facts.append(("Coalitions", f"{method}, C = {run.collaboration.C:.4g}"))
    facts += [(_words(key), _value(value)) for key, value in run.config.get("settings", {}).items()]
    facts += [(f"Distances: {_words(key)}", _value(value)) for key, value in run.distances.settings.items()]
    return facts


def cost_facts(run: RunContents) -> Facts:
    """Return how much was sent, how long training took, when, and with which versions."""
    facts = [(f"Distances: {_words(key)}", _amount(key, value)) for key, value in run.distances.cost.items()]
    if run.advice is not None:
        facts += [(f"Advice: {_words(key)}", _amount(key, value)) for key, value in run.advice.cost.items()]
    for way, result in run.results.items():
        facts += [(f"Training {way}: {_words(key)}", _amount(key, value)) for key, value in result.cost.items()]
    if run.config.get("started"):
        facts.append(("Started", str(run.config["started"])))
    return facts + [(f"Version of {name}", str(value)) for name, value in run.config.get("versions", {}).items()]


def next_commands(run: RunContents) -> dict[str, str]:
    """Return the commands to run for the stages that are missing."""
    again = run.config.get("command")
    return {
        "coalitions": again or "fedcollab solve RUN -o RUN",
        "training": again or "fedcollab train --coalitions RUN -o RUN",
    }


def _words(key: str) -> str:
    """Return a key as words."""
    return key.replace("_", " ")


def _value(value: Any) -> str:
    """Return a setting's value as text."""
    if isinstance(value, Mapping):
        return ", ".join(f"{_words(str(key))} {_value(item)}" for key, item in value.items()) or "none"
    if isinstance(value, (list, tuple)):
        return ", ".join(_value(item) for item in value) or "none"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _amount(key: str, value: Any) -> str:
    """Return a cost as text; bytes and seconds have their unit."""
    if isinstance(value, Mapping):
        amounts = [item for item in value.values() if isinstance(item, (int, float))]
        if len(amounts) > 4 and len(amounts) == len(value):
            least, most = _amount(key, min(amounts)), _amount(key, max(amounts))
            return f"{least} a client" if least == most else f"{least} to {most} a client"
        return ", ".join(f"{_words(str(name))} {_amount(key, item)}" for name, item in value.items())
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if any(word in key for word in ("byte", "up", "down")):
            return bytes_words(value)
        return f"{value:.1f} s" if "seconds" in key else f"{value:,}"
    return _value(value)


def bytes_words(amount: float) -> str:
    """Return a number of bytes as text with a unit.

    Examples
    --------
    >>> bytes_words(512), bytes_words(20_480), bytes_words(5 * 2**30)
    ('512 B', '20.0 KiB', '5.0 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError
