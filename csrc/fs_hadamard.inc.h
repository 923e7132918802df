/* Body of fs_hadamard.c, included once per level and REAL (float, double). */
#ifndef FS_DOORS

#define STRIP ((ptrdiff_t)(STRIP_BYTES / sizeof(REAL)))
/* The distance of rows of a strip: one cache line more, so that eight rows do not map to the same cache set. */
#define PITCH (STRIP + (ptrdiff_t)(64 / sizeof(REAL)))
#define SRHT_STRIP ((ptrdiff_t)(FS_SRHT_STRIP_BYTES / sizeof(REAL)))
#define SRHT_PITCH (SRHT_STRIP + (ptrdiff_t)(64 / sizeof(REAL)))

/* w columns of H_r between r = 2, 4 or 8 rows, `gap` apart in `from` and `step` apart in `to`. */
FS_INLINE void NAME(two)(ptrdiff_t w, const REAL *from, ptrdiff_t gap, REAL *to, ptrdiff_t step)
{
    FS_INDEPENDENT
    for (ptrdiff_t j = 0; j < w; j++) {
        const REAL a = from[j], b = from[gap + j];
        to[j] = a + b;
        to[step + j] = a - b;
    }
}

FS_INLINE void NAME(four)(ptrdiff_t w, const REAL *from, ptrdiff_t gap, REAL *to, ptrdiff_t step)
{
    FS_INDEPENDENT
    for (ptrdiff_t j = 0; j < w; j++) {
        const REAL a = from[j], b = from[gap + j], c = from[2 * gap + j], d = from[3 * gap + j];
        const REAL e = a + b, f = a - b, g = c + d, h = c - d;
        to[j] = e + g;
        to[step + j] = f + h;
        to[2 * step + j] = e - g;
        to[3 * step + j] = f - h;
    }
}

/* The eight outputs of H_8 from a0 .. a7, in named variables, so that they stay in registers. */
#define EIGHT_BUTTERFLIES(a0, a1, a2, a3, a4, a5, a6, a7)              \
    const REAL b0 = a0 + a1, b1 = a0 - a1, b2 = a2 + a3, b3 = a2 - a3; \
    const REAL b4 = a4 + a5, b5 = a4 - a5, b6 = a6 + a7, b7 = a6 - a7; \
    const REAL c0 = b0 + b2, c1 = b1 + b3, c2 = b0 - b2, c3 = b1 - b3; \
    const REAL c4 = b4 + b6, c5 = b5 + b7, c6 = b4 - b6, c7 = b5 - b7; \
    to[j] = c0 + c4;                                                   \
    to[step + j] = c1 + c5;                                            \
    to[2 * step + j] = c2 + c6;                                        \
    to[3 * step + j] = c3 + c7;                                        \
    to[4 * step + j] = c0 - c4;                                        \
    to[5 * step + j] = c1 - c5;                                        \
    to[6 * step + j] = c2 - c6;                                        \
    to[7 * step + j] = c3 - c7;

FS_INLINE void NAME(eight)(ptrdiff_t w, const REAL *from, ptrdiff_t gap, REAL *to, ptrdiff_t step)
{
    FS_INDEPENDENT
    for (ptrdiff_t j = 0; j < w; j++) {
        const REAL a0 = from[j], a1 = from[gap + j], a2 = from[2 * gap + j], a3 = from[3 * gap + j];
        const REAL a4 = from[4 * gap + j], a5 = from[5 * gap + j], a6 = from[6 * gap + j], a7 = from[7 * gap + j];
        EIGHT_BUTTERFLIES(a0, a1, a2, a3, a4, a5, a6, a7)
    }
}

