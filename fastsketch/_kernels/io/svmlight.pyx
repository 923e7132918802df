"""Blocks of svmlight text to CSR arrays."""
from libc.stddef cimport ptrdiff_t
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.math cimport isfinite
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from fastsketch._kernels.level cimport follow

import numpy as np


follow()


cdef str reason(int status):
    if status == FS_SVM_BAD_LABEL:
        return "the label is not a finite decimal number"
    if status == FS_SVM_BAD_INDEX:
        return "expected index:value"
    if status == FS_SVM_BAD_VALUE:
        return "the value is not a finite decimal number"
    if status == FS_SVM_ORDER:
        return "feature indices must increase within a line"
    if status == FS_SVM_BASE:
        return "feature index 0 in a one-based file (read it with zero_based=True)"
    if status == FS_SVM_RANGE:
        return "the feature index exceeds 2**31 - 2"
    if status == FS_SVM_RETURN:
        return "a carriage return within a line (lines end in \\n or \\r\\n)"
    if status == FS_SVM_BAD_QUERY:
        return "qid: needs an integer"
    return f"status {status}"


def parse_block(bytes text, *, bint zero_based=False, Py_ssize_t first_line=1):
    """(labels, indptr, indices, data, number of columns, newlines) of whole lines; the text must end in a newline.

    Numbers are decimal and finite. Raises ValueError with the line number (the first line of the block is `first_line`) and the reason.
    """
    cdef fs_svm state
    cdef const char* raw = PyBytes_AS_STRING(text)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(text)
    cdef ptrdiff_t newlines = 0, colons = 0
    cdef int status
    cdef double number
    with nogil:
        fs_svm_count(raw, size, &newlines, &colons)
    labels = np.empty(newlines + 1)
    indptr = np.empty(newlines + 2, np.int64)
    # "1:1 ": a value takes four bytes at least, which bounds the memory for text that is nothing but colons
    cdef Py_ssize_t most = min(colons, size // 4) + 1
    indices = np.empty(most, np.int32)
    data = np.empty(most)
    cdef double[::1] labels_v = labels, data_v = data
    cdef int64_t[::1] indptr_v = indptr
    cdef int32_t[::1] indices_v = indices
    memset(&state, 0, sizeof(state))
    state.text, state.size, state.base = raw, size, 0 if zero_based else 1
    while True:
        with nogil:
            status = fs_svm_parse(&state, &labels_v[0], &indptr_v[0], &indices_v[0], &data_v[0])
        if status == FS_SVM_DONE:
            break
        if status == FS_SVM_SLOW_LABEL or status == FS_SVM_SLOW_VALUE:
            token = text[state.token:state.token_end]
            number = float(token)  # digits, point and exponent, as the parser has seen
            if not isfinite(number):
                field = "label" if status == FS_SVM_SLOW_LABEL else "value"
                raise ValueError(f"line {first_line + state.line}: the {field} is beyond the range of float64: "
                                 f"{token[:40].decode('ascii', 'replace')!r}")
            if status == FS_SVM_SLOW_LABEL:
                labels_v[state.rows] = number
            else:
                data_v[state.nnz - 1] = number
            continue
        stop = text.find(b"\n", state.pos)
        near = text[state.pos:min(stop if stop >= 0 else size, state.pos + 40)].decode("ascii", "replace")
        raise ValueError(f"line {first_line + state.line}: {reason(status)}, near {near!r}")
    return (labels[:state.rows], indptr[:state.rows + 1], indices[:state.nnz], data[:state.nnz],
            int(state.widest), int(state.line))
