# Copies of the memory that learning a block of rows may change. They are written back if a row is refused, so that a
# batch is learned as a whole or not at all.

from libc.stddef cimport size_t
from libc.stdint cimport int32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy


cdef struct Piece:
    char* at                     # the memory that was copied
    size_t size                  # number of bytes
    size_t start                 # offset of the copy in `copies`
    const int32_t* slots         # the entries of the array of doubles `at` that were copied; NULL: `size` bytes from `at`


cdef struct Rollback:
    char* copies
    size_t room, used            # bytes of `copies`: allocated, in use
    Piece* pieces
    size_t pieces_room, n        # pieces: allocated, in use
    bint lacks_memory


cdef inline bint _reserve(void** memory, size_t* room, size_t size) noexcept nogil:
    # Let `memory` have at least `size` bytes, twice as many if it has to grow; return False if there is no memory.
    cdef void* grown
    if size <= room[0]:
        return True
    grown = realloc(memory[0], 2 * size)
    if grown == NULL:
        return False
    memory[0], room[0] = grown, 2 * size
    return True


cdef inline char* _next_copy(Rollback* u, void* at, size_t size, const int32_t* slots) noexcept nogil:
    """Register a piece of `size` bytes and return where its copy goes, or NULL if nothing is to be copied."""
    cdef Piece* piece
    if at == NULL or size == 0:
        return NULL
    if not (_reserve(<void**> &u.copies, &u.room, u.used + size)
            and _reserve(<void**> &u.pieces, &u.pieces_room, (u.n + 1) * sizeof(Piece))):
        u.lacks_memory = True
        return NULL
    piece = &u.pieces[u.n]
    piece.at, piece.size, piece.start, piece.slots = <char*> at, size, u.used, slots
    u.n += 1
    u.used += (size + 7) & ~<size_t> 7  # so that the next copy may be one of doubles
    return u.copies + piece.start


cdef inline void save_array(Rollback* u, void* at, size_t size) noexcept nogil:
    """Copy `size` bytes from `at` on; nothing if `at` is NULL."""
    cdef char* copy = _next_copy(u, at, size, NULL)
    if copy != NULL:
        memcpy(copy, at, size)


cdef inline void save_entries(Rollback* u, double* array, const int32_t* slots, Py_ssize_t n) noexcept nogil:
    """Copy the entries of an array at n slots; nothing if `array` is NULL. `slots` must outlive the rollback."""
    cdef double* copy = <double*> _next_copy(u, array, n * sizeof(double), slots)
    cdef Py_ssize_t i
    if copy != NULL:
        for i in range(n):
            copy[i] = array[slots[i]]


cdef inline void restore(const Rollback* u) noexcept nogil:
    """Write all copies back."""
    cdef size_t i, j
    cdef const Piece* piece
    cdef const double* values
    for i in range(u.n):
        piece = &u.pieces[i]
        if piece.slots == NULL:
            memcpy(piece.at, u.copies + piece.start, piece.size)
            continue
        values = <const double*> (u.copies + piece.start)
        for j in range(piece.size // sizeof(double)):
            (<double*> piece.at)[piece.slots[j]] = values[j]


cdef inline void release(Rollback* u) noexcept nogil:
    """Free the copies."""
    free(u.copies)
    free(u.pieces)
