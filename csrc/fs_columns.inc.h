/* Body of fs_columns.c, included once per level and REAL. */
#ifndef FS_DOORS

#define LANES ((ptrdiff_t)NAME(lanes))

FS_LOOP int NAME(columns)(ptrdiff_t n, ptrdiff_t d, const REAL *const *column, REAL *out, ptrdiff_t ld)
{
    const ptrdiff_t strip = STRIP_BYTES / (ptrdiff_t)sizeof(REAL);
    int missing = 0;
    for (ptrdiff_t first = 0; first < n; first += strip) {
        const ptrdiff_t stop = n - first < strip ? n : first + strip;
        const ptrdiff_t whole = first + (stop - first) / LANES * LANES;
        for (ptrdiff_t j = 0; j < d; j += LANES) {
            const ptrdiff_t some = d - j < LANES ? d - j : LANES;
            for (ptrdiff_t k = j; k < j + some; k++) {
                const REAL *x = column[k];
                int other = 0;
                for (ptrdiff_t i = first; i < stop; i++)
                    other |= x[i] != x[i];
                missing |= other;
            }
            ptrdiff_t i = first;
            /* out[i, j : j + some] = [x[i] for x in column[j : j + some]] */
            if (some == LANES)
                for (; i < whole; i += LANES)
                    NAME(transpose)(column + j, i, out + i * ld + j, ld);
            for (; i < stop; i++)
                for (ptrdiff_t k = j; k < j + some; k++)
                    out[i * ld + k] = column[k][i];
        }
    }
    return missing;
}

#undef LANES

#else

FS_DOOR(FS_TABLE, int, TYPED(columns),
        (ptrdiff_t n, ptrdiff_t d, const REAL *const *column, REAL *out, ptrdiff_t ld), (n, d, column, out, ld))

#endif
