#include "fs_block.h"

#include <string.h>

#if defined(__GNUC__)
#define DEFINE_VEC(NAME, REAL) typedef REAL NAME __attribute__((vector_size(FS_BLOCK * sizeof(REAL))));
#define ADD_SCALED(sum, s, x) (sum) += (s) * (x)
#else
#define DEFINE_VEC(NAME, REAL) \
    typedef struct {           \
        REAL at[FS_BLOCK];     \
    } NAME;
#define ADD_SCALED(sum, s, x)             \
    for (int l_ = 0; l_ < FS_BLOCK; l_++) \
    (sum).at[l_] += (s) * (x).at[l_]
#endif

#define LOAD(x, from) memcpy(&(x), (from), sizeof(x))
#define STORE(to, x) memcpy((to), &(x), sizeof(x))

/* Four entries at a time: their rows of v and w are fetched side by side (no column occurs twice in a row). */
#define GRAM_BLOCK(SUFFIX, REAL)                                                                                       \
    DEFINE_VEC(vec_##SUFFIX, REAL)                                                                                     \
    FS_CLONES void fs_gram_block_##SUFFIX(ptrdiff_t m, const uint32_t *indptr, const uint32_t *indices, const REAL *a, \
                                          const REAL *v, REAL *u, REAL *w)                                             \
    {                                                                                                                  \
        for (ptrdiff_t i = 0; i < m; i++) {                                                                            \
            const size_t first = indptr[i], last = indptr[i + 1];                                                      \
            vec_##SUFFIX sum[4], x[4];                                                                                 \
            memset(sum, 0, sizeof sum);                                                                                \
            size_t k = first;                                                                                          \
            for (; k + 4 <= last; k += 4) {                                                                            \
                for (int l = 0; l < 4; l++)                                                                            \
                    LOAD(x[l], v + (size_t)FS_BLOCK * indices[k + l]);                                                 \
                for (int l = 0; l < 4; l++)                                                                            \
                    ADD_SCALED(sum[l], a[k + l], x[l]);                                                                \
            }                                                                                                          \
            for (; k < last; k++) {                                                                                    \
                LOAD(x[0], v + (size_t)FS_BLOCK * indices[k]);                                                         \
                ADD_SCALED(sum[0], a[k], x[0]);                                                                        \
            }                                                                                                          \
            ADD_SCALED(sum[0], (REAL)1, sum[1]);                                                                       \
            ADD_SCALED(sum[2], (REAL)1, sum[3]);                                                                       \
            ADD_SCALED(sum[0], (REAL)1, sum[2]);                                                                       \
            STORE(u + FS_BLOCK * i, sum[0]);                                                                           \
            for (k = first; k + 4 <= last; k += 4) {                                                                   \
                for (int l = 0; l < 4; l++)                                                                            \
                    LOAD(x[l], w + (size_t)FS_BLOCK * indices[k + l]);                                                 \
                for (int l = 0; l < 4; l++)                                                                            \
                    ADD_SCALED(x[l], a[k + l], sum[0]);                                                                \
                for (int l = 0; l < 4; l++)                                                                            \
                    STORE(w + (size_t)FS_BLOCK * indices[k + l], x[l]);                                                \
            }                                                                                                          \
            for (; k < last; k++) {                                                                                    \
                LOAD(x[0], w + (size_t)FS_BLOCK * indices[k]);                                                         \
                ADD_SCALED(x[0], a[k], sum[0]);                                                                        \
                STORE(w + (size_t)FS_BLOCK * indices[k], x[0]);                                                        \
            }                                                                                                          \
        }                                                                                                              \
    }

GRAM_BLOCK(s, float)
GRAM_BLOCK(d, double)
