"""Encode rows of named features as CSR arrays; columns come from a vocabulary or from feature hashing.

A row is a dict {name: value}, or a list or tuple of names and of pairs (name, value). A value is a number (True is 1),
or a string, which makes the feature "name=string" with value 1. What occurs twice in a row is added up; a sum of 0 is
not stored. Rows come out with their columns in ascending order.
"""
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_Check
from cpython.long cimport PyLong_Check
from cpython.unicode cimport PyUnicode_Check, PyUnicode_CheckExact
from libc.math cimport isfinite, isnan
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport qsort
from libc.string cimport memcpy

from fastsketch._kernels.features.murmur cimport murmur3_32

from collections.abc import Mapping
from numbers import Real

import numpy as np


cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    object PyUnicode_FromObject(object text)


# What to do with a name that has no column.
cdef enum:
    ADDED
    IGNORED
    HASHED

ADD, IGNORE, HASH = ADDED, IGNORED, HASHED

cdef enum:
    SHORT = 512  # bytes of "name=value" up to which the text is built on the stack
    FEW = 32  # entries up to which a row is sorted by insertion, which is fast because names are mostly in column order


cdef struct Entry:
    int32_t column
    int32_t place  # position in the row: values of equal columns are summed in this order
    double value


cdef int by_column(const void *one, const void *two) noexcept nogil:
    cdef const Entry *a = <const Entry *> one
    cdef const Entry *b = <const Entry *> two
    if a.column != b.column:
        return 1 if a.column > b.column else -1
    return 1 if a.place > b.place else -1


