#include "fs_scan.h"

#include <math.h>
#include <string.h>

#include "fs_intrinsics.h"

/* For a group of eight tables: 64 steps of the four tables of low nibbles and 64 of those of high nibbles; the weights
 * of the four low ones as the bytes of a word, those of the four high ones, and the two of each byte, twice in a word.
 */
enum { STEPS = 128, WEIGHTS = 6 };
/* The sum of all weighted steps is below 2^16; with this weight, sums of two products are below 2^15. */
#define MOST_SUM 65535.0
#define MOST_WEIGHT 64
/* Twice the relative error of a few float operations. */
#define FEW_ROUNDINGS (32 * 0x1p-24)
/* Below this, rounding errors would not be far above the spacing of denormal floats. */
#define SMALLEST 0x1p-100
/* Above the smallest normal float, for divisions that underflow. */
#define TINY 0x1p-120f

ptrdiff_t fs_scan_groups(const fs_scan_layout *layout) { return (layout->width + 3) / 4; }
ptrdiff_t fs_scan_looked(const fs_scan_layout *layout) { return (layout->n_tables + 7) / 8; }
ptrdiff_t fs_scan_block(const fs_scan_layout *layout) { return fs_scan_groups(layout) * 4 * FS_SCAN_ROWS; }
ptrdiff_t fs_scan_steps(const fs_scan_layout *layout) { return fs_scan_looked(layout) * STEPS; }
ptrdiff_t fs_scan_weights(const fs_scan_layout *layout) { return fs_scan_looked(layout) * WEIGHTS; }

/* Transpose 16 bytes of each of four rows of `width` bytes to n_groups <= 4 groups of four bytes; the last group is
 * masked. */
FS_INLINE void turn_four(const uint8_t *codes, ptrdiff_t width, ptrdiff_t n_groups, uint32_t mask, uint8_t *out)
{
#if FS_X86
    const __m128i a = _mm_loadu_si128((const void *)codes), b = _mm_loadu_si128((const void *)(codes + width));
    const __m128i c = _mm_loadu_si128((const void *)(codes + 2 * width));
    const __m128i d = _mm_loadu_si128((const void *)(codes + 3 * width));
    const __m128i ab = _mm_unpacklo_epi32(a, b), cd = _mm_unpacklo_epi32(c, d);
    const __m128i more_ab = _mm_unpackhi_epi32(a, b), more_cd = _mm_unpackhi_epi32(c, d);
    __m128i groups[4] = {_mm_unpacklo_epi64(ab, cd), _mm_unpackhi_epi64(ab, cd), _mm_unpacklo_epi64(more_ab, more_cd),
                         _mm_unpackhi_epi64(more_ab, more_cd)};
    groups[n_groups - 1] = _mm_and_si128(groups[n_groups - 1], _mm_set1_epi32((int)mask));
    for (ptrdiff_t g = 0; g < n_groups; g++)
        _mm_storeu_si128((void *)(out + g * 4 * FS_SCAN_ROWS), groups[g]);
#else
    for (ptrdiff_t g = 0; g < n_groups; g++)
        for (int r = 0; r < 4; r++) {
            uint32_t word;
            memcpy(&word, codes + r * width + 4 * g, 4);
            word &= g == n_groups - 1 ? mask : UINT32_MAX;
            memcpy(out + (g * FS_SCAN_ROWS + r) * 4, &word, 4);
        }
#endif
}

void fs_scan_pack(const fs_scan_layout *layout, ptrdiff_t start, ptrdiff_t n, const uint8_t *codes, uint8_t *blocks)
{
    const ptrdiff_t width = layout->width, groups = fs_scan_groups(layout), bytes = fs_scan_block(layout);
    uint32_t mask = UINT32_MAX; /* of the last group */
    if (width % 4) {
        const uint8_t some[8] = {255, 255, 255, 255, 0, 0, 0, 0};
        memcpy(&mask, some + 4 - width % 4, 4);
    }
    for (ptrdiff_t i = 0; i < n;) {
        const ptrdiff_t at = start + i, row = at % FS_SCAN_ROWS;
        uint8_t *out = blocks + at / FS_SCAN_ROWS * bytes + 4 * row;
        const uint8_t *code = codes + i * width;
        /* groups may be read beyond the end of a row, but not beyond the end of the last row */
        if (row % 4 == 0 && n - i >= 4 && (n - i - 3) * width >= 16 * ((width + 15) / 16)) {
            ptrdiff_t g = 0;
            for (; g + 4 < groups; g += 4)
                turn_four(code + 4 * g, width, 4, UINT32_MAX, out + g * 4 * FS_SCAN_ROWS);
            turn_four(code + 4 * g, width, groups - g, mask, out + g * 4 * FS_SCAN_ROWS);
            i += 4;
            continue;
        }
        for (ptrdiff_t b = 0; b < 4 * groups; b++)
            out[b / 4 * 4 * FS_SCAN_ROWS + b % 4] = b < width ? code[b] : 0;
        i++;
    }
    /* unused rows of the last block */
    const ptrdiff_t end = start + n, row = end % FS_SCAN_ROWS;
    for (ptrdiff_t g = 0; n && row && g < groups; g++)
        memset(blocks + end / FS_SCAN_ROWS * bytes + (g * FS_SCAN_ROWS + row) * 4, 0, (size_t)(FS_SCAN_ROWS - row) * 4);
}

