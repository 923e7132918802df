/* Part of fs_vec.inc.h, included once per level and REAL: the functions of vec and wide. */

#if FS_WIDTH
typedef REAL NAME(vec) __attribute__((vector_size(FS_WIDTH / 8)));
/* the same in memory, at any address */
typedef REAL NAME(vec_at) __attribute__((vector_size(FS_WIDTH / 8), aligned(sizeof(REAL)), may_alias));
#define SET(x) ((x) - (NAME(vec)){0}) /* + would lose the sign of a zero */
#else
typedef REAL NAME(vec);
typedef REAL NAME(vec_at);
#define SET(x) (x)
#endif
#define LANES ((int)(sizeof(NAME(vec)) / sizeof(REAL)))
#define LOAD(p) (*(const NAME(vec_at) *)(p))
#define STORE(p, x) (*(NAME(vec_at) *)(p) = (x))

/* Reals in one register. */
enum { NAME(lanes) = LANES };

FS_INLINE NAME(vec) NAME(load)(const REAL *p) { return LOAD(p); }
FS_INLINE void NAME(store)(REAL *p, NAME(vec) x) { STORE(p, x); }
FS_INLINE NAME(vec) NAME(set)(REAL x) { return SET(x); }
FS_INLINE NAME(vec) NAME(fma)(NAME(vec) a, NAME(vec) b, NAME(vec) c) { return FMA(a, b, c); }
FS_INLINE NAME(vec) NAME(fnma)(NAME(vec) a, NAME(vec) b, NAME(vec) c) { return FNMA(a, b, c); }

/* Of a register, lanes first .. stop - 1, 0 <= first <= stop <= LANES: the others are read as zeros, not written, or
 * set to zero; their memory is not touched. */
FS_INLINE NAME(vec) NAME(load_range)(const REAL *p, int first, int stop)
{
#if defined(LOAD_RANGE)
    return LOAD_RANGE(p, first, stop);
#else
    REAL lane[LANES] = {0};
    for (int l = first; l < stop; l++)
        lane[l] = p[l];
    return LOAD(lane);
#endif
}
FS_INLINE void NAME(store_range)(REAL *p, int first, int stop, NAME(vec) x)
{
#if defined(STORE_RANGE)
    STORE_RANGE(p, first, stop, x);
#else
    REAL lane[LANES];
    STORE(lane, x);
    for (int l = first; l < stop; l++)
        p[l] = lane[l];
#endif
}
FS_INLINE NAME(vec) NAME(keep_range)(int first, int stop, NAME(vec) x)
{
#if defined(KEEP_RANGE)
    return KEEP_RANGE(first, stop, x);
#else
    REAL lane[LANES];
    STORE(lane, x);
    for (int l = 0; l < LANES; l++)
        lane[l] = l < first || l >= stop ? 0 : lane[l];
    return LOAD(lane);
#endif
}

#define PIECES ((int)(64 / sizeof(REAL)) / LANES)
#define EACH_PIECE for (int p_ = 0; p_ < PIECES; p_++)
/* A range of the wide vector as a range of piece p_. */
#define WITHIN(lane) ((lane) < p_ * LANES ? 0 : (lane) > (p_ + 1) * LANES ? LANES : (lane) - p_ * LANES)

typedef struct {
    NAME(vec) at[PIECES];
} NAME(wide);

FS_INLINE NAME(wide) NAME(wide_load)(const REAL *p)
{
    NAME(wide) x;
    EACH_PIECE x.at[p_] = LOAD(p + p_ * LANES);
    return x;
}
FS_INLINE void NAME(wide_store)(REAL *p, NAME(wide) x) { EACH_PIECE STORE(p + p_ * LANES, x.at[p_]); }
FS_INLINE NAME(wide) NAME(wide_set)(REAL s)
{
    NAME(wide) x;
    EACH_PIECE x.at[p_] = SET(s);
    return x;
}
FS_INLINE NAME(wide) NAME(wide_fma)(NAME(wide) a, NAME(wide) b, NAME(wide) c)
{
    EACH_PIECE c.at[p_] = FMA(a.at[p_], b.at[p_], c.at[p_]);
    return c;
}
FS_INLINE NAME(wide) NAME(wide_fnma)(NAME(wide) a, NAME(wide) b, NAME(wide) c)
{
    EACH_PIECE c.at[p_] = FNMA(a.at[p_], b.at[p_], c.at[p_]);
    return c;
}
FS_INLINE NAME(wide) NAME(wide_load_range)(const REAL *p, int first, int stop)
{
    NAME(wide) x;
    EACH_PIECE x.at[p_] = NAME(load_range)(p + p_ * LANES, WITHIN(first), WITHIN(stop));
    return x;
}
FS_INLINE void NAME(wide_store_range)(REAL *p, int first, int stop, NAME(wide) x)
{
    EACH_PIECE NAME(store_range)(p + p_ * LANES, WITHIN(first), WITHIN(stop), x.at[p_]);
}
FS_INLINE NAME(wide) NAME(wide_keep_range)(int first, int stop, NAME(wide) x)
{
    EACH_PIECE x.at[p_] = NAME(keep_range)(WITHIN(first), WITHIN(stop), x.at[p_]);
    return x;
}

/* The sum of the lanes, by halves: first i and i + half. */
FS_INLINE REAL NAME(wide_sum)(NAME(wide) x)
{
    for (int half = PIECES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            x.at[i] = x.at[i] + x.at[i + half];
    return NAME(lanes_sum)(FOLD(x.at[0]));
}

#undef PIECES
#undef EACH_PIECE
#undef WITHIN
#undef REAL
#undef TYPED
#undef LANES
#undef LOAD
#undef STORE
#undef SET
#undef FMA
#undef FNMA
#undef FOLD
#if defined(RANGE)
#undef RANGE
#undef LOAD_RANGE
#undef STORE_RANGE
#undef KEEP_RANGE
#endif
