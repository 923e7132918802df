/* Body of fs_vec.h, included once per level: the registers of the level, and then what is made of them for float and
 * double (fs_wide.inc.h).
 *
 *   vec    one register of LANES reals (plain C: one real)
 *   wide   64 bytes, 16 floats or 8 doubles, in as many registers as they take: what sums run in, so that their order
 *          does not depend on the level
 *
 * Loads and stores need no alignment.  fma(a, b, c) is a b + c, fnma(a, b, c) is c - a b: rounded once where FS_FUSED,
 * else twice.  Vectors add, subtract and multiply by +, - and *. */
#ifndef FS_DOORS

#define FS_PICK_(verb, type) FS_JOIN(verb##_##type, FS_SUFFIX)

#if FS_WIDTH == 512
/* halves: lane i plus lane i + 4 */
FS_INLINE __m256d FS_PICK_(fold, d)(__m512d x) { return _mm512_castpd512_pd256(x) + _mm512_extractf64x4_pd(x, 1); }
FS_INLINE __m256 FS_PICK_(fold, s)(__m512 x) { return _mm512_castps512_ps256(x) + _mm512_extractf32x8_ps(x, 1); }
#define FOLD_256_D(x) FS_PICK_(fold, d)(x)
#define FOLD_256_S(x) FS_PICK_(fold, s)(x)
#else
#define FOLD_256_D(x) (x)
#define FOLD_256_S(x) (x)
#endif
#if FS_WIDTH >= 256
#define FOLD_128_D(x) (_mm256_castpd256_pd128(x) + _mm256_extractf128_pd(x, 1))
#define FOLD_128_S(x) (_mm256_castps256_ps128(x) + _mm256_extractf128_ps(x, 1))
#else
#define FOLD_128_D(x) (x)
#define FOLD_128_S(x) (x)
#endif

/* The sum of the lanes of a register, by halves: (0 + 4) + (2 + 6) and (1 + 5) + (3 + 7), then these two. */
#if FS_X86 && FS_WIDTH
FS_INLINE double FS_PICK_(lanes_sum, d)(__m128d x) { return _mm_cvtsd_f64(_mm_add_sd(x, _mm_unpackhi_pd(x, x))); }
FS_INLINE float FS_PICK_(lanes_sum, s)(__m128 x)
{
    x = x + _mm_movehl_ps(x, x);
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps(x, x, 1)));
}
#elif FS_ARM && FS_WIDTH
FS_INLINE double FS_PICK_(lanes_sum, d)(float64x2_t x) { return vgetq_lane_f64(x, 0) + vgetq_lane_f64(x, 1); }
FS_INLINE float FS_PICK_(lanes_sum, s)(float32x4_t x)
{
    const float32x2_t half = vadd_f32(vget_low_f32(x), vget_high_f32(x));
    return vget_lane_f32(half, 0) + vget_lane_f32(half, 1);
}
#else
FS_INLINE double FS_PICK_(lanes_sum, d)(double x) { return x; }
FS_INLINE float FS_PICK_(lanes_sum, s)(float x) { return x; }
#endif

#define REAL double
#define TYPED(verb) verb##_d
#if FS_WIDTH == 512
#define FMA(a, b, c) _mm512_fmadd_pd(a, b, c)
#define FNMA(a, b, c) _mm512_fnmadd_pd(a, b, c)
#define RANGE(first, stop) ((__mmask8)((1u << (stop)) - (1u << (first))))
#define LOAD_RANGE(p, first, stop) _mm512_maskz_loadu_pd(RANGE(first, stop), p)
#define STORE_RANGE(p, first, stop, x) _mm512_mask_storeu_pd(p, RANGE(first, stop), x)
#define KEEP_RANGE(first, stop, x) _mm512_maskz_mov_pd(RANGE(first, stop), x)
#elif FS_WIDTH == 256
#define FMA(a, b, c) _mm256_fmadd_pd(a, b, c)
#define FNMA(a, b, c) _mm256_fnmadd_pd(a, b, c)
FS_INLINE __m256i FS_PICK_(range, d)(int first, int stop)
{
    const __m256i lane = _mm256_setr_epi64x(0, 1, 2, 3);
    return _mm256_and_si256(_mm256_cmpgt_epi64(lane, _mm256_set1_epi64x(first - 1)),
                            _mm256_cmpgt_epi64(_mm256_set1_epi64x(stop), lane));
}
#define RANGE(first, stop) FS_PICK_(range, d)(first, stop)
#define LOAD_RANGE(p, first, stop) _mm256_maskload_pd(p, RANGE(first, stop))
#define STORE_RANGE(p, first, stop, x) _mm256_maskstore_pd(p, RANGE(first, stop), x)
#define KEEP_RANGE(first, stop, x) _mm256_and_pd(_mm256_castsi256_pd(RANGE(first, stop)), x)
#elif FS_WIDTH && FS_ARM
#define FMA(a, b, c) vfmaq_f64(c, a, b)
#define FNMA(a, b, c) vfmsq_f64(c, a, b)
#else
#define FMA(a, b, c) ((c) + (a) * (b))
#define FNMA(a, b, c) ((c) - (a) * (b))
#endif
#define FOLD(x) FOLD_128_D(FOLD_256_D(x))
#include "fs_wide.inc.h"

