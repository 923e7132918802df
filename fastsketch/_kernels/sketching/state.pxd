# The state of a sketch: Python reads and writes these fields by name (sketching/_engines), kernels use them in place.
# Arrays with the dtype of the sketch are plain objects, which a kernel converts to typed views once per call.

cpdef enum:
    # how a shrink is computed
    GRAM = 0
    SVD = 1
    EXACT = 2

cpdef enum:
    # Retained rows are orthogonal by construction, up to rounding that accumulates from shrink to shrink. Computing
    # their Gram matrix in full every REFRESH shrinks costs 1 / (7 REFRESH) of the time, and stops the accumulation,
    # which in float32 would otherwise bias the shrinkage.
    REFRESH = 16

    # Bound on the rounding of one shrink, in units of the largest eigenvalue. Measured on 500 streams and their merges:
    # up to 12, mostly because LAPACK's eigenvectors are not quite orthogonal; far less in long streams, where the Gram
    # matrix is nearly diagonal.
    ROUNDING_PER_SHRINK = 16

    # The same for gesdd, whose vectors become the rows unchanged: measured up to 24 on 6,000 buffers.
    ROUNDING_PER_SVD = 48


from fastsketch._kernels.sketching.ledger cimport Ledger, weaken


cdef class SketchState:
    cdef readonly Py_ssize_t capacity      # rows of the buffer
    cdef readonly Py_ssize_t n_features
    cdef public Py_ssize_t n_keep          # rows that a shrink retains: sketch_size - 1, or fewer in a last shrink
    cdef public Py_ssize_t n_spare         # of these, the number that keep their length
    cdef readonly bint center
    cdef readonly double decay

    # sums
    cdef public double shrinkage           # Delta, the sum of the squared singular values removed
    cdef public double squared_norm        # sum of squared norms of the (weighted, centred, decayed) rows
    cdef public double weight              # sum of the (decayed) weights of all rows seen
    cdef public double settled_weight      # the part of weight that `mean` already contains (centred sketches)
    cdef public double rounding            # square of the allowance for rounding in the certificate

    # counts
    cdef public Py_ssize_t fill            # rows in the buffer: kept + new
    cdef public Py_ssize_t kept            # rows of the buffer that a shrink or a merge has retained
    cdef public Py_ssize_t age             # shrinks since the retained rows' Gram matrix was computed in full; -1: never
    cdef public Py_ssize_t n_rows          # rows seen
    cdef public Py_ssize_t exponent        # everything is stored divided by 2**exponent (squares by 4**exponent)
    cdef public Py_ssize_t top             # binary exponent of the largest |entry| seen

    # arrays
    cdef readonly double[::1] lam          # squared norms of the kept rows, longest first
    cdef readonly double[::1] gain         # retained row i represents gain[i] times its stored entries
    cdef readonly double[::1] mean         # of the settled rows; empty if the sketch does not centre
    cdef readonly double[::1] mean_low     # the mean is mean + mean_low: see csrc/fs_rows.h
    cdef readonly double[::1] root         # roots of the weights of the new rows (and of their decay, once settled)
    cdef double[::1] base                  # scratch of centring
    cdef double[::1] shift
    cdef public Ledger ledger              # of method "tfd", else None


cdef inline void decay_kept(SketchState s, double power, double factor) noexcept nogil:
    # multiply the weight of settled rows by power = factor^2
    cdef Py_ssize_t i
    for i in range(s.kept):
        s.gain[i] *= factor
        s.lam[i] *= power
    if s.ledger is not None:
        weaken(s.ledger, power)
    s.shrinkage *= power
    s.rounding *= power * power
    s.settled_weight *= power
    if s.center:
        s.squared_norm *= power
