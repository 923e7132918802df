/* Part of fs_secular.c, included once per level and REAL. */
#ifndef FS_DOORS

FS_LOOP void NAME(secular_vectors)(ptrdiff_t k, ptrdiff_t first, ptrdiff_t count, const double *d,
                                   const int32_t *origin, const double *tau, const double *z, const int32_t *place,
                                   double *v, REAL *s)
{
    for (ptrdiff_t c = 0; c < count; c++) {
        const double at = d[origin[first + c]], t = tau[first + c];
        double lane[FS_LANES] = {0}, sum = 0;
        ptrdiff_t j = 0;
        for (; j + FS_LANES <= k; j += FS_LANES)
            for (int l = 0; l < FS_LANES; l++) {
                v[j + l] = z[j + l] / ((d[j + l] - at) - t);
                lane[l] += v[j + l] * v[j + l];
            }
        for (; j < k; j++) {
            v[j] = z[j] / ((d[j] - at) - t);
            sum += v[j] * v[j];
        }
        for (int l = 0; l < FS_LANES; l++)
            sum += lane[l];
        const double scale = 1 / sqrt(sum);
        REAL *FS_RESTRICT to = s + c * k;
        for (j = 0; j < k; j++)
            to[place[j]] = (REAL)(scale * v[j]);
    }
}

#else

FS_DOOR(FS_TABLE_FROM_AVX2, void, TYPED(secular_vectors),
        (ptrdiff_t k, ptrdiff_t first, ptrdiff_t count, const double *d, const int32_t *origin, const double *tau,
         const double *z, const int32_t *place, double *v, REAL *s),
        (k, first, count, d, origin, tau, z, place, v, s))

#endif
