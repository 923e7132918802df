/* Body of fs_block.c, included once per level and REAL. */
#ifndef FS_DOORS
#if !(FS_WIDTH == 512 && defined(NOT_WIDER))

#define LANES ((int)NAME(lanes))
#define PIECES (FS_BLOCK / LANES)
#define EACH_PIECE FS_UNROLL for (int p = 0; p < PIECES; p++)
#define ROW(v, k) ((v) + (size_t)FS_BLOCK * indices[k])

/* Four entries at a time: their rows of v and w are fetched side by side (no column occurs twice in a row). */
FS_LOOP void NAME(gram_block)(ptrdiff_t m, const uint32_t *indptr, const uint32_t *indices, const REAL *a,
                              const REAL *v, REAL *u, REAL *w)
{
    for (ptrdiff_t i = 0; i < m; i++) {
        const size_t first = indptr[i], last = indptr[i + 1];
        NAME(vec) sum[4][PIECES];
        FS_UNROLL
        for (int l = 0; l < 4; l++)
            EACH_PIECE sum[l][p] = NAME(set)(0);
        size_t k = first;
        for (; k + 4 <= last; k += 4)
            FS_UNROLL
        for (int l = 0; l < 4; l++) {
            const NAME(vec) s = NAME(set)(a[k + l]);
            EACH_PIECE sum[l][p] = NAME(fma)(s, NAME(load)(ROW(v, k + l) + p * LANES), sum[l][p]);
        }
        for (; k < last; k++) {
            const NAME(vec) s = NAME(set)(a[k]);
            EACH_PIECE sum[0][p] = NAME(fma)(s, NAME(load)(ROW(v, k) + p * LANES), sum[0][p]);
        }
        EACH_PIECE
        {
            sum[0][p] = (sum[0][p] + sum[1][p]) + (sum[2][p] + sum[3][p]);
            NAME(store)(u + FS_BLOCK * i + p * LANES, sum[0][p]);
        }
        for (k = first; k + 4 <= last; k += 4) {
            NAME(vec) x[4][PIECES];
            FS_UNROLL
            for (int l = 0; l < 4; l++) {
                const NAME(vec) s = NAME(set)(a[k + l]);
                EACH_PIECE x[l][p] = NAME(fma)(s, sum[0][p], NAME(load)(ROW(w, k + l) + p * LANES));
            }
            FS_UNROLL
            for (int l = 0; l < 4; l++)
                EACH_PIECE NAME(store)(ROW(w, k + l) + p * LANES, x[l][p]);
        }
        for (; k < last; k++) {
            const NAME(vec) s = NAME(set)(a[k]);
            EACH_PIECE
            {
                REAL *at = ROW(w, k) + p * LANES;
                NAME(store)(at, NAME(fma)(s, sum[0][p], NAME(load)(at)));
            }
        }
    }
}

FS_LOOP void NAME(turn_block)(ptrdiff_t n, const REAL *x, const REAL *t, REAL *out)
{
    NAME(vec) turn[FS_BLOCK][PIECES];
    FS_UNROLL
    for (int q = 0; q < FS_BLOCK; q++)
        EACH_PIECE turn[q][p] = NAME(load)(t + FS_BLOCK * q + p * LANES);
    for (ptrdiff_t i = 0; i < n; i++) {
        const REAL *row = x + FS_BLOCK * i;
        NAME(vec) sum[PIECES];
        EACH_PIECE sum[p] = NAME(set)(0);
        FS_UNROLL
        for (int q = 0; q < FS_BLOCK; q++)
            EACH_PIECE sum[p] = NAME(fma)(NAME(set)(row[q]), turn[q][p], sum[p]);
        EACH_PIECE NAME(store)(out + FS_BLOCK * i + p * LANES, sum[p]);
    }
}

/* Four rows of the result at a time: all eight would not stay in registers. */
FS_LOOP void NAME(square_block)(ptrdiff_t n, const REAL *x, double *gram)
{
    for (ptrdiff_t first = 0; first < n; first += 32) {
        const ptrdiff_t last = first + 32 < n ? first + 32 : n;
        for (int half = 0; half < FS_BLOCK; half += 4) {
            NAME(vec) sum[4][PIECES];
            FS_UNROLL
            for (int q = 0; q < 4; q++)
                EACH_PIECE sum[q][p] = NAME(set)(0);
            for (ptrdiff_t i = first; i < last; i++) {
                const REAL *row = x + FS_BLOCK * i;
                FS_UNROLL
                for (int q = 0; q < 4; q++)
                    EACH_PIECE sum[q][p] = NAME(fma)(NAME(set)(row[half + q]), NAME(load)(row + p * LANES), sum[q][p]);
            }
            for (int q = 0; q < 4; q++) {
                REAL some[FS_BLOCK];
                EACH_PIECE NAME(store)(some + p * LANES, sum[q][p]);
                for (int c = 0; c < FS_BLOCK; c++)
                    gram[FS_BLOCK * (half + q) + c] += (double)some[c];
            }
        }
    }
}

#undef LANES
#undef PIECES
#undef EACH_PIECE
#undef ROW

#endif
#else

FS_DOOR(TABLE, void, TYPED(gram_block),
        (ptrdiff_t m, const uint32_t *indptr, const uint32_t *indices, const REAL *a, const REAL *v, REAL *u, REAL *w),
        (m, indptr, indices, a, v, u, w))
FS_DOOR(TABLE, void, TYPED(turn_block), (ptrdiff_t n, const REAL *x, const REAL *t, REAL *out), (n, x, t, out))
FS_DOOR(TABLE, void, TYPED(square_block), (ptrdiff_t n, const REAL *x, double *gram), (n, x, gram))

#endif
