"""Rows to predict on: samples without labels, in the form that a trained model's clients had.

The rules are those of training. Missing numbers become the mean, missing categories none of the known ones, and columns
that the model does not take are passed over. A category that no client had is none of the known ones either; that is
told. A column that is lacking, or text where the clients had numbers, is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcollab.data.npz import has_features, read_npz, unpacked
from fedcollab.data.read import check_readable
from fedcollab.data.samples import Features, checked_features, is_table
from fedcollab.data.tables import read_table
from fedcollab.errors import InputError
from fedcollab.parsing import complete

if TYPE_CHECKING:
    import pandas as pd

    from fedcollab.data.schema import Column, Schema

#: names that are written out in one line
LISTED = 5


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows that fit a schema.

    Parameters
    ----------
    x : array or pandas.DataFrame
        The features; of a table, the schema's columns alone.
    notes : tuple of str
        What a user should know about them: values that no client had.
    unused : pandas.DataFrame or None
        The columns of a table that the schema does not have, such as an identifier.
    """

    x: Features
    notes: tuple[str, ...] = ()
    unused: pd.DataFrame | None = None


def read_rows(path: str | Path, schema: Schema) -> Rows:
    """Read rows to predict on from a file.

    Parameters
    ----------
    path : str or Path
        A CSV or Parquet file with the schema's columns, or an NPZ file with the array or table `x`; labels are not
        needed.
    schema : Schema
        How the model's clients were prepared.

    Raises
    ------
    InputError
        If the file cannot be read, or does not fit the schema.
    """
    path = Path(path)
    check_readable(path)
    if path.suffix.lower() != ".npz":
        table = read_table(path)
        if len(table) == 0:
            raise InputError(f"`{path}` has a header but no rows")
        return fit_rows(table, schema, f"`{path}`")
    arrays = read_npz(path)
    if not has_features("x", arrays):
        raise InputError(f"`{path}` has arrays {sorted(arrays)}; expected `x`, the rows to predict on")
    with complete(path, "NPZ"):
        return fit_rows(unpacked("x", arrays), schema, f"`{path}`")


def fit_rows(x: Any, schema: Schema, where: str = "`x`") -> Rows:
    """Return rows in the form that a schema takes.

    Parameters
    ----------
    x : array_like or pandas.DataFrame
        The features.
    schema : Schema
        How the model's clients were prepared.
    where : str
        What error messages call the rows.

    Raises
    ------
    InputError
        If they do not fit.
    """
    x = checked_features(x, where)
    if schema.columns is None:
        if is_table(x) or tuple(x.shape[1:]) != schema.shape:
            found = "a table" if is_table(x) else f"features of shape {tuple(x.shape[1:])}"
            raise InputError(f"{where} has {found}; the model takes arrays `x` of shape (rows, *{schema.shape})")
        return Rows(x)
    names = [column.name for column in schema.columns]
    if not is_table(x):
        raise InputError(f"{where} is an array; the model takes a table with the columns {_listed(names)}")
    lacking = [name for name in names if name not in x.columns]
    if lacking:
        raise InputError(f"{where} lacks what the model takes: {_listed(lacking)}; its columns: {_listed(x.columns)}")
    notes: list[str] = []
    fitted = x[names].copy()
    for column in schema.columns:
        if column.categories is None:
            fitted[column.name] = _numbers(x[column.name], column, where)
        else:
            fitted[column.name] = _categories(x[column.name], column, where, notes)
    return Rows(fitted, tuple(notes), x.drop(columns=names))


def _numbers(values: pd.Series[Any], column: Column, where: str) -> pd.Series[Any]:
    """Return a numeric column; text is refused, with the row where it is."""
    import pandas as pd

    if values.dtype.kind in "biuf":
        return values
    numbers = values if values.dtype.kind not in "mM" else values.astype(str)
    try:
        numbers = pd.to_numeric(numbers, errors="coerce")
    except OverflowError:
        raise InputError(f"{where}: column `{column.name}` has a number of hundreds of digits") from None
    wrong = (values.notna() & numbers.isna()).to_numpy()
    if wrong.any():
        row = int(wrong.argmax())
        raise InputError(
            f"{where}: column `{column.name}` has {str(values.iloc[row])[:40]!r} in row {row + 1}; the model was "
            "trained with numbers there"
        )
    return numbers


def _categories(values: pd.Series[Any], column: Column, where: str, notes: list[str]) -> pd.Series[Any]:
    """Return a column of categories as text; those that no client had are noted."""
    text = values.map(_text, na_action="ignore") if values.dtype.kind in "biuf" else values
    text = text.astype(object)
    strange = text[text.notna() & ~text.astype(str).isin(column.categories or ())]
    if len(strange):
        told = _listed([f"{str(value)[:40]!r}" for value in dict.fromkeys(strange)])
        notes.append(
            f"{where}: {len(strange)} row(s) have a value of `{column.name}` that no client had in training ({told}); "
            "it counts as none of the known ones"
        )
    return text


def _text(value: Any) -> str:
    """Return a number as the text that it had as a category: a missing value beside it makes floats of whole ones."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _listed(names: Any) -> str:
    """Return names in one line, cut where there are many."""
    shown = [str(name) for name in names]
    more = f" and {len(shown) - LISTED} more" if len(shown) > LISTED else ""
    return ", ".join(shown[:LISTED]) + more
