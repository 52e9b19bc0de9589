"""Damage to valid files of every kind: bits, bytes, numbers and parts, and behind what a parser alone would notice."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from copy import deepcopy
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pyarrow
from pyarrow import parquet
from safetensors.numpy import load, save

from fedcollab.wire.message import unpack

ODD = (
    0, -1, 1, 2**31, 2**63, -(2**63), 2**64, 10**400, 1e308, -1e308, 1e-320, float("nan"), float("inf"), True, None,
    "", "x", "\x00", "\ud800", "é" * 50, "1", [], {}, [[]], [None], {"": None}, [[[[1]]]], ["a", 1], 10**12, 0.5,
    -0.0, 5e-324, 2**53 + 1, float("-inf"), False, "a\u0301", "\u0430", "\u202e", [["a", "a"]], [1e300] * 4, {"a": 1},
)  # fmt: skip
WORDS = (
    b"0", b"-1", b"1e999", b"NaN", b"null", b"true", b'"', b",", b"\n", b"[", b"]", b"{", b"}", b"=", b".", b"\x00",
    b"\xff\xfe", b"\xef\xbb\xbf", b"9" * 30, b"'", b"\r", b";", b"#", b"1979-02-31", b"inf", b"\\u0000", b"[[", b"0x1",
    b"99999999999", b"\t", b"1_0", b'"""', b"a.b.c",
)  # fmt: skip


def flip(content: bytes, rng: np.random.Generator) -> bytes:
    """Damage a file byte by byte: one to four changes."""
    changed = bytearray(content)
    for _ in range(int(rng.integers(1, 5))):
        size = len(changed)
        at = int(rng.integers(0, size + 1))
        end = min(size, at + int(2 ** rng.uniform(0, 8)))
        way = int(rng.integers(0, 7))
        if way == 0 and size:
            changed[min(at, size - 1)] ^= 1 << int(rng.integers(0, 8))
        elif way == 1:
            changed[at:at] = WORDS[int(rng.integers(0, len(WORDS)))]
        elif way == 2:
            changed[at:end] = WORDS[int(rng.integers(0, len(WORDS)))]
        elif way == 3:
            del changed[at:end]
        elif way == 4:
            changed[at:at] = changed[at:end] * int(2 ** rng.uniform(0, 6))
        elif way == 5:
            changed[at:end] = bytes(rng.integers(0, 256, end - at, dtype=np.uint8))
        elif rng.random() < 0.2:
            del changed[at:]
    return bytes(changed)


CELLS = (
    "", "  ", "\t", "inf", "1e999", "9" * 400, "0." + "3" * 500, "2026-01-02", "True", "1_0", "1 000", '"1,5"', "٣",
    "Ⅷ", "\ufeff1", "２０", "\u22125", "-0.0", "0x14",
    '"a\nb"', '"', "\x00", "\x1b[2J", "\u202e", "nan", "None", str(2**63), str(2**64), "1e300", "1e-320", "x" * 99,
)  # fmt: skip


def recell(content: bytes, rng: np.random.Generator) -> bytes:
    """Damage the cells of a CSV file: one, a whole column, more or fewer in a row; its line ends and its encoding."""
    if rng.random() < 0.4:
        return flip(content, rng)
    rows = [line.split(",") for line in content.decode().splitlines()]
    for _ in range(int(rng.integers(1, 4))):
        row, way = rows[int(rng.integers(0, len(rows)))], rng.random()
        place, cell = int(rng.integers(0, len(row) or 1)), CELLS[int(rng.integers(0, len(CELLS)))]
        if way < 0.4:
            row[place : place + 1] = [cell]
        elif way < 0.6:
            for other in rows[1:]:
                other[place : place + 1] = [cell]
        elif way < 0.75:
            row.insert(place, cell)
        elif way < 0.85:
            del row[place:]
        else:
            rows[0][place : place + 1] = rows[0][:1]
    end = ("\n", "\r\n", "\r", "\r\r\n", "\x85")[min(int(rng.integers(0, 12)), 4)]
    encoding = ("utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16")[int(rng.integers(0, 5))]
    content = end.join(map(",".join, rows)).encode(encoding)
    if rng.random() < 0.02:  # two encodings
        at = int(rng.integers(0, len(content)))
        return content[:at] + content[at:].decode(encoding, "replace").encode("utf-16-le")
    return content


