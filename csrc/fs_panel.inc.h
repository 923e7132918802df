/* Body of fs_panel.c, included once per REAL.  WIDTH reals are one vector, ROWS = 2 WIDTH rows one panel. */

/* Columns of B that one tile covers: 2 x 8 vectors of sums stay in registers. */
#define TILE 8

/* Rows first .. first + ROWS - 1 of f (zeros from row m on), columns k0 .. k0 + depth - 1, to out[k * ROWS + i]. */
FS_AVX512 static void LOCAL(pack)(ptrdiff_t m, ptrdiff_t first, ptrdiff_t d, const REAL *f, ptrdiff_t k0,
                                  ptrdiff_t depth, REAL *out)
{
    const ptrdiff_t whole = depth / WIDTH * WIDTH;
    for (int half = 0; half < 2; half++) {
        const REAL *row[WIDTH];
        REAL *to = out + half * WIDTH;
        const ptrdiff_t top = first + half * WIDTH;
        if (top + WIDTH > m) {
            for (int i = 0; i < WIDTH; i++)
                for (ptrdiff_t k = 0; k < depth; k++)
                    to[k * ROWS + i] = top + i < m ? f[(top + i) * d + k0 + k] : 0;
            continue;
        }
        for (int i = 0; i < WIDTH; i++)
            row[i] = f + (top + i) * d + k0;
        for (ptrdiff_t k = 0; k < whole; k += WIDTH)
            TRANSPOSE(row, k, to + k * ROWS);
        for (ptrdiff_t k = whole; k < depth; k++)
            for (int i = 0; i < WIDTH; i++)
                to[k * ROWS + i] = row[i][k];
    }
}

/* gram[:, 0 .. n) for the ROWS rows of panel a: (+)= a b', n <= COLUMNS, rows beyond n_rows left out. */
#define GRAM_TILE(COLUMNS, SUFFIX)                                                                                  \
    FS_AVX512 static void LOCAL(gram_tile##SUFFIX)(ptrdiff_t depth, const REAL *a, const REAL *b, ptrdiff_t n_rows, \
                                                   ptrdiff_t n, int first, REAL *gram, ptrdiff_t ld)                \
    {                                                                                                               \
        VEC low[COLUMNS], high[COLUMNS];                                                                            \
        for (int j = 0; j < COLUMNS; j++)                                                                           \
            low[j] = high[j] = OP(setzero)();                                                                       \
        for (ptrdiff_t k = 0; k < depth; k++) {                                                                     \
            const VEC x = OP(loadu)(a + k * ROWS), y = OP(loadu)(a + k * ROWS + WIDTH);                             \
            for (int j = 0; j < COLUMNS; j++) {                                                                     \
                const VEC s = OP(set1)(b[k * ROWS + j]);                                                            \
                low[j] = OP(fmadd)(x, s, low[j]);                                                                   \
                high[j] = OP(fmadd)(y, s, high[j]);                                                                 \
            }                                                                                                       \
        }                                                                                                           \
        const MASK all = (MASK) - 1;                                                                                \
        const MASK below = n_rows >= WIDTH ? all : (MASK)((1u << n_rows) - 1);                                      \
        const MASK above = n_rows >= ROWS ? all : n_rows <= WIDTH ? 0 : (MASK)((1u << (n_rows - WIDTH)) - 1);       \
        for (int j = 0; j < COLUMNS && j < n; j++) {                                                                \
            REAL *to = gram + j * ld;                                                                               \
            if (!first) {                                                                                           \
                low[j] = OP(add)(low[j], OP(maskz_loadu)(below, to));                                               \
                high[j] = OP(add)(high[j], OP(maskz_loadu)(above, to + WIDTH));                                     \
            }                                                                                                       \
            OP(mask_storeu)(to, below, low[j]);                                                                     \
            OP(mask_storeu)(to + WIDTH, above, high[j]);                                                            \
        }                                                                                                           \
    }

GRAM_TILE(TILE, )
/* The doubled buffer has l + 1 new rows: often one column beyond a multiple of TILE. */
GRAM_TILE(2, _narrow)

/* Fetch columns k0 .. k0 + depth - 1 of rows first .. last - 1 into the L2 cache ahead of their use: rows lie whole
 * pages apart, where the hardware does not look ahead. */
FS_AVX512 static void LOCAL(fetch)(ptrdiff_t first, ptrdiff_t last, ptrdiff_t d, const REAL *f, ptrdiff_t k0,
                                   ptrdiff_t depth)
{
    for (ptrdiff_t i = first; i < last; i++)
        for (ptrdiff_t k = 0; k < depth; k += 64 / (ptrdiff_t)sizeof(REAL))
            _mm_prefetch((const char *)(f + i * d + k0 + k), _MM_HINT_T1);
}

