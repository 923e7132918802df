# One level for all modules of the process: each that has C loops calls follow() when it is imported.

cdef extern from "fs_level.h" nogil:
    void fs_level_share(const int *level)

cdef const int* level_at() noexcept


cdef inline void follow() noexcept:
    # every module has a copy of csrc/fs_level.c: from here on it reads the level of module `level`
    fs_level_share(level_at())
