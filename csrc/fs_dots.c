#include "fs_dots.h"

#include <string.h>

enum { WIDTH = 8 };

#if defined(__GNUC__)
typedef double vec __attribute__((vector_size(WIDTH * sizeof(double))));
#define ADD_PRODUCT(sum, a, b) sum += (a) * (b)
#else
typedef struct {
    double at[WIDTH];
} vec;
#define ADD_PRODUCT(sum, a, b)         \
    for (int l_ = 0; l_ < WIDTH; l_++) \
    (sum).at[l_] += (a).at[l_] * (b).at[l_]
#endif

/* n <= 4 rows against m <= 2: eight sums of eight lanes, then the remainder of d, then the lanes in order. */
FS_INLINE void tile(int n, int m, ptrdiff_t d, const double *x, ptrdiff_t ld_x, const double *b, ptrdiff_t ld_b,
                    double *out, ptrdiff_t ld_out)
{
    vec sum[4][2], left[4], right[2];
    const ptrdiff_t whole = d / WIDTH * WIDTH;
    memset(sum, 0, sizeof sum);
    for (ptrdiff_t k = 0; k < whole; k += WIDTH) {
        for (int i = 0; i < n; i++)
            memcpy(&left[i], x + i * ld_x + k, sizeof(vec));
        for (int j = 0; j < m; j++)
            memcpy(&right[j], b + j * ld_b + k, sizeof(vec));
        for (int i = 0; i < n; i++)
            for (int j = 0; j < m; j++)
                ADD_PRODUCT(sum[i][j], left[i], right[j]);
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++) {
            double lanes[WIDTH], total = 0;
            memcpy(lanes, &sum[i][j], sizeof lanes);
            for (ptrdiff_t k = whole; k < d; k++)
                total += x[i * ld_x + k] * b[j * ld_b + k];
            for (int l = 0; l < WIDTH; l++)
                total += lanes[l];
            out[i * ld_out + j] = total;
        }
}

FS_CLONES void fs_dots_d(ptrdiff_t n, ptrdiff_t m, ptrdiff_t d, const double *x, ptrdiff_t ld_x, const double *b,
                         ptrdiff_t ld_b, double *out, ptrdiff_t ld_out, int lower)
{
    for (ptrdiff_t i = 0; i < n; i += 4) {
        const ptrdiff_t stop = lower && i + 4 < m ? i + 4 : m;
        for (ptrdiff_t j = 0; j < stop; j += 2) {
            const double *p = x + i * ld_x, *q = b + j * ld_b;
            double *to = out + i * ld_out + j;
            const int two = m - j > 1;
            /* sizes known to the compiler keep all sums in registers */
            switch (n - i < 4 ? n - i : 4) {
            case 4:
                two ? tile(4, 2, d, p, ld_x, q, ld_b, to, ld_out) : tile(4, 1, d, p, ld_x, q, ld_b, to, ld_out);
                break;
            case 3:
                two ? tile(3, 2, d, p, ld_x, q, ld_b, to, ld_out) : tile(3, 1, d, p, ld_x, q, ld_b, to, ld_out);
                break;
            case 2:
                two ? tile(2, 2, d, p, ld_x, q, ld_b, to, ld_out) : tile(2, 1, d, p, ld_x, q, ld_b, to, ld_out);
                break;
            default:
                two ? tile(1, 2, d, p, ld_x, q, ld_b, to, ld_out) : tile(1, 1, d, p, ld_x, q, ld_b, to, ld_out);
            }
        }
    }
}
