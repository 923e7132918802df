/* Body of fs_dots.c, included once per level. */
#ifndef FS_DOORS

/* Rows of x and of b whose products are summed side by side: sums and their terms stay in registers. A sum has eight
 * lanes. Where these take more than one register, only some registers are used at a time, and the columns of a piece
 * (below) are read again for the others. */
#if FS_WIDTH == 512
enum { NAME(LEFT) = 4, NAME(RIGHT) = 4 };
#elif FS_WIDTH == 256 || (FS_ARM && FS_WIDTH)
enum { NAME(LEFT) = 4, NAME(RIGHT) = 3 };
#elif FS_WIDTH == 128
enum { NAME(LEFT) = 4, NAME(RIGHT) = 2 };
#else
enum { NAME(LEFT) = 2, NAME(RIGHT) = 1 };
#endif
#define LEFT NAME(LEFT)
#define RIGHT NAME(RIGHT)
#define LANES ((int)NAME(lanes))
#define LINE 8
/* A number that is loaded once: a compiler would rather read it again as an operand of each product, for which there
 * are not enough load ports. */
#if FS_X86 && FS_FUSED
#define HELD(x) __asm__("" : "+v"(x))
#else
#define HELD(x)
#endif
/* Registers of a sum, and how many of them are used together for this many products: enough that no addition waits for
 * the previous one. */
#define REGISTERS (LINE / LANES)
#define TOGETHER(products) \
    (LANES == 1 || (products) * REGISTERS <= 8 ? REGISTERS : (products) * 2 <= 8 && REGISTERS > 2 ? 2 : 1)

/* Products of n rows with m rows over columns from .. to - 1. The sums begin with the results of earlier columns in
 * `sums`, 8 per product and ld_sums apart. They are written back there, or after the last columns to `out`: their lanes
 * are added by halves, and then the remainder of d. */
FS_INLINE void NAME(tile)(int n, int m, int together, ptrdiff_t from, ptrdiff_t to, ptrdiff_t d, const double *x,
                          ptrdiff_t ld_x, const double *b, ptrdiff_t ld_b, double *sums, ptrdiff_t ld_sums, double *out,
                          ptrdiff_t ld_out)
{
    NAME(wide) sum[LEFT][RIGHT];
    const ptrdiff_t whole = d / LINE * LINE;
    FS_UNROLL
    for (int first = 0; first < REGISTERS; first += together) {
        NAME(vec) part[LEFT][RIGHT][REGISTERS];
        FS_UNROLL
        for (int i = 0; i < n; i++)
            FS_UNROLL
        for (int j = 0; j < m; j++)
            FS_UNROLL
        for (int p = 0; p < together; p++)
            part[i][j][p] = from ? NAME(load)(sums + i * ld_sums + j * LINE + (first + p) * LANES) : NAME(set)(0);
        for (ptrdiff_t k = from; k < to; k += LINE)
            FS_UNROLL
        for (int p = 0; p < together; p++) {
            NAME(vec) right[RIGHT];
            FS_UNROLL
            for (int j = 0; j < m; j++) {
                right[j] = NAME(load)(b + j * ld_b + k + (first + p) * LANES);
                HELD(right[j]);
            }
            FS_UNROLL
            for (int i = 0; i < n; i++) {
                NAME(vec) left = NAME(load)(x + i * ld_x + k + (first + p) * LANES);
                HELD(left);
                FS_UNROLL
                for (int j = 0; j < m; j++)
                    part[i][j][p] = NAME(fma)(left, right[j], part[i][j][p]);
            }
        }
        FS_UNROLL
        for (int i = 0; i < n; i++)
            FS_UNROLL
        for (int j = 0; j < m; j++)
            FS_UNROLL
        for (int p = 0; p < together; p++)
            sum[i][j].at[first + p] = part[i][j][p];
    }
    FS_UNROLL
    for (int i = 0; i < n; i++)
        FS_UNROLL
    for (int j = 0; j < m; j++) {
        double rest = 0;
        if (to < whole) {
            NAME(wide_store)(sums + i * ld_sums + j * LINE, sum[i][j]);
            continue;
        }
        for (ptrdiff_t k = whole; k < d; k++)
            rest += x[i * ld_x + k] * b[j * ld_b + k];
        out[i * ld_out + j] = NAME(wide_sum)(sum[i][j]) + rest;
    }
}

/* At most ROWS rows of x and COLUMNS of b, a piece of d at a time: the piece of b stays in the second cache while all
 * of x is read, and that of a tile in the first. */
