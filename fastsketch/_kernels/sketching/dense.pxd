# The buffer of dense rows, for kernels that fill buffers by themselves.

from fastsketch._kernels.linalg.blas cimport real, blas_int
from fastsketch._kernels.sketching.state cimport SketchState


cdef class DenseState(SketchState):
    cdef readonly int solver
    cdef readonly object buffer          # (capacity, d), used from its end: see sketching/_engines/_dense_engine.py
    cdef readonly double[:, ::1] cov     # (d, d) of solver exact: the lower triangle, column-major; else empty
    cdef object part                     # (d, d) scratch of solver exact in float32
    cdef object work
    cdef double[::1] square
    cdef double[::1] small
    cdef blas_int[::1] iwork


cdef int settle(DenseState s, real* buffer) noexcept nogil
cdef int flush(DenseState s, real* buffer, real* part, real* work, Py_ssize_t lwork) noexcept nogil
