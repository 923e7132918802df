#include "fs_svmlight.h"

#include <math.h>
#include <string.h>

#include "fs_level.h"

/* Powers of ten that a double holds exactly: m * 10^e is correctly rounded for m <= 2^53, |e| <= 22 (Clinger 1990). */
static const double fs_exact_ten[23] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                        1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

static int is_digit(char c) { return (unsigned char)(c - '0') < 10; }
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

/* clang-cl has the type, but links nothing that divides it. */
#if defined(__SIZEOF_INT128__) && !defined(_MSC_VER)
#define FS_EXACT_128
/* mantissa * 10^exponent, correctly rounded, for mantissa > 2^53 and |exponent| <= 19: 10^19 < 2^64, so the product or
 * the quotient with its remainder is exact in 128 bits, and only the last step rounds. */
static double scale_exactly(uint64_t mantissa, int exponent)
{
    unsigned __int128 value;
    int sticky = 0, shift = 0;
    uint64_t power = 1, top;
    for (int i = exponent < 0 ? -exponent : exponent; i > 0; i--)
        power *= 10;
    if (exponent < 0) {
        const unsigned __int128 wide = (unsigned __int128)mantissa << 64;
        value = wide / power; /* at least 2^117 / 10^19 > 2^53: 54 bits */
        sticky = wide % power != 0;
        shift = -64;
    } else {
        value = (unsigned __int128)mantissa * power;
    }
    while (value >> 64) { /* to 64 bits; bits shifted out stay in the sticky bit */
        const int drop = value >> 96 ? 32 : value >> 72 ? 8 : 1;
        sticky |= (value & (((unsigned __int128)1 << drop) - 1)) != 0;
        value >>= drop;
        shift += drop;
    }
    top = (uint64_t)value;
    while (top >> 54) { /* to 54 bits: 53 and the half */
        sticky |= (int)(top & 1);
        top >>= 1;
        shift++;
    }
    if ((top & 1) && (sticky || (top & 2)))
        top++; /* round half to even; 2^54 is a power of two and needs no care */
    top &= ~UINT64_C(1);
    return ldexp((double)top, shift);
}
#endif

/* Read the number that starts at p and must stop at a blank, a newline or '#'.
 * 0: *value is exact; 1: a number-like token that needs a full conversion; -1: not a number. *end is its end. */
static int read_number(const char *p, const char *stop, double *value, const char **end)
{
    uint64_t mantissa = 0;
    int digits = 0, exponent = 0, seen = 0, negative = 0;
    if (p < stop && (*p == '-' || *p == '+'))
        negative = *p++ == '-';
    for (; p < stop && is_digit(*p); p++, seen = 1)
        if (digits < 19) {
            mantissa = mantissa * 10 + (uint64_t)(*p - '0');
            digits += mantissa != 0;
        } else {
            digits = 20;
        }
    if (p < stop && *p == '.') {
        p++;
        for (; p < stop && is_digit(*p); p++, seen = 1)
            if (digits < 19) {
                mantissa = mantissa * 10 + (uint64_t)(*p - '0');
                digits += mantissa != 0;
                exponent--;
            } else {
                digits = 20;
            }
    }
    if (seen && p < stop && (*p == 'e' || *p == 'E')) {
        const char *mark = p++;
        int sign = 1, power = 0;
        if (p < stop && (*p == '-' || *p == '+'))
            sign = *p++ == '-' ? -1 : 1;
        if (p == stop || !is_digit(*p))
            p = mark; /* "1e": no number */
        for (; p < stop && is_digit(*p); p++)
            power = power < 100000 ? power * 10 + (*p - '0') : power;
        exponent += sign * power;
    }
    if (p < stop && is_end(*p) && seen) {
        *end = p;
        if (digits < 20 && mantissa <= (UINT64_C(1) << 53) && exponent >= -22 && exponent <= 22) {
            double v = (double)mantissa;
            v = exponent < 0 ? v / fs_exact_ten[-exponent] : v * fs_exact_ten[exponent];
            *value = negative ? -v : v;
            return 0;
        }
#ifdef FS_EXACT_128
        if (digits < 20 && mantissa > (UINT64_C(1) << 53) && exponent >= -19 && exponent <= 19) {
            const double v = scale_exactly(mantissa, exponent);
            *value = negative ? -v : v;
            return 0;
        }
#endif
        return 1;
    }
    *end = p;
    return -1; /* nan, inf, trailing letters, a second point, ... */
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
            for (end = first; end < stop && is_digit(*end); end++)
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
            for (; p < stop && is_digit(*p); p++)
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
