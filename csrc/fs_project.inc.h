/* Part of fs_project.c, included once per level and type REAL of the rows. */
#ifndef FS_DOORS

/* A float's function of this level. */
#define FLOATS(verb) FS_JOIN(verb##_s, FS_SUFFIX)
#define LANES ((int)FLOATS(lanes))

/* out = scale (x - mean), clipped to +-BOUND. The bits of |x| as an integer are ordered like |x|: no branches. */
FS_INLINE void NAME(centre)(ptrdiff_t d, const REAL *FS_RESTRICT x, const double *FS_RESTRICT mean, double scale,
                            float *FS_RESTRICT out)
{
    const float bound = BOUND;
    uint32_t most;
    memcpy(&most, &bound, sizeof most);
    for (ptrdiff_t k = 0; k < d; k++) {
        const float from = (float)(((double)x[k] - mean[k]) * scale);
        uint32_t bits, size;
        memcpy(&bits, &from, sizeof bits);
        size = bits & 0x7fffffffu;
        size = (size < most ? size : most) | (bits & 0x80000000u);
        memcpy(out + k, &size, sizeof size);
    }
}

FS_LOOP void NAME(project_rows)(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const REAL *x, const double *mean, double scale,
                                ptrdiff_t n_tiles, const float *w, float *panel, float *z, double *square)
{
    float *centred = panel, *turned = panel + ROWS * DEPTH;
    memset(z, 0, (size_t)(n_tiles * TILE * ROWS) * sizeof *z);
    memset(square, 0, ROWS * sizeof *square);
    for (ptrdiff_t i = n; i < ROWS; i++)
        memset(centred + i * DEPTH, 0, DEPTH * sizeof *centred);
    for (ptrdiff_t first = 0; first < d; first += DEPTH) {
        const ptrdiff_t depth = d - first < DEPTH ? d - first : DEPTH;
        const ptrdiff_t whole = (depth + LANES - 1) / LANES * LANES;
        for (ptrdiff_t i = 0; i < n; i++) {
            NAME(centre)(depth, x + i * ld + first, mean + first, scale, centred + i * DEPTH);
            memset(centred + i * DEPTH + depth, 0, (size_t)(whole - depth) * sizeof *centred);
        }
        for (ptrdiff_t i = 0; i < ROWS; i += LANES) {
            const float *row[FLOATS(lanes)];
            for (int l = 0; l < LANES; l++)
                row[l] = centred + (i + l) * DEPTH;
            for (ptrdiff_t k = 0; k < whole; k += LANES)
                FLOATS(transpose)(row, k, turned + k * ROWS + i, ROWS);
        }
        FLOATS(squares)(depth, turned, square);
        for (ptrdiff_t t = 0; t < n_tiles; t++)
            FLOATS(tile)(depth, turned, w + (t * d + first) * TILE, z + t * TILE * ROWS);
    }
}

FS_LOOP void NAME(project_csr)(ptrdiff_t n, ptrdiff_t d, const int64_t *indptr, const int32_t *indices,
                               const REAL *data, const double *mean, double scale, double mean_square,
                               ptrdiff_t n_tiles, const float *w, const double *base, double *FS_RESTRICT sum, float *z,
                               double *square)
{
    const ptrdiff_t width = n_tiles * TILE;
    memset(z, 0, (size_t)(width * ROWS) * sizeof *z);
    memset(square, 0, ROWS * sizeof *square);
    for (ptrdiff_t i = 0; i < n; i++) {
        for (ptrdiff_t j = 0; j < width; j++)
            sum[j] = -base[j];
        square[i] = mean_square;
        for (int64_t e = indptr[i]; e < indptr[i + 1]; e++) {
            const double m = mean[indices[e]] * scale;
            double x = (double)data[e] * scale;
            x = x > BOUND ? BOUND : x;
            x = x < -BOUND ? -BOUND : x;
            square[i] += (x - m) * (x - m) - m * m;
            for (ptrdiff_t t = 0; t < n_tiles; t++) {
                const float *row = w + (t * d + indices[e]) * TILE;
                for (int j = 0; j < TILE; j++)
                    sum[t * TILE + j] += x * (double)row[j];
            }
        }
        square[i] = square[i] > 0 ? square[i] : 0; /* rounding errors may make it negative */
        for (ptrdiff_t j = 0; j < width; j++)
            z[j * ROWS + i] = (float)sum[j];
    }
}

#undef FLOATS
#undef LANES

#else

FS_DOOR(FS_TABLE, void, TYPED(project_rows),
        (ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const REAL *x, const double *mean, double scale, ptrdiff_t n_tiles,
         const float *w, float *panel, float *z, double *square),
        (n, d, ld, x, mean, scale, n_tiles, w, panel, z, square))
FS_DOOR(FS_TABLE_AVX2_ALONE, void, TYPED(project_csr),
        (ptrdiff_t n, ptrdiff_t d, const int64_t *indptr, const int32_t *indices, const REAL *data, const double *mean,
         double scale, double mean_square, ptrdiff_t n_tiles, const float *w, const double *base, double *sum, float *z,
         double *square),
        (n, d, indptr, indices, data, mean, scale, mean_square, n_tiles, w, base, sum, z, square))

#endif