void fs_scan_unpack(const fs_scan_layout *layout, ptrdiff_t start, ptrdiff_t n, const uint8_t *blocks, uint8_t *codes)
{
    const ptrdiff_t width = layout->width, bytes = fs_scan_block(layout);
    for (ptrdiff_t i = 0; i < n; i++) {
        const ptrdiff_t at = start + i;
        const uint8_t *row = blocks + at / FS_SCAN_ROWS * bytes + at % FS_SCAN_ROWS * 4;
        for (ptrdiff_t b = 0; b < width; b++)
            codes[i * width + b] = row[b / 4 * 4 * FS_SCAN_ROWS + b % 4];
    }
}

/* The n_bytes from byte `at` on of the row whose first four bytes are at `row` of a block. */
FS_INLINE uint32_t field(const uint8_t *row, ptrdiff_t at, ptrdiff_t n_bytes)
{
    uint32_t bits = 0;
    for (ptrdiff_t b = 0; b < n_bytes; b++)
        bits |= (uint32_t)row[(at + b) / 4 * 4 * FS_SCAN_ROWS + (at + b) % 4] << (8 * b);
    return bits;
}

FS_INLINE float number(uint32_t bits, int shift, float unit)
{
    const uint32_t word = (bits << shift) + (127u << 23);
    float value;
    memcpy(&value, &word, 4);
    return unit * value;
}

static int has_factors(const fs_scan_set *set)
{
    return set->layout.offset_bytes || set->layout.scale_bytes || set->divisor;
}

void fs_scan_prepare(const fs_scan_set *set, fs_scan_query *query)
{
    const fs_scan_layout *layout = &set->layout;
    const ptrdiff_t n_tables = layout->n_tables;
    const double sign = set->beta < 0 ? -1 : 1, beta = fabs((double)set->beta);
    const float *table = query->table;
    double spans = 0, widest = 0, largest = 0, least = 0;
    int numbers = 1;
    for (ptrdiff_t j = 0; j < n_tables; j++) {
        double low = INFINITY, high = -INFINITY;
        for (int c = 0; c < 16; c++) {
            const double x = sign * (double)table[16 * j + c];
            numbers &= x == x;
            low = x < low ? x : low;
            high = x > high ? x : high;
        }
        spans += high - low;
        widest = high - low > widest ? high - low : widest;
        largest += fabs(low) > fabs(high) ? fabs(low) : fabs(high);
        least += low;
    }
    /* the smallest step for which neither the sum nor a weight is too large */
    double delta = spans / (MOST_SUM - 1);
    if (delta < widest / (255.0 * MOST_WEIGHT - 1))
        delta = widest / (255.0 * MOST_WEIGHT - 1);
    if (!(delta > 0x1p-900))
        delta = 1;
    memset(query->steps, 0, (size_t)fs_scan_steps(layout));
    memset(query->weights, 0, (size_t)fs_scan_weights(layout) * sizeof *query->weights);
    /* otherwise all steps are 0 and every code passes: entries are so small that a bound would lose precision that a
     * scale makes visible again, or so large that sums may overflow, or NaN */
    const int small = largest > 0 && largest < SMALLEST;
    const int good = numbers && spans < 0x1p100 && largest < 0x1p100 && !(small && has_factors(set));
    for (ptrdiff_t j = 0; good && j < n_tables; j++) {
        const ptrdiff_t g = j / 8, high = j % 2, b = j % 8 / 2;
        double low = INFINITY, top = -INFINITY;
        for (int c = 0; c < 16; c++) {
            const double x = sign * (double)table[16 * j + c];
            low = x < low ? x : low;
            top = x > top ? x : top;
        }
        uint32_t weight = (uint32_t)ceil((top - low) / (255.0 * delta));
        weight = weight < 1 ? 1 : weight > MOST_WEIGHT ? MOST_WEIGHT : weight;
        const double per = 1 / (weight * delta);
        for (int c = 0; c < 16; c++) {
            const double steps = (sign * (double)table[16 * j + c] - low) * per;
            query->steps[STEPS * g + 64 * high + 16 * b + c] = steps > 255 ? 255 : (uint8_t)steps;
        }
        uint32_t *w = query->weights + WEIGHTS * g;
        w[high] |= weight << (8 * b);
        w[2 + b] |= (weight | weight << 16) << (8 * high);
    }
    /* |beta * t|, summed in float, is at most size, and base + slope * sum is a lower bound of it */
    const double size = beta * largest * (1 + (double)n_tables * 0x1p-23);
    query->slope = good ? beta * delta : 0;
    query->base = beta * least - size * (double)(n_tables + 2) * 0x1p-23;
    query->error = FEW_ROUNDINGS * fabs((double)query->constant) + TINY;
    query->base -= FEW_ROUNDINGS * size;
    query->low = good ? (float)query->base : -INFINITY;
    query->rise = (float)query->slope;
}

