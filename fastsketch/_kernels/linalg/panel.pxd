# csrc/fs_panel.h, where each loop is explained: one name for float and double.

from libc.stddef cimport ptrdiff_t

cdef extern from "fs_panel.h" nogil:
    int fs_panel_pays(ptrdiff_t m, size_t real)
    void panel_gram "fs_panel_gram"(ptrdiff_t m, ptrdiff_t n_columns, ptrdiff_t d, ptrdiff_t ld, const void* f,
                                    void* gram, void* pack, ptrdiff_t n_pack)
    void panel_rotate "fs_panel_rotate"(ptrdiff_t m, ptrdiff_t r, ptrdiff_t d, ptrdiff_t ld, void* f, const void* w,
                                        double* square, void* pack, ptrdiff_t n_pack)
