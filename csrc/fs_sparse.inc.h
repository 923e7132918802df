/* Body of fs_sparse.c, included once per level and REAL. */
#ifndef FS_DOORS

/* Rows that are not whole lines of the cache, in which half of the loads of 64 bytes would span two lines. */
#if FS_WIDTH == 512
#define UNLESS_LINES(length, loop, ...)                   \
    if ((length) % (ptrdiff_t)(64 / sizeof(REAL)) != 0) { \
        FS_JOIN(TYPED(loop), avx2)(__VA_ARGS__);          \
        return;                                           \
    }
#else
#define UNLESS_LINES(length, loop, ...)
#endif

FS_LOOP void NAME(csr_times_z)(ptrdiff_t n, ptrdiff_t k, ptrdiff_t ldz, const int64_t *indptr, const int32_t *indices,
                               const REAL *data, const REAL *z, REAL *out)
{
    UNLESS_LINES(ldz, csr_times_z, n, k, ldz, indptr, indices, data, z, out)
    for (ptrdiff_t i = 0; i < n; i++) {
        REAL *FS_RESTRICT to = out + i * k;
        for (ptrdiff_t c = 0; c < k; c++)
            to[c] = 0;
        for (int64_t e = indptr[i]; e < indptr[i + 1]; e++) {
            const REAL *FS_RESTRICT from = z + (ptrdiff_t)indices[e] * ldz;
            const REAL v = data[e];
            for (ptrdiff_t c = 0; c < k; c++)
                to[c] += v * from[c];
        }
    }
}

FS_LOOP void NAME(csr_settle)(ptrdiff_t first, ptrdiff_t beyond, ptrdiff_t r, ptrdiff_t width, ptrdiff_t ldz,
                              const int32_t *stop, const int32_t *row, const REAL *value, const REAL *w,
                              const double *shift, const double *along, REAL least, REAL *turned, REAL *sum, REAL *z,
                              double *square)
{
    UNLESS_LINES(r, csr_settle, first, beyond, r, width, ldz, stop, row, value, w, shift, along, least, turned, sum, z,
                 square)
    int32_t t = first > 0 ? stop[first - 1] : 0;
    for (ptrdiff_t j = first; j < beyond; j++) {
        REAL *FS_RESTRICT rest = turned + (j - first) * r;
        REAL *FS_RESTRICT out = z + j * ldz;
        if (t < stop[j]) {
            REAL *FS_RESTRICT s = sum;
            for (ptrdiff_t c = 0; c < r; c++)
                s[c] = 0;
            for (; t < stop[j]; t++) {
                const REAL *FS_RESTRICT of = w + (ptrdiff_t)row[t] * r;
                const REAL v = value[t];
                for (ptrdiff_t c = 0; c < r; c++)
                    s[c] += v * of[c];
            }
            for (ptrdiff_t c = 0; c < r; c++)
                rest[c] += s[c];
        }
        if (shift && shift[j] != 0)
            for (ptrdiff_t c = 0; c < r; c++)
                rest[c] = (REAL)((double)rest[c] - shift[j] * along[c]);
        for (ptrdiff_t c = 0; c < r; c++) {
            const REAL x = (REAL)fabs((double)rest[c]) < least ? 0 : rest[c];
            out[c] = x;
            square[c] += (double)x * (double)x;
        }
        for (ptrdiff_t c = r; c < width; c++)
            out[c] = 0;
    }
}

