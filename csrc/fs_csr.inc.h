/* Body of fs_csr.c, included once per level and INDEX (int32_t, int64_t). UNSIGNED is an unsigned type of the same
 * width, LIMIT a number that no index can reach. */
#ifndef FS_DOORS

FS_LOOP int NAME(check_csr)(ptrdiff_t n, int64_t width, ptrdiff_t stored, const INDEX *indptr, const INDEX *indices,
                            ptrdiff_t *where)
{
    /* as an unsigned number a negative index is too large: one comparison detects both */
    const UNSIGNED limit = (UNSIGNED)(width < 0 ? 0 : width < LIMIT ? width : LIMIT);
    UNSIGNED backward = 0;
    ptrdiff_t falls = 0, last = 0;
    *where = 0;
    if (indptr[0] != 0)
        return FS_CSR_START;
    for (ptrdiff_t i = 0; i < n; i++)
        backward |= (UNSIGNED)(indptr[i + 1] < indptr[i]);
    if (backward) {
        while (indptr[*where + 1] >= indptr[*where])
            ++*where;
        return FS_CSR_BACKWARD;
    }
    if (indptr[n] > stored)
        return FS_CSR_END;
    const ptrdiff_t used = (ptrdiff_t)indptr[n];
    if (used == 0)
        return FS_CSR_ORDERED;
    /* Descents of the indices are counted over all entries, and then at the ends of rows, where they are allowed: the
     * loop over entries has neither branches nor rows. */
    UNSIGNED outside = (UNSIGNED)indices[0] >= limit;
    for (ptrdiff_t first = 1; first < used; first += 1 << 20) { /* few enough for a counter of 32 bits */
        const ptrdiff_t stop = used - first < 1 << 20 ? used : first + (1 << 20);
        UNSIGNED count = 0;
        for (ptrdiff_t e = first; e < stop; e++) {
            outside |= (UNSIGNED)indices[e] >= limit;
            count += indices[e] <= indices[e - 1];
        }
        falls += (ptrdiff_t)count;
    }
    if (outside) {
        while ((UNSIGNED)indices[*where] < limit)
            ++*where;
        return FS_CSR_INDEX;
    }
    for (ptrdiff_t i = 1; i < n; i++) {
        const ptrdiff_t e = (ptrdiff_t)indptr[i];
        if (e > last && e < used) /* the ends of empty rows are repeated */
            falls -= indices[e] <= indices[e - 1];
        last = e;
    }
    return falls == 0 ? FS_CSR_ORDERED : FS_CSR_LOOSE;
}

#else

FS_DOOR(FS_TABLE_FROM_AVX2, int, TYPED(check_csr),
        (ptrdiff_t n, int64_t width, ptrdiff_t stored, const INDEX *indptr, const INDEX *indices, ptrdiff_t *where),
        (n, width, stored, indptr, indices, where))

#endif
