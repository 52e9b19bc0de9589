"""Tables from files, CSV or Parquet; what is too large or is no table is refused before or while it is read."""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcollab.errors import InputError, first_line
from fedcollab.parsing import MIB, MOST_COLUMNS, MOST_DATA, MOST_FIELD

if TYPE_CHECKING:
    import pandas as pd

#: bytes that a number and a character of text take in memory
NUMBER, CHARACTER = 8, 4
PART = 256 * MIB  # what is unpacked at a time to see how much it is
#: the most texts that are unpacked at a time: what they take is not known before
MOST_AT_A_TIME = 1000
csv.field_size_limit(max(csv.field_size_limit(), MOST_FIELD))
MISSING = ["?"]  # counted as missing beside what pandas knows (empty, NA, NaN, null, ...)
MARKS = ",;\t"  # what may stand between two fields of a CSV file

_DECIMAL_COMMA = re.compile(r"\s*[-+]?\d+(,\d+)?([eE][-+]?\d+)?\s*")
_NUMBER = re.compile(r"\s*[-+]?(\d+([.,]\d+)?|\d{1,3}(,\d{3})+(\.\d+)?|\d{1,3}(\.\d{3})+(,\d+)?)([eE][-+]?\d+)?\s*")


def _read_csv(path: Path) -> pd.DataFrame:
    """Read a CSV file; what cannot be a table is refused in one line."""
    import pandas as pd

    quoted, marks = _check_fields(path)
    try:
        header = _header(path, ",")
        mark = next((mark for mark in MARKS if len(header) == 1 and mark in header[0]), ",")
        header = header if mark == "," else _header(path, mark)
        _check_columns(path, len(header))
        repeated = sorted(name or "(no name)" for name, count in Counter(header).items() if count > 1)
        if repeated:
            raise InputError(f"`{path}` has repeated columns: {', '.join(repeated)}")
        if quoted:
            _check_rows(path, len(header), mark)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pd.errors.ParserWarning)  # of rows that are too long: refused below
            frame = pd.read_csv(
                path, sep=mark, na_values=MISSING, skipinitialspace=True, low_memory=False, index_col=False
            )
        if not quoted and marks[mark] != (len(header) - 1) * (len(frame) + 1):
            _check_rows(path, len(header), mark)
    except InputError:
        raise
    except UnicodeDecodeError as error:
        raise InputError(
            f"`{path}` is not UTF-8 (byte {error.start}); save it as UTF-8 (in Excel: Save As, CSV UTF-8)"
        ) from None
    except Exception as error:
        raise InputError(f"`{path}` cannot be read as CSV: {first_line(error)}") from None
    return frame if mark == "," else _with_points(frame)


def _header(path: Path, mark: str) -> list[str]:
    """Return the names of the columns, where this mark stands between fields."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        return next((row for row in csv.reader(file, delimiter=mark, skipinitialspace=True) if row), [])


def _with_points(frame: pd.DataFrame) -> pd.DataFrame:
    """Take columns of numbers with a decimal comma as numbers: it is why a file has no commas between its fields."""
    import pandas as pd

    for column, values in frame.items():
        if _all_match(values, _DECIMAL_COMMA):
            frame[column] = pd.to_numeric(values.str.replace(",", "."))
    return frame


def _all_match(values: pd.Series[Any], pattern: re.Pattern[str]) -> bool:
    """Return whether a column is text, has values, and all of them match."""
    present = values.dropna()
    texts = values.dtype.kind not in "biufmM" and len(present) > 0
    return texts and all(isinstance(value, str) and pattern.fullmatch(value) for value in present.unique())


def numbers_as_text(values: pd.Series[Any]) -> bool:
    """Return whether a column is text though all its values are numbers, some of them with a comma.

    As categories they would say nothing, and whether the comma is a decimal one only the owner of the file knows.

    Parameters
    ----------
    values : pandas.Series
        The column.

    Examples
    --------
    >>> import pandas as pd
    >>> [numbers_as_text(pd.Series(values)) for values in (["0,5", "2"], ["12,500", "700"], ["1,2,3", "2"], [0.5, 2])]
    [True, True, False, False]
    """
    return _all_match(values, _NUMBER)


def _check_rows(path: Path, columns: int, mark: str) -> None:
    """Refuse a row with more or fewer fields than there are columns, and a field that is too long.

    pandas would fill a short row up with missing values, and take the first fields of long ones for names of rows.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file, delimiter=mark, skipinitialspace=True)
        try:
            for row in rows:
                if len(row) != columns and any(row):
                    raise InputError(
                        f"`{path}` has {len(row)} fields in line {rows.line_num}; its header has {columns}"
                    )
        except csv.Error:
            raise InputError(f"`{path}` has a field of more than {MOST_FIELD} bytes in line {rows.line_num}") from None


