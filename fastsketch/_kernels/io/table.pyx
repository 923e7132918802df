"""Blocks of text with a number in every cell to rows."""
from libc.math cimport isfinite
from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int32_t, int64_t

from fastsketch._kernels.level cimport follow
from fastsketch._kernels.pool cimport join

import numpy as np


follow()
join()

# What becomes of a column that is no number of the rows.
SKIP, BESIDE = -1, -2
# Parts take at least 200 us, in which a thread of the pool is worth its waking.
LEAST = 64 << 10


class BadCell(ValueError):
    """(lines before it, column from 0 or None, what is wrong) of a block's first error; `cell`: what is no number."""

    cell = None


def parse_block(const unsigned char[::1] text, int delimiter, const int32_t[::1] places, Py_ssize_t n, *,
                bint beside=False, int decimal=b".", Py_ssize_t least=LEAST):
    """(rows (m, n) float64, cells (m, 2) or None, missing numbers, newlines) of whole lines, which end in a newline.

    places (width,): where the number of each column goes, or SKIP, or BESIDE (of one column, if `beside`): cells are
    the place and the length of its text. decimal: the point of numbers. Raises BadCell.
    """
    cdef fs_table_block block
    cdef Py_ssize_t size = text.shape[0], width = places.shape[0]
    cdef const char* raw = <const char*> &text[0] if size else NULL
    cdef int status
    with nogil:
        fs_table_cut(&block, raw, size, width, least)
    block.delimiter, block.decimal, block.n, block.places = <char> delimiter, <char> decimal, n, &places[0]
    out = np.empty((block.rows + 1, n))
    cells = np.empty((block.rows + 1, 2), np.int64) if beside else None
    cdef double[:, ::1] out_v = out
    cdef int64_t[:, ::1] cells_v
    cdef int64_t *cells_p = NULL
    if beside:
        cells_v = cells
        cells_p = &cells_v[0, 0]
    with nogil:
        status = fs_table_parse(&block, &out_v[0, 0] if n else NULL, cells_p)
    if block.slow:
        _convert(raw, out_v[:block.rows], places, <char> decimal, <char> delimiter)
    if status != FS_TABLE_DONE:
        error = BadCell(int(block.line), *_reason(status, block.column, width))
        if status == FS_TABLE_WORD:
            rest = <bytes> raw[block.pos:min(size, block.pos + 60)]
            quoted = block.pos > 0 and raw[block.pos - 1] == c'"'
            cell = rest.split(b"\n")[0].split(b'"' if quoted else bytes([delimiter]))[0].strip(b' \t\r"')
            error.cell = cell.decode("utf-8", "replace")
        raise error
    return out[:block.rows], None if cells is None else cells[:block.rows], int(block.missing), int(block.line)


cdef tuple _reason(int status, Py_ssize_t column, Py_ssize_t width):
    if status == FS_TABLE_FEW:
        return None, f"there are {column} columns, in the first line {width}"
    if status == FS_TABLE_MANY:
        return None, f"there are more than {width} columns, as many as the first line has"
    if status == FS_TABLE_WORD:
        return column, "no finite decimal number"
    if status == FS_TABLE_OPEN:
        return column, "the quote that opens it does not close on this line: a cell holds no line ends"
    if status == FS_TABLE_AFTER:
        return column, "it goes on after its closing quote"
    if status == FS_TABLE_QUOTE:
        return column, 'it holds a quote: write it as "..." with "" for each quote'
    return None, "a carriage return within the line (lines end in \\n or \\r\\n)"


cdef int _convert(const char* text, double[:, ::1] values, const int32_t[::1] places, char decimal,
                  char delimiter) except -1:
    # digits, point and exponent, as the parser has seen: what remains is to round them, or to find them beyond float64
    cdef Py_ssize_t i, j
    cdef ptrdiff_t place, before
    cdef char point
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            place = fs_table_place(values[i, j])
            if place >= 0:
                before, point = place, decimal
                while before and text[before - 1] in (c' ', c'\t'):
                    before -= 1
                if decimal == delimiter and not (before and text[before - 1] == c'"'):
                    point = 0  # without quotes, what divides columns is no point
                token = <bytes> text[place:place + fs_table_length(text + place, point)]
                values[i, j] = float(token.replace(bytes([decimal]), b"."))
                if not isfinite(values[i, j]):
                    raise BadCell((<bytes> text[:place]).count(b"\n"), int(np.flatnonzero(np.asarray(places) == j)[0]),
                                  f"{token[:40].decode('ascii', 'replace')!r} is beyond the range of float64")
    return 0