enum { NAME(ROWS) = 12, NAME(COLUMNS) = 32, NAME(PIECE) = 256 };

FS_INLINE void NAME(block)(ptrdiff_t n, ptrdiff_t m, ptrdiff_t d, const double *x, ptrdiff_t ld_x, const double *b,
                           ptrdiff_t ld_b, double *out, ptrdiff_t ld_out, ptrdiff_t lower)
{
    double sums[NAME(ROWS) * NAME(COLUMNS) * LINE];
    const ptrdiff_t whole = d / LINE * LINE, piece = m == 1 && REGISTERS <= 2 ? whole : NAME(PIECE);
    ptrdiff_t from = 0, to;
    do {
        to = whole - from > piece ? from + piece : whole;
        for (ptrdiff_t i = 0; i < n; i += LEFT) {
            /* row i of x is number lower + i */
            const ptrdiff_t stop = lower >= 0 && lower + i + LEFT < m ? lower + i + LEFT : m;
            const int rows = n - i < LEFT ? (int)(n - i) : LEFT;
            for (ptrdiff_t j = 0; j < stop; j += RIGHT) {
                const double *p = x + i * ld_x, *q = b + j * ld_b;
                double *at = sums + (i * NAME(COLUMNS) + j) * LINE, *to_out = out + i * ld_out + j;
                const int columns = m - j < RIGHT ? (int)(m - j) : RIGHT;
                /* with sizes known to the compiler all sums stay in registers */
#define TILE(rows, columns)                                                                    \
    NAME(tile)(rows, columns, TOGETHER((rows) * (columns)), from, to, d, p, ld_x, q, ld_b, at, \
               (ptrdiff_t)NAME(COLUMNS) * LINE, to_out, ld_out);                               \
    break
#define TILES(rows)                           \
    switch (columns) {                        \
    case 1:                                   \
        TILE(rows, 1);                        \
    case 2:                                   \
        TILE(rows, (RIGHT >= 2 ? 2 : RIGHT)); \
    case 3:                                   \
        TILE(rows, (RIGHT >= 3 ? 3 : RIGHT)); \
    default:                                  \
        TILE(rows, RIGHT);                    \
    }                                         \
    break
                switch (rows) {
                case 1:
                    TILES(1);
                case 2:
                    TILES(2);
                case 3:
                    TILES((LEFT >= 3 ? 3 : LEFT));
                default:
                    TILES(LEFT);
                }
            }
        }
        from = to;
    } while (from < whole);
}

FS_LOOP void NAME(dots)(ptrdiff_t n, ptrdiff_t m, ptrdiff_t d, const double *x, ptrdiff_t ld_x, const double *b,
                        ptrdiff_t ld_b, double *out, ptrdiff_t ld_out, int lower)
{
    if (n == 1 && !lower) { /* tiles are taller than wide */
        for (ptrdiff_t j = 0; j < m; j += NAME(ROWS))
            NAME(block)(m - j < NAME(ROWS) ? m - j : NAME(ROWS), 1, d, b + j * ld_b, ld_b, x, ld_x, out + j, 1, -1);
        return;
    }
    for (ptrdiff_t i = 0; i < n; i += NAME(ROWS)) {
        const ptrdiff_t rows = n - i < NAME(ROWS) ? n - i : NAME(ROWS);
        const ptrdiff_t stop = lower && i + rows < m ? i + rows : m;
        for (ptrdiff_t j = 0; j < stop; j += NAME(COLUMNS)) {
            const ptrdiff_t columns = stop - j < NAME(COLUMNS) ? stop - j : NAME(COLUMNS);
            NAME(block)(rows, columns, d, x + i * ld_x, ld_x, b + j * ld_b, ld_b, out + i * ld_out + j, ld_out,
                        lower && i >= j ? i - j : -1);
        }
    }
}

#undef TILE
#undef TILES
#undef LEFT
#undef RIGHT
#undef LANES
#undef LINE
#undef REGISTERS
#undef TOGETHER
#undef HELD

#else

FS_DOOR(FS_TABLE, void, TYPED(dots),
        (ptrdiff_t n, ptrdiff_t m, ptrdiff_t d, const double *x, ptrdiff_t ld_x, const double *b, ptrdiff_t ld_b,
         double *out, ptrdiff_t ld_out, int lower),
        (n, m, d, x, ld_x, b, ld_b, out, ld_out, lower))

#endif
