/* Body of fs_dots.c, included once per level. */
#ifndef FS_DOORS

/* Rows of x and of b whose products are summed side by side: wide sums, and what they are made of, stay in registers.
 */
#if FS_WIDTH == 512
enum { NAME(LEFT) = 4, NAME(RIGHT) = 2 };
#elif FS_WIDTH == 256
enum { NAME(LEFT) = 3, NAME(RIGHT) = 2 };
#else
enum { NAME(LEFT) = 2, NAME(RIGHT) = 1 };
#endif
#define LEFT NAME(LEFT)
#define RIGHT NAME(RIGHT)
#define LANES ((int)NAME(lanes))
#define LINE 8

/* n rows against m: sums of eight lanes, which are added by halves, and then the remainder of d. */
FS_INLINE void NAME(tile)(int n, int m, ptrdiff_t d, const double *x, ptrdiff_t ld_x, const double *b, ptrdiff_t ld_b,
                          double *out, ptrdiff_t ld_out)
{
    NAME(wide) sum[LEFT][RIGHT];
    const ptrdiff_t whole = d / LINE * LINE;
    FS_UNROLL
    for (int i = 0; i < n; i++)
        FS_UNROLL
    for (int j = 0; j < m; j++)
        sum[i][j] = NAME(wide_set)(0);
    for (ptrdiff_t k = 0; k < whole; k += LINE)
        FS_UNROLL
    for (int p = 0; p < LINE / LANES; p++) {
        NAME(vec) left[LEFT], right[RIGHT];
        FS_UNROLL
        for (int i = 0; i < n; i++)
            left[i] = NAME(load)(x + i * ld_x + k + p * LANES);
        FS_UNROLL
        for (int j = 0; j < m; j++)
            right[j] = NAME(load)(b + j * ld_b + k + p * LANES);
        FS_UNROLL
        for (int i = 0; i < n; i++)
            FS_UNROLL
        for (int j = 0; j < m; j++)
            sum[i][j].at[p] = NAME(fma)(left[i], right[j], sum[i][j].at[p]);
    }
    FS_UNROLL
    for (int i = 0; i < n; i++)
        FS_UNROLL
    for (int j = 0; j < m; j++) {
        double rest = 0;
        for (ptrdiff_t k = whole; k < d; k++)
            rest += x[i * ld_x + k] * b[j * ld_b + k];
        out[i * ld_out + j] = NAME(wide_sum)(sum[i][j]) + rest;
    }
}

FS_LOOP void NAME(dots)(ptrdiff_t n, ptrdiff_t m, ptrdiff_t d, const double *x, ptrdiff_t ld_x, const double *b,
                        ptrdiff_t ld_b, double *out, ptrdiff_t ld_out, int lower)
{
    for (ptrdiff_t i = 0; i < n; i += LEFT) {
        const ptrdiff_t stop = lower && i + LEFT < m ? i + LEFT : m;
        for (ptrdiff_t j = 0; j < stop; j += RIGHT) {
            const double *p = x + i * ld_x, *q = b + j * ld_b;
            double *to = out + i * ld_out + j;
            const int rows = n - i < LEFT ? (int)(n - i) : LEFT, two = RIGHT == 2 && m - j > 1;
            /* sizes known to the compiler keep all sums in registers */
#define TILE(rows)                                                    \
    {                                                                 \
        if (two)                                                      \
            NAME(tile)(rows, RIGHT, d, p, ld_x, q, ld_b, to, ld_out); \
        else                                                          \
            NAME(tile)(rows, 1, d, p, ld_x, q, ld_b, to, ld_out);     \
    }
            if (rows == 1)
                TILE(1)
            else if (rows == 2)
                TILE(2)
#if FS_WIDTH >= 256
            else if (rows == 3)
                TILE(3)
#endif
#if FS_WIDTH == 512
            else
                TILE(4)
#endif
        }
    }
}

#undef TILE
#undef LEFT
#undef RIGHT
#undef LANES
#undef LINE

#else

FS_DOOR(FS_TABLE, void, TYPED(dots),
        (ptrdiff_t n, ptrdiff_t m, ptrdiff_t d, const double *x, ptrdiff_t ld_x, const double *b, ptrdiff_t ld_b,
         double *out, ptrdiff_t ld_out, int lower),
        (n, m, d, x, ld_x, b, ld_b, out, ld_out, lower))

#endif
