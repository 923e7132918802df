from fastsketch._kernels.linalg.blas cimport real

# What a sketch knows, beyond its rows, of the k <= l directions V that it keeps (orthonormal, as rows).


cdef class Ledger:
    cdef public Py_ssize_t n_spare          # directions that a shrink leaves as they are
    cdef readonly double[:, ::1] seen       # V A'A V' as far as rows and shrinks inside the span of V show it
    cdef readonly double[:, ::1] leaked     # what V is likely to hold of rows lost before its directions came in
    cdef public double lost                 # trace of A'A less that of `seen`
    cdef char[::1] spared                   # of the present shrink
    cdef double[::1] turn                   # scratch, twice (n_keep + 1)^2
    cdef double[::1] lever                  # scratch, n_keep * (capacity + 1)


cdef void weaken(Ledger ledger, double factor) noexcept nogil
cdef int post(Ledger ledger, Py_ssize_t m, Py_ssize_t kept, Py_ssize_t d, Py_ssize_t n_keep, const real* u,
              Py_ssize_t next_vector, Py_ssize_t next_row, Py_ssize_t first, Py_ssize_t step, const real* w,
              Py_ssize_t next_value, Py_ssize_t n_values, bint roots, const double* lam) noexcept nogil
