/* The codes of the k least scores for a query; each nibble of a code selects an entry of a table of the query.
 *
 * A code is n_tables nibbles, the low one of a byte first, then an offset and a scale of 0 to 2 bytes each.  The bytes
 * u of a factor stand for unit * float_of_bits((u << shift) + (127 << 23)); without bytes, the offset is 0 and the
 * scale is 1.  The score of a code is
 *     ((beta * scale) * t + alpha * offset + constant) / divisor,  t = T[0, nibble 0] + T[1, nibble 1] + ...,
 * every operation rounded to float in this order; a NaN counts as infinity.  Codes are ordered by score and then by id,
 * with the same result for all instruction sets.
 *
 * A filter finds the candidates.  The entries of each table are rounded down to 16 bytes, in steps of weight * delta
 * above its least entry; the weighted sum of the steps of a code is below 2^16 and a lower bound of t.  The weight of a
 * table is proportional to its span, so that one wide table does not make the others coarse.  After the rounding errors
 * of float sums are subtracted, this is a lower bound of the score.  Only codes whose bound is not above the k-th score
 * so far are scored as above.
 *
 * Codes are stored in blocks of FS_SCAN_ROWS rows, four bytes of each row after one another: byte b of row r is at
 * b / 4 * 4 * FS_SCAN_ROWS + 4 * r + b % 4 of the block.  Rows are padded with zeros to a multiple of four bytes. */
#ifndef FS_SCAN_H
#define FS_SCAN_H
#include "fs_k_least.h"

/* Rows of a block; blocks of a strip, after which the filter uses the new k-th score. */
enum { FS_SCAN_ROWS = 16, FS_SCAN_BLOCKS = 32, FS_SCAN_STRIP = FS_SCAN_ROWS * FS_SCAN_BLOCKS };

typedef struct {
    ptrdiff_t n_tables, width; /* nibbles; bytes of a code */
    ptrdiff_t offset_bytes, scale_bytes;
    int offset_shift, scale_shift;
    float offset_unit, scale_unit;
} fs_scan_layout;

/* A set of n codes, in blocks or as rows of `width` bytes; codes[0] is row `first` of the set.  divisor (n) is
 * positive; bit i of `allow` tells whether row i may be found; ids (n) break ties.  Each of these three may be NULL. */
typedef struct {
    fs_scan_layout layout;
    ptrdiff_t n, first;
    const uint8_t *codes;
    int in_blocks;
    float alpha, beta;
    const float *divisor;
    const uint8_t *allow;
    const int64_t *ids;
} fs_scan_set;

typedef struct {
    const float *table; /* (n_tables, 16) */
    uint8_t *steps;     /* fs_scan_steps bytes */
    uint32_t *weights;  /* fs_scan_weights */
    float constant;
    double base, slope, error; /* of the score without factors: base + slope * sum <= score up to `error` */
    int32_t most;              /* without factors: the largest sum of steps that passes the filter */
    float low, rise, limit,
        shift; /* with factors, a code passes if not offset + scale * (low + rise * sum) > limit [* divisor - shift] */
    fs_least least;
} fs_scan_query;

/* Return the number of groups of four bytes of a code, of those that contain nibbles, and the bytes of a block. */
ptrdiff_t fs_scan_groups(const fs_scan_layout *layout);
ptrdiff_t fs_scan_looked(const fs_scan_layout *layout);
ptrdiff_t fs_scan_block(const fs_scan_layout *layout);

/* Store n codes as rows [start, start + n) of blocks, the first of which has row 0; and read them back. */
void fs_scan_pack(const fs_scan_layout *layout, ptrdiff_t start, ptrdiff_t n, const uint8_t *codes, uint8_t *blocks);
void fs_scan_unpack(const fs_scan_layout *layout, ptrdiff_t start, ptrdiff_t n, const uint8_t *blocks, uint8_t *codes);

/* Compute steps and weights of a query whose table and constant are set; `steps` is aligned to 64 bytes. */
ptrdiff_t fs_scan_steps(const fs_scan_layout *layout);
ptrdiff_t fs_scan_weights(const fs_scan_layout *layout);
void fs_scan_prepare(const fs_scan_set *set, fs_scan_query *query);

/* Offer rows [start, stop) to n_queries.  Calls for parts of the rows are fastest if they begin at multiples of
 * FS_SCAN_STRIP.  scratch: fs_scan_scratch bytes. */
size_t fs_scan_scratch(const fs_scan_layout *layout, ptrdiff_t n_queries);
void fs_scan_rows(const fs_scan_set *set, ptrdiff_t start, ptrdiff_t stop, ptrdiff_t n_queries, fs_scan_query *queries,
                  void *scratch);

/* Write the exact scores of rows [start, stop), `start` a multiple of FS_SCAN_STRIP, for a query of which table and
 * constant are set.  scratch: fs_scan_scratch bytes for one query. */
void fs_scan_scores(const fs_scan_set *set, ptrdiff_t start, ptrdiff_t stop, const fs_scan_query *query, float *score,
                    void *scratch);

#endif