/* Set the thresholds of the filter from the k-th score so far. */
static void set_limits(const fs_scan_set *set, fs_scan_query *query)
{
    const double worst = (double)query->least.worst.score;
    if (has_factors(set)) {
        const double above = worst + 4 * 0x1p-24 * fabs(worst) + TINY;
        query->limit = (float)above;
        query->shift = query->constant - (float)query->error;
        if (!set->divisor) {
            const double limit = above - (double)query->shift;
            query->limit = nextafterf((float)limit, INFINITY);
        }
        return;
    }
    const double room = worst + 4 * 0x1p-24 * fabs(worst) - (double)query->constant + query->error - query->base;
    if (!(room >= 0))
        query->most = room < 0 ? -1 : INT32_MAX;
    else
        query->most = room < query->slope * MOST_SUM ? (int32_t)(room / query->slope) + 1 : INT32_MAX;
}

/* The sums t of n rows, given by their first four bytes in a block.  n is a constant, so that the independent sums are
 * in registers. */
enum { FEW = 8 };
FS_INLINE void sum_rows(const int n, ptrdiff_t n_tables, const float *table, const uint8_t *const *rows, float *out)
{
    float t[FEW] = {0};
    ptrdiff_t j = 0;
    for (; j + 1 < n_tables; j += 2, table += 32) {
        const ptrdiff_t at = j / 8 * 4 * FS_SCAN_ROWS + j % 8 / 2;
        FS_UNROLL
        for (int i = 0; i < n; i++) {
            const unsigned byte = rows[i][at];
            t[i] += table[byte & 15];
            t[i] += table[16 + (byte >> 4)];
        }
    }
    for (int i = 0; i < n; i++)
        out[i] = j < n_tables ? t[i] + table[field(rows[i], j / 2, 1) & 15] : t[i];
}

/* The exact scores of n <= FEW rows. */
static void score_rows(const fs_scan_set *set, const fs_scan_query *query, int n, const uint8_t **rows,
                       const ptrdiff_t *places, float *score)
{
    const fs_scan_layout *layout = &set->layout;
    const ptrdiff_t nibbles = (layout->n_tables + 1) / 2;
    float t[FEW];
    for (int i = n; i < FEW; i++)
        rows[i] = rows[0];
    if (n > FEW / 2)
        sum_rows(FEW, layout->n_tables, query->table, rows, t);
    else
        sum_rows(FEW / 2, layout->n_tables, query->table, rows, t);
    for (int i = 0; i < n; i++) {
        float factor = set->beta;
        if (layout->scale_bytes)
            factor *= number(field(rows[i], nibbles + layout->offset_bytes, layout->scale_bytes), layout->scale_shift,
                             layout->scale_unit);
        float sum = factor * t[i];
        if (layout->offset_bytes) {
            const float offset =
                number(field(rows[i], nibbles, layout->offset_bytes), layout->offset_shift, layout->offset_unit);
            sum += set->alpha * offset;
        }
        sum += query->constant;
        if (set->divisor)
            sum /= set->divisor[places[i]];
        score[i] = sum == sum ? sum : INFINITY;
    }
}

static void offer_rows(const fs_scan_set *set, int n, const uint8_t **rows, const ptrdiff_t *places,
                       fs_scan_query *query)
{
    float score[FEW];
    score_rows(set, query, n, rows, places, score);
    for (int i = 0; i < n; i++)
        fs_least_offer((fs_offer){score[i], places[i]}, set->ids, &query->least);
}