FS_AVX512 void NAME(gram)(ptrdiff_t m, ptrdiff_t n_columns, ptrdiff_t d, const REAL *f, REAL *gram, REAL *pack,
                          ptrdiff_t n_pack)
{
    const ptrdiff_t padded = (m + ROWS - 1) / ROWS * ROWS;
    /* Columns packed at a time: all rows of them fit in half of a 1 MB L2 cache. */
    ptrdiff_t depth = n_pack / padded, limit = (512 << 10) / (ptrdiff_t)sizeof(REAL) / padded;
    if (depth > limit)
        depth = limit > WIDTH ? limit : WIDTH;
    if (depth > WIDTH)
        depth -= depth % WIDTH;
    for (ptrdiff_t k0 = 0; k0 < d; k0 += depth) {
        const ptrdiff_t here = d - k0 < depth ? d - k0 : depth;
        const ptrdiff_t next = d - k0 - here < depth ? d - k0 - here : depth;
        for (ptrdiff_t i = 0; i < padded; i += ROWS) {
            REAL *a = pack + i * here;
            LOCAL(pack)(m, i, d, f, k0, here, a);
            for (ptrdiff_t j = 0; j < i + ROWS && j < n_columns; j += TILE) {
                const REAL *b = pack + j / ROWS * ROWS * here + j % ROWS;
                if (j < ROWS) { /* two rows of the next columns with each of the first tiles of a panel */
                    const ptrdiff_t share = ROWS * TILE / ROWS, from = i + j;
                    LOCAL(fetch)(from < m ? from : m, from + share < m ? from + share : m, d, f, k0 + here, next);
                }
                if (n_columns - j <= 2)
                    LOCAL(gram_tile_narrow)(here, a, b, m - i, n_columns - j, k0 == 0, gram + j * m + i, m);
                else
                    LOCAL(gram_tile)(here, a, b, m - i, n_columns - j, k0 == 0, gram + j * m + i, m);
            }
        }
    }
}

/* to[j][0 .. ROWS) = sum_k w[j][k] b[k], n <= TILE results; sum[j] += squares. A NULL is not stored. */
FS_AVX512 static void LOCAL(rotate_tile)(ptrdiff_t m, int n, const REAL *b, ptrdiff_t ldb, const REAL *w, MASK below,
                                         MASK above, REAL *const *to, __m512d *sum)
{
    VEC low[TILE], high[TILE];
    const REAL *v[TILE];
    for (int j = 0; j < TILE; j++) {
        low[j] = high[j] = OP(setzero)();
        v[j] = w + (j < n ? j : n - 1) * m;
    }
    for (ptrdiff_t k = 0; k < m; k++) {
        const VEC x = OP(loadu)(b + k * ldb), y = OP(loadu)(b + k * ldb + WIDTH);
        for (int j = 0; j < TILE; j++) {
            const VEC s = OP(set1)(v[j][k]);
            low[j] = OP(fmadd)(x, s, low[j]);
            high[j] = OP(fmadd)(y, s, high[j]);
        }
    }
    for (int j = 0; j < TILE; j++) { /* columns beyond the edge were packed as zeros */
        sum[j] = ADD_SQUARES(sum[j], low[j]);
        sum[j] = ADD_SQUARES(sum[j], high[j]);
    }
    for (int j = 0; j < n; j++)
        if (to[j]) {
            OP(mask_storeu)(to[j], below, low[j]);
            OP(mask_storeu)(to[j] + WIDTH, above, high[j]);
        }
}

FS_AVX512 void NAME(rotate)(ptrdiff_t m, ptrdiff_t r, ptrdiff_t d, REAL *f, const REAL *w, double *square, REAL *pack,
                            ptrdiff_t n_pack)
{
    /* Columns copied at a time: they, and TILE rows of w, stay in the L2 cache. */
    ptrdiff_t panel = n_pack / m / ROWS * ROWS;
    const ptrdiff_t limit = (384 << 10) / (ptrdiff_t)sizeof(REAL) / m / ROWS * ROWS;
    if (panel > limit)
        panel = limit > ROWS ? limit : ROWS;
    for (ptrdiff_t i = 0; i < r; i++)
        square[i] = 0;
    for (ptrdiff_t c0 = 0; c0 < d; c0 += panel) {
        const ptrdiff_t here = d - c0 < panel ? d - c0 : panel;
        const ptrdiff_t padded = (here + ROWS - 1) / ROWS * ROWS;
        const ptrdiff_t next = d - c0 - here < panel ? d - c0 - here : panel;
        for (ptrdiff_t k = 0; k < m; k++) {
            memcpy(pack + k * padded, f + k * d + c0, (size_t)here * sizeof(REAL));
            for (ptrdiff_t c = here; c < padded; c++)
                pack[k * padded + c] = 0;
        }
        for (ptrdiff_t i = 0; i < r; i += TILE) {
            const int n = (int)(r - i < TILE ? r - i : TILE);
            const ptrdiff_t until = (i + TILE) * m / r;
            __m512d sum[TILE];
            for (int j = 0; j < TILE; j++)
                sum[j] = _mm512_setzero_pd();
            for (ptrdiff_t c = 0; c < here; c += ROWS) {
                const ptrdiff_t left = here - c;
                const MASK all = (MASK)-1;
                const MASK below = left >= WIDTH ? all : (MASK)((1u << left) - 1);
                const MASK above = left >= ROWS ? all : left <= WIDTH ? 0 : (MASK)((1u << (left - WIDTH)) - 1);
                const ptrdiff_t row = i * m / r + c / ROWS; /* one row of the next columns with each tile */
                REAL *to[TILE];
                for (int j = 0; j < n; j++)
                    to[j] = i + j == r - 1 ? NULL : f + (m - 1 - i - j) * d + c0 + c;
                if (row < until && row < m)
                    LOCAL(fetch)(row, row + 1, d, f, c0 + here, next);
                LOCAL(rotate_tile)(m, n, pack + c, padded, w + i * m, below, above, to, sum);
            }
            for (int j = 0; j < n; j++)
                square[i + j] += _mm512_reduce_add_pd(sum[j]);
        }
    }
}

#undef GRAM_TILE
#undef TILE