FS_INLINE void NAME(sixteen)(ptrdiff_t w, const REAL *from, ptrdiff_t gap, REAL *to, ptrdiff_t step)
{
    FS_INDEPENDENT
    for (ptrdiff_t j = 0; j < w; j++) {
        REAL a[16], b[16];
        for (int k = 0; k < 16; k += 2) {
            const REAL x = from[k * gap + j], y = from[(k + 1) * gap + j];
            a[k] = x + y;
            a[k + 1] = x - y;
        }
        for (int k = 0; k < 16; k++)
            b[k] = k & 2 ? a[k - 2] - a[k] : a[k] + a[k + 2];
        for (int k = 0; k < 16; k++)
            a[k] = k & 4 ? b[k - 4] - b[k] : b[k] + b[k + 4];
        for (int k = 0; k < 8; k++) {
            to[k * step + j] = a[k] + a[k + 8];
            to[(k + 8) * step + j] = a[k] - a[k + 8];
        }
    }
}

FS_INLINE void NAME(few)(ptrdiff_t r, ptrdiff_t w, const REAL *from, ptrdiff_t gap, REAL *to, ptrdiff_t step)
{
    if (r == 16)
        NAME(sixteen)(w, from, gap, to, step);
    else if (r == 8)
        NAME(eight)(w, from, gap, to, step);
    else if (r == 4)
        NAME(four)(w, from, gap, to, step);
    else
        NAME(two)(w, from, gap, to, step);
}

/* H_r between the rows x, x + gap, ... over w <= STRIP columns: the levels of the upper bits of the row index on the
 * way into `space`, the others on the way back.  Each row is read and written once; rows a power of two apart map to so
 * few cache sets that the cache could not hold them. */
FS_INLINE void NAME(strip)(ptrdiff_t r, ptrdiff_t high, ptrdiff_t w, REAL *x, ptrdiff_t gap, REAL *space)
{
    const ptrdiff_t low = r / high;
    for (ptrdiff_t a = 0; a < low; a++)
        NAME(few)(high, w, x + a * gap, low * gap, space + a * PITCH, low * PITCH);
    for (ptrdiff_t k = 0; k < high; k++)
        NAME(few)(low, w, space + k * low * PITCH, PITCH, x + k * low * gap, gap);
}

/* H_r between rows `gap` apart, for all r * gap rows. */
FS_INLINE void NAME(far_rows)(ptrdiff_t r, ptrdiff_t gap, ptrdiff_t d, ptrdiff_t ld, REAL *x)
{
    _Alignas(64) REAL space[64 * PITCH];
    if (r <= 8) {
        for (ptrdiff_t row = 0; row < gap; row++)
            NAME(few)(r, d, x + row * ld, gap * ld, x + row * ld, gap * ld);
        return;
    }
    const ptrdiff_t high = r > 32 ? 8 : 4;
    for (ptrdiff_t row = 0; row < gap; row++)
        for (ptrdiff_t j = 0; j < d; j += STRIP) {
            if (d - j >= STRIP) /* a length known to the compiler */
                NAME(strip)(r, high, STRIP, x + row * ld + j, gap * ld, space);
            else
                NAME(strip)(r, high, d - j, x + row * ld + j, gap * ld, space);
        }
}

/* H_m between m = 2 .. 256 adjacent rows, in place, whole rows at a time. */
FS_INLINE void NAME(near_rows)(ptrdiff_t m, ptrdiff_t d, ptrdiff_t ld, REAL *x)
{
    const ptrdiff_t r = m <= 16 ? m : m <= 64 ? 8 : 16, gap = m / r;
    for (ptrdiff_t row = 0; row < gap; row++)
        NAME(few)(r, d, x + row * ld, gap * ld, x + row * ld, gap * ld);
    if (gap > 1)
        for (ptrdiff_t row = 0; row < m; row += gap)
            NAME(few)(gap, d, x + row * ld, ld, x + row * ld, ld);
}

