"""Rows of numbers from any bytes: csv files in a person's dialect, and sparse matrices."""

import io
import math
import re
import tempfile
import warnings
from pathlib import Path

import numpy as np
from scipy import sparse

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
    cell = cell.strip()
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
        text = data.decode("utf-8-sig")
        # carriage returns and blanks at the end of a line belong to no cell
        ignored = "\r " if separator == "\t" else "\r \t"
        lines = [line.rstrip(ignored) for line in text.split("\r" if "\n" not in text else "\n")]
    except UnicodeDecodeError:
        return None
    lines = [line for line in lines if line.strip(" " if separator == "\t" else None)]
    if not lines or any("\r" in line or "\0" in line for line in lines):
        return None
    table = [line.split(separator) for line in lines]
    if any(len(cells) != len(table[0]) for cells in table):
        return None
    if header and table[0] in table[1:]:  # files that were put together: a header of numbers would be read as a row
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


# -- sparse matrices ---------------------------------------------------------------------------------------------------
def matrix_of(data, suffix):
    """Return the matrix in a file with these bytes as rows of numbers, or None if it is refused."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        path = Path(folder, f"a{suffix}")
        path.write_bytes(data)
        try:
            source = fs.open_rows(path)
            if source.n_rows * source.n_features > 1 << 20:  # what nobody can write down as rows of numbers
                return None
            parts = [rows.toarray() if sparse.issparse(rows) else np.array(rows) for rows in source]
        except SourceError as error:
            assert "\n" not in str(error), str(error)
            return None
    return np.concatenate(parts) if parts else np.empty((0, source.n_features))


def same_matrix(found, expected):
    """Sums of repeated entries are taken in another order."""
    scale = np.abs(expected).max(initial=0.0)
    return found.shape == expected.shape and np.allclose(found, expected, rtol=1e-6, atol=1e-6 * scale)


def npz(data):
    """What is read of an .npz is what scipy reads, wherever scipy reads it."""
    found = matrix_of(data, ".npz")
    if found is None:
        return
    try:
        expected = (
            sparse.load_npz(io.BytesIO(data)).astype(float).toarray()
        )  # sums of entries in whole numbers overflow
    except Exception:  # scipy does not read all that it once wrote, and names no error
        return
    with np.errstate(over="ignore"):
        assert same_matrix(found, expected), (found, expected)


def reference_market(data):
    """Return the matrix of Matrix Market text as Python reads it; None where a rule is broken."""
    try:
        lines = data.decode("ascii").split("\n")
    except UnicodeDecodeError:
        return None
    head = lines[0].rstrip("\r").lower().split()
    if len(head) != 5 or head[:2] != ["%%matrixmarket", "matrix"]:
        return None
    form, field, symmetry = head[2:]
    lines = [line.strip() for line in lines[1:]]
    lines = [line.split() for line in lines if line and not line.startswith("%")]
    try:
        sizes = [int(cell) for cell in lines[0]]
        entries = [[float(cell) for cell in line] for line in lines[1:]]
        m, n = sizes[:2]
        if form == "array":
            values = iter([value for (value,) in entries])
            skip = {"general": 0, "symmetric": 0, "skew-symmetric": 1}[symmetry]
            places = [(i, j) for j in range(n) for i in range(0 if symmetry == "general" else j + skip, m)]
            entries = [(i + 1, j + 1, next(values)) for i, j in places]
        elif field == "pattern":
            entries = [(i, j, 1.0) for i, j in entries]
        out = np.zeros((m, n))
        for i, j, value in entries:
            row, column = int(i) - 1, int(j) - 1
            if min(row, column) < 0 or (row, column) != (i - 1, j - 1):
                return None
            out[row, column] += value
            if symmetry != "general" and row != column:
                out[column, row] += -value if symmetry == "skew-symmetric" else value
    except (ValueError, IndexError, StopIteration, KeyError, OverflowError, MemoryError):
        return None
    return out


def market(data):
    """What is read of Matrix Market text is what Python reads."""
    found = matrix_of(data, ".mtx")
    if found is not None:
        expected = reference_market(data)
        assert expected is not None and same_matrix(found, expected), (found, expected)


def npz_seeds():
    """Files of scipy in each format that is read."""
    dense = np.array([[0.0, 1.5, 0.0], [2.0, 0.0, -3.0], [0.0, 0.0, 0.0], [4.0, 0.0, 5.0]])
    out = []
    for make in (sparse.csr_array, sparse.csc_array, sparse.coo_array, sparse.coo_matrix):
        for compressed in (False, True):
            file = io.BytesIO()
            sparse.save_npz(file, make(dense), compressed=compressed)
            out.append(file.getvalue())
    return out


MARKET_SEEDS = [
    b"%%MatrixMarket matrix coordinate real general\n% text\n3 4 3\n1 1 1.5\n2 4 -2\n3 2 1e-3\n",
    b"%%MatrixMarket matrix coordinate pattern symmetric\n3 3 3\n1 1\n2 1\n3 2\n",
    b"%%MatrixMarket matrix coordinate integer skew-symmetric\n3 3 2\n2 1 4\n3 1 -5\n",
    b"%%MatrixMarket matrix array real general\n2 3\n1\n2\n3\n4\n5\n6.5\n",
    b"%%MatrixMarket matrix array real general\n0 3\n",
    b"%%MatrixMarket matrix array real symmetric\n2 2\n1\n2\n3\n",
    b"%%MatrixMarket matrix array double skew-symmetric\n3 3\n1\n2\n3\n",
]

ROW_TARGETS = {"table": table, "npz": npz, "market": market}
ROW_SEEDS = {"npz": npz_seeds, "market": lambda: MARKET_SEEDS}
