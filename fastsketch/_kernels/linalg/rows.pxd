# csrc/fs_rows.h, where each loop is explained: one name for float and double.

from libc.stddef cimport ptrdiff_t

cdef extern from "fs_rows.h" nogil:
    ptrdiff_t scan_rows "fs_check_rows"(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const void* x, double* largest)
    void load_rows "fs_load_rows"(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const void* x, const double* root_weight,
                                  ptrdiff_t root_step, double scale, void* out, ptrdiff_t ld_out, double* square)
    void square_rows "fs_square_rows"(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const void* x, double* square)
    void centre_rows "fs_centre_rows"(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, void* x, void* correction,
                                      const double* root_weight, double old_weight, double block_weight, double* mean,
                                      double* low, double* base, double* shift)
    void fs_move_mean(ptrdiff_t d, double old_weight, double block_weight, double *mean, double *low, double *base,
                      const double *shift)
