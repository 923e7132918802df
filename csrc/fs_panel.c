#include "fs_panel.h"

#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__)) && !defined(FS_NO_CLONES)

#include <immintrin.h>

#define FS_AVX512 __attribute__((target("avx512f")))

int fs_panel_usable(void) { return __builtin_cpu_supports("avx512f") != 0; }

/* Eight rows of eight doubles, transposed: out[k * 16 + i] = row_i[k]. */
FS_AVX512 static inline void transpose_d(const double *const *row, ptrdiff_t k, double *out)
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
        _mm512_storeu_pd(out + i * FS_PANEL_ROWS_D, a[i]);
}

/* Sixteen rows of sixteen floats, transposed: out[k * 32 + i] = row_i[k]. */
FS_AVX512 static inline void transpose_s(const float *const *row, ptrdiff_t k, float *out)
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
        _mm512_storeu_ps(out + i * FS_PANEL_ROWS_S, b[i]);
}

FS_AVX512 static inline __m512d add_squares_d(__m512d sum, __m512d x) { return _mm512_fmadd_pd(x, x, sum); }

FS_AVX512 static inline __m512d add_squares_s(__m512d sum, __m512 x)
{
    const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
    const __m512d high = _mm512_cvtps_pd(_mm512_castps512_ps256(_mm512_shuffle_f32x4(x, x, 0xee)));
    return _mm512_fmadd_pd(high, high, _mm512_fmadd_pd(low, low, sum));
}

#define REAL double
#define VEC __m512d
#define MASK __mmask8
#define WIDTH 8
#define ROWS FS_PANEL_ROWS_D
#define OP(verb) _mm512_##verb##_pd
#define TRANSPOSE transpose_d
#define ADD_SQUARES add_squares_d
#define NAME(verb) fs_panel_##verb##_d
#define LOCAL(verb) verb##_double
#include "fs_panel.inc.h"
#undef REAL
#undef VEC
#undef MASK
#undef WIDTH
#undef ROWS
#undef OP
#undef TRANSPOSE
#undef ADD_SQUARES
#undef NAME
#undef LOCAL

#define REAL float
#define VEC __m512
#define MASK __mmask16
#define WIDTH 16
#define ROWS FS_PANEL_ROWS_S
#define OP(verb) _mm512_##verb##_ps
#define TRANSPOSE transpose_s
#define ADD_SQUARES add_squares_s
#define NAME(verb) fs_panel_##verb##_s
#define LOCAL(verb) verb##_float
#include "fs_panel.inc.h"

#else /* no AVX-512 at compile time: never called */

int fs_panel_usable(void) { return 0; }

void fs_panel_gram_s(ptrdiff_t m, ptrdiff_t n_columns, ptrdiff_t d, const float *f, float *gram, float *pack,
                     ptrdiff_t n_pack)
{
    (void)m, (void)n_columns, (void)d, (void)f, (void)gram, (void)pack, (void)n_pack;
}
void fs_panel_gram_d(ptrdiff_t m, ptrdiff_t n_columns, ptrdiff_t d, const double *f, double *gram, double *pack,
                     ptrdiff_t n_pack)
{
    (void)m, (void)n_columns, (void)d, (void)f, (void)gram, (void)pack, (void)n_pack;
}
void fs_panel_rotate_s(ptrdiff_t m, ptrdiff_t r, ptrdiff_t d, float *f, const float *w, double *square, float *pack,
                       ptrdiff_t n_pack)
{
    (void)m, (void)r, (void)d, (void)f, (void)w, (void)square, (void)pack, (void)n_pack;
}
void fs_panel_rotate_d(ptrdiff_t m, ptrdiff_t r, ptrdiff_t d, double *f, const double *w, double *square, double *pack,
                       ptrdiff_t n_pack)
{
    (void)m, (void)r, (void)d, (void)f, (void)w, (void)square, (void)pack, (void)n_pack;
}

#endif
