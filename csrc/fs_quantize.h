/* Codes of rows whose directions are given in panels (fs_project.h), and what codes stand for.
 *
 * A quantizer has groups of directions [start, start + count). A group has a nibble, which chooses one of 16 words of
 * `count` floats, or two, whose words are added. Chosen is what is nearest to the row's z in a distance with a weight
 * for each direction: of all words, or of all 256 sums of two. A code is the nibbles, the low one of a byte first, then
 * the bytes of its factor, little endian.
 *
 * Scores are half the weighted square of a word less z . (weighted word), in float, in the order of the directions,
 * products and sums rounded apart: the same at every level. Of words equally good the lowest is taken.
 */
#ifndef FS_QUANTIZE_H
#define FS_QUANTIZE_H
#include "fs_common.h"
#include "fs_project.h"

/* A number in so many bytes (0: it is left out), u = 0, 1, ... standing for
 *     unit * the float of bits (u << (23 - mantissa)) + (127 << 23):
 * the nearest to float(value), a half upwards, the first for all below unit and NaN, the last for all above it. */
typedef struct {
    int bytes, mantissa;
    float unit;
} fs_small_float;

/* What the factor of a row is made of, in double: 1; |x - mean|^2; |z|^2; over directions in groups the sum of
 * slope z (z - word). */
enum { FS_ONE, FS_SQUARE, FS_ZZ, FS_ZE, FS_SUMS };

typedef struct {
    ptrdiff_t n_directions, n_groups, n_nibbles, width;
    const int32_t *start, *count, *nibbles; /* of each group; 1 or 2 nibbles */
    /* words of all groups: (count, 16) of each nibble, direction by direction; the same times the weights */
    const float *words, *weighted;
    /* of each group half the weighted |word|^2, 16 for a nibble; but of two those of the sums, [second * 16 + first] */
    const float *half;
    const float *slope;   /* n_directions */
    const double *offset; /* FS_SUMS: the factor is offset . sums */
    fs_small_float factor;
} fs_quantizer;

/* Bytes of scratch of the functions below. */
size_t fs_quantize_scratch(ptrdiff_t n_nibbles);

/* codes (n, width) of n <= FS_PROJECT_ROWS rows of a panel z, square as fs_project_rows leaves them. */
void fs_quantize_panel_s(const fs_quantizer *q, ptrdiff_t n, const float *z, const double *square, uint8_t *codes,
                         void *scratch);

/* z = the words of n codes, zeros in directions without a group and in rows from n on; (n_directions, ROWS). */
void fs_words_panel_s(const fs_quantizer *q, ptrdiff_t n, const uint8_t *codes, float *z, void *scratch);

#endif
