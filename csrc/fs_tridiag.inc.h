/* Body of fs_tridiag.c, included once per level and REAL. */
#ifndef FS_DOORS

/* Columns that one sweep over the rows updates. */
#define COLUMNS 4
/* Reals of a wide vector, of one of its registers, and how many those are. */
#define LINE ((int)(64 / sizeof(REAL)))
#define LANES ((int)NAME(lanes))
#define PIECES (LINE / LANES)

/* b -= v w' + w v' on the lower triangle, and y = b u for the updated symmetric b (m x m, leading dimension ld). */
FS_LOOP void NAME(update_and_multiply)(ptrdiff_t m, ptrdiff_t ld, REAL *b, const REAL *v, const REAL *w, const REAL *u,
                                       REAL *y)
{
    for (ptrdiff_t i = 0; i < m; i++)
        y[i] = 0;
    for (ptrdiff_t k = 0; k < m; k += COLUMNS) {
        NAME(wide) dot[COLUMNS];
        NAME(vec) vk[COLUMNS], wk[COLUMNS], uk[COLUMNS];
        const int columns = m - k < COLUMNS ? (int)(m - k) : COLUMNS;
        FS_UNROLL
        for (int c = 0; c < COLUMNS; c++) {
            const ptrdiff_t at = c < columns ? k + c : k;
            vk[c] = NAME(set)(v[at]);
            wk[c] = NAME(set)(w[at]);
            uk[c] = NAME(set)(u[at]);
            dot[c] = NAME(wide_set)(0);
        }
        { /* the diagonal, and all of a last, narrow block: lane i is row k + i */
            const int rows = m - k < LINE ? (int)(m - k) : LINE;
            const NAME(wide) vr = NAME(wide_load_range)(v + k, 0, rows), wr = NAME(wide_load_range)(w + k, 0, rows);
            const NAME(wide) ur = NAME(wide_load_range)(u + k, 0, rows);
            NAME(wide) yr = NAME(wide_load_range)(y + k, 0, rows);
            FS_UNROLL
            for (int c = 0; c < COLUMNS; c++) {
                REAL *at = b + (k + c) * ld + k;
                const int top = c < columns ? c : rows; /* columns beyond the edge contribute nothing */
                NAME(wide) x = NAME(wide_load_range)(at, top, rows);
                FS_UNROLL
                for (int p = 0; p < PIECES; p++)
                    x.at[p] = NAME(fnma)(wr.at[p], vk[c], NAME(fnma)(vr.at[p], wk[c], x.at[p]));
                x = NAME(wide_keep_range)(top, rows, x);
                NAME(wide_store_range)(at, top, rows, x);
                FS_UNROLL
                for (int p = 0; p < PIECES; p++)
                    yr.at[p] = NAME(fma)(x.at[p], uk[c], yr.at[p]);
                /* the entry on the diagonal counts once */
                x = NAME(wide_keep_range)(top < rows ? top + 1 : rows, rows, x);
                dot[c] = NAME(wide_fma)(x, ur, dot[c]);
            }
            NAME(wide_store_range)(y + k, 0, rows, yr);
        }
        ptrdiff_t r = k + LINE;
        for (; r + LINE <= m; r += LINE) {
            FS_UNROLL
            for (int p = 0; p < PIECES; p++) {
                const ptrdiff_t i = r + p * LANES;
                const NAME(vec) vr = NAME(load)(v + i), wr = NAME(load)(w + i), ur = NAME(load)(u + i);
                NAME(vec) yr = NAME(load)(y + i);
                FS_UNROLL
                for (int c = 0; c < COLUMNS; c++) {
                    REAL *at = b + (k + c) * ld + i;
                    const NAME(vec) x = NAME(fnma)(wr, vk[c], NAME(fnma)(vr, wk[c], NAME(load)(at)));
                    NAME(store)(at, x);
                    yr = NAME(fma)(x, uk[c], yr);
                    dot[c].at[p] = NAME(fma)(x, ur, dot[c].at[p]);
                }
                NAME(store)(y + i, yr);
            }
        }
        if (r < m) {
            FS_UNROLL
            for (int p = 0; p < PIECES; p++) {
                const ptrdiff_t i = r + p * LANES;
                const int rows = m - i >= LANES ? LANES : (int)(m - i);
                if (rows <= 0)
                    break;
                const NAME(vec) vr = NAME(load_range)(v + i, 0, rows), wr = NAME(load_range)(w + i, 0, rows);
                const NAME(vec) ur = NAME(load_range)(u + i, 0, rows);
                NAME(vec) yr = NAME(load_range)(y + i, 0, rows);
                FS_UNROLL
                for (int c = 0; c < COLUMNS; c++) {
                    REAL *at = b + (k + c) * ld + i;
                    const NAME(vec) x = NAME(fnma)(wr, vk[c], NAME(fnma)(vr, wk[c], NAME(load_range)(at, 0, rows)));
                    NAME(store_range)(at, 0, rows, x);
                    yr = NAME(fma)(x, uk[c], yr);
                    dot[c].at[p] = NAME(fma)(x, ur, dot[c].at[p]);
                }
                NAME(store_range)(y + i, 0, rows, yr);
            }
        }
        FS_UNROLL
        for (int c = 0; c < COLUMNS; c++)
            if (c < columns)
                y[k + c] += NAME(wide_sum)(dot[c]);
    }
}