/* Score the rows that passed the filter: bit r of mask b is row r of block b, and block 0 begins with row `first`. */
static void look_closer(const fs_scan_set *set, ptrdiff_t first, ptrdiff_t n_blocks, const uint8_t *blocks,
                        const uint16_t *masks, fs_scan_query *query)
{
    const ptrdiff_t bytes = fs_scan_block(&set->layout);
    const uint8_t *rows[FEW];
    ptrdiff_t places[FEW];
    int n = 0;
    for (ptrdiff_t b = 0; b < n_blocks; b++) {
        for (unsigned mask = masks[b], r = 0; mask; mask >>= 1, r++)
            if (mask & 1) {
                rows[n] = blocks + b * bytes + 4 * r;
                places[n++] = first + b * FS_SCAN_ROWS + (ptrdiff_t)r;
                if (n == FEW) {
                    offer_rows(set, n, rows, places, query);
                    n = 0;
                }
            }
    }
    if (n)
        offer_rows(set, n, rows, places, query);
    set_limits(set, query);
}

/* A strip of blocks for the filter, with its offsets times alpha, less their rounding error, scales and divisors. */
typedef struct {
    ptrdiff_t n_blocks, groups, looked;
    const uint8_t *blocks;
    const float *offsets, *scales, *divisors; /* of FS_SCAN_STRIP rows; offsets NULL: codes have no factors */
    uint8_t *space;                           /* scratch of the size of the blocks and one more */
} strip;

#define FS_WITH_VPOPCNTDQ
#define TYPED(verb) verb
#define FS_LOOPS "fs_scan.inc.h"
#include "fs_each_level.inc.h"

/* Scratch: a strip in blocks, the space of the filter, three factors of each row, and masks. */
enum { FACTORS = 3 * FS_SCAN_STRIP };
static size_t strip_bytes(const fs_scan_layout *layout) { return (size_t)fs_scan_block(layout) * FS_SCAN_BLOCKS; }
size_t fs_scan_scratch(const fs_scan_layout *layout, ptrdiff_t n_queries)
{
    return 2 * strip_bytes(layout) + FACTORS * sizeof(float) + (size_t)n_queries * FS_SCAN_BLOCKS * sizeof(uint16_t);
}

/* Load the factors of the `count` rows of a strip. */
static void load_factors(const fs_scan_set *set, ptrdiff_t first, ptrdiff_t count, float *space, strip *s)
{
    const fs_scan_layout *layout = &set->layout;
    const ptrdiff_t nibbles = (layout->n_tables + 1) / 2;
    float *offsets = space, *scales = offsets + FS_SCAN_STRIP, *divisors = scales + FS_SCAN_STRIP;
    const float alpha = set->alpha - (float)FEW_ROUNDINGS * fabsf(set->alpha);
    fs_scan_field(s->n_blocks, s->groups, s->blocks, nibbles, layout->offset_bytes, layout->offset_shift,
                  alpha * layout->offset_unit, offsets);
    fs_scan_field(s->n_blocks, s->groups, s->blocks, nibbles + layout->offset_bytes, layout->scale_bytes,
                  layout->scale_shift, layout->scale_unit, scales);
    for (ptrdiff_t i = 0; i < FS_SCAN_STRIP && !layout->offset_bytes; i++)
        offsets[i] = 0;
    for (ptrdiff_t i = 0; i < FS_SCAN_STRIP && !layout->scale_bytes; i++)
        scales[i] = 1;
    /* where beta times the scale overflows, the score is infinite or NaN: the bound must be infinite, too */
    const uint32_t last = layout->scale_bytes ? (1u << 8 * layout->scale_bytes) - 1 : 0;
    const float most = layout->scale_bytes ? number(last, layout->scale_shift, layout->scale_unit) : 1;
    for (ptrdiff_t i = 0; i < s->n_blocks * FS_SCAN_ROWS && !(fabsf(set->beta * most) < INFINITY); i++)
        scales[i] = fabsf(set->beta * scales[i]) < INFINITY ? scales[i] : INFINITY;
    s->offsets = offsets, s->scales = scales;
    if (set->divisor) {
        memcpy(divisors, set->divisor + first, (size_t)count * sizeof *divisors);
        for (ptrdiff_t i = count; i < FS_SCAN_STRIP; i++)
            divisors[i] = 1;
        s->divisors = divisors;
    }
}

/* Set bit r of may[b] if row r of block b is one of the `count` rows of the strip and allowed; return whether any is.
 */
