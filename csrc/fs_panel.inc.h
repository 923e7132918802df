/* Body of fs_panel.c, included once per level and REAL.  A panel is ROWS packed rows; the depth of a block of columns
 * and the order of every sum depend on PADDED alone, so they are the same at every level. */
#ifndef FS_DOORS

/* A tile of sums that stays in registers: VECTORS of rows for TILE columns. Rows of a panel are a multiple of 8, as
 * add_squares has it, and divide PADDED. */
#if FS_WIDTH == 512
#define VECTORS 2
#define TILE 8
#elif FS_WIDTH == 256
#define VECTORS 2
#define TILE 6
#else
#define VECTORS (8 / LANES < 2 ? 2 : 8 / LANES)
#define TILE 2
#endif
#define LANES ((int)NAME(lanes))
#define ROWS (VECTORS * LANES)
/* Reals in 64 bytes. */
#define LINE ((ptrdiff_t)(64 / sizeof(REAL)))

/* Rows first .. first + ROWS - 1 of f (zeros from row m on), columns k0 .. k0 + depth - 1, to out[k * ROWS + i]. */
FS_LOOP void NAME(pack)(ptrdiff_t m, ptrdiff_t first, ptrdiff_t ld, const REAL *f, ptrdiff_t k0, ptrdiff_t depth,
                        REAL *out)
{
    const ptrdiff_t whole = depth / LANES * LANES;
    for (int v = 0; v < VECTORS; v++) {
        const REAL *row[NAME(lanes)];
        REAL *to = out + v * LANES;
        const ptrdiff_t top = first + v * LANES;
        if (top + LANES > m) {
            for (int i = 0; i < LANES; i++)
                for (ptrdiff_t k = 0; k < depth; k++)
                    to[k * ROWS + i] = top + i < m ? f[(top + i) * ld + k0 + k] : 0;
            continue;
        }
        for (int i = 0; i < LANES; i++)
            row[i] = f + (top + i) * ld + k0;
        for (ptrdiff_t k = 0; k < whole; k += LANES)
            NAME(transpose)(row, k, to + k * ROWS, ROWS);
        for (ptrdiff_t k = whole; k < depth; k++)
            for (int i = 0; i < LANES; i++)
                to[k * ROWS + i] = row[i][k];
    }
}

/* sum[j][v] = sum_k a[k * step_a + v LANES ..] b[j][k * step_b], in the order of k, for `columns` <= TILE of b. */
FS_INLINE void NAME(tile)(int columns, ptrdiff_t depth, const REAL *a, ptrdiff_t step_a, const REAL *const *b,
                          ptrdiff_t step_b, NAME(vec) (*sum)[VECTORS])
{
    FS_UNROLL
    for (int j = 0; j < columns; j++)
        FS_UNROLL
    for (int v = 0; v < VECTORS; v++)
        sum[j][v] = NAME(set)(0);
    for (ptrdiff_t k = 0; k < depth; k++) {
        NAME(vec) x[VECTORS];
        FS_UNROLL
        for (int v = 0; v < VECTORS; v++)
            x[v] = NAME(load)(a + k * step_a + v * LANES);
        FS_UNROLL
        for (int j = 0; j < columns; j++) {
            const NAME(vec) s = NAME(set)(b[j][k * step_b]);
            FS_UNROLL
            for (int v = 0; v < VECTORS; v++)
                sum[j][v] = NAME(fma)(x[v], s, sum[j][v]);
        }
    }
}

/* How many of `left` rows or columns are in vector v. */
FS_INLINE int NAME(of_vector)(ptrdiff_t left, int v)
{
    left -= v * LANES;
    return left >= LANES ? LANES : left > 0 ? (int)left : 0;
}

/* gram[:, 0 .. columns) for the ROWS rows of panel a: (+)= a b', without rows beyond n_rows and columns beyond n. */
FS_INLINE void NAME(gram_columns)(int columns, ptrdiff_t depth, const REAL *a, const REAL *const *b, ptrdiff_t n_rows,
                                  int n, int first, REAL *gram, ptrdiff_t ld)
{
    NAME(vec) sum[TILE][VECTORS];
    NAME(tile)(columns, depth, a, ROWS, b, ROWS, sum);
    FS_UNROLL
    for (int j = 0; j < columns; j++) {
        REAL *to = gram + j * ld;
        if (j >= n)
            break;
        if (n_rows >= ROWS) {
            FS_UNROLL
            for (int v = 0; v < VECTORS; v++) {
                REAL *at = to + v * LANES;
                if (!first)
                    sum[j][v] = sum[j][v] + NAME(load)(at);
                NAME(store)(at, sum[j][v]);
            }
        } else {
            FS_UNROLL
            for (int v = 0; v < VECTORS; v++) {
                REAL *at = to + v * LANES;
                const int stop = NAME(of_vector)(n_rows, v);
                if (!first)
                    sum[j][v] = sum[j][v] + NAME(load_range)(at, 0, stop);
                NAME(store_range)(at, 0, stop, sum[j][v]);
            }
        }
    }
}

