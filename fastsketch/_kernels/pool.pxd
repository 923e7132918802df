# Work in parts on the threads of one pool (csrc/fs_pool.h): each module that has such work calls join() when it is
# imported; without it, the parts run one after the other.

cdef extern from "fs_pool.h" nogil:
    ctypedef void (*fs_part)(void *context, ptrdiff_t part, void *scratch) noexcept nogil
    ctypedef struct fs_pool_service:
        pass
    enum:
        FS_PARTS
    void fs_pool_share(const fs_pool_service *service)
    void fs_pool_run(ptrdiff_t n_parts, fs_part part, void *context, void *scratch, size_t bytes)
    ptrdiff_t fs_pool_parts(double work, double least)
    ptrdiff_t fs_pool_from(ptrdiff_t n, ptrdiff_t n_parts, ptrdiff_t part, ptrdiff_t step)
    void fs_blas_alone(int enter)

cdef const fs_pool_service* service_at() except NULL


cdef inline int join() except -1:
    fs_pool_share(service_at())
    return 0