/* x . y */
FS_INLINE double NAME(dot)(ptrdiff_t n, const REAL *x, const REAL *y)
{
    NAME(wide) sum = NAME(wide_set)(0);
    ptrdiff_t i = 0;
    for (; i + LINE <= n; i += LINE)
        sum = NAME(wide_fma)(NAME(wide_load)(x + i), NAME(wide_load)(y + i), sum);
    const int rest = (int)(n - i);
    sum = NAME(wide_fma)(NAME(wide_load_range)(x + i, 0, rest), NAME(wide_load_range)(y + i, 0, rest), sum);
    return (double)NAME(wide_sum)(sum);
}

FS_LOOP void NAME(tridiagonalise)(ptrdiff_t n, REAL *a, REAL *d, REAL *e, REAL *tau, REAL *work)
{
    REAL *FS_RESTRICT v = work, *FS_RESTRICT w = work + n, *FS_RESTRICT u = work + 2 * n;
    REAL *FS_RESTRICT y = work + 3 * n;
    REAL largest = 0;
    int exponent;
    for (ptrdiff_t j = 0; j < n; j++)
        for (ptrdiff_t i = j; i < n; i++) {
            const REAL x = a[j * n + i] < 0 ? -a[j * n + i] : a[j * n + i];
            largest = x > largest ? x : largest;
        }
    /* scale entries to size 1, so that squares do not overflow; by a power of two, without rounding */
    frexp((double)largest, &exponent);
    if (exponent < -20 || exponent > 30)
        for (ptrdiff_t j = 0; j < n; j++)
            for (ptrdiff_t i = j; i < n; i++)
                a[j * n + i] = (REAL)ldexp((double)a[j * n + i], -exponent);
    else
        exponent = 0;
    for (ptrdiff_t i = 0; i < n; i++)
        v[i] = w[i] = 0;
    for (ptrdiff_t j = 0; j < n; j++) {
        /* v and w belong to rows j .. n - 1: the update that the last reflection left open */
        REAL *FS_RESTRICT column = a + j * n;
        const REAL vj = v[j], wj = w[j];
        for (ptrdiff_t i = j; i < n; i++)
            column[i] -= v[i] * wj + w[i] * vj;
        d[j] = column[j];
        if (j + 1 == n)
            break;
        /* H = I - tau u u' maps column[j + 1 .. n) to (e, 0, .., 0), u[j + 1] = 1 */
        /* in double: squares of a float column that is only rounding would underflow, and with an inexact length it
         * would not be a reflection */
        double square = 0, lane[8] = {0};
        ptrdiff_t at_row = j + 2;
        for (; at_row + 8 <= n; at_row += 8)
            for (int l = 0; l < 8; l++)
                lane[l] += (double)column[at_row + l] * (double)column[at_row + l];
        for (; at_row < n; at_row++)
            square += (double)column[at_row] * (double)column[at_row];
        for (int l = 0; l < 8; l++)
            square += lane[l];
        const double head = (double)column[j + 1];
        u[j + 1] = 1;
        if (square < (sizeof(REAL) == 4 ? 1e-60 : 1e-280)) { /* negligible relative to entries of size 1 */
            e[j] = (REAL)head;
            tau[j] = 0;
            for (ptrdiff_t i = j + 2; i < n; i++)
                u[i] = column[i] = 0;
        } else {
            const double length = sqrt(head * head + square), beta = head > 0 ? -length : length;
            const REAL scale = (REAL)(1 / (head - beta));
            e[j] = (REAL)beta;
            tau[j] = (REAL)((beta - head) / beta);
            for (ptrdiff_t i = j + 2; i < n; i++)
                u[i] = column[i] = column[i] * scale;
        }
        const ptrdiff_t m = n - 1 - j, at = j + 1;
        NAME(update_and_multiply)(m, n, a + at * n + at, v + at, w + at, u + at, y + at);
        /* w = tau y - (tau / 2)(tau y . u) u */
        const double dot = NAME(dot)(m, y + at, u + at);
        const REAL half = (REAL)(0.5 * (double)tau[j] * (double)tau[j] * dot), factor = tau[j];
        for (ptrdiff_t i = at; i < n; i++) {
            w[i] = factor * y[i] - half * u[i];
            v[i] = u[i];
        }
    }
    if (exponent != 0)
        for (ptrdiff_t j = 0; j < n; j++) {
            d[j] = (REAL)ldexp((double)d[j], exponent);
            if (j + 1 < n)
                e[j] = (REAL)ldexp((double)e[j], exponent);
        }
}

#undef COLUMNS
#undef LINE
#undef LANES
#undef PIECES

#else

FS_DOOR(FS_TABLE, void, TYPED(tridiagonalise), (ptrdiff_t n, REAL *a, REAL *d, REAL *e, REAL *tau, REAL *work),
        (n, a, d, e, tau, work))

#endif
