/* Parser for blocks of svmlight / libsvm text: "label [qid:n] index:value ... [# comment]".
 * Numbers are decimal and finite, indices increase, lines end in \n or \r\n, and what is nothing of this is an error.
 */
#ifndef FS_SVMLIGHT_H
#define FS_SVMLIGHT_H
#include "fs_common.h"

/* Where a block is read from and how far it got.  Zero it (but for text, size and base) before the first call. */
typedef struct {
    const char *text;
    ptrdiff_t size;  /* bytes of text, ending with a newline */
    int64_t base;    /* index that is column 0 in the file: 1 or 0 */
    ptrdiff_t pos;   /* next byte to read */
    ptrdiff_t rows;  /* rows completed */
    ptrdiff_t nnz;   /* values stored */
    ptrdiff_t line;  /* newlines passed */
    int64_t last;    /* last column of the current row, -1 at its start */
    int64_t widest;  /* largest column so far plus 1 */
    int in_row;      /* 1: a label has been read and the line goes on; 2: a qid too */
    ptrdiff_t token; /* FS_SVM_SLOW: first and one past the last byte of the number to convert */
    ptrdiff_t token_end;
} fs_svm;

enum {
    FS_SVM_DONE = 0,
    FS_SVM_SLOW_LABEL = 1, /* text[token:token_end] needs a full conversion into labels[rows]; then call again */
    FS_SVM_SLOW_VALUE = 2, /* likewise into data[nnz - 1] */
    FS_SVM_BAD_LABEL = -1,
    FS_SVM_BAD_INDEX = -2,
    FS_SVM_BAD_VALUE = -3,
    FS_SVM_ORDER = -4,  /* indices must increase within a row */
    FS_SVM_BASE = -5,   /* index 0 in a file read as one-based */
    FS_SVM_RANGE = -6,  /* index beyond int32 */
    FS_SVM_RETURN = -7, /* \r that does not belong to a newline */
    FS_SVM_BAD_QUERY = -8,
};

/* Number of newlines and of colons: upper bounds for rows and values. */
void fs_svm_count(const char *text, ptrdiff_t size, ptrdiff_t *newlines, ptrdiff_t *colons);

int fs_svm_parse(fs_svm *state, double *labels, int64_t *indptr, int32_t *indices, double *data);

#endif
