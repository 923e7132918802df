"""Rows of numbers from any bytes: tables of text in a person's dialect, and files of Arrow."""

import contextlib
import math
import re
import tempfile
import warnings
from pathlib import Path

import numpy as np

import fastsketch as fs
from fastsketch.data import SourceError

FILL = -77.25
# The first byte of a table says how it is to be read.
HEADERS, SEPARATORS, DECIMALS = (True, False, None), (",", ";", "\t", "|", None), (".", ",")
MISSING = {"", "na", "n/a", "nan", "null", "none", "?"}


def rows_of(data, suffix, **how):
    """Return (rows, None) or (None, the message of the refusal) of a file with these bytes."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        path = Path(folder, f"a{suffix}")
        path.write_bytes(data)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                parts = [np.array(rows) for rows in fs.open_rows(path, fill=FILL, **how)]
        except SourceError as error:
            assert "\n" not in str(error), str(error)
            return None, str(error)
        except ValueError as error:  # of arguments: a decimal point that separates, or columns that are not there
            assert re.match(r"(decimal|columns|separator)\b", str(error)), str(error)
            return None, str(error)
    return np.concatenate(parts) if parts else np.empty((0, 0)), None


# -- text --------------------------------------------------------------------------------------------------------------
def number_of(cell, decimal):
    """Return the number of a cell, FILL of a missing one; ValueError for anything else."""
    cell = cell.strip(" \t")
    if cell.lower() in MISSING:
        return FILL
    point = re.escape(decimal)
    if not re.fullmatch(rf"[+-]?([0-9]+({point}[0-9]*)?|{point}[0-9]+)([eE][+-]?[0-9]+)?", cell):
        raise ValueError(cell)
    value = float(cell.replace(decimal, "."))
    if not math.isfinite(value):
        raise ValueError(cell)
    return value


def reference_rows(data, header, separator, decimal):
    """Return the rows of a table without quotes as Python reads them; None where a rule is broken."""
    try:
        lines = [line.rstrip("\r") for line in data.decode("utf-8-sig").split("\n")]
    except UnicodeDecodeError:
        return None
    lines = [line for line in lines if line.strip(" " if separator == "\t" else " \t")]
    if not lines or any("\r" in line or "\0" in line for line in lines):
        return None
    table = [line.split(separator) for line in lines]
    if any(len(cells) != len(table[0]) for cells in table):
        return None
    try:
        return [[number_of(cell, decimal) for cell in cells] for cells in table[header:]]
    except ValueError:
        return None


def table(data):
    """What is read is what Python reads; a reader that tells dialects for itself reads as one that was told."""
    which, text = data[0] if data else 0, data[1:]
    header, which = HEADERS[which % 3], which // 3
    separator, which = SEPARATORS[which % 5], which // 5
    decimal = DECIMALS[which % 2]
    rows, message = rows_of(text, ".csv", header=header, separator=separator, decimal=decimal)
    if header is None or separator is None:
        told = [
            rows_of(text, ".csv", header=one, separator=other, decimal=decimal)[0]
            for one in ([header] if header is not None else [True, False])
            for other in ([separator] if separator is not None else [",", ";", "\t"])
        ]
        assert rows is None or any(one is not None and np.array_equal(one, rows) for one in told), rows
    elif separator != decimal and b'"' not in text and rows is not None:
        expected = reference_rows(text, header, separator, decimal)
        assert expected is not None and rows.tolist() == expected, (rows, expected)
    elif separator != decimal and b'"' not in text:
        expected = reference_rows(text, header, separator, decimal)
        assert not expected or "two columns are called" in message, (message, expected)


# -- Arrow -------------------------------------------------------------------------------------------------------------
def arrow(data):
    """What is read of a file of Arrow is what pyarrow reads, once it has looked at all of it."""
    rows, _ = rows_of(data, ".arrow", columns="numeric")
    if rows is None:
        return
    with contextlib.suppress(UnicodeDecodeError):  # pyarrow has no names that are no text
        expected = by_pyarrow(data)
        assert expected is None or np.array_equal(rows, np.array(expected, rows.dtype).reshape(rows.shape))


def by_pyarrow(data):
    """Return the rows of the columns that hold numbers; None where lists or decimals are among them."""
    import pyarrow as pa

    buffer, is_file = pa.py_buffer(data), data.startswith(b"ARROW1")
    opened = pa.ipc.open_file if is_file else pa.ipc.open_stream
    types = opened(buffer).schema.types
    if any(pa.types.is_nested(kind) or pa.types.is_decimal(kind) for kind in types):
        return None  # the rows tell how wide lists are: tests/data/sources holds that
    kinds = (pa.types.is_floating, pa.types.is_integer, pa.types.is_boolean)
    kept = [k for k, kind in enumerate(types) if any(holds(kind) for holds in kinds)]
    reader = opened(buffer, options=pa.ipc.IpcReadOptions(included_fields=kept))
    expected = []
    for batch in [reader.get_batch(k) for k in range(reader.num_record_batches)] if is_file else reader:
        batch.validate(full=True)
        columns = [[FILL if v is None or v != v else v for v in column.to_pylist()] for column in batch.columns]
        expected += zip(*columns, strict=True)
    return expected


ROW_TARGETS = {"table": table, "arrow": arrow}
