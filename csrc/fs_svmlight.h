/* Parser for blocks of svmlight / libsvm text: "label [qid:n] index:value ... [# comment]".
 * Numbers are decimal and finite, indices increase, lines end in \n or \r\n, and what is nothing of this is an error.
 *
 * A block is cut at line ends into parts by its size alone; they are counted, then parsed, on the pool's threads, each
 * into its own stretch of the arrays, and stretches that stay shorter than their bounds are drawn together.
 */
#ifndef FS_SVMLIGHT_H
#define FS_SVMLIGHT_H
#include "fs_common.h"
#include "fs_pool.h"

enum {
    FS_SVM_DONE = 0,
    FS_SVM_BAD_LABEL = -1,
    FS_SVM_BAD_INDEX = -2,
    FS_SVM_BAD_VALUE = -3,
    FS_SVM_ORDER = -4,  /* indices must increase within a row */
    FS_SVM_BASE = -5,   /* index 0 in a file read as one-based */
    FS_SVM_RANGE = -6,  /* index beyond int32 */
    FS_SVM_RETURN = -7, /* \r that does not belong to a newline */
    FS_SVM_BAD_QUERY = -8,
};

/* Lines of a block. */
typedef struct {
    ptrdiff_t from, stop;             /* bytes of the block's text */
    ptrdiff_t newlines, values;       /* at most so many rows and values */
    ptrdiff_t first_row, first_value; /* where their stretches begin */
    ptrdiff_t rows, nnz;              /* those found; with an error, also the row that is open */
    ptrdiff_t pos, line;              /* where reading ended, and newlines before it */
    ptrdiff_t slow;                   /* numbers that are left to fs_svm_place */
    int64_t widest;                   /* largest column plus 1 */
    int status;
} fs_svm_part;

typedef struct {
    const char *text;
    ptrdiff_t size; /* bytes of text, ending with a newline */
    int64_t base;   /* index that is column 0 in the file: 1 or 0 */
    ptrdiff_t n_parts;
    fs_svm_part part[FS_PARTS];
    ptrdiff_t rows, nnz; /* by fs_svm_cut bounds, by fs_svm_parse those found */
    ptrdiff_t pos, line; /* of the error, or of the end: bytes and newlines before it */
    ptrdiff_t slow;
    int64_t widest;
    double *labels, *data;
    int64_t *indptr;
    int32_t *indices;
} fs_svm_block;

/* Number of newlines and of colons. */
void fs_svm_count(const char *text, ptrdiff_t size, ptrdiff_t *newlines, ptrdiff_t *colons);

/* Cut text into parts of about so many bytes at least (a long line may leave less), and count rows and nnz. */
void fs_svm_cut(fs_svm_block *block, const char *text, ptrdiff_t size, ptrdiff_t least);

/* After it and with base set, parse into labels (rows), indptr (rows + 1), indices and data (nnz). Returns the status
 * of the first error, with what stands before it in the arrays. */
int fs_svm_parse(fs_svm_block *block, double *labels, int64_t *indptr, int32_t *indices, double *data);

/* A number that needs a full conversion, of which there are `slow`, is stored as a NaN that holds its place in the
 * text. That place, -1 for any other number; and the bytes up to the end of the number that starts at p. */
ptrdiff_t fs_svm_place(double value);
ptrdiff_t fs_svm_length(const char *p);

#endif
