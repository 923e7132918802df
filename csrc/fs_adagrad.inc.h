/* Body of fs_adagrad.c, included once per level. It is vectorised by hand: a compiler does not vectorise square roots,
 * for which C has an error number. Every operation is rounded separately, as it is in the columns after the last full
 * vector. */
#ifndef FS_DOORS

#if FS_WIDTH == 512
#define ROOT(x) _mm512_sqrt_pd(x)
#elif FS_WIDTH == 256
#define ROOT(x) _mm256_sqrt_pd(x)
#elif FS_WIDTH == 128 && FS_X86
#define ROOT(x) _mm_sqrt_pd(x)
#elif FS_WIDTH == 128
#define ROOT(x) vsqrtq_f64(x)
#else
#define ROOT(x) sqrt(x)
#endif

FS_LOOP void NAME(adagrad)(ptrdiff_t d, double slope, double step, double delta, const double *FS_RESTRICT x,
                           double *FS_RESTRICT squares, double *FS_RESTRICT w)
{
    const NAME(vec) slopes = NAME(set)(slope), steps = NAME(set)(step), deltas = NAME(set)(delta);
    ptrdiff_t j = 0;
    for (; j + NAME(lanes) <= d; j += NAME(lanes)) {
        const NAME(vec) v = NAME(load)(x + j), g = slopes * v;
        const NAME(vec) square = NAME(load)(squares + j) + g * g;
        NAME(store)(squares + j, square);
        NAME(store)(w + j, NAME(load)(w + j) - steps * v / (deltas + ROOT(square)));
    }
    for (; j < d; j++) {
        const double g = slope * x[j];
        squares[j] += g * g;
        w[j] -= step * x[j] / (delta + sqrt(squares[j]));
    }
}

#undef ROOT

#else

FS_DOOR(FS_TABLE, void, TYPED(adagrad),
        (ptrdiff_t d, double slope, double step, double delta, const double *x, double *squares, double *w),
        (d, slope, step, delta, x, squares, w))

#endif
