"""When two texts are one value in two spellings: another case, other blanks, a number written in another way."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from fedcollab.errors import is_number

_BLANKS = re.compile(r"[\s_]+")
_NUMBER = re.compile(r"(?<![\w.])([+-]?)0*(\d+)(?:\.(\d*?)0*)?(?![\w.])")


def normal_form(text: object) -> str:
    """Return the form that all spellings of one value share.

    Case, blanks (and underscores) and the way in which numbers are written do not count, nor does a full stop at the
    end.

    Parameters
    ----------
    text : object
        A label or a category.

    Examples
    --------
    >>> normal_form(" Yes") == normal_form("yes"), normal_form("grade 1.0") == normal_form("Grade_01")
    (True, True)
    >>> normal_form("1.5") == normal_form("15"), normal_form("-1") == normal_form("1")
    (False, False)
    """
    plain = _BLANKS.sub(" ", unicodedata.normalize("NFKC", str(text)).casefold()).strip()
    plain = plain.rstrip(".") or plain
    return _NUMBER.sub(_number, plain)


def _number(found: re.Match[str]) -> str:
    sign, whole, fraction = found.groups()
    return ("-" if sign == "-" else "") + whole + (f".{fraction}" if fraction else "")


def spellings(counts: Mapping[str, int]) -> dict[str, list[str]]:
    """Return the values that are written in several ways, the commonest spelling first.

    Of spellings that are equally common, one without capitals comes first.

    Parameters
    ----------
    counts : mapping of str to int
        How often each text occurs.

    Returns
    -------
    dict
        The spellings by normal form, for those with more than one.

    Examples
    --------
    >>> spellings({"yes": 40, "Yes": 2, "no": 30})
    {'yes': ['yes', 'Yes']}
    """
    found: dict[str, list[str]] = {}
    for text in sorted(counts, key=lambda text: (-counts[text], text != text.casefold(), text)):
        found.setdefault(normal_form(text), []).append(text)
    return {form: texts for form, texts in found.items() if len(texts) > 1}


def merging(counts: Iterable[Mapping[str, int]]) -> dict[str, str]:
    """Return a map from every spelling but the commonest to the commonest one.

    Parameters
    ----------
    counts : iterable of mapping of str to int
        How often each text occurs, client by client.

    Returns
    -------
    dict
        What to write instead of which text.

    Examples
    --------
    >>> merging([{"yes": 40, "no": 30}, {"Yes": 20, "no": 10}])
    {'Yes': 'yes'}
    """
    total: dict[str, int] = {}
    for each in counts:
        for text, count in each.items():
            total[text] = total.get(text, 0) + count
    return {text: texts[0] for texts in spellings(total).values() for text in texts[1:]}


def mapped(labels: Iterable[Any], label_map: Mapping[str, str]) -> list[Any]:
    """Return labels with those of the map replaced; a number is found however it is written.

    Parameters
    ----------
    labels : iterable
        The labels.
    label_map : mapping of str to str
        What to write instead.

    Examples
    --------
    >>> mapped([1.0, 2.0, "Yes "], {"1": "yes", "Yes": "yes"})
    ['yes', 2.0, 'yes']
    """
    known = {_plain(old): new for old, new in label_map.items()}
    return [known.get(_plain(label), label) for label in labels]


def _plain(label: Any) -> str:
    """Return a label as text: without blanks around it, and a whole number without a decimal point."""
    text = str(label).strip()
    return f"{float(text):.0f}" if is_number(text) and float(text).is_integer() else text
