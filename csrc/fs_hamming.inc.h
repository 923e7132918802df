/* Body of fs_hamming.c, included once per level. */
#ifndef FS_DOORS

/* count_tile: the number of bits in which each code of a tile differs from the query. */
#if FS_WIDTH >= 256 && !defined(FS_VPOPCNTDQ)
/* The counts of nibbles are looked up by a shuffle, for 8 or 16 codes at a time; counts of bytes are summed over as
 * many words as a byte can hold. */
enum { NAME(MOST) = 31 };
#if FS_WIDTH == 512
#define VEC __m512i
#define OP(verb) _mm512_##verb
#define WHOLE(verb) _mm512_##verb##_si512
#define SET _mm512_set1_epi64
#else
#define VEC __m256i
#define OP(verb) _mm256_##verb
#define WHOLE(verb) _mm256_##verb##_si256
#define SET _mm256_set1_epi64x
#endif
FS_INLINE VEC NAME(count_bytes)(VEC x)
{
#if FS_WIDTH == 512
    const VEC table = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
#else
    const VEC table = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
#endif
    const VEC low = OP(set1_epi8)(15);
    return OP(add_epi8)(OP(shuffle_epi8)(table, WHOLE (and)(x, low)),
                        OP(shuffle_epi8)(table, WHOLE (and)(OP(srli_epi16)(x, 4), low)));
}
FS_INLINE void NAME(count_tile)(ptrdiff_t words, const uint64_t *query, const uint64_t *tile, int32_t *out)
{
    enum { CODES = FS_WIDTH / 64 };
    for (int j = 0; j < FS_HAMMING_TILE; j += 2 * CODES) {
        VEC first = WHOLE(setzero)(), second = WHOLE(setzero)();
        for (ptrdiff_t w = 0; w < words;) {
            const ptrdiff_t stop = words - w < NAME(MOST) ? words : w + NAME(MOST);
            VEC bytes = WHOLE(setzero)(), more = WHOLE(setzero)();
            for (; w < stop; w++) {
                const VEC word = SET((long long)query[w]);
                const uint64_t *at = tile + w * FS_HAMMING_TILE + j;
                bytes = OP(add_epi8)(bytes, NAME(count_bytes)(WHOLE(xor)(word, WHOLE(loadu)((const void *)at))));
                more =
                    OP(add_epi8)(more, NAME(count_bytes)(WHOLE(xor)(word, WHOLE(loadu)((const void *)(at + CODES)))));
            }
            first = OP(add_epi64)(first, OP(sad_epu8)(bytes, WHOLE(setzero)()));
            second = OP(add_epi64)(second, OP(sad_epu8)(more, WHOLE(setzero)()));
        }
#if FS_WIDTH == 512
        _mm256_storeu_si256((void *)(out + j), _mm512_cvtepi64_epi32(first));
        _mm256_storeu_si256((void *)(out + j + CODES), _mm512_cvtepi64_epi32(second));
#else
        /* the low halves of the eight counts, in order */
        const __m256 low = _mm256_shuffle_ps(_mm256_castsi256_ps(first), _mm256_castsi256_ps(second), 0x88);
        _mm256_storeu_si256((void *)(out + j), _mm256_permute4x64_epi64(_mm256_castps_si256(low), 0xd8));
#endif
    }
}
#undef VEC
#undef OP
#undef WHOLE
#undef SET
#else
FS_INLINE uint64_t NAME(count_bits)(uint64_t x)
{
#if FS_WIDTH
    return (uint64_t)__builtin_popcountll(x);
#else
    x -= (x >> 1) & 0x5555555555555555u;
    x = (x & 0x3333333333333333u) + ((x >> 2) & 0x3333333333333333u);
    x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fu;
    x += x >> 8; /* no multiplication: few vector units multiply 64 bits */
    x += x >> 16;
    return (x + (x >> 32)) & 0x7f;
#endif
}
#if FS_WIDTH == 128 && FS_X86
/* One count at a time, a code after the other, its sum in a register; for few words, loops of a known length. */
FS_INLINE void NAME(count_codes)(ptrdiff_t words, const uint64_t *query, const uint64_t *FS_RESTRICT tile,
                                 int32_t *FS_RESTRICT out)
{
    FS_UNROLL
    for (int j = 0; j < FS_HAMMING_TILE; j++) {
        uint64_t sum = 0;
        for (ptrdiff_t w = 0; w < words; w++)
            sum += NAME(count_bits)(tile[w * FS_HAMMING_TILE + j] ^ query[w]);
        out[j] = (int32_t)sum;
    }
}
#endif
FS_INLINE void NAME(count_tile)(ptrdiff_t words, const uint64_t *query, const uint64_t *tile, int32_t *out)
{
#if FS_WIDTH == 128 && FS_X86
    if (words == 1)
        NAME(count_codes)(1, query, tile, out);
    else if (words == 2)
        NAME(count_codes)(2, query, tile, out);
    else if (words == 4)
        NAME(count_codes)(4, query, tile, out);
    else if (words == 8)
        NAME(count_codes)(8, query, tile, out);
    else
        NAME(count_codes)(words, query, tile, out);
#else
    uint64_t sum[FS_HAMMING_TILE];
    const uint64_t first = query[0];
    for (int j = 0; j < FS_HAMMING_TILE; j++)
        sum[j] = NAME(count_bits)(tile[j] ^ first);
    for (ptrdiff_t w = 1; w < words; w++) {
        const uint64_t word = query[w];
        const uint64_t *FS_RESTRICT column = tile + w * FS_HAMMING_TILE;
        for (int j = 0; j < FS_HAMMING_TILE; j++)
            sum[j] += NAME(count_bits)(column[j] ^ word);
    }
    for (int j = 0; j < FS_HAMMING_TILE; j++)
        out[j] = (int32_t)sum[j];
#endif
}
#endif

