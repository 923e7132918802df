/* Part of fs_panel.c, included once per level: LANES rows of LANES reals, transposed: out[k * step + i] = row_i[k]. */
#ifndef FS_DOORS

#define TYPED(verb) verb##_d
#if FS_WIDTH == 512
FS_INLINE void NAME(transpose)(const double *const *row, ptrdiff_t k, double *out, ptrdiff_t step)
{
    __m512d a[8], b[8];
    for (int i = 0; i < 8; i++)
        a[i] = _mm512_loadu_pd(row[i] + k);
    for (int i = 0; i < 8; i += 2) {
        b[i] = _mm512_unpacklo_pd(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_pd(a[i], a[i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        /* lanes of 128 bits: rows (0,1), (2,3), (4,5), (6,7) of columns c, c+2, c+4, c+6 */
        const __m512d p = _mm512_shuffle_f64x2(b[i], b[i + 2], 0x88), q = _mm512_shuffle_f64x2(b[i], b[i + 2], 0xdd);
        const __m512d s = _mm512_shuffle_f64x2(b[i + 4], b[i + 6], 0x88),
                      t = _mm512_shuffle_f64x2(b[i + 4], b[i + 6], 0xdd);
        a[i] = _mm512_shuffle_f64x2(p, s, 0x88);
        a[i + 4] = _mm512_shuffle_f64x2(p, s, 0xdd);
        a[i + 2] = _mm512_shuffle_f64x2(q, t, 0x88);
        a[i + 6] = _mm512_shuffle_f64x2(q, t, 0xdd);
    }
    for (int i = 0; i < 8; i++)
        _mm512_storeu_pd(out + i * step, a[i]);
}
#elif FS_WIDTH == 256
FS_INLINE void NAME(transpose)(const double *const *row, ptrdiff_t k, double *out, ptrdiff_t step)
{
    __m256d a[4], b[4];
    for (int i = 0; i < 4; i++)
        a[i] = _mm256_loadu_pd(row[i] + k);
    for (int i = 0; i < 4; i += 2) {
        b[i] = _mm256_unpacklo_pd(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_pd(a[i], a[i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        _mm256_storeu_pd(out + i * step, _mm256_permute2f128_pd(b[i], b[i + 2], 0x20));
        _mm256_storeu_pd(out + (i + 2) * step, _mm256_permute2f128_pd(b[i], b[i + 2], 0x31));
    }
}
#else
FS_INLINE void NAME(transpose)(const double *const *row, ptrdiff_t k, double *out, ptrdiff_t step)
{
    for (int j = 0; j < NAME(lanes); j++)
        for (int i = 0; i < NAME(lanes); i++)
            out[j * step + i] = row[i][k + j];
}
#endif
#undef TYPED

#define TYPED(verb) verb##_s
#if FS_WIDTH == 512
FS_INLINE void NAME(transpose)(const float *const *row, ptrdiff_t k, float *out, ptrdiff_t step)
{
    __m512 a[16], b[16];
    for (int i = 0; i < 16; i++)
        a[i] = _mm512_loadu_ps(row[i] + k);
    for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int h = 0; h < 2; h++) {
            const __m512d x = _mm512_castps_pd(b[i + h]), y = _mm512_castps_pd(b[i + 2 + h]);
            a[i + 2 * h] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
            a[i + 2 * h + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
        }
    /* a[4 g + c]: rows 4g..4g+3 of columns c, c+4, c+8, c+12, one per 128-bit lane */
    for (int c = 0; c < 4; c++) {
        const __m512 p = _mm512_shuffle_f32x4(a[c], a[4 + c], 0x88), q = _mm512_shuffle_f32x4(a[c], a[4 + c], 0xdd);
        const __m512 s = _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0x88),
                     t = _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0xdd);
        b[c] = _mm512_shuffle_f32x4(p, s, 0x88);
        b[c + 8] = _mm512_shuffle_f32x4(p, s, 0xdd);
        b[c + 4] = _mm512_shuffle_f32x4(q, t, 0x88);
        b[c + 12] = _mm512_shuffle_f32x4(q, t, 0xdd);
    }
    for (int i = 0; i < 16; i++)
        _mm512_storeu_ps(out + i * step, b[i]);
}
#elif FS_WIDTH == 256
FS_INLINE void NAME(transpose)(const float *const *row, ptrdiff_t k, float *out, ptrdiff_t step)
{
    __m256 a[8], b[8];
    for (int i = 0; i < 8; i++)
        a[i] = _mm256_loadu_ps(row[i] + k);
    for (int i = 0; i < 8; i += 2) {
        b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int h = 0; h < 2; h++) {
            const __m256d x = _mm256_castps_pd(b[i + h]), y = _mm256_castps_pd(b[i + 2 + h]);
            a[i + 2 * h] = _mm256_castpd_ps(_mm256_unpacklo_pd(x, y));
            a[i + 2 * h + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(x, y));
        }
    /* a[4 g + c]: rows 4g..4g+3 of columns c, c+4, one per 128-bit lane */
    for (int c = 0; c < 4; c++) {
        _mm256_storeu_ps(out + c * step, _mm256_permute2f128_ps(a[c], a[4 + c], 0x20));
        _mm256_storeu_ps(out + (c + 4) * step, _mm256_permute2f128_ps(a[c], a[4 + c], 0x31));
    }
}
#else
FS_INLINE void NAME(transpose)(const float *const *row, ptrdiff_t k, float *out, ptrdiff_t step)
{
    for (int j = 0; j < NAME(lanes); j++)
        for (int i = 0; i < NAME(lanes); i++)
            out[j * step + i] = row[i][k + j];
}
#endif
#undef TYPED

#endif
