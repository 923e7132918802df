# csrc/fs_svmlight.h, where each function is explained.

from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int32_t, int64_t


cdef extern from "fs_svmlight.h" nogil:
    ctypedef struct fs_svm_block:
        int64_t base
        ptrdiff_t rows, nnz, pos, line, slow
        int64_t widest
    int FS_SVM_DONE
    int FS_SVM_BAD_LABEL, FS_SVM_BAD_INDEX, FS_SVM_BAD_VALUE, FS_SVM_ORDER, FS_SVM_BASE, FS_SVM_RANGE
    int FS_SVM_RETURN, FS_SVM_BAD_QUERY
    void fs_svm_cut(fs_svm_block *block, const char *text, ptrdiff_t size, ptrdiff_t least)
    int fs_svm_parse(fs_svm_block *block, double *labels, int64_t *indptr, int32_t *indices, double *data)
    ptrdiff_t fs_svm_place(double value)
    ptrdiff_t fs_svm_length(const char *p)