FS_LOOP void NAME(hamming_distances)(ptrdiff_t n_queries, const uint64_t *queries, ptrdiff_t n, ptrdiff_t n_bytes,
                                     const uint8_t *codes, uint64_t *tile, int32_t *out, ptrdiff_t ld)
{
    const ptrdiff_t words = fs_hamming_words(n_bytes);
    int32_t distance[FS_HAMMING_TILE];
    for (ptrdiff_t start = 0; start < n; start += FS_HAMMING_TILE) {
        const ptrdiff_t count = n - start < FS_HAMMING_TILE ? n - start : FS_HAMMING_TILE;
        load_tile(count, n_bytes, codes + start * n_bytes, (n - start - count) * n_bytes, tile);
        for (ptrdiff_t i = 0; i < n_queries; i++) {
            NAME(count_tile)(words, queries + i * words, tile, distance);
            memcpy(out + i * ld + start, distance, (size_t)count * sizeof *distance);
        }
    }
}

FS_INLINE int NAME(any_below)(const int32_t *distance, int32_t limit)
{
    int found = 0;
    for (int j = 0; j < GROUP; j++)
        found |= distance[j] < limit;
    return found;
}

/* out[j] = 0 if code j is allowed, else INT32_MAX, which makes a distance INT32_MAX by a bitwise or. */
FS_INLINE void NAME(spread_bits)(const uint8_t *allow, ptrdiff_t count, int32_t *FS_RESTRICT out)
{
    uint8_t bits[FS_HAMMING_TILE / 8] = {0};
    memcpy(bits, allow, (size_t)(count + 7) / 8);
    for (int b = 0; b < FS_HAMMING_TILE / 8; b++)
        for (int j = 0; j < 8; j++)
            out[8 * b + j] = ((bits[b] >> j & 1) - 1) & INT32_MAX;
}

/* One tile of `count` codes, the first of them with index `first`. The rule applies only if `ruled`. */
FS_INLINE void NAME(look_at_tile)(ptrdiff_t n_queries, const uint64_t *queries, ptrdiff_t count, ptrdiff_t words,
                                  const uint64_t *tile, int64_t first, const int ruled, const fs_hamming_rule *rule,
                                  ptrdiff_t k, int32_t *distance, int64_t *index)
{
    int32_t found[FS_HAMMING_TILE], out[FS_HAMMING_TILE];
    const int64_t *ids = ruled ? rule->ids : NULL;
    const uint8_t *allow = ruled && rule->allow ? rule->allow + first / 8 : NULL;
    if (allow) {
        if (!any_bit(allow, count))
            return;
        NAME(spread_bits)(allow, count, out);
    }
    for (ptrdiff_t i = 0; i < n_queries; i++) {
        int32_t *heap = distance + i * k;
        int64_t *who = index + i * k;
        NAME(count_tile)(words, queries + i * words, tile, found);
        for (int j = 0; allow && j < FS_HAMMING_TILE; j++)
            found[j] |= out[j];
        for (ptrdiff_t j = count; j < FS_HAMMING_TILE; j++)
            found[j] = INT32_MAX;
        for (ptrdiff_t group = 0; group < count; group += GROUP) {
            if (!NAME(any_below)(found + group, ids && heap[0] < INT32_MAX ? heap[0] + 1 : heap[0]))
                continue;
            /* codes are scanned in the order of their indices, so one as far as the worst result is not better, except
             * by its id */
            for (ptrdiff_t j = group; j < group + GROUP; j++)
                if (found[j] < heap[0] ||
                    (ids && found[j] < INT32_MAX && after(ids, heap[0], who[0], found[j], first + j)))
                    sink(ids, k, heap, who, found[j], first + j);
        }
    }
}

