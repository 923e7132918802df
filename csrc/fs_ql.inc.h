/* Body of fs_ql.c, included once per level and REAL. */
#ifndef FS_DOORS

/* Columns of `rows` entries, a multiple of FS_LANES: (upper, lower) = (c upper + s lower, c lower - s upper). */
FS_INLINE void NAME(rotate)(ptrdiff_t rows, REAL c, REAL s, REAL *FS_RESTRICT upper, REAL *FS_RESTRICT lower)
{
    for (ptrdiff_t i = 0; i < rows; i += FS_LANES)
        for (int l = 0; l < FS_LANES; l++) {
            const REAL x = upper[i + l], y = lower[i + l];
            upper[i + l] = c * x + s * y;
            lower[i + l] = c * y - s * x;
        }
}

/* The number of iterations per eigenvalue after which LAPACK's steqr gives up, too. */
#define MOST_ROUNDS 30
/* A squared length below this has lost bits in the subnormal numbers: a rotation by it would not be one. */
#define LEAST_SQUARE 1e-280

FS_LOOP int NAME(ql)(ptrdiff_t n, const REAL *diagonal, const REAL *below, double *values, REAL *z, ptrdiff_t ld)
{
    REAL q[FS_QL_MOST][FS_QL_MOST];
    double d[FS_QL_MOST], e[FS_QL_MOST];
    ptrdiff_t order[FS_QL_MOST];
    const ptrdiff_t rows = (n + FS_LANES - 1) / FS_LANES * FS_LANES;
    int rounds = MOST_ROUNDS * (int)n;
    for (ptrdiff_t i = 0; i < n; i++) {
        memset(q[i], 0, (size_t)rows * sizeof(REAL));
        q[i][i] = 1;
        d[i] = (double)diagonal[i];
        e[i] = i + 1 < n ? (double)below[i] : 0;
    }
    /* the steps and names of imtql2 (Martin and Wilkinson, Numerische Mathematik 12, 1968) */
    for (ptrdiff_t l = 0; l < n; l++)
        for (;;) {
            ptrdiff_t m = l, i;
            double g, p = 0, c = 1, s = 1;
            /* eps^2 of the largest entry, which is about 1, is negligible as well: between entries near 0, rounding can
             * keep a coupling above what is relative to them */
            while (m + 1 < n && fabs(e[m]) > DBL_EPSILON / 2 * (fabs(d[m]) + fabs(d[m + 1]) + DBL_EPSILON))
                m++;
            if (m == l)
                break;
            if (rounds-- == 0)
                return (int)l + 1;
            g = (d[l + 1] - d[l]) / (2 * e[l]);
            g = d[m] - d[l] + e[l] / (g + copysign(sqrt(g * g + 1), g));
            for (i = m - 1; i >= l; i--) {
                const double f = s * e[i], b = c * e[i], square = f * f + g * g;
                double r, inverse;
                if (square < LEAST_SQUARE) { /* the matrix splits here */
                    e[i + 1] = 0;
                    d[i + 1] -= p;
                    e[m] = 0;
                    break;
                }
                r = sqrt(square);
                inverse = 1 / r;
                e[i + 1] = r;
                s = f * inverse;
                c = g * inverse;
                g = d[i + 1] - p;
                r = (d[i] - g) * s + 2 * c * b;
                p = s * r;
                d[i + 1] = g + p;
                g = c * r - b;
                NAME(rotate)(rows, (REAL)c, (REAL)s, q[i + 1], q[i]);
            }
            if (i < l) {
                d[l] -= p;
                e[l] = g;
                e[m] = 0;
            }
        }
    for (ptrdiff_t i = 0; i < n; i++) {
        ptrdiff_t j = i;
        for (; j > 0 && d[order[j - 1]] > d[i]; j--)
            order[j] = order[j - 1];
        order[j] = i;
    }
    for (ptrdiff_t i = 0; i < n; i++) {
        values[i] = d[order[i]];
        memcpy(z + i * ld, q[order[i]], (size_t)n * sizeof(REAL));
    }
    return 0;
}

#undef MOST_ROUNDS
#undef LEAST_SQUARE

#else

FS_DOOR(FS_TABLE_FROM_AVX2, int, TYPED(ql),
        (ptrdiff_t n, const REAL *d, const REAL *e, double *values, REAL *z, ptrdiff_t ld), (n, d, e, values, z, ld))

#endif
