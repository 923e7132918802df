# csrc/fs_panel.h, where each loop is explained: one name for float and double.

from libc.stddef cimport ptrdiff_t

from fastsketch._kernels.linalg.blas cimport real


cdef extern from "fs_panel.h" nogil:
    int fs_panel_pays(ptrdiff_t m, size_t real)
    void fs_panel_gram_s(ptrdiff_t m, ptrdiff_t n_columns, ptrdiff_t d, const float *f, float *gram, float *pack,
                         ptrdiff_t n_pack)
    void fs_panel_gram_d(ptrdiff_t m, ptrdiff_t n_columns, ptrdiff_t d, const double *f, double *gram, double *pack,
                         ptrdiff_t n_pack)
    void fs_panel_rotate_s(ptrdiff_t m, ptrdiff_t r, ptrdiff_t d, float *f, const float *w, double *square,
                           float *pack, ptrdiff_t n_pack)
    void fs_panel_rotate_d(ptrdiff_t m, ptrdiff_t r, ptrdiff_t d, double *f, const double *w, double *square,
                           double *pack, ptrdiff_t n_pack)


cdef inline void panel_gram(Py_ssize_t m, Py_ssize_t n_columns, Py_ssize_t d, const real* f, real* gram, real* pack,
                            Py_ssize_t n_pack) noexcept nogil:
    if real is float:
        fs_panel_gram_s(m, n_columns, d, f, gram, pack, n_pack)
    else:
        fs_panel_gram_d(m, n_columns, d, f, gram, pack, n_pack)


cdef inline void panel_rotate(Py_ssize_t m, Py_ssize_t r, Py_ssize_t d, real* f, const real* w, double* square,
                              real* pack, Py_ssize_t n_pack) noexcept nogil:
    if real is float:
        fs_panel_rotate_s(m, r, d, f, w, square, pack, n_pack)
    else:
        fs_panel_rotate_d(m, r, d, f, w, square, pack, n_pack)