FS_LOOP void NAME(fwht_columns)(ptrdiff_t m, ptrdiff_t d, ptrdiff_t ld, REAL *x)
{
    int bits = 0;
    while ((ptrdiff_t)1 << bits < m)
        bits++;
    const int low = bits <= 8 ? bits : 6, levels = (bits - low + 5) / 6;
    ptrdiff_t size[12] = {m}; /* rows of a block at every level */
    int left = bits - low;
    for (int k = 0; k < levels; k++) {
        const int now = (left + levels - k - 1) / (levels - k);
        size[k + 1] = size[k] >> now;
        left -= now;
    }
    /* Between distant rows first, then within each block: a block that fits into a cache is finished there. */
    for (ptrdiff_t row = 0; row < m; row += size[levels]) {
        for (int k = 0; k < levels; k++)
            if (row % size[k] == 0)
                NAME(far_rows)(size[k] / size[k + 1], size[k + 1], d, ld, x + row * ld);
        if (low)
            NAME(near_rows)(size[levels], d, ld, x + row * ld);
    }
}

/* H_m of one contiguous vector, by plain butterflies: for small m, or without vector extensions. */
FS_INLINE void NAME(short_row)(ptrdiff_t m, REAL *x)
{
    for (ptrdiff_t gap = 1; gap < m; gap *= 2)
        for (ptrdiff_t top = 0; top < m; top += 2 * gap)
            NAME(two)(gap, x + top, gap, x + top, gap);
}

/* H of RUN = 8 * LINE contiguous elements in registers of LANES.  A level within a register is a shuffle, a change of
 * signs and an addition; between registers of a line, and by NAME(eight) between lines, it is a butterfly. */
#define LINE ((ptrdiff_t)(64 / sizeof(REAL)))
#define RUN (8 * LINE)
#if FS_SHUFFLES
#define BYTES (FS_WIDTH ? FS_WIDTH / 8 : 16)
#define LANES (8 * BYTES / BITS)
typedef REAL NAME(lanes) __attribute__((vector_size(BYTES)));
/* the same in unaligned memory */
typedef REAL NAME(lanes_at) __attribute__((vector_size(BYTES), aligned(sizeof(REAL)), may_alias));
#if LANES == 2
#define EACH_LANE LANES_2
#elif LANES == 4
#define EACH_LANE LANES_4
#elif LANES == 8
#define EACH_LANE LANES_8
#else
#define EACH_LANE LANES_16
#endif
#define WITHIN(v, distance) \
    v = FS_SHUFFLE(v, EACH_LANE(FLIP_##distance)) + v * (NAME(lanes)) { EACH_LANE(SIGN_##distance) }
FS_INLINE void NAME(run)(REAL *x)
{
    for (ptrdiff_t i = 0; i < RUN; i += LINE) {
        NAME(lanes) v[LINE / LANES];
        FS_UNROLL
        for (int p = 0; p < LINE / LANES; p++) {
            v[p] = *(const NAME(lanes_at) *)(x + i + p * LANES);
            WITHIN(v[p], 1);
#if LANES > 2
            WITHIN(v[p], 2);
#endif
#if LANES > 4
            WITHIN(v[p], 4);
#endif
#if LANES > 8
            WITHIN(v[p], 8);
#endif
        }
        FS_UNROLL
        for (int gap = 1; gap < LINE / LANES; gap *= 2)
            FS_UNROLL
        for (int p = 0; p < LINE / LANES; p++)
            if (!(p & gap)) {
                const NAME(lanes) sum = v[p] + v[p + gap];
                v[p + gap] = v[p] - v[p + gap];
                v[p] = sum;
            }
        FS_UNROLL
        for (int p = 0; p < LINE / LANES; p++)
            *(NAME(lanes_at) *)(x + i + p * LANES) = v[p];
    }
    NAME(eight)(LINE, x, LINE, x, LINE);
}
#undef BYTES
#undef LANES
#undef EACH_LANE
#undef WITHIN
#else
FS_INLINE void NAME(run)(REAL *x) { NAME(short_row)(RUN, x); }
#endif

FS_LOOP void NAME(fwht_rows)(ptrdiff_t n, ptrdiff_t m, ptrdiff_t ld, REAL *x)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        REAL *row = x + i * ld;
        if (m < RUN) {
            NAME(short_row)(m, row);
            continue;
        }
        for (ptrdiff_t j = 0; j < m; j += RUN)
            NAME(run)(row + j);
        /* H_m = H_{m / RUN} (x) H_RUN: the first factor is a transform between rows of RUN elements */
        NAME(fwht_columns)(m / RUN, RUN, RUN, row);
    }
}

