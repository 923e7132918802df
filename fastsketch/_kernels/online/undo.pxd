# What a few rows may change, kept before they are learned from: a batch is learned from in whole or not at all.

from libc.stddef cimport size_t
from libc.stdint cimport int32_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy

cdef enum:
    MOST_KEPT = 64               # arrays of two states and of the moments: about 30


cdef struct Piece:
    # part of an array, or of an array of doubles the entries of some slots
    char* at
    size_t size                  # bytes that are kept
    size_t start                 # of these in the copies
    const int32_t* slots         # NULL: all that follows `at`


cdef struct Undo:
    char* copies
    size_t room, used
    int n
    bint lacks_memory
    Piece[MOST_KEPT] pieces


cdef inline Piece* _next_piece(Undo* u, void* at, size_t size) noexcept nogil:
    cdef char* copies
    cdef Piece* piece
    if at == NULL or size == 0:
        return NULL
    if u.n == MOST_KEPT:
        u.lacks_memory = True
        return NULL
    if u.used + size > u.room:
        copies = <char*> realloc(u.copies, 2 * (u.used + size))
        if copies == NULL:
            u.lacks_memory = True
            return NULL
        u.copies, u.room = copies, 2 * (u.used + size)
    piece = &u.pieces[u.n]
    piece.at, piece.size, piece.start, piece.slots = <char*> at, size, u.used, NULL
    u.n += 1
    u.used += size
    return piece


cdef inline void keep(Undo* u, void* at, size_t size) noexcept nogil:
    """Keep `size` bytes from `at` on; nothing of NULL."""
    cdef Piece* piece = _next_piece(u, at, size)
    if piece != NULL:
        memcpy(u.copies + piece.start, at, size)


cdef inline void keep_entries(Undo* u, double* array, const int32_t* slots, Py_ssize_t n) noexcept nogil:
    """Keep the entries of an array at n slots."""
    cdef Piece* piece = _next_piece(u, array, n * sizeof(double))
    cdef Py_ssize_t i
    if piece != NULL:
        piece.slots = slots
        for i in range(n):
            (<double*> (u.copies + piece.start))[i] = array[slots[i]]


cdef inline void take_back(Undo* u) noexcept nogil:
    """Write all that was kept to where it was."""
    cdef Py_ssize_t i, j
    cdef Piece* piece
    cdef double* values
    for i in range(u.n):
        piece = &u.pieces[i]
        if piece.slots == NULL:
            memcpy(piece.at, u.copies + piece.start, piece.size)
            continue
        values = <double*> (u.copies + piece.start)
        for j in range(<Py_ssize_t> (piece.size // sizeof(double))):
            (<double*> piece.at)[piece.slots[j]] = values[j]