def restructure(content: bytes, rng: np.random.Generator) -> bytes:
    """Damage a JSON file by its structure: one to three values are replaced, removed, repeated or moved."""
    if rng.random() < 0.3:
        return flip(content, rng)
    value = json.loads(content)
    for _ in range(int(rng.integers(1, 4))):
        place, key = _place(value, rng)
        if place is None:
            continue
        way = rng.random()
        if way < 0.25:
            place[key] = _near(place[key], rng)
        elif way < 0.6:
            place[key] = deepcopy(ODD[int(rng.integers(0, len(ODD)))])
        elif way < 0.75:
            del place[key]
        elif way < 0.85 and isinstance(place, list):
            place.extend(deepcopy(place[key]) for _ in range(3))
        else:
            other, name = _place(value, rng)
            place[key] = deepcopy(other[name]) if other is not None else None
    text = json.dumps(value).encode("utf-8", "surrogatepass")
    if isinstance(value, dict) and value and rng.random() < 0.05:  # one key stands twice
        return text[:-1] + b", " + json.dumps({next(iter(value)): 1}).encode()[1:]
    return text


def _near(value: Any, rng: np.random.Generator) -> Any:
    """Return a value of the same kind that contradicts others: what a parser alone would take."""
    way = int(rng.integers(0, 7))
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)) and not abs(value) < 1e300:
        return -value
    if isinstance(value, (int, float)):
        return (-value, value + 1, value * 10**9, value / 2, 1 - value, float(value), value + 0.5)[way]
    if isinstance(value, str):
        return (value[::-1], f"{value} ", value.upper(), value * 2, value[:-1], f"{value}\u200b", value[1:])[way]
    if isinstance(value, list) and value:
        turned = (value[::-1], value[:-1], value + value, value[:1] * len(value), [value], value[1:] + value[:1], [])
        return deepcopy(turned[way])
    if isinstance(value, dict) and value:
        keys = list(value)
        return dict(zip(keys, (value[key] for key in keys[1:] + keys[:1]), strict=True))
    return value


def _place(value: Any, rng: np.random.Generator) -> tuple[Any, Any]:
    """Return a random list or object in a value, and a position in it."""
    found: tuple[Any, Any] = (None, None)
    while isinstance(value, (dict, list)) and value:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        found = value, keys[int(rng.integers(0, len(keys)))]
        value = found[0][found[1]]
        if rng.random() < 0.3:
            break
    return found


def rezip(content: bytes, rng: np.random.Generator) -> bytes:
    """Damage the arrays in an NPZ file before they are packed, so that its checksums fit."""
    if rng.random() < 0.4:
        return flip(content, rng)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    for _ in range(int(rng.integers(1, 3))):
        name = list(parts)[int(rng.integers(0, len(parts)))]
        way = rng.random()
        if way < 0.4:
            parts[name] = flip(parts[name], rng)
        elif way < 0.8:
            parts[name] = _npy(rng)
        elif way < 0.9:
            parts[("x:", "x:age", "x", "y_test", "groups", "missing:x:age", "name.npy")[int(rng.integers(0, 7))]] = (
                _npy(rng)
            )
        else:
            del parts[name]
            if not parts:
                break
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return buffer.getvalue()