def _check_fields(path: Path) -> tuple[bool, dict[str, int]]:
    """Refuse a CSV file with a longer stretch between two marks or line ends than a field may have.

    Return whether it has quotes (a field in quotes may hold marks and line ends, and is measured when it is read), and
    how many of each mark.
    """
    open_for, quoted, marks = 0, False, dict.fromkeys(MARKS, 0)
    ends = [mark.encode() for mark in (*MARKS, "\n", "\r")]
    with path.open("rb") as file:
        while block := file.read(MOST_FIELD):
            first = min((at for at in map(block.find, ends) if at >= 0), default=-1)
            open_for += len(block) if first < 0 else first
            if b"\0" in block:  # other readers would end there, or take it for a blank
                raise InputError(f"`{path}` is no text: it holds zero bytes, as UTF-16 does; save it as UTF-8")
            if open_for > MOST_FIELD:
                raise InputError(f"`{path}` cannot be read as CSV: it has a field of more than {MOST_FIELD} bytes")
            if first >= 0:
                open_for = len(block) - 1 - max(map(block.rfind, ends))
            quoted = quoted or b'"' in block
            for mark in marks:
                marks[mark] += block.count(mark.encode())
    return quoted, marks


def _check_columns(path: Path, count: int) -> None:
    if count > MOST_COLUMNS:
        raise InputError(f"`{path}` has {count:,} columns; a table may have at most {MOST_COLUMNS:,}")


def _read_parquet(path: Path) -> pd.DataFrame:
    """Read a Parquet file, after checking that it is not too large and has plain columns."""
    import pandas as pd

    try:
        from pyarrow import parquet, types

        about = parquet.read_metadata(path)
        _check_columns(path, about.num_columns)
        packed = sum(about.row_group(at).total_byte_size for at in range(about.num_row_groups))
        unpacked = max(packed, NUMBER * about.num_rows * max(1, about.num_columns))
        decimals: list[str] = []  # numbers of databases; objects in Python
        texts: list[str] = []
        for field in parquet.read_schema(path):
            if types.is_decimal(field.type):
                decimals.append(field.name)
            kind = field.type.value_type if types.is_dictionary(field.type) else field.type
            if types.is_string(kind) or types.is_large_string(kind):
                texts.append(field.name)
            if types.is_nested(field.type) or types.is_binary(field.type) or types.is_large_binary(field.type):
                raise InputError(f"`{path}`: column `{field.name}` is of type {field.type}; expected numbers or text")
        if unpacked <= MOST_DATA and CHARACTER * packed * about.num_rows > MOST_DATA:
            unpacked += CHARACTER * sum(_characters(path, name) for name in texts)
        if unpacked > MOST_DATA:
            raise InputError(f"`{path}` would unpack to more than {MOST_DATA / 2**30:g} GiB, the most for a table")
        if texts:  # pandas passes over bytes that are no text, and fails where they are used
            parquet.read_table(path, columns=texts).validate(full=True)
        frame = pd.read_parquet(path)
        return frame.astype({name: float for name in decimals if name in frame.columns})
    except InputError:
        raise
    except ImportError:
        raise InputError(f"`{path}` needs pyarrow: pip install 'fedcollab[parquet]'") from None
    except Exception as error:
        raise InputError(f"`{path}` cannot be read as Parquet: {first_line(error)}") from None


def _characters(path: Path, column: str) -> int:
    """Return how long the texts of a column of a Parquet file are together, without unpacking them all at a time.

    A text that is repeated takes next to no space in the file.
    """
    import pyarrow.compute as pc
    from pyarrow import parquet

    try:  # each different text once
        chunks = parquet.read_table(path, columns=[column], read_dictionary=[column])[column].chunks
    except OSError:  # not implemented for texts that are packed by what they begin with
        file = parquet.ParquetFile(path)
        largest = max(file.metadata.row_group(at).total_byte_size for at in range(file.num_row_groups))
        rows = max(1, min(MOST_AT_A_TIME, PART // max(1, largest)))
        found = (batch.column(0) for batch in file.iter_batches(rows, columns=[column]))
        return sum(pc.sum(pc.binary_length(each)).as_py() or 0 for each in found)
    return sum(pc.sum(pc.binary_length(each.dictionary).take(each.indices)).as_py() or 0 for each in chunks)


#: how a table is read, by the end of its file's name
TABLES = {".csv": _read_csv, ".parquet": _read_parquet}


def read_table(path: Path) -> pd.DataFrame:
    """Return the table of a CSV or Parquet file; blanks around the names of columns are left out.

    Parameters
    ----------
    path : Path
        The file; its name ends as `TABLES` has it.

    Raises
    ------
    InputError
        If the file is too large, holds no table, or has a column twice, blanks aside.
    """
    frame = TABLES[path.suffix.lower()](path)
    frame.columns = [str(column).strip() for column in frame.columns]
    repeated = sorted(frame.columns[frame.columns.duplicated()])
    if repeated:  # spaces around them aside
        raise InputError(f"`{path}` has repeated columns: {', '.join(repeated)}")
    return frame


def csv_text(columns: Mapping[str, Iterable[Any]]) -> str:
    """Return columns as the text of a CSV file.

    Parameters
    ----------
    columns : mapping
        The values of each column, all of one length.

    Examples
    --------
    >>> csv_text({"row": [1, 2], "predicted": ["yes", "no, or"]})
    'row,predicted\\n1,yes\\n2,"no, or"\\n'
    """
    written = io.StringIO()
    out = csv.writer(written, lineterminator="\n")
    out.writerow(columns)
    out.writerows(zip(*columns.values(), strict=True))
    return written.getvalue()
