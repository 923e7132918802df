"""Hamming distances between packed binary codes, and exact nearest neighbours."""

from fastsketch._kernels.level cimport follow

import numpy as np


follow()


cdef padded(const uint8_t[:, ::1] codes):
    """The codes as rows of whole 64-bit words, zero-padded."""
    cdef Py_ssize_t n = codes.shape[0], n_bytes = codes.shape[1]
    out = np.zeros((n, fs_hamming_words(n_bytes)), np.uint64)
    cdef uint64_t[:, ::1] words = out
    if n:
        fs_hamming_pad(n, n_bytes, &codes[0, 0], &words[0, 0])
    return out


def distances(const uint8_t[:, ::1] queries, const uint8_t[:, ::1] codes):
    """Bits that differ, int32 (queries, codes)."""
    cdef Py_ssize_t m = queries.shape[0], n = codes.shape[0], n_bytes = codes.shape[1]
    cdef uint64_t[:, ::1] words = padded(queries)
    cdef uint64_t[::1] tile = np.zeros(words.shape[1] * FS_HAMMING_TILE, np.uint64)
    out = np.empty((m, n), np.int32)
    cdef int32_t[:, ::1] d = out
    if m and n:
        with nogil:
            fs_hamming_distances(m, &words[0, 0], n, n_bytes, &codes[0, 0], &tile[0], &d[0, 0], n)
    return out


def topk(const uint8_t[:, ::1] queries, const uint8_t[:, ::1] codes, Py_ssize_t k):
    """The k <= len(codes) nearest codes of every query: distances int32 and indices int64, ascending by both."""
    cdef Py_ssize_t m = queries.shape[0], n = codes.shape[0], n_bytes = codes.shape[1]
    cdef uint64_t[:, ::1] words = padded(queries)
    cdef uint64_t[::1] tile = np.zeros(words.shape[1] * FS_HAMMING_TILE, np.uint64)
    found, where = np.empty((m, k), np.int32), np.empty((m, k), np.int64)
    cdef int32_t[:, ::1] d = found
    cdef int64_t[:, ::1] i = where
    if m and k:
        with nogil:
            fs_hamming_topk(m, &words[0, 0], n, n_bytes, &codes[0, 0], k, &tile[0], &d[0, 0], &i[0, 0])
    return found, where