FS_INLINE void NAME(scan_tiles)(ptrdiff_t n_queries, const uint64_t *queries, ptrdiff_t n, ptrdiff_t words,
                                const uint64_t *tiles, int64_t first, const int ruled, const fs_hamming_rule *rule,
                                ptrdiff_t k, int32_t *distance, int64_t *index)
{
    for (ptrdiff_t start = 0; start < n; start += FS_HAMMING_TILE) {
        const ptrdiff_t count = n - start < FS_HAMMING_TILE ? n - start : FS_HAMMING_TILE;
        NAME(look_at_tile)(n_queries, queries, count, words, tiles + start * words, first + start, ruled, rule, k,
                           distance, index);
    }
}

/* A separate loop without a rule, so that it has all registers and stack of its own. */
FS_LOOP void NAME(hamming_ruled)(ptrdiff_t n_queries, const uint64_t *queries, ptrdiff_t n, ptrdiff_t words,
                                 const uint64_t *tiles, int64_t first, const fs_hamming_rule *rule, ptrdiff_t k,
                                 int32_t *distance, int64_t *index)
{
    NAME(scan_tiles)(n_queries, queries, n, words, tiles, first, 1, rule, k, distance, index);
}

FS_LOOP void NAME(hamming_scan)(ptrdiff_t n_queries, const uint64_t *queries, ptrdiff_t n, ptrdiff_t words,
                                const uint64_t *tiles, int64_t first, const fs_hamming_rule *rule, ptrdiff_t k,
                                int32_t *distance, int64_t *index)
{
    if (rule->allow || rule->ids)
        NAME(hamming_ruled)(n_queries, queries, n, words, tiles, first, rule, k, distance, index);
    else
        NAME(scan_tiles)(n_queries, queries, n, words, tiles, first, 0, rule, k, distance, index);
}

#else

#if FS_X86
#define TABLE(loop) {loop##_plain, loop##_sse2, loop##_avx2, loop##_avx512, loop##_avx512vpopcntdq}
#else
#define TABLE FS_TABLE
#endif
FS_DOOR(TABLE, void, hamming_distances,
        (ptrdiff_t n_queries, const uint64_t *queries, ptrdiff_t n, ptrdiff_t n_bytes, const uint8_t *codes,
         uint64_t *tile, int32_t *out, ptrdiff_t ld),
        (n_queries, queries, n, n_bytes, codes, tile, out, ld))
FS_DOOR(TABLE, void, hamming_scan,
        (ptrdiff_t n_queries, const uint64_t *queries, ptrdiff_t n, ptrdiff_t words, const uint64_t *tiles,
         int64_t first, const fs_hamming_rule *rule, ptrdiff_t k, int32_t *distance, int64_t *index),
        (n_queries, queries, n, words, tiles, first, rule, k, distance, index))

void fs_hamming_look(ptrdiff_t n_queries, const uint64_t *queries, ptrdiff_t n, ptrdiff_t n_bytes, const uint8_t *codes,
                     ptrdiff_t n_after, int64_t first, const fs_hamming_rule *rule, ptrdiff_t k, uint64_t *tile,
                     int32_t *distance, int64_t *index)
{
    const ptrdiff_t words = fs_hamming_words(n_bytes);
    ptrdiff_t start = 0;
    if (fs_hamming_is_tiles(n_bytes, codes)) {
        start = n / FS_HAMMING_TILE * FS_HAMMING_TILE;
        fs_hamming_scan(n_queries, queries, start, words, (const uint64_t *)(const void *)codes, first, rule, k,
                        distance, index);
    }
    for (; start < n; start += FS_HAMMING_TILE) {
        const ptrdiff_t count = n - start < FS_HAMMING_TILE ? n - start : FS_HAMMING_TILE;
        fs_hamming_tiles(count, n_bytes, codes + start * n_bytes, (n - start - count) * n_bytes + n_after, tile);
        fs_hamming_scan(n_queries, queries, count, words, tile, first + start, rule, k, distance, index);
    }
}

#endif
