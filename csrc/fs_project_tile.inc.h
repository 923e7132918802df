/* Part of fs_project.c, included once per level: functions for both types of rows. */
#ifndef FS_DOORS

#define LANES ((int)NAME(lanes))

/* z (TILE x ROWS) += w' x, x (depth x ROWS), w (depth x TILE), in the order of the depth. */
FS_INLINE void NAME(tile)(ptrdiff_t depth, const float *FS_RESTRICT x, const float *FS_RESTRICT w, float *FS_RESTRICT z)
{
#if FS_WIDTH == 0
    for (ptrdiff_t k = 0; k < depth; k++)
        for (int j = 0; j < TILE; j++) {
            const float s = w[k * TILE + j];
            for (int i = 0; i < ROWS; i++)
                z[j * ROWS + i] += x[k * ROWS + i] * s;
        }
#else
    /* sums of COLUMNS directions and VECTORS registers of rows, in registers */
    enum { COLUMNS = FS_WIDTH == 512 ? 8 : 4, VECTORS = 2 };
    for (int i = 0; i < ROWS; i += VECTORS * LANES)
        for (int c = 0; c < TILE; c += COLUMNS) {
            NAME(vec) sum[COLUMNS][VECTORS];
            FS_UNROLL
            for (int j = 0; j < COLUMNS; j++)
                FS_UNROLL
            for (int v = 0; v < VECTORS; v++)
                sum[j][v] = NAME(load)(z + (c + j) * ROWS + i + v * LANES);
            for (ptrdiff_t k = 0; k < depth; k++) {
                NAME(vec) from[VECTORS];
                FS_UNROLL
                for (int v = 0; v < VECTORS; v++)
                    from[v] = NAME(load)(x + k * ROWS + i + v * LANES);
                FS_UNROLL
                for (int j = 0; j < COLUMNS; j++) {
                    const NAME(vec) s = NAME(set)(w[k * TILE + c + j]);
                    FS_UNROLL
                    for (int v = 0; v < VECTORS; v++)
                        sum[j][v] = sum[j][v] + from[v] * s; /* rounded twice at every level: see fs_project.h */
                }
            }
            FS_UNROLL
            for (int j = 0; j < COLUMNS; j++)
                FS_UNROLL
            for (int v = 0; v < VECTORS; v++)
                NAME(store)(z + (c + j) * ROWS + i + v * LANES, sum[j][v]);
        }
#endif
}

/* square[i] += x[k, i]^2: squares of floats are exact in double, so one rounding each, fused or not. */
FS_INLINE void NAME(squares)(ptrdiff_t depth, const float *FS_RESTRICT x, double *FS_RESTRICT square)
{
    for (int i = 0; i < ROWS; i += 8) {
        double sum[8];
        for (int l = 0; l < 8; l++)
            sum[l] = square[i + l];
        for (ptrdiff_t k = 0; k < depth; k++)
            for (int l = 0; l < 8; l++)
                sum[l] += (double)x[k * ROWS + i + l] * (double)x[k * ROWS + i + l];
        for (int l = 0; l < 8; l++)
            square[i + l] = sum[l];
    }
}

/* Round to float, saturating. */
FS_INLINE float NAME(narrow)(double x) { return (float)(x > FLT_MAX ? FLT_MAX : x < -FLT_MAX ? -FLT_MAX : x); }

FS_LOOP void NAME(project_back)(ptrdiff_t n, ptrdiff_t r, ptrdiff_t d, const float *z, const double *mean,
                                double factor, const float *w, float *out)
{
    float sum[TILE * ROWS];
    for (ptrdiff_t t = 0; t * TILE < d; t++) {
        const int columns = d - t * TILE < TILE ? (int)(d - t * TILE) : TILE;
        memset(sum, 0, sizeof sum);
        NAME(tile)(r, z, w + t * r * TILE, sum);
        for (ptrdiff_t i = 0; i < n; i++)
            for (int j = 0; j < columns; j++)
                out[i * d + t * TILE + j] = NAME(narrow)(mean[t * TILE + j] + factor * (double)sum[j * ROWS + i]);
    }
}

#undef LANES

#else

FS_DOOR(FS_TABLE, void, TYPED(project_back),
        (ptrdiff_t n, ptrdiff_t r, ptrdiff_t d, const float *z, const double *mean, double factor, const float *w,
         float *out),
        (n, r, d, z, mean, factor, w, out))

#endif