cdef void sort(Entry *entries, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i, j
    cdef Entry held
    if n > FEW:
        for i in range(1, n):
            if entries[i].column < entries[i - 1].column:
                qsort(entries, n, sizeof(Entry), by_column)
                break
        return
    for i in range(1, n):
        held = entries[i]
        j = i
        while j > 0 and entries[j - 1].column > held.column:
            entries[j] = entries[j - 1]
            j -= 1
        entries[j] = held


cdef class Columns:
    """Map from feature names to column numbers.

    columns : {name: column}, and pairs : {name: {string: column of "name=string"}}, whose keys are the features that
    have been words, and whose values only save time; both are added to with unknown=ADD. `mixed` becomes (row, name,
    whether it is a word here) for the first feature that is a word here and has been a number only, or the other way
    round; the empty word, which is what a missing value is given as, does not count. `mixed` stays None with
    unknown=HASH, which keeps no names. With unknown=HASH a column is |h| mod 2**hash_bits, h the hash of the UTF-8 text
    as a signed integer, whose sign the value gets.
    """

    cdef dict columns, pairs
    cdef readonly object mixed
    cdef int unknown, hash_bits

    def __init__(self, dict columns, dict pairs, int unknown, int hash_bits=0):
        self.columns, self.pairs = columns, pairs
        self.unknown, self.hash_bits = unknown, hash_bits

    # Return the column of a name, -1 if the name is ignored; set the sign of a hashed value.
    cdef int64_t of_name(self, name, int *sign, Py_ssize_t row) except -2:
        cdef Py_ssize_t size
        cdef const char *text
        if self.unknown == HASHED:
            text = as_utf8(name, &size, row)
            return self.hashed(<const uint8_t *> text, size, sign)
        found = self.columns.get(name)
        return self.of_new(name, row) if found is None else <int64_t> found

    # Return the column of "name=text".
    cdef int64_t of_pair(self, name, text, int *sign, Py_ssize_t row) except -2:
        cdef dict known
        cdef int64_t column
        if self.unknown == HASHED:
            return self.hashed_pair(name, text, sign, row)
        known = self.pairs.get(name)
        if known is not None:
            found = known.get(text)
            if found is not None:
                return <int64_t> found
        elif self.mixed is None and text and name in self.columns:
            self.mixed = row, name, True
        column = self.of_name(name + "=" + text, sign, row)
        if self.unknown == ADDED:
            if known is None:
                known = self.pairs[name] = {}
            known[text] = column
        return column

    cdef int64_t of_new(self, name, Py_ssize_t row) except -2:
        cdef Py_ssize_t size, column = len(self.columns)
        if self.mixed is None and name in self.pairs:
            words = self.pairs[name]
            if not (len(words) == 1 and "" in words):
                self.mixed = row, name, False
        if self.unknown == IGNORED:
            return -1
        as_utf8(name, &size, row)  # raises for text that cannot be encoded, and so could not be saved
        if column >= INT32_MAX:
            raise ValueError(f"row {row} has a new feature, {shown(name)}: a vocabulary holds fewer than 2**31 names")
        self.columns[name] = column
        if "=" in name:  # the name of a word, also where it is given ready made
            feature, _, word = name.partition("=")
            if word:
                self.pairs.setdefault(feature, {})
        return column

    cdef int64_t hashed(self, const uint8_t *text, Py_ssize_t size, int *sign) noexcept:
        # |h| mod 2**hash_bits; |-2**31| = 2**31, whose low bits are 0
        cdef uint32_t h = murmur3_32(text, size, 0)
        cdef bint negative = h >> 31
        sign[0] = -1 if negative else 1
        return (-h if negative else h) & ((<uint32_t> 1 << self.hash_bits) - 1)

    cdef int64_t hashed_pair(self, name, text, int *sign, Py_ssize_t row) except -2:
        cdef char space[SHORT]
        cdef Py_ssize_t n, m
        cdef const char *one = as_utf8(name, &n, row)
        cdef const char *two = as_utf8(text, &m, row)
        if n + m >= SHORT:
            return self.of_name(name + "=" + text, sign, row)
        memcpy(space, one, n)
        space[n] = b"="
        memcpy(space + n + 1, two, m)
        return self.hashed(<const uint8_t *> space, n + m + 1, sign)

    # Write the entry of a feature; return the number of entries, 0 for an ignored name.
    cdef int add(self, name, value, Entry *out, Py_ssize_t row) except -1:
        cdef int sign = 1
        cdef double number
        cdef int64_t column
        if not PyUnicode_CheckExact(name):
            name = as_string(name, row)
        if PyUnicode_Check(value):
            if not PyUnicode_CheckExact(value):
                value = PyUnicode_FromObject(value)
            column, number = self.of_pair(name, value, &sign, row), 1.0
        else:
            number = PyFloat_AS_DOUBLE(value) if PyFloat_Check(value) else as_number(name, value, row)
            if not isfinite(number):
                raise no_value(name, number, row)
            column = self.of_name(name, &sign, row)
        out.column, out.value = <int32_t> column, sign * number
        return column >= 0


cdef const char *as_utf8(text, Py_ssize_t *size, Py_ssize_t row) except NULL:
    try:
        return PyUnicode_AsUTF8AndSize(text, size)
    except UnicodeEncodeError:
        raise ValueError(f"row {row} has the feature {shown(text)}, which is no Unicode text") from None


cdef as_string(name, Py_ssize_t row):
    if not PyUnicode_Check(name):
        raise TypeError(f"row {row}: names of features must be strings, got {shown(name)}")
    return PyUnicode_FromObject(name)


cdef double as_number(name, value, Py_ssize_t row) except? -1.0:
    if PyLong_Check(value) or isinstance(value, (Real, np.bool_)):
        try:
            return float(value)
        except OverflowError:
            raise ValueError(f"row {row}: the value of {shown(name)} is beyond the range of float64") from None
    if value is None:
        raise no_value(name, value, row)
    raise TypeError(f"row {row}: the value of {shown(name)} must be a number or a string, got {shown(value)}")


cdef no_value(name, value, Py_ssize_t row):
    if value is None or isnan(value):
        return ValueError(f"row {row}: the value of {shown(name)} is missing ({value}): leave the feature out of the "
                          "row, or give it a value")
    return ValueError(f"row {row}: the value of {shown(name)} must be finite, got {value}")


cdef str shown(value):
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


cdef Py_ssize_t read_row(Columns columns, row, Entry *out, Py_ssize_t room, Py_ssize_t number) except -1:
    """Write the entries of a row, sorted by column; return their number."""
    cdef Py_ssize_t n = 0, places = 0
    if isinstance(row, dict):
        for name, value in (<dict> row).items():
            if places == room:
                raise RuntimeError("rows changed while they were read")
            out[n].place = <int32_t> places
            places += 1
            n += columns.add(name, value, out + n, number)
    else:
        for item in row:
            if places == room:
                raise RuntimeError("rows changed while they were read")
            out[n].place = <int32_t> places
            places += 1
            if PyUnicode_Check(item):
                n += columns.add(item, 1.0, out + n, number)
            elif isinstance(item, (tuple, list)) and len(item) == 2:
                n += columns.add(item[0], item[1], out + n, number)
            else:
                raise TypeError(f"row {number}: entries of a row must be names or pairs (name, value), got "
                                f"{shown(item)} (one row of pairs is a list in a list: [[(name, value), ...]])")
    sort(out, n)
    return n


def encode(rows, Columns columns):
    """Return (indptr int64 (n + 1,), indices int32, data float64) of rows; TypeError or ValueError names the row."""
    cdef list taken = list(rows)
    cdef Py_ssize_t i, k, n, count, used = 0, total = 0, longest = 0
    for i in range(len(taken)):
        row = taken[i]
        if not isinstance(row, (dict, list, tuple)):
            if not isinstance(row, Mapping):
                raise TypeError(f"row {i} must be a dict, or a list of names or pairs, got {type(row).__name__}")
            row = taken[i] = dict(row)
        count = len(row)
        total += count
        longest = max(longest, count)
    if longest > INT32_MAX:
        raise ValueError("a row must have fewer than 2**31 features")
    memory = bytearray((longest + 1) * sizeof(Entry))
    cdef Entry *entries = <Entry *> PyByteArray_AS_STRING(memory)
    indptr, indices, data = np.empty(len(taken) + 1, np.int64), np.empty(total, np.int32), np.empty(total)
    cdef int64_t[::1] starts = indptr
    cdef int32_t[::1] places = indices
    cdef double[::1] values = data
    cdef double value
    starts[0] = 0
    for i in range(len(taken)):
        n = read_row(columns, taken[i], entries, longest, i)
        if used + n > total:
            raise RuntimeError("rows changed while they were read")
        k = 0
        while k < n:
            count, value = entries[k].column, 0.0
            while k < n and entries[k].column == count:
                value += entries[k].value
                k += 1
            if not isfinite(value):
                raise ValueError(f"row {i}: values of one feature add up beyond the range of float64")
            if value != 0.0:
                places[used], values[used] = <int32_t> count, value
                used += 1
        starts[i + 1] = used
    return indptr, indices[:used], data[:used]


def murmur3(const uint8_t[::1] text, uint32_t seed=0):
    """Return MurmurHash3_x86_32 of bytes."""
    return murmur3_32(&text[0] if text.shape[0] else NULL, text.shape[0], seed)