/* A few remaining columns do not cost a whole tile. */
FS_LOOP void NAME(gram_tile)(ptrdiff_t depth, const REAL *a, const REAL *const *b, ptrdiff_t n_rows, int n, int first,
                             REAL *gram, ptrdiff_t ld)
{
    if (n <= 2)
        NAME(gram_columns)(2, depth, a, b, n_rows, n, first, gram, ld);
#if TILE > 4
    else if (n <= 4)
        NAME(gram_columns)(4, depth, a, b, n_rows, n, first, gram, ld);
#endif
    else
        NAME(gram_columns)(TILE, depth, a, b, n_rows, n, first, gram, ld);
}

/* Prefetch columns k0 .. k0 + depth - 1 of rows first .. last - 1 into the L2 cache: rows are pages apart, so that the
 * hardware does not prefetch them. */
FS_LOOP void NAME(fetch)(ptrdiff_t first, ptrdiff_t last, ptrdiff_t ld, const REAL *f, ptrdiff_t k0, ptrdiff_t depth)
{
    for (ptrdiff_t i = first; i < last; i++)
        for (ptrdiff_t k = 0; k < depth; k += LINE)
            FS_FETCH(f + i * ld + k0 + k);
}

FS_LOOP void NAME(panel_gram)(ptrdiff_t m, ptrdiff_t n_columns, ptrdiff_t d, ptrdiff_t ld, const REAL *f, REAL *gram,
                              REAL *pack, ptrdiff_t n_pack)
{
    const ptrdiff_t padded = (m + PADDED - 1) / PADDED * PADDED;
    /* Columns packed at a time: all rows of them fit in half of a 1 MB L2 cache. */
    ptrdiff_t depth = n_pack / padded, limit = (512 << 10) / (ptrdiff_t)sizeof(REAL) / padded;
    if (depth > limit)
        depth = limit > LINE ? limit : LINE;
    if (depth > LINE)
        depth -= depth % LINE;
    for (ptrdiff_t k0 = 0; k0 < d; k0 += depth) {
        const ptrdiff_t here = d - k0 < depth ? d - k0 : depth;
        const ptrdiff_t next = d - k0 - here < depth ? d - k0 - here : depth;
        for (ptrdiff_t i = 0; i < m; i += ROWS) {
            const REAL *a = pack + i * here;
            NAME(pack)(m, i, ld, f, k0, here, pack + i * here);
            ptrdiff_t fetched = i; /* rows of the next columns, as many as this panel has, ahead of the tiles */
            for (ptrdiff_t j = 0; j < i + ROWS && j < n_columns; j += TILE) {
                const REAL *b[TILE];
                const int n = (int)(n_columns - j < TILE ? n_columns - j : TILE);
                for (int c = 0; c < TILE; c++) { /* columns beyond the last are computed, not stored */
                    const ptrdiff_t column = j + (c < n ? c : 0), of = column < i + ROWS ? column : i;
                    b[c] = pack + of / ROWS * ROWS * here + of % ROWS;
                }
                if (fetched < i + ROWS && fetched < m) {
                    const ptrdiff_t last = fetched + TILE < i + ROWS ? fetched + TILE : i + ROWS;
                    NAME(fetch)(fetched, last < m ? last : m, ld, f, k0 + here, next);
                    fetched = last;
                }
                NAME(gram_tile)(here, a, b, m - i, n, k0 == 0, gram + j * m + i, m);
            }
        }
    }
}

/* to[j][0 .. left) = sum_k w[j][k] b[k], n <= columns results, left <= ROWS; sum[j] += squares. A NULL is not stored.
 */