#define REAL float
#define TYPED(verb) verb##_s
#if FS_WIDTH == 512
#define FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define FNMA(a, b, c) _mm512_fnmadd_ps(a, b, c)
#define RANGE(first, stop) ((__mmask16)((1u << (stop)) - (1u << (first))))
#define LOAD_RANGE(p, first, stop) _mm512_maskz_loadu_ps(RANGE(first, stop), p)
#define STORE_RANGE(p, first, stop, x) _mm512_mask_storeu_ps(p, RANGE(first, stop), x)
#define KEEP_RANGE(first, stop, x) _mm512_maskz_mov_ps(RANGE(first, stop), x)
#elif FS_WIDTH == 256
#define FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define FNMA(a, b, c) _mm256_fnmadd_ps(a, b, c)
FS_INLINE __m256i FS_PICK_(range, s)(int first, int stop)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_and_si256(_mm256_cmpgt_epi32(lane, _mm256_set1_epi32(first - 1)),
                            _mm256_cmpgt_epi32(_mm256_set1_epi32(stop), lane));
}
#define RANGE(first, stop) FS_PICK_(range, s)(first, stop)
#define LOAD_RANGE(p, first, stop) _mm256_maskload_ps(p, RANGE(first, stop))
#define STORE_RANGE(p, first, stop, x) _mm256_maskstore_ps(p, RANGE(first, stop), x)
#define KEEP_RANGE(first, stop, x) _mm256_and_ps(_mm256_castsi256_ps(RANGE(first, stop)), x)
#elif FS_WIDTH && FS_ARM
#define FMA(a, b, c) vfmaq_f32(c, a, b)
#define FNMA(a, b, c) vfmsq_f32(c, a, b)
#else
#define FMA(a, b, c) ((c) + (a) * (b))
#define FNMA(a, b, c) ((c) - (a) * (b))
#endif
#define FOLD(x) FOLD_128_S(FOLD_256_S(x))
#include "fs_wide.inc.h"

/* sum (8 doubles) += x^2 for register number `piece` of a row of vectors: column c goes to lane c mod 8. */
FS_INLINE void FS_PICK_(add_squares, d)(FS_PICK_(wide, d) * sum, int piece, FS_PICK_(vec, d) x)
{
    const int at = piece % (int)(sizeof sum->at / sizeof *sum->at);
    sum->at[at] = FS_PICK_(fma, d)(x, x, sum->at[at]);
}
FS_INLINE void FS_PICK_(add_squares, s)(FS_PICK_(wide, d) * sum, int piece, FS_PICK_(vec, s) x)
{
#if FS_WIDTH == 0
    FS_PICK_(add_squares, d)(sum, piece, (double)x);
#else
#if FS_WIDTH == 512
    const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
    const __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
#elif FS_WIDTH == 256
    const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
    const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
#elif FS_X86
    const __m128d low = _mm_cvtps_pd(x), high = _mm_cvtps_pd(_mm_movehl_ps(x, x));
#else
    const float64x2_t low = vcvt_f64_f32(vget_low_f32(x)), high = vcvt_high_f64_f32(x);
#endif
    FS_PICK_(add_squares, d)(sum, 2 * piece, low);
    FS_PICK_(add_squares, d)(sum, 2 * piece + 1, high);
#endif
}

#undef FS_PICK_
#undef FOLD_128_D
#undef FOLD_128_S
#undef FOLD_256_D
#undef FOLD_256_S

#endif