FS_LOOP void NAME(csr_gram_panel)(ptrdiff_t n, ptrdiff_t d, ptrdiff_t width, const int64_t *indptr,
                                  const int32_t *indices, const REAL *data, const double *weight, const double *shift,
                                  const double *q, int64_t *at, double *z, double *sum, double *out)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        at[i] = indptr[i];
        for (ptrdiff_t c = 0; c < FS_PANEL_COLUMNS; c++)
            z[i * FS_PANEL_COLUMNS + c] = -shift[c];
    }
    for (ptrdiff_t beyond = width; beyond < d + width; beyond += width)
        for (ptrdiff_t i = 0; i < n; i++) {
            double sums[FS_PANEL_COLUMNS];
            int64_t e = at[i];
            for (ptrdiff_t c = 0; c < FS_PANEL_COLUMNS; c++)
                sums[c] = z[i * FS_PANEL_COLUMNS + c];
            for (; e < indptr[i + 1] && indices[e] < beyond; e++) {
                const double *FS_RESTRICT from = q + (ptrdiff_t)indices[e] * FS_PANEL_COLUMNS;
                const double v = data[e];
                for (ptrdiff_t c = 0; c < FS_PANEL_COLUMNS; c++)
                    sums[c] += v * from[c];
            }
            for (ptrdiff_t c = 0; c < FS_PANEL_COLUMNS; c++)
                z[i * FS_PANEL_COLUMNS + c] = sums[c];
            at[i] = e;
        }
    for (ptrdiff_t i = 0; i < n; i++) {
        at[i] = indptr[i];
        for (ptrdiff_t c = 0; c < FS_PANEL_COLUMNS; c++) {
            z[i * FS_PANEL_COLUMNS + c] *= weight ? weight[i] : 1.0;
            sum[c] += z[i * FS_PANEL_COLUMNS + c];
        }
    }
    for (ptrdiff_t beyond = width; beyond < d + width; beyond += width)
        for (ptrdiff_t i = 0; i < n; i++) {
            const double *FS_RESTRICT from = z + i * FS_PANEL_COLUMNS;
            int64_t e = at[i];
            for (; e < indptr[i + 1] && indices[e] < beyond; e++) {
                double *to = out + (ptrdiff_t)indices[e] * FS_PANEL_COLUMNS;
                const double v = data[e];
                double next[FS_PANEL_COLUMNS]; /* without it the compiler takes one entry at a time */
                for (ptrdiff_t c = 0; c < FS_PANEL_COLUMNS; c++)
                    next[c] = to[c] + v * from[c];
                for (ptrdiff_t c = 0; c < FS_PANEL_COLUMNS; c++)
                    to[c] = next[c];
            }
            at[i] = e;
        }
}

FS_LOOP void NAME(z_dot)(ptrdiff_t d, ptrdiff_t k, ptrdiff_t ldz, const REAL *z, const double *v, double *out)
{
    for (ptrdiff_t c = 0; c < k; c++)
        out[c] = 0;
    for (ptrdiff_t j = 0; j < d; j++) {
        const REAL *FS_RESTRICT row = z + j * ldz;
        if (v[j] == 0)
            continue;
        for (ptrdiff_t c = 0; c < k; c++)
            out[c] += v[j] * (double)row[c];
    }
}

FS_LOOP void NAME(z_rank_one)(ptrdiff_t d, ptrdiff_t r, ptrdiff_t ldz, const double *v, const double *w, REAL *z)
{
    for (ptrdiff_t j = 0; j < d; j++) {
        REAL *FS_RESTRICT row = z + j * ldz;
        if (v[j] == 0)
            continue;
        for (ptrdiff_t c = 0; c < r; c++)
            row[c] = (REAL)((double)row[c] - v[j] * w[c]);
    }
}

#undef UNLESS_LINES

#else

FS_DOOR(FS_TABLE_FROM_AVX2, void, TYPED(csr_times_z),
        (ptrdiff_t n, ptrdiff_t k, ptrdiff_t ldz, const int64_t *indptr, const int32_t *indices, const REAL *data,
         const REAL *z, REAL *out),
        (n, k, ldz, indptr, indices, data, z, out))
FS_DOOR(FS_TABLE_FROM_AVX2, void, TYPED(csr_settle),
        (ptrdiff_t first, ptrdiff_t beyond, ptrdiff_t r, ptrdiff_t width, ptrdiff_t ldz, const int32_t *stop,
         const int32_t *row, const REAL *value, const REAL *w, const double *shift, const double *along, REAL least,
         REAL *turned, REAL *sum, REAL *z, double *square),
        (first, beyond, r, width, ldz, stop, row, value, w, shift, along, least, turned, sum, z, square))
FS_DOOR(FS_TABLE_FROM_AVX2, void, TYPED(csr_gram_panel),
        (ptrdiff_t n, ptrdiff_t d, ptrdiff_t width, const int64_t *indptr, const int32_t *indices, const REAL *data,
         const double *weight, const double *shift, const double *q, int64_t *at, double *z, double *sum, double *out),
        (n, d, width, indptr, indices, data, weight, shift, q, at, z, sum, out))
FS_DOOR(FS_TABLE_AVX2_ALONE, void, TYPED(z_dot),
        (ptrdiff_t d, ptrdiff_t k, ptrdiff_t ldz, const REAL *z, const double *v, double *out), (d, k, ldz, z, v, out))
FS_DOOR(FS_TABLE_FROM_AVX2, void, TYPED(z_rank_one),
        (ptrdiff_t d, ptrdiff_t r, ptrdiff_t ldz, const double *v, const double *w, REAL *z), (d, r, ldz, v, w, z))

#endif
