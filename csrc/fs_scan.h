/* The k least scores of a query among codes of nibbles, each nibble an entry of a table of the query.
 *
 * A code is n_tables nibbles, the low one of a byte first, then an offset and a scale of 0 to 2 bytes each, which stand
 * for unit * float_of_bits((u << shift) + (127 << 23)), or 0 and 1 where there are none.  Its score is
 *     ((beta * scale) * t + alpha * offset + constant) / divisor,  t = T[0, nibble 0] + T[1, nibble 1] + ...,
 * every operation rounded to float in this order; a NaN counts as infinity.  The answer is the k least by score and
 * then by id, at every level.
 *
 * It is found by a filter.  Each table becomes 16 bytes, steps of weight * delta above its least entry, rounded down,
 * so that the weighted sum of a code's steps, below 2^16, bounds t from one side; the weight of a table goes by its
 * span, so that a wide table does not make the others coarse.  With the rounding of float sums taken off, this gives a
 * bound of the score; what it does not rule out is scored as above.
 *
 * Codes are looked up in blocks of FS_SCAN_ROWS rows, whose bytes stand together by fours: byte b of row r is at
 * b / 4 * 4 * FS_SCAN_ROWS + 4 * r + b % 4 of the block; width / 4 is rounded up, rows are filled with zeros. */
#ifndef FS_SCAN_H
#define FS_SCAN_H
#include "fs_k_least.h"

/* Rows of a block; blocks that are looked at between two glances at what has been found. */
enum { FS_SCAN_ROWS = 16, FS_SCAN_BLOCKS = 32, FS_SCAN_STRIP = FS_SCAN_ROWS * FS_SCAN_BLOCKS };

typedef struct {
    ptrdiff_t n_tables, width; /* nibbles; bytes of a code */
    ptrdiff_t offset_bytes, scale_bytes;
    int offset_shift, scale_shift;
    float offset_unit, scale_unit;
} fs_scan_layout;

/* A set of codes: `codes` in blocks, or else as rows of `width` bytes.  NULL where there is none: divisor (n),
 * positive; allow, bit i of whole bytes for row i; ids (n).  plain: the rule of scores needs no more than t and
 * constants. */
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
    int32_t most;              /* without factors: sums that may be among the k */
    float low, rise, limit,
        shift; /* with them: not (offset + scale * (low + rise * sum) > limit [* divisor - shift]) */
    fs_least least;
} fs_scan_query;

/* Groups of four bytes of a code; of those, groups that hold nibbles; bytes of a block. */
ptrdiff_t fs_scan_groups(const fs_scan_layout *layout);
ptrdiff_t fs_scan_looked(const fs_scan_layout *layout);
ptrdiff_t fs_scan_block(const fs_scan_layout *layout);

/* Rows start to start + n, from their codes, into blocks (the first of which is of row 0); and back. */
void fs_scan_pack(const fs_scan_layout *layout, ptrdiff_t start, ptrdiff_t n, const uint8_t *codes, uint8_t *blocks);
void fs_scan_unpack(const fs_scan_layout *layout, ptrdiff_t start, ptrdiff_t n, const uint8_t *blocks, uint8_t *codes);

/* Steps and weights of one query, whose table, constant, steps (aligned to 64) and weights are set. */
ptrdiff_t fs_scan_steps(const fs_scan_layout *layout);
ptrdiff_t fs_scan_weights(const fs_scan_layout *layout);
void fs_scan_prepare(const fs_scan_set *set, fs_scan_query *query);

/* Rows start to stop looked at for n_queries, whose `least` has begun.  Where rows are divided among calls, strips are
 * read whole if they begin at multiples of FS_SCAN_STRIP.  scratch: fs_scan_scratch bytes. */
size_t fs_scan_scratch(const fs_scan_layout *layout, ptrdiff_t n_queries);
void fs_scan_rows(const fs_scan_set *set, ptrdiff_t start, ptrdiff_t stop, ptrdiff_t n_queries, fs_scan_query *queries,
                  void *scratch);

/* Scores, as defined, of rows start (a multiple of FS_SCAN_STRIP) to stop for a query, of which table and constant are
 * looked at.  scratch: fs_scan_scratch bytes for one query. */
void fs_scan_scores(const fs_scan_set *set, ptrdiff_t start, ptrdiff_t stop, const fs_scan_query *query, float *score,
                    void *scratch);

#endif
