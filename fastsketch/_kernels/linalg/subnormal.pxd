# csrc/fs_subnormal.h, where it is explained.

from libc.stdint cimport uint64_t

cdef extern from "fs_subnormal.h" nogil:
    uint64_t fs_subnormal_off()
    void fs_subnormal_back(uint64_t was)
