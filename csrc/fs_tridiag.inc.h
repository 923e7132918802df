/* Body of fs_tridiag.c, included once per REAL; WIDTH reals are one vector. */

/* Columns that one sweep over the rows updates. */
#define COLUMNS 4

/* b -= v w' + w v' on the lower triangle, and y = b u for the updated symmetric b (m x m, leading dimension ld). */
FS_AVX512 static void LOCAL(update_and_multiply)(ptrdiff_t m, ptrdiff_t ld, REAL *b, const REAL *v, const REAL *w,
                                                 const REAL *u, REAL *y)
{
    for (ptrdiff_t i = 0; i < m; i++)
        y[i] = 0;
    for (ptrdiff_t k = 0; k < m; k += COLUMNS) {
        VEC vk[COLUMNS], wk[COLUMNS], uk[COLUMNS], dot[COLUMNS];
        MASK above[COLUMNS]; /* rows of the first vector that lie above the diagonal of a column */
        for (int c = 0; c < COLUMNS; c++) {
            /* a column beyond the edge is all mask */
            const int real = k + c < m;
            vk[c] = OP(set1)(real ? v[k + c] : 0);
            wk[c] = OP(set1)(real ? w[k + c] : 0);
            uk[c] = OP(set1)(real ? u[k + c] : 0);
            dot[c] = OP(setzero)();
            above[c] = real ? (MASK)((1u << c) - 1) : (MASK)-1;
        }
        ptrdiff_t r = k;
        for (; r < m; r += WIDTH) {
            if (r > k && k + COLUMNS <= m)
                break;
            /* the diagonal, and all of a last, narrow block */
            const MASK rows = m - r >= WIDTH ? (MASK)-1 : (MASK)((1u << (m - r)) - 1);
            const VEC vr = OP(maskz_loadu)(rows, v + r), wr = OP(maskz_loadu)(rows, w + r);
            const VEC ur = OP(maskz_loadu)(rows, u + r);
            VEC yr = OP(maskz_loadu)(rows, y + r);
            for (int c = 0; c < COLUMNS; c++) {
                REAL *at = b + (k + c) * ld + r;
                const MASK here = (MASK)(rows & ~above[c]);
                VEC x = OP(maskz_loadu)(here, at);
                x = OP(fnmadd)(vr, wk[c], x);
                x = OP(maskz_fnmadd)(here, wr, vk[c], x);
                OP(mask_storeu)(at, here, x);
                yr = OP(fmadd)(x, uk[c], yr);
                /* the entry on the diagonal counts once */
                dot[c] = OP(fmadd)(OP(maskz_mov)((MASK)(here & ~((MASK)1 << c)), x), ur, dot[c]);
            }
            OP(mask_storeu)(y + r, rows, yr);
        }
        for (; r + WIDTH <= m; r += WIDTH) {
            const VEC vr = OP(loadu)(v + r), wr = OP(loadu)(w + r), ur = OP(loadu)(u + r);
            VEC yr = OP(loadu)(y + r);
            for (int c = 0; c < COLUMNS; c++) {
                REAL *at = b + (k + c) * ld + r;
                const VEC x = OP(fnmadd)(wr, vk[c], OP(fnmadd)(vr, wk[c], OP(loadu)(at)));
                OP(storeu)(at, x);
                yr = OP(fmadd)(x, uk[c], yr);
                dot[c] = OP(fmadd)(x, ur, dot[c]);
            }
            OP(storeu)(y + r, yr);
        }
        if (r < m) {
            const MASK rows = (MASK)((1u << (m - r)) - 1);
            const VEC vr = OP(maskz_loadu)(rows, v + r), wr = OP(maskz_loadu)(rows, w + r);
            const VEC ur = OP(maskz_loadu)(rows, u + r);
            VEC yr = OP(maskz_loadu)(rows, y + r);
            for (int c = 0; c < COLUMNS; c++) {
                REAL *at = b + (k + c) * ld + r;
                const VEC x = OP(fnmadd)(wr, vk[c], OP(fnmadd)(vr, wk[c], OP(maskz_loadu)(rows, at)));
                OP(mask_storeu)(at, rows, x);
                yr = OP(fmadd)(x, uk[c], yr);
                dot[c] = OP(fmadd)(x, ur, dot[c]);
            }
            OP(mask_storeu)(y + r, rows, yr);
        }
        for (int c = 0; c < COLUMNS && k + c < m; c++)
            y[k + c] += OP(reduce_add)(dot[c]);
    }
}

/* x . y */
FS_AVX512 static double LOCAL(dot)(ptrdiff_t n, const REAL *x, const REAL *y)
{
    VEC sum = OP(setzero)();
    ptrdiff_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH)
        sum = OP(fmadd)(OP(loadu)(x + i), OP(loadu)(y + i), sum);
    const MASK rest = (MASK)((1u << (n - i)) - 1);
    sum = OP(fmadd)(OP(maskz_loadu)(rest, x + i), OP(maskz_loadu)(rest, y + i), sum);
    return (double)OP(reduce_add)(sum);
}

FS_AVX512 void NAME(tridiagonalise)(ptrdiff_t n, REAL *a, REAL *d, REAL *e, REAL *tau, REAL *work)
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
    /* entries to size 1, so that squares stay in range; a power of two rounds nothing */
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
        /* in double: squares of a float column that is all rounding would leave the range, and a reflection with an
         * inexact length is none */
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
        if (square < (sizeof(REAL) == 4 ? 1e-60 : 1e-280)) { /* nothing beside entries of size 1 */
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
        LOCAL(update_and_multiply)(m, n, a + at * n + at, v + at, w + at, u + at, y + at);
        /* w = tau y - (tau / 2)(tau y . u) u */
        const double dot = LOCAL(dot)(m, y + at, u + at);
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