/* Load a strip of eight rows of the block, p / 8 apart: shift, sum, signs, and the first three levels. */
FS_INLINE void NAME(load_eight)(ptrdiff_t w, const REAL *x, ptrdiff_t gap, const REAL *factor, const double *root,
                                ptrdiff_t stride, const REAL *shift, double *sums, REAL *to, ptrdiff_t step)
{
    const REAL f0 = factor[0], f1 = factor[stride], f2 = factor[2 * stride], f3 = factor[3 * stride];
    const REAL f4 = factor[4 * stride], f5 = factor[5 * stride], f6 = factor[6 * stride], f7 = factor[7 * stride];
    if (root && sums) {
        for (ptrdiff_t k = 0; k < 8; k++) {
            const double weight = root[k * stride];
            const REAL *FS_RESTRICT row = x + k * gap;
            for (ptrdiff_t j = 0; j < w; j++)
                sums[j] += weight * (double)(row[j] - shift[j]);
        }
    }
#define LOAD(k) const REAL y##k = x[(k) * gap + j] - shift[j];
#define SIGNED(k) const REAL a##k = f##k * y##k;
#define EACH(OF) OF(0) OF(1) OF(2) OF(3) OF(4) OF(5) OF(6) OF(7)
    if (root || !sums) {
        FS_INDEPENDENT
        for (ptrdiff_t j = 0; j < w; j++) {
            EACH(LOAD)
            EACH(SIGNED)
            EIGHT_BUTTERFLIES(a0, a1, a2, a3, a4, a5, a6, a7)
        }
    } else {
        FS_INDEPENDENT
        for (ptrdiff_t j = 0; j < w; j++) {
            EACH(LOAD)
            sums[j] += (double)(((y0 + y1) + (y2 + y3)) + ((y4 + y5) + (y6 + y7)));
            EACH(SIGNED)
            EIGHT_BUTTERFLIES(a0, a1, a2, a3, a4, a5, a6, a7)
        }
    }
#undef LOAD
#undef SIGNED
#undef EACH
}

FS_LOOP void NAME(srht_block)(ptrdiff_t p, ptrdiff_t d, ptrdiff_t ld, const REAL *x, const REAL *factor,
                              const double *root, const REAL *shift, double *sums, ptrdiff_t q, const int32_t *lo,
                              const REAL *flip, REAL *work, REAL *out, ptrdiff_t ld_out)
{
    static const REAL zeros[SRHT_STRIP] = {0};
    const ptrdiff_t eighth = p / 8;
    for (ptrdiff_t j = 0; j < d; j += SRHT_STRIP) {
        const ptrdiff_t w = d - j < SRHT_STRIP ? d - j : SRHT_STRIP;
        const REAL *centre = shift ? shift + j : zeros;
        double *total = sums ? sums + j : NULL;
        /* the levels of the upper three bits of the row index while rows are loaded, the others in the strip */
        for (ptrdiff_t a = 0; a < eighth; a++)
            NAME(load_eight)(w, x + a * ld + j, eighth * ld, factor + a, root ? root + a : NULL, eighth, centre, total,
                             work + a * SRHT_PITCH, eighth * SRHT_PITCH);
        for (ptrdiff_t left = eighth; left > 1;) {
            const ptrdiff_t r = left >= 8 ? 8 : left, gap = left / r;
            for (ptrdiff_t top = 0; top < p; top += left)
                for (ptrdiff_t a = top; a < top + gap; a++)
                    NAME(few)(r, w, work + a * SRHT_PITCH, gap * SRHT_PITCH, work + a * SRHT_PITCH, gap * SRHT_PITCH);
            left = gap;
        }
        for (ptrdiff_t k = 0; k < q; k++) {
            const REAL *FS_RESTRICT from = work + lo[k] * SRHT_PITCH;
            REAL *FS_RESTRICT to = out + k * ld_out + j;
            if (flip[k] > 0)
                for (ptrdiff_t c = 0; c < w; c++)
                    to[c] += from[c];
            else
                for (ptrdiff_t c = 0; c < w; c++)
                    to[c] -= from[c];
        }
    }
}

