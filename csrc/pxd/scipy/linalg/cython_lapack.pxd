# See __init__.pxd. Arguments are those of LAPACK, by address, in their order.

ctypedef float s
ctypedef double d

cdef void ssytrd(char*, int*, s*, int*, s*, s*, s*, s*, int*, int*) noexcept nogil
cdef void dsytrd(char*, int*, d*, int*, d*, d*, d*, d*, int*, int*) noexcept nogil
cdef void sstedc(char*, int*, s*, s*, s*, int*, s*, int*, int*, int*, int*) noexcept nogil
cdef void dstedc(char*, int*, d*, d*, d*, int*, d*, int*, int*, int*, int*) noexcept nogil
cdef void sormtr(char*, char*, char*, int*, int*, s*, int*, s*, s*, int*, s*, int*, int*) noexcept nogil
cdef void dormtr(char*, char*, char*, int*, int*, d*, int*, d*, d*, int*, d*, int*, int*) noexcept nogil
cdef void slarft(char*, char*, int*, int*, s*, int*, s*, s*, int*) noexcept nogil
cdef void dlarft(char*, char*, int*, int*, d*, int*, d*, d*, int*) noexcept nogil
cdef void sgesdd(char*, int*, int*, s*, int*, s*, s*, int*, s*, int*, s*, int*, int*, int*) noexcept nogil
cdef void dgesdd(char*, int*, int*, d*, int*, d*, d*, int*, d*, int*, d*, int*, int*, int*) noexcept nogil
cdef void ssyevd(char*, char*, int*, s*, int*, s*, s*, int*, int*, int*, int*) noexcept nogil
cdef void dsyevd(char*, char*, int*, d*, int*, d*, d*, int*, int*, int*, int*) noexcept nogil
