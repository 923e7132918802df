# Whether a call keeps the interpreter's lock. To give it away takes nothing, to get it back from another Python thread
# that learns row by row takes a switch of threads, as long as a round: two such threads would be slower than one.

cdef enum:
    BRIEF = 32768                # multiplications: about ten microseconds


cdef inline bint is_brief(Py_ssize_t rows, Py_ssize_t multiplications) noexcept nogil:
    return rows * multiplications <= BRIEF
