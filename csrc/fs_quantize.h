/* Encoding of rows whose coordinates are in panels (fs_project.h), and decoding.
 *
 * A quantizer has groups of directions [start, start + count). A group has one nibble, which selects one of 16 words of
 * `count` floats, or two nibbles, whose words are added. The word, or the one of 256 sums, that is nearest to z in a
 * distance with a weight for each direction is selected. A code is the nibbles, the low one of a byte first, then the
 * bytes of its factor, little endian.
 *
 * Scores are half the weighted square of a word less z . (weighted word), in float, in the order of the directions,
 * products and sums rounded separately, which gives the same results at every level. Ties select the lowest word.
 */
#ifndef FS_QUANTIZE_H
#define FS_QUANTIZE_H
#include "fs_common.h"
#include "fs_project.h"

/* A small float of 0 to 2 bytes (0: not stored); the integer u stands for
 *     unit * the float of bits (u << (23 - mantissa)) + (127 << 23).
 * float(value) is rounded to the nearest, halves up; values below unit and NaN to the first, large ones to the last. */
typedef struct {
    int bytes, mantissa;
    float unit;
} fs_small_float;

/* The terms of the factor of a row, in double: 1; |x - mean|^2; |z|^2; the sum over directions of slope z (z - word).
 */
enum { FS_ONE, FS_SQUARE, FS_ZZ, FS_ZE, FS_SUMS };

typedef struct {
    ptrdiff_t n_directions, n_groups, n_nibbles, width;
    const int32_t *start, *count, *nibbles; /* of each group; 1 or 2 nibbles */
    /* codebooks of all nibbles, each (count, 16), direction by direction; the same times the weights */
    const float *words, *weighted;
    /* half the weighted |word|^2: 16 for a group of one nibble, 256 for the sums of two, at [second * 16 + first] */
    const float *half;
    const float *slope;   /* n_directions */
    const double *offset; /* FS_SUMS: the factor is offset . sums */
    fs_small_float factor;
} fs_quantizer;

/* Bytes of the scratch of the functions below. */
size_t fs_quantize_scratch(ptrdiff_t n_nibbles);

/* Encode n <= FS_PROJECT_ROWS rows from z and square, as fs_project_rows returns them, to codes (n, width). */
void fs_quantize_panel_s(const fs_quantizer *q, ptrdiff_t n, const float *z, const double *square, uint8_t *codes,
                         void *scratch);

/* Decode n codes to z (n_directions, ROWS); 0 in directions without a group and in rows from n on. */
void fs_words_panel_s(const fs_quantizer *q, ptrdiff_t n, const uint8_t *codes, float *z, void *scratch);

#endif
