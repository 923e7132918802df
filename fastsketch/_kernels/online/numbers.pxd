# The one declaration of what online models and their loops know by number: Cython cimports it, Python imports the same
# integers from fastsketch._kernels.online.numbers.

from libc.stdint cimport int32_t, int64_t

from fastsketch._kernels.online.undo cimport Undo

cpdef enum:
    # Entries of `count` (int64) of a model; one that its method has no use for is zero.
    RANK = 0               # directions held
    ROWS = 1               # rows held: of C (adaptive), of X (Newton)
    ROUND = 2              # examples seen
    MISTAKES = 3           # signs predicted wrongly
    SEEN = 4               # slots that have occurred; columns of dense rows
    OLD = 5                # columns of Z in C = [F Z'; X] (adaptive)
    TURNS = 6              # turns of T since the last polish (adaptive)
    COUNTS = 7             # how many there are

cpdef enum:
    # Entries of `scalar` (float64) of a model, likewise.
    LOSS = 0               # cumulative
    THEIRS = 1             # the comparator's loss
    BEFORE = 2             # the model's own loss when the comparison began
    RESIDUALS = 3          # of steps in units of residuals, and of the threshold of huber: their weighted squares' sum
    WEIGHTS = 4            # and that of the weights
    DELTA = 5              # of H (adaptive), decided with the first row, also for a later version
    SCALE = 6              # what base and Z b are to be multiplied with (adaptive)
    CLOCK = 7              # what a regulariser has pulled (diagonal)
    FADED = 8              # what H as stored is to be multiplied with: squares (diagonal), B'B + alpha I (Newton)
    ALPHA = 9              # regulariser of H (Newton), which FADED is in
    SHRINKAGE = 10         # sum of the squared lengths that shrinks removed
    FLOOR = 11             # alpha is put back to it when it has faded to less than half
    BUFFERED = 12          # rows in the buffer of FD-SON (adaptive)
    SCALARS = 13

cpdef enum:
    # Which predictions a Newton model keeps within [-1, 1].
    UNCONSTRAINED = 0
    CURRENT = 1            # of the example just learned from
    NEXT = 2               # of the next one, before it is predicted
    BOTH = 3

cpdef enum:
    # What limits the rank of an adaptive sketch: a shrink in every round, a shrink at twice its size, nothing but d.
    EVERY_ROUND = 0
    WHEN_FULL = 1
    NEVER = 2

cpdef enum:
    # Methods with a diagonal H.
    DIAGONAL = 0
    GRADIENT = 1
    ADAM = 2


cdef struct FewRowsOf:
    # a batch of a few rows, dense or CSR in slots, as a state is given it
    Py_ssize_t n
    const double* data
    const int32_t* slots         # NULL, as indptr: of dense rows
    const int64_t* indptr
    Py_ssize_t longest           # nonzeros of a row
    Py_ssize_t n_slots           # that there are, these rows' among them


cdef class StateArrays:
    cdef Py_buffer views[24]     # of the arrays that pointers point to
    cdef int n_views
    cdef double[::1] scratch

    cdef void* pointer_to(self, array, bytes kind) except? NULL
    cdef bint is_ready(self, const FewRowsOf* rows) noexcept nogil
    cdef bint takes_in_whole(self) noexcept nogil
    cdef void keep_before(self, Undo* undo, const FewRowsOf* rows) noexcept nogil
    cdef bint learn_few(self, const FewRowsOf* rows, const double* targets, const double* weights,
                        double* scores) noexcept nogil


cdef inline double* place(double** at, Py_ssize_t n) noexcept nogil:
    # n doubles of scratch, after those that have been placed
    cdef double* here = at[0]
    at[0] = here + n
    return here
