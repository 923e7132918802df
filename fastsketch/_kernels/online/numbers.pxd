# Indices into the arrays that every online learner has, codes of methods, and the interface of a learner's state to the
# loops. Cython cimports this file; Python imports the same integers from fastsketch._kernels.online.numbers.

from libc.stdint cimport int32_t, int64_t

from fastsketch._kernels.online.rollback cimport Rollback

cpdef enum:
    # Entries of the array `count` (int64) of a state. An entry that a method does not use is zero.
    RANK = 0               # rank of the sketch
    ROWS = 1               # rows stored: of C (adaptive), of X (Newton)
    ROUND = 2              # examples seen
    MISTAKES = 3           # examples whose score had the wrong sign
    SEEN = 4               # slots in use (sparse rows), or columns (dense rows)
    OLD = 5                # columns of Z in C = [F Z'; X] (adaptive)
    TURNS = 6              # updates of T since it was last reorthonormalised (adaptive)
    COUNTS = 7             # length of the array

cpdef enum:
    # Entries of the array `scalar` (float64) of a state. An entry that a method does not use is zero.
    LOSS = 0               # cumulative loss
    THEIRS = 1             # cumulative loss of the comparator
    BEFORE = 2             # the model's cumulative loss when the comparison began
    RESIDUALS = 3          # weighted sum of squared residuals, for steps in units of residuals and for Huber's threshold
    WEIGHTS = 4            # sum of the weights in RESIDUALS
    DELTA = 5              # delta of H = delta I + ... (adaptive), stored with the first row
    SCALE = 6              # factor of base + Z b (adaptive)
    CLOCK = 7              # accumulated regularisation, which coordinates catch up with when they are used (diagonal)
    FADED = 8              # factor of the stored H: of squares (diagonal), of B'B + (alpha / FADED) I (Newton)
    ALPHA = 9              # regulariser of H (Newton); FADED has been applied to it
    SHRINKAGE = 10         # sum of the squared lengths that shrinks removed (Newton; adaptive: FTSL alone)
    FLOOR = 11             # first value of alpha, to which it is reset when decay has halved it
    BUFFERED = 12          # rows in the buffer of FD-SON (adaptive)
    SCALARS = 13           # length of the array

cpdef enum:
    # Which scores a Newton model projects into [-1, 1].
    UNCONSTRAINED = 0
    CURRENT = 1            # that of the example just learned
    NEXT = 2               # that of the next example, before it is scored
    BOTH = 3

cpdef enum:
    # When an adaptive sketch is shrunk: in every round, when it has twice its size, or never (rank up to d).
    EVERY_ROUND = 0
    WHEN_FULL = 1
    NEVER = 2

cdef enum:
    PART_WORK = 3000000          # multiplications that are worth a thread: about 100 us

cpdef enum:
    # Methods with a diagonal H.
    DIAGONAL = 0
    GRADIENT = 1
    ADAM = 2


cdef struct RowBlock:
    # Rows that states learn from.
    Py_ssize_t n
    const double* data           # dense rows one after the other, or the values of CSR rows
    const int32_t* slots         # column slots of CSR rows; NULL, as indptr, for dense rows
    const int64_t* indptr
    const double* sample_weight
    Py_ssize_t longest           # largest number of nonzeros in a row
    Py_ssize_t n_slots           # number of slots in use, including those of these rows


cdef struct Lesson:
    # What one state learns from a block.
    void* model
    const double* targets
    double* scores               # written: the score of each row before it was learned
    Py_ssize_t done              # rows learned; fewer than all if the next one is refused,
    bint lacks_room              # or finds no room in the arrays of sparse rows

# Let the states of some lessons learn from a block.
ctypedef void (*learn_t)(Lesson* lessons, Py_ssize_t n_lessons, const RowBlock* rows) noexcept nogil


cdef class StateArrays:
    cdef Py_buffer views[24]     # buffers of the arrays that the pointers of the rounds point into
    cdef int n_views
    cdef double[::1] scratch
    cdef void* model             # the struct that `learn_block` takes, owned by the subclass
    cdef learn_t learn_block
    cdef Py_ssize_t together     # number of lessons that one call of `learn_block` takes
    cdef double part_work        # multiplications that are worth a thread

    cdef void* pointer_to(self, array, bytes kind) except? NULL
    cdef double* doubles(self, array) except? NULL
    cdef double work(self, double n_values, double n) noexcept nogil
    cdef bint is_ready(self, const RowBlock* rows) noexcept nogil
    cdef bint takes_in_whole(self) noexcept nogil
    cdef void save_before(self, Rollback* before, const RowBlock* rows) noexcept nogil


cdef inline double* place(double** at, Py_ssize_t n) noexcept nogil:
    # Return the next n doubles of a scratch array and advance `at` past them.
    cdef double* here = at[0]
    at[0] = here + n
    return here