FS_INLINE void NAME(rotate_rows)(int columns, ptrdiff_t m, int n, const REAL *b, ptrdiff_t ldb, const REAL *const *w,
                                 ptrdiff_t left, REAL *const *to, NAME_D(wide) * square)
{
    NAME(vec) sum[TILE][VECTORS];
    NAME(tile)(columns, m, b, ldb, w, 1, sum);
    FS_UNROLL
    for (int j = 0; j < columns; j++) {
        FS_UNROLL
        for (int v = 0; v < VECTORS; v++) /* columns beyond the edge were packed as zeros */
            NAME(add_squares)(square + j, v, sum[j][v]);
        if (j >= n || !to[j])
            continue;
        FS_UNROLL
        for (int v = 0; v < VECTORS; v++)
            if (left >= ROWS)
                NAME(store)(to[j] + v * LANES, sum[j][v]);
            else
                NAME(store_range)(to[j] + v * LANES, 0, NAME(of_vector)(left, v), sum[j][v]);
    }
}

FS_LOOP void NAME(rotate_tile)(ptrdiff_t m, int n, const REAL *b, ptrdiff_t ldb, const REAL *const *w, ptrdiff_t left,
                               REAL *const *to, NAME_D(wide) * square)
{
    if (n <= 2)
        NAME(rotate_rows)(2, m, n, b, ldb, w, left, to, square);
#if TILE > 4
    else if (n <= 4)
        NAME(rotate_rows)(4, m, n, b, ldb, w, left, to, square);
#endif
    else
        NAME(rotate_rows)(TILE, m, n, b, ldb, w, left, to, square);
}

FS_LOOP void NAME(panel_rotate)(ptrdiff_t m, ptrdiff_t r, ptrdiff_t d, ptrdiff_t ld, REAL *f, const REAL *w,
                                double *square, REAL *pack, ptrdiff_t n_pack)
{
    /* Columns copied at a time: they, and TILE rows of w, stay in the L2 cache. */
    ptrdiff_t panel = n_pack / m / PADDED * PADDED;
    const ptrdiff_t limit = (384 << 10) / (ptrdiff_t)sizeof(REAL) / m / PADDED * PADDED;
    if (panel > limit)
        panel = limit > PADDED ? limit : PADDED;
    for (ptrdiff_t i = 0; i < r; i++)
        square[i] = 0;
    for (ptrdiff_t c0 = 0; c0 < d; c0 += panel) {
        const ptrdiff_t here = d - c0 < panel ? d - c0 : panel;
        const ptrdiff_t padded = (here + PADDED - 1) / PADDED * PADDED;
        const ptrdiff_t next = d - c0 - here < panel ? d - c0 - here : panel;
        for (ptrdiff_t k = 0; k < m; k++) {
            memcpy(pack + k * padded, f + k * ld + c0, (size_t)here * sizeof(REAL));
            for (ptrdiff_t c = here; c < padded; c++)
                pack[k * padded + c] = 0;
        }
        for (ptrdiff_t i = 0; i < r; i += TILE) {
            const int n = (int)(r - i < TILE ? r - i : TILE);
            const ptrdiff_t until = (i + TILE) * m / r;
            const REAL *v[TILE];
            NAME_D(wide) sum[TILE];
            for (int j = 0; j < TILE; j++) {
                v[j] = w + (i + (j < n ? j : n - 1)) * m;
                sum[j] = NAME_D(wide_set)(0);
            }
            for (ptrdiff_t c = 0; c < here; c += ROWS) {
                const ptrdiff_t row = i * m / r + c / ROWS; /* one row of the next columns with each tile */
                REAL *to[TILE];
                for (int j = 0; j < n; j++)
                    to[j] = i + j == r - 1 ? NULL : f + (m - 1 - i - j) * ld + c0 + c;
                if (row < until && row < m)
                    NAME(fetch)(row, row + 1, ld, f, c0 + here, next);
                NAME(rotate_tile)(m, n, pack + c, padded, v, here - c, to, sum);
            }
            for (int j = 0; j < n; j++)
                square[i + j] += NAME_D(wide_sum)(sum[j]);
        }
    }
}

#undef VECTORS
#undef TILE
#undef LANES
#undef ROWS
#undef LINE

#else

FS_DOOR(FS_TABLE, void, TYPED(panel_gram),
        (ptrdiff_t m, ptrdiff_t n_columns, ptrdiff_t d, ptrdiff_t ld, const REAL *f, REAL *gram, REAL *pack,
         ptrdiff_t n_pack),
        (m, n_columns, d, ld, f, gram, pack, n_pack))
FS_DOOR(FS_TABLE, void, TYPED(panel_rotate),
        (ptrdiff_t m, ptrdiff_t r, ptrdiff_t d, ptrdiff_t ld, REAL *f, const REAL *w, double *square, REAL *pack,
         ptrdiff_t n_pack),
        (m, r, d, ld, f, w, square, pack, n_pack))

#endif
