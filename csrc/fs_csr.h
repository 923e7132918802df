/* Checks whether CSR arrays (also those of CSC, or of the blocks of BSR) can be read without bounds checks. */
#ifndef FS_CSR_H
#define FS_CSR_H
#include "fs_common.h"

enum {
    FS_CSR_ORDERED = 0,  /* consistent, and the indices of every row ascend without duplicates */
    FS_CSR_LOOSE = 1,    /* consistent, but indices are unsorted or repeated */
    FS_CSR_START = 2,    /* indptr does not start at 0 */
    FS_CSR_BACKWARD = 3, /* indptr decreases in row *where */
    FS_CSR_END = 4,      /* indptr ends beyond the `stored` entries */
    FS_CSR_INDEX = 5     /* entry *where has an index outside [0, width) */
};

/* indptr has n + 1 entries, indices has `stored`; the contents of neither are trusted. */
int fs_check_csr_32(ptrdiff_t n, int64_t width, ptrdiff_t stored, const int32_t *indptr, const int32_t *indices,
                    ptrdiff_t *where);
int fs_check_csr_64(ptrdiff_t n, int64_t width, ptrdiff_t stored, const int64_t *indptr, const int64_t *indices,
                    ptrdiff_t *where);

#endif
