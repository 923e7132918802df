# csrc/fs_table.h, where each function is explained.

from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int32_t, int64_t


cdef extern from "fs_table.h" nogil:
    ctypedef struct fs_table_block:
        char delimiter
        char decimal
        ptrdiff_t width, n
        const int32_t *places
        ptrdiff_t rows, pos, line, column, slow, missing
    int FS_TABLE_DONE
    int FS_TABLE_FEW, FS_TABLE_MANY, FS_TABLE_WORD, FS_TABLE_OPEN, FS_TABLE_AFTER, FS_TABLE_QUOTE, FS_TABLE_RETURN
    void fs_table_cut(fs_table_block *block, const char *text, ptrdiff_t size, ptrdiff_t width, ptrdiff_t least)
    int fs_table_parse(fs_table_block *block, double *out, int64_t *beside)
    ptrdiff_t fs_table_place(double value)
    ptrdiff_t fs_table_length(const char *p, char decimal)