static int load_allowed(const fs_scan_set *set, ptrdiff_t first, ptrdiff_t count, uint16_t *may)
{
    uint8_t bits[FS_SCAN_STRIP / 8] = {0};
    if (set->allow)
        memcpy(bits, set->allow + first / 8, (size_t)(count + 7) / 8);
    else
        memset(bits, 0xff, (size_t)(count + 7) / 8);
    if (count % 8)
        bits[count / 8] &= (uint8_t)((1 << count % 8) - 1);
    int any = 0;
    for (ptrdiff_t b = 0; b < FS_SCAN_BLOCKS; b++) {
        may[b] = (uint16_t)(bits[2 * b] | bits[2 * b + 1] << 8);
        any |= may[b];
    }
    return any;
}

/* The blocks of `count` rows of a set from `first` on, packed to `packed` if the set is not in blocks. */
static const uint8_t *blocks_of(const fs_scan_set *set, ptrdiff_t first, ptrdiff_t count, uint8_t *packed)
{
    const fs_scan_layout *layout = &set->layout;
    if (set->in_blocks)
        return set->codes + (first - set->first) / FS_SCAN_ROWS * fs_scan_block(layout);
    fs_scan_pack(layout, 0, count, set->codes + (first - set->first) * layout->width, packed);
    return packed;
}

void fs_scan_rows(const fs_scan_set *set, ptrdiff_t start, ptrdiff_t stop, ptrdiff_t n_queries, fs_scan_query *queries,
                  void *scratch)
{
    const fs_scan_layout *layout = &set->layout;
    uint8_t *packed = scratch, *space = packed + strip_bytes(layout);
    float *factors = (float *)(void *)(space + strip_bytes(layout));
    uint16_t *masks = (uint16_t *)(void *)(factors + FACTORS), may[FS_SCAN_BLOCKS];
    strip s = {0, fs_scan_groups(layout), fs_scan_looked(layout), NULL, NULL, NULL, NULL, space};
    for (ptrdiff_t i = 0; i < n_queries; i++)
        set_limits(set, queries + i);
    for (ptrdiff_t first = start / FS_SCAN_ROWS * FS_SCAN_ROWS; first < stop; first += FS_SCAN_STRIP) {
        const ptrdiff_t count = stop - first < FS_SCAN_STRIP ? stop - first : FS_SCAN_STRIP;
        if (!load_allowed(set, first, count, may))
            continue;
        if (first < start) /* earlier rows of the first block */
            may[0] &= (uint16_t)(0xffff << (start - first));
        s.n_blocks = (count + FS_SCAN_ROWS - 1) / FS_SCAN_ROWS;
        s.blocks = blocks_of(set, first, count, packed);
        /* prefetch the next strip */
        const ptrdiff_t row = set->in_blocks ? fs_scan_block(layout) / FS_SCAN_ROWS : layout->width;
        const uint8_t *next = set->codes + (first - set->first + FS_SCAN_STRIP) * row;
        for (ptrdiff_t b = 0; b < FS_SCAN_STRIP * row && first + 2 * FS_SCAN_STRIP <= stop; b += 64)
            FS_FETCH(next + b);
        if (has_factors(set))
            load_factors(set, first, count, factors, &s);
        memset(masks, 0, (size_t)n_queries * FS_SCAN_BLOCKS * sizeof *masks);
        fs_scan_filter(&s, n_queries, queries, masks);
        for (ptrdiff_t i = 0; i < n_queries; i++) {
            uint16_t *mask = masks + i * FS_SCAN_BLOCKS, any = 0;
            for (ptrdiff_t b = 0; b < FS_SCAN_BLOCKS; b++)
                any |= mask[b] &= may[b];
            if (any)
                look_closer(set, first, s.n_blocks, s.blocks, mask, queries + i);
        }
    }
}

void fs_scan_scores(const fs_scan_set *set, ptrdiff_t start, ptrdiff_t stop, const fs_scan_query *query, float *score,
                    void *scratch)
{
    const ptrdiff_t bytes = fs_scan_block(&set->layout);
    const uint8_t *rows[FEW];
    ptrdiff_t places[FEW];
    for (ptrdiff_t first = start; first < stop; first += FS_SCAN_STRIP) {
        const ptrdiff_t count = stop - first < FS_SCAN_STRIP ? stop - first : FS_SCAN_STRIP;
        const uint8_t *blocks = blocks_of(set, first, count, scratch);
        for (ptrdiff_t i = 0; i < count; i += FEW) {
            const int n = count - i < FEW ? (int)(count - i) : FEW;
            for (int r = 0; r < n; r++) {
                rows[r] = blocks + (i + r) / FS_SCAN_ROWS * bytes + (i + r) % FS_SCAN_ROWS * 4;
                places[r] = first + i + r;
            }
            score_rows(set, query, n, rows, places, score + (first - start) + i);
        }
    }
}