def resign(content: bytes, rng: np.random.Generator) -> bytes:
    """Damage a checkpoint behind its checksum, mostly in its plain values; its checksum is made again."""
    if rng.random() < 0.2:
        return flip(content, rng)
    message = unpack(content[:-32], arrays=None)
    if rng.random() < 0.2:
        changed = flip(content[:-32], rng)
    else:
        plain = {key: value for key, value in message.items() if not isinstance(value, np.ndarray)}
        changed = restructure(json.dumps(plain).encode(), rng)
        try:
            found = json.loads(changed)
            arrays = {key: value for key, value in message.items() if isinstance(value, np.ndarray)}
            order = json.dumps([[*arrays, *found], found]).encode()
            changed = save({**arrays, "__plain__": np.frombuffer(order, dtype=np.uint8)})
        except (ValueError, TypeError, RecursionError):
            changed = content[:-40] + changed
    return changed + hashlib.sha256(changed).digest()


def resave(content: bytes, rng: np.random.Generator) -> bytes:
    """Damage the arrays of a safetensors file, whose header then fits them."""
    if rng.random() < 0.3:
        return flip(content, rng)
    if rng.random() < 0.2:
        return reheader(content, rng)
    arrays = load(content)
    for _ in range(int(rng.integers(1, 3))):
        names = list(arrays)
        if not names:
            break
        name, way = names[int(rng.integers(0, len(names)))], rng.random()
        if way < 0.3:
            arrays[name] = np.zeros(
                tuple(int(side) for side in rng.integers(0, 5, int(rng.integers(0, 4)))),
                dtype=("f2", "f4", "f8", "i1", "i8", "u1", "?")[int(rng.integers(0, 7))],
            )
        elif way < 0.6 and arrays[name].size and arrays[name].dtype.kind == "f":
            changed = arrays[name].copy()
            odd = (np.nan, np.inf, -np.inf, np.finfo(changed.dtype).max, 0, -1)
            changed.flat[int(rng.integers(0, changed.size))] = odd[int(rng.integers(0, len(odd)))]
            arrays[name] = changed
        elif way < 0.75:
            arrays[("w", "x", "", "é" * 50, names[0] + "!")[int(rng.integers(0, 5))]] = arrays[name]
        else:
            del arrays[name]
    return bytes(save(arrays))


def reheader(content: bytes, rng: np.random.Generator) -> bytes:
    """Damage the header of a safetensors file by its structure; its length then fits, and an entry may stand twice."""
    size = int.from_bytes(content[:8], "little")
    header = restructure(content[8 : 8 + size], rng)
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + content[8 + size :] + b"x" * int(rng.integers(0, 2))


def reorder(content: bytes, rng: np.random.Generator) -> bytes:
    """Damage the plain values of a message, mostly; its header then fits them."""
    if rng.random() < 0.5:
        return resave(content, rng)
    arrays = load(content)
    plain = arrays.pop("__plain__").tobytes()
    return bytes(save({**arrays, "__plain__": np.frombuffer(restructure(plain, rng), dtype=np.uint8)}))


def retable(content: bytes, rng: np.random.Generator) -> bytes:
    """Damage the columns of a Parquet file: other types, values, names, lengths of text; lists, structs, nothing."""
    if rng.random() < 0.4:
        return flip(content, rng)
    table = _table(content)
    rows = int(rng.integers(0, 2 * table.num_rows)) if rng.random() < 0.2 else table.num_rows
    columns = {name: table[name].combine_chunks().slice(0, rows) for name in table.column_names}
    columns = {name: column for name, column in columns.items() if len(column) == rows or not rows}
    for _ in range(int(rng.integers(1, 4))):
        name = ["age", "town", "ill", "", "x\x00", "é" * 300, "ill "][int(rng.integers(0, 7))]
        columns[name] = _column(rows, rng)
    columns = {name: column for name, column in columns.items() if len(column) == rows}
    names, parts = list(columns), list(columns.values())
    if names and rng.random() < 0.1:  # one name stands twice
        names, parts = [*names, names[0]], [*parts, parts[-1]]
    buffer = io.BytesIO()
    table = pyarrow.Table.from_arrays(parts, names=names)
    parquet.write_table(table, buffer, version="2.6", row_group_size=int(rng.integers(1, 9)))
    return buffer.getvalue()


