"""Tables from files, CSV or Parquet: what is too large or is no table is refused before or while it is read."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from fedcollab.errors import InputError
from fedcollab.parsing import MOST_COLUMNS, MOST_DATA, MOST_FIELD

if TYPE_CHECKING:
    import pandas as pd

MISSING = ["?"]  # counted as missing beside what pandas knows (empty, NA, NaN, null, ...)


def _read_csv(path: Path) -> pd.DataFrame:
    import pandas as pd

    quoted = _check_fields(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header = next((row for row in csv.reader(file, skipinitialspace=True) if row), [])
        _check_columns(path, len(header))
        repeated = sorted(name or "(no name)" for name, count in Counter(header).items() if count > 1)
        if repeated:
            raise InputError(f"`{path}` has repeated columns: {', '.join(repeated)}")
        frame = pd.read_csv(path, na_values=MISSING, skipinitialspace=True, low_memory=False)
    except InputError:
        raise
    except UnicodeDecodeError as error:
        raise InputError(f"`{path}` is not UTF-8 (byte {error.start}); save it as UTF-8") from None
    except Exception as error:
        raise InputError(f"`{path}` cannot be read as CSV: {_reason(error)}") from None
    for column in frame.columns if quoted and path.stat().st_size > MOST_FIELD else ():
        if frame[column].dtype.kind not in "biuf" and max(map(len, map(str, frame[column])), default=0) > MOST_FIELD:
            raise InputError(f"`{path}`: column `{str(column)[:40]}` has a field of more than {MOST_FIELD} bytes")
    return frame


def _check_fields(path: Path) -> bool:
    """Refuse a CSV file with a longer stretch between two commas or line ends than a field may have.

    Return whether it has quotes: a field in quotes may hold commas and line ends, and is measured when it is read.
    """
    open_for, quoted = 0, False
    with path.open("rb") as file:
        while block := file.read(MOST_FIELD):
            first = min((at for at in map(block.find, (b",", b"\n", b"\r", b";", b"\t")) if at >= 0), default=-1)
            open_for += len(block) if first < 0 else first
            if open_for > MOST_FIELD:
                raise InputError(f"`{path}` cannot be read as CSV: it has a field of more than {MOST_FIELD} bytes")
            if first >= 0:
                open_for = len(block) - 1 - max(map(block.rfind, (b",", b"\n", b"\r", b";", b"\t")))
            quoted = quoted or b'"' in block
    return quoted


def _check_columns(path: Path, count: int) -> None:
    if count > MOST_COLUMNS:
        raise InputError(f"`{path}` has {count:,} columns; a table may have at most {MOST_COLUMNS:,}")


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _read_parquet(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        from pyarrow import parquet, types

        about = parquet.read_metadata(path)
        _check_columns(path, about.num_columns)
        unpacked = sum(about.row_group(at).total_byte_size for at in range(about.num_row_groups))
        if max(unpacked, about.num_rows * max(1, about.num_columns)) > MOST_DATA:
            raise InputError(f"`{path}` would unpack to more than {MOST_DATA / 2**30:g} GiB, the most for a table")
        for field in parquet.read_schema(path):
            if types.is_nested(field.type) or types.is_binary(field.type) or types.is_large_binary(field.type):
                raise InputError(f"`{path}`: column `{field.name}` is of type {field.type}; expected numbers or text")
        return pd.read_parquet(path)
    except InputError:
        raise
    except ImportError:
        raise InputError(f"`{path}` needs pyarrow: pip install 'fedcollab[parquet]'") from None
    except Exception as error:
        raise InputError(f"`{path}` cannot be read as Parquet: {_reason(error)}") from None


#: how a table is read, by the end of its file's name
TABLES = {".csv": _read_csv, ".parquet": _read_parquet}
