"""Blocks of svmlight text to CSR arrays."""
from libc.stddef cimport ptrdiff_t
from libc.math cimport isfinite
from libc.stdint cimport int32_t, int64_t

from fastsketch._kernels.level cimport follow
from fastsketch._kernels.pool cimport join

import numpy as np


follow()
join()


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


# Parts take at least 200 us, in which a thread of the pool is worth its waking.
LEAST = 64 << 10


def parse_block(const unsigned char[::1] text, *, bint zero_based=False, Py_ssize_t first_line=1, Py_ssize_t least=LEAST):
    """(labels, indptr, indices, data, number of columns, newlines) of whole lines; the text must end in a newline.

    Numbers are decimal and finite. Raises ValueError with the line number (the first line of the block is `first_line`)
    and the reason. Parts of the text have about `least` bytes at least.
    """
    cdef fs_svm_block block
    cdef Py_ssize_t size = text.shape[0]
    cdef const char* raw = <const char*> &text[0] if size else NULL
    cdef int status
    with nogil:
        fs_svm_cut(&block, raw, size, least)
    block.base = 0 if zero_based else 1
    labels = np.empty(block.rows + 1)
    indptr = np.empty(block.rows + 2, np.int64)
    indices = np.empty(block.nnz + 1, np.int32)
    data = np.empty(block.nnz + 1)
    cdef double[::1] labels_v = labels, data_v = data
    cdef int64_t[::1] indptr_v = indptr
    cdef int32_t[::1] indices_v = indices
    with nogil:
        status = fs_svm_parse(&block, &labels_v[0], &indptr_v[0], &indices_v[0], &data_v[0])
    if block.slow:
        bad = sorted(_convert(raw, labels_v[:block.rows], "label") + _convert(raw, data_v[:block.nnz], "value"))
        if bad:
            place, token, field = bad[0]
            line = first_line + (<bytes> raw[:place]).count(b"\n")
            raise ValueError(f"line {line}: the {field} is beyond the range of float64: "
                             f"{token[:40].decode('ascii', 'replace')!r}")
    if status != FS_SVM_DONE:
        rest = <bytes> raw[block.pos:min(size, block.pos + 40)]
        near = rest.split(b"\n")[0].decode("ascii", "replace")
        raise ValueError(f"line {first_line + block.line}: {reason(status)}, near {near!r}")
    return (labels[:block.rows], indptr[:block.rows + 1], indices[:block.nnz], data[:block.nnz],
            int(block.widest), int(block.line))


cdef list _convert(const char* text, double[::1] values, str field):
    # digits, point and exponent, as the parser has seen: what remains is to round them, or to find them beyond float64
    cdef Py_ssize_t i
    cdef ptrdiff_t place
    cdef list bad = []
    for i in range(values.shape[0]):
        place = fs_svm_place(values[i])
        if place >= 0:
            token = <bytes> text[place:place + fs_svm_length(text + place)]
            values[i] = float(token)
            if not isfinite(values[i]):
                bad.append((place, token, field))
    return bad