FS_LOOP void NAME(scatter_rows)(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const REAL *x, const double *root,
                                const REAL *shift, double *sums, ptrdiff_t s, const int32_t *target, const REAL *value,
                                REAL *out, ptrdiff_t ld_out)
{
    static const REAL zeros[SRHT_STRIP] = {0};
    REAL y[SRHT_STRIP];
    for (ptrdiff_t i = 0; i < n; i++)
        for (ptrdiff_t j = 0; j < d; j += SRHT_STRIP) {
            const ptrdiff_t w = d - j < SRHT_STRIP ? d - j : SRHT_STRIP;
            const REAL *FS_RESTRICT row = x + i * ld + j;
            const REAL *FS_RESTRICT centre = shift ? shift + j : zeros;
            for (ptrdiff_t c = 0; c < w; c++)
                y[c] = row[c] - centre[c];
            if (sums) {
                const double weight = root ? root[i] : 1.0;
                double *FS_RESTRICT total = sums + j;
                for (ptrdiff_t c = 0; c < w; c++)
                    total[c] += weight * (double)y[c];
            }
            for (ptrdiff_t t = 0; t < s; t++) {
                REAL *FS_RESTRICT to = out + target[i * s + t] * ld_out + j;
                const REAL v = value[i * s + t];
                if (v == 0)
                    continue;
                for (ptrdiff_t c = 0; c < w; c++)
                    to[c] += v * y[c];
            }
        }
}

#undef STRIP
#undef PITCH
#undef SRHT_STRIP
#undef SRHT_PITCH
#undef LINE
#undef RUN
#undef EIGHT_BUTTERFLIES

#else

ptrdiff_t FS_JOIN(fs, TYPED(srht_work))(ptrdiff_t p)
{
    return p * (ptrdiff_t)((FS_SRHT_STRIP_BYTES + 64) / sizeof(REAL));
}

FS_DOOR(FS_TABLE_FROM_AVX2, void, TYPED(fwht_columns), (ptrdiff_t m, ptrdiff_t d, ptrdiff_t ld, REAL *x), (m, d, ld, x))
FS_DOOR(FS_TABLE_FROM_AVX2, void, TYPED(fwht_rows), (ptrdiff_t n, ptrdiff_t m, ptrdiff_t ld, REAL *x), (n, m, ld, x))
FS_DOOR(FS_TABLE_FROM_AVX2, void, TYPED(srht_block),
        (ptrdiff_t p, ptrdiff_t d, ptrdiff_t ld, const REAL *x, const REAL *factor, const double *root,
         const REAL *shift, double *sums, ptrdiff_t q, const int32_t *lo, const REAL *flip, REAL *work, REAL *out,
         ptrdiff_t ld_out),
        (p, d, ld, x, factor, root, shift, sums, q, lo, flip, work, out, ld_out))
FS_DOOR(FS_TABLE_FROM_AVX2, void, TYPED(scatter_rows),
        (ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const REAL *x, const double *root, const REAL *shift, double *sums,
         ptrdiff_t s, const int32_t *target, const REAL *value, REAL *out, ptrdiff_t ld_out),
        (n, d, ld, x, root, shift, sums, s, target, value, out, ld_out))

#endif
