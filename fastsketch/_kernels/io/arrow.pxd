# csrc/fs_arrow.h and csrc/fs_columns.h, the latter with one name for float and double.

from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int64_t

from fastsketch._kernels.linalg.blas cimport real


cdef extern from "fs_arrow.h" nogil:
    struct ArrowSchema:
        const char* format
        const char* name
        int64_t n_children
        ArrowSchema** children
        ArrowSchema* dictionary
        void (*release)(ArrowSchema*) noexcept nogil

    struct ArrowArray:
        int64_t length
        int64_t null_count
        int64_t offset
        int64_t n_buffers
        int64_t n_children
        const void** buffers
        ArrowArray** children
        ArrowArray* dictionary
        void (*release)(ArrowArray*) noexcept nogil

    struct ArrowArrayStream:
        int (*get_schema)(ArrowArrayStream*, ArrowSchema*) noexcept nogil
        int (*get_next)(ArrowArrayStream*, ArrowArray*) noexcept nogil
        const char* (*get_last_error)(ArrowArrayStream*) noexcept nogil
        void (*release)(ArrowArrayStream*) noexcept nogil

cdef extern from "fs_columns.h" nogil:
    int fs_columns_s(ptrdiff_t n, ptrdiff_t d, const float* const* column, float* out, ptrdiff_t ld)
    int fs_columns_d(ptrdiff_t n, ptrdiff_t d, const double* const* column, double* out, ptrdiff_t ld)


cdef inline int columns(ptrdiff_t n, ptrdiff_t d, const real** column, real* out, ptrdiff_t ld) noexcept nogil:
    if real is float:
        return fs_columns_s(n, d, <const float* const*> column, out, ld)
    else:
        return fs_columns_d(n, d, <const double* const*> column, out, ld)
