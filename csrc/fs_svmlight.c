#include "fs_svmlight.h"

#include <string.h>

#include "fs_level.h"
#include "fs_number.h"

static int is_blank(char c) { return c == ' ' || c == '\t'; }
static int is_end(char c) { return is_blank(c) || c == '\r' || c == '\n' || c == '#'; }
/* Carriage returns belong to the newline after them; one anywhere else may be meant for the end of a line. */
static int is_lone_return(const char *p, const char *stop)
{
    return *p == '\r' && stop - p > 1 && p[1] != '\r' && p[1] != '\n';
}

#define FS_FROM_AVX2
#define TYPED(verb) verb
#define FS_LOOPS "fs_count.inc.h"
#include "fs_each_level.inc.h"

/* The number that starts at p and must stop at a blank, a newline or '#': see fs_read_number. */
static int read_number(const char *p, const char *stop, double *value, const char **end)
{
    const int kind = fs_read_number(p, stop, '.', value, end);
    return kind >= 0 && *end < stop && is_end(**end) ? kind : -1; /* nan, inf, trailing letters, a second point, ... */
}

/* Its place in the text, within the bits of a quiet NaN: numbers that are read are finite. */
static const uint64_t quiet_nan = UINT64_C(0x7ff8) << 48;

static void leave_to_python(double *value, ptrdiff_t place)
{
    const uint64_t bits = quiet_nan | (uint64_t)place;
    memcpy(value, &bits, sizeof bits);
}

ptrdiff_t fs_svm_place(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (bits & quiet_nan) == quiet_nan ? (ptrdiff_t)(bits & ~quiet_nan) : -1;
}

ptrdiff_t fs_svm_length(const char *p)
{
    const char *end = p;
    while (!is_end(*end))
        end++;
    return end - p;
}

static void count_part(void *context, ptrdiff_t k, void *scratch)
{
    fs_svm_block *block = context;
    fs_svm_part *part = block->part + k;
    const ptrdiff_t size = part->stop - part->from;
    ptrdiff_t newlines, colons;
    (void)scratch;
    fs_svm_count(block->text + part->from, size, &newlines, &colons);
    part->newlines = newlines;
    /* "1:1 ": a value takes four bytes at least, which bounds the memory for text that is nothing but colons */
    part->values = colons < size / 4 ? colons : size / 4;
}

void fs_svm_cut(fs_svm_block *block, const char *text, ptrdiff_t size, ptrdiff_t least)
{
    ptrdiff_t from = 0;
    memset(block, 0, sizeof *block);
    block->text = text;
    block->size = size;
    block->n_parts = fs_pool_parts((double)size, (double)least);
    for (ptrdiff_t k = 0; k < block->n_parts; k++) {
        ptrdiff_t stop = fs_pool_from(size, block->n_parts, k + 1, 1);
        if (stop < from)
            stop = from; /* within a line that is longer than a part */
        if (stop < size && stop > from && text[stop - 1] != '\n') {
            const char *newline = memchr(text + stop, '\n', (size_t)(size - stop));
            stop = newline ? newline + 1 - text : size;
        }
        block->part[k].from = from;
        block->part[k].stop = from = stop;
    }
    fs_pool_run(block->n_parts, count_part, block, NULL, 0);
    for (ptrdiff_t k = 0; k < block->n_parts; k++) {
        block->part[k].first_row = block->rows;
        block->part[k].first_value = block->nnz;
        block->rows += block->part[k].newlines;
        block->nnz += block->part[k].values;
    }
}

