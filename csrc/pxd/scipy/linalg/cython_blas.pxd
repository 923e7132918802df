# See __init__.pxd. Arguments are those of BLAS, by address, in their order.

ctypedef float s
ctypedef double d

cdef void sgemm(char*, char*, int*, int*, int*, s*, s*, int*, s*, int*, s*, s*, int*) noexcept nogil
cdef void dgemm(char*, char*, int*, int*, int*, d*, d*, int*, d*, int*, d*, d*, int*) noexcept nogil
cdef void sgemv(char*, int*, int*, s*, s*, int*, s*, int*, s*, s*, int*) noexcept nogil
cdef void dgemv(char*, int*, int*, d*, d*, int*, d*, int*, d*, d*, int*) noexcept nogil
cdef void ssymv(char*, int*, s*, s*, int*, s*, int*, s*, s*, int*) noexcept nogil
cdef void dsymv(char*, int*, d*, d*, int*, d*, int*, d*, d*, int*) noexcept nogil
cdef void ssyrk(char*, char*, int*, int*, s*, s*, int*, s*, s*, int*) noexcept nogil
cdef void dsyrk(char*, char*, int*, int*, d*, d*, int*, d*, d*, int*) noexcept nogil
cdef d ddot(int*, d*, int*, d*, int*) noexcept nogil
