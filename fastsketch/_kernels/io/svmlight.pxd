# csrc/fs_svmlight.h, where each function is explained.

from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int32_t, int64_t


cdef extern from "fs_svmlight.h" nogil:
    ctypedef struct fs_svm:
        const char *text
        ptrdiff_t size
        int64_t base
        ptrdiff_t pos, rows, nnz, line, token, token_end
        int64_t last, widest
        int in_row
    int FS_SVM_DONE, FS_SVM_SLOW_LABEL, FS_SVM_SLOW_VALUE
    int FS_SVM_BAD_LABEL, FS_SVM_BAD_INDEX, FS_SVM_BAD_VALUE, FS_SVM_ORDER, FS_SVM_BASE, FS_SVM_RANGE
    int FS_SVM_RETURN, FS_SVM_BAD_QUERY
    void fs_svm_count(const char *text, ptrdiff_t size, ptrdiff_t *newlines, ptrdiff_t *colons)
    int fs_svm_parse(fs_svm *state, double *labels, int64_t *indptr, int32_t *indices, double *data)