static void parse_part(void *context, ptrdiff_t k, void *scratch)
{
    fs_svm_block *block = context;
    fs_svm_part part = block->part[k]; /* of this thread alone: others write to those beside it */
    const char *const text = block->text;
    const char *p = text + part.from;
    const char *const stop = text + part.stop;
    const char *end;
    const int64_t base = block->base;
    double *const labels = block->labels + part.first_row, *const data = block->data + part.first_value;
    int64_t *const row_ends = block->indptr + part.first_row + 1;
    int32_t *const indices = block->indices + part.first_value;
    int64_t last = -1; /* column of the row that is open */
    int in_row = 0;    /* 1: a label has been read and the line goes on; 2: a qid too */
    (void)scratch;
    while (p < stop) {
        while (p < stop && is_blank(*p))
            p++;
        if (p < stop && *p == '#')
            while (p < stop && *p != '\n' && !is_lone_return(p, stop))
                p++;
        while (p < stop && *p == '\r' && !is_lone_return(p, stop))
            p++;
        if (p == stop)
            break;
        if (*p == '\r') {
            part.status = FS_SVM_RETURN;
            break;
        }
        if (*p == '\n') {
            if (in_row) {
                row_ends[part.rows++] = part.first_value + part.nnz;
                in_row = 0;
            }
            part.line++;
            p++;
            continue;
        }
        if (!in_row) {
            const int kind = read_number(p, stop, &labels[part.rows], &end);
            if (kind < 0) {
                part.status = FS_SVM_BAD_LABEL;
                break;
            }
            if (kind) {
                leave_to_python(&labels[part.rows], p - text);
                part.slow++;
            }
            in_row = 1;
            last = -1;
            p = end;
            continue;
        }
        if (in_row == 1 && last < 0 && stop - p > 4 && memcmp(p, "qid:", 4) == 0) {
            const char *first = p + 4;
            for (end = first; end < stop && fs_is_digit(*end); end++)
                ;
            if (end == first || end == stop || !is_end(*end)) {
                part.status = FS_SVM_BAD_QUERY;
                break;
            }
            in_row = 2;
            p = end;
            continue;
        }
        {
            int64_t index = 0;
            const char *first = p;
            for (; p < stop && fs_is_digit(*p); p++)
                if (index <= INT32_MAX)
                    index = index * 10 + (*p - '0');
            if (p == first || p == stop || *p != ':') {
                p = first;
                part.status = FS_SVM_BAD_INDEX;
                break;
            }
            index -= base;
            if (index < 0 || index >= INT32_MAX || index <= last) {
                p = first;
                part.status = index < 0 ? FS_SVM_BASE : index >= INT32_MAX ? FS_SVM_RANGE : FS_SVM_ORDER;
                break;
            }
            p++;
            const int kind = read_number(p, stop, &data[part.nnz], &end);
            if (kind < 0) {
                part.status = FS_SVM_BAD_VALUE;
                break;
            }
            if (kind) {
                leave_to_python(&data[part.nnz], p - text);
                part.slow++;
            }
            indices[part.nnz++] = (int32_t)index;
            last = index;
            if (index + 1 > part.widest)
                part.widest = index + 1;
            p = end;
        }
    }
    if (in_row && part.status != FS_SVM_DONE)
        row_ends[part.rows++] = part.first_value + part.nnz;
    part.pos = p - text;
    block->part[k] = part;
}

int fs_svm_parse(fs_svm_block *block, double *labels, int64_t *indptr, int32_t *indices, double *data)
{
    int status = FS_SVM_DONE;
    block->labels = labels;
    block->indptr = indptr;
    block->indices = indices;
    block->data = data;
    block->rows = block->nnz = 0;
    indptr[0] = 0;
    fs_pool_run(block->n_parts, parse_part, block, NULL, 0);
    for (ptrdiff_t k = 0; k < block->n_parts && status == FS_SVM_DONE; k++) {
        const fs_svm_part *part = block->part + k;
        const ptrdiff_t shift = part->first_value - block->nnz;
        if (part->first_row > block->rows) /* blank lines, comments */
            memmove(labels + block->rows, labels + part->first_row, (size_t)part->rows * sizeof *labels);
        if (part->first_row > block->rows || shift)
            for (ptrdiff_t i = 1; i <= part->rows; i++)
                indptr[block->rows + i] = indptr[part->first_row + i] - shift;
        if (shift) { /* colons that belong to no value */
            memmove(indices + block->nnz, indices + part->first_value, (size_t)part->nnz * sizeof *indices);
            memmove(data + block->nnz, data + part->first_value, (size_t)part->nnz * sizeof *data);
        }
        block->rows += part->rows;
        block->nnz += part->nnz;
        block->line += part->line;
        block->pos = part->pos;
        block->slow += part->slow;
        if (part->widest > block->widest)
            block->widest = part->widest;
        status = part->status;
    }
    return status;
}