@cache
def _table(content: bytes) -> Any:
    """Return the table of a valid Parquet file; reading it takes longer than all else."""
    return parquet.read_table(io.BytesIO(content))


def _column(rows: int, rng: np.random.Generator) -> Any:
    """Return a column of a random type and random values of it."""
    kinds: tuple[tuple[Any, list[Any]], ...] = (
        (pyarrow.float64(), [0.0, float("nan"), float("inf"), 1e308, -1e-320, None]),
        (pyarrow.float16(), [np.float16(1), None]),
        (pyarrow.int64(), [0, -1, 2**63 - 1, -(2**63), None]),
        (pyarrow.uint64(), [0, 2**64 - 1, None]),
        (pyarrow.bool_(), [True, False, None]),
        (pyarrow.string(), ["", "x", "1", "nan", "\x1b[2J", "é" * 5000, " ", None]),
        (pyarrow.binary(), [b"", b"\xff\xfe", None]),
        (pyarrow.decimal128(38, 2), [Decimal("1.5"), Decimal("9" * 30), None]),
        (pyarrow.timestamp("ns", tz="UTC"), [0, 2**62, -(2**62), None]),
        (pyarrow.timestamp("s"), [0, 2**40, None]),
        (pyarrow.date32(), [0, 2**30, -(2**30), None]),
        (pyarrow.time64("ns"), [0, 1, None]),
        (pyarrow.duration("s"), [0, 2**60, None]),
        (pyarrow.list_(pyarrow.int8()), [[], [1], None]),
        (pyarrow.struct([("a", pyarrow.int8())]), [{"a": 1}, None]),
        (pyarrow.map_(pyarrow.string(), pyarrow.int8()), [[("a", 1)], None]),
        (pyarrow.null(), [None]),
    )
    kind, values = kinds[int(rng.integers(0, len(kinds)))]
    some = values[: int(rng.integers(1, len(values) + 1))]
    column = pyarrow.array([some[int(rng.integers(0, len(some)))] for _ in range(rows)], type=kind)
    return column.dictionary_encode() if kind == pyarrow.string() and rng.random() < 0.5 else column


def _npy(rng: np.random.Generator) -> bytes:
    """Return an array of a random type and shape, as an NPY file; sometimes its header claims a huge shape."""
    kind = (
        "f4",
        "f8",
        "i1",
        "i8",
        "u8",
        "?",
        "c16",
        "U3",
        "S2",
        "M8[s]",
        "m8[D]",
        "f2",
        "V4",
        "i4,f8",
        ">f8",
        ">i4",
        "g",
    )
    shape = tuple(int(side) for side in rng.integers(0, 13, int(rng.integers(0, 4))))
    values = np.zeros(shape, dtype=kind[int(rng.integers(0, len(kind)))])
    if values.dtype.kind in "iuf" and rng.random() < 0.5:
        values[...] = rng.integers(-2, 3, shape) if values.dtype.kind != "u" else 1
    elif values.dtype.kind == "i" and rng.random() < 0.3:
        values[...] = np.iinfo(values.dtype).min
    elif values.dtype.kind == "f" and rng.random() < 0.5:
        odd = (np.nan, np.inf, -0.0, np.finfo(values.dtype).smallest_subnormal, np.finfo(values.dtype).max)
        values[...] = odd[int(rng.integers(0, len(odd)))]
    if rng.random() < 0.2:
        values = np.asfortranarray(values)
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, values, allow_pickle=False)
    content = buffer.getvalue()
    if rng.random() < 0.2:
        content = content.replace(b"'shape': (", b"'shape': (99999999999, ", 1)
    return content
