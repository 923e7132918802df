# csrc/fs_panel.h, where each loop is explained: one name for float and double.

from libc.stddef cimport ptrdiff_t

from fastsketch._kernels.linalg.blas cimport real


cdef extern from "fs_panel.h" nogil:
    int fs_panel_pays(ptrdiff_t m, size_t real)
    void fs_panel_gram_s(ptrdiff_t m, ptrdiff_t n_columns, ptrdiff_t d, ptrdiff_t ld, const float *f, float *gram,
                         float *pack, ptrdiff_t n_pack)
    void fs_panel_gram_d(ptrdiff_t m, ptrdiff_t n_columns, ptrdiff_t d, ptrdiff_t ld, const double *f, double *gram,
                         double *pack, ptrdiff_t n_pack)
    void fs_panel_rotate_s(ptrdiff_t m, ptrdiff_t r, ptrdiff_t d, ptrdiff_t ld, float *f, const float *w,
                           double *square, float *pack, ptrdiff_t n_pack)
    void fs_panel_rotate_d(ptrdiff_t m, ptrdiff_t r, ptrdiff_t d, ptrdiff_t ld, double *f, const double *w,
                           double *square, double *pack, ptrdiff_t n_pack)


cdef inline void panel_gram(Py_ssize_t m, Py_ssize_t n_columns, Py_ssize_t d, Py_ssize_t ld, const real* f, real* gram,
                            real* pack, Py_ssize_t n_pack) noexcept nogil:
    if real is float:
        fs_panel_gram_s(m, n_columns, d, ld, f, gram, pack, n_pack)
    else:
        fs_panel_gram_d(m, n_columns, d, ld, f, gram, pack, n_pack)


cdef inline void panel_rotate(Py_ssize_t m, Py_ssize_t r, Py_ssize_t d, Py_ssize_t ld, real* f, const real* w,
                              double* square, real* pack, Py_ssize_t n_pack) noexcept nogil:
    if real is float:
        fs_panel_rotate_s(m, r, d, ld, f, w, square, pack, n_pack)
    else:
        fs_panel_rotate_d(m, r, d, ld, f, w, square, pack, n_pack)
