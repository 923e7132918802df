/* Body of fs_quantize.c, included once per level. */
#ifndef FS_DOORS

#define LANES ((int)NAME(lanes))
/* The number of registers of rows for which a word is loaded once. */
#if FS_WIDTH == 0
#define VECTORS 16
#else
#define VECTORS 2
#endif
#define EACH_VECTOR \
    FS_UNROLL       \
    for (int v = 0; v < VECTORS; v++)

/* index: a vector of word numbers. every: broadcast. keep: where score < *least, *least = score and *who = word.
 * lesser: minimum. put, get: store and load. look_up: table[who] of 16 floats. */
#if FS_WIDTH == 512
typedef __m512i NAME(index);
FS_INLINE NAME(index) NAME(every)(int word) { return _mm512_set1_epi32(word); }
FS_INLINE void NAME(keep)(NAME(vec) score, NAME(index) word, NAME(vec) * least, NAME(index) * who)
{
    const __mmask16 less = _mm512_cmp_ps_mask(score, *least, _CMP_LT_OQ);
    *least = _mm512_mask_mov_ps(*least, less, score);
    *who = _mm512_mask_mov_epi32(*who, less, word);
}
FS_INLINE NAME(vec) NAME(lesser)(NAME(vec) a, NAME(vec) b) { return _mm512_min_ps(a, b); }
FS_INLINE void NAME(put)(int32_t *p, NAME(index) who) { _mm512_storeu_si512((void *)p, who); }
FS_INLINE NAME(index) NAME(get)(const int32_t *p) { return _mm512_loadu_si512((const void *)p); }
FS_INLINE NAME(vec) NAME(look_up)(const float *table, NAME(index) who)
{
    return _mm512_permutexvar_ps(who, _mm512_loadu_ps(table));
}
#elif FS_WIDTH == 256
typedef __m256i NAME(index);
FS_INLINE NAME(index) NAME(every)(int word) { return _mm256_set1_epi32(word); }
FS_INLINE void NAME(keep)(NAME(vec) score, NAME(index) word, NAME(vec) * least, NAME(index) * who)
{
    const __m256 less = _mm256_cmp_ps(score, *least, _CMP_LT_OQ);
    *least = _mm256_min_ps(score, *least);
    *who = _mm256_blendv_epi8(*who, word, _mm256_castps_si256(less));
}
FS_INLINE NAME(vec) NAME(lesser)(NAME(vec) a, NAME(vec) b) { return _mm256_min_ps(a, b); }
FS_INLINE void NAME(put)(int32_t *p, NAME(index) who) { _mm256_storeu_si256((void *)p, who); }
FS_INLINE NAME(index) NAME(get)(const int32_t *p) { return _mm256_loadu_si256((const void *)p); }
FS_INLINE NAME(vec) NAME(look_up)(const float *table, NAME(index) who)
{
    const __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), who);
    const __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), who);
    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(who, 28)));
}
#else
#if FS_WIDTH == 128 && FS_X86
typedef __m128i NAME(index);
FS_INLINE NAME(index) NAME(every)(int word) { return _mm_set1_epi32(word); }
FS_INLINE void NAME(keep)(NAME(vec) score, NAME(index) word, NAME(vec) * least, NAME(index) * who)
{
    const __m128i less = _mm_castps_si128(_mm_cmplt_ps(score, *least));
    *least = _mm_min_ps(score, *least);
    *who = _mm_or_si128(_mm_and_si128(less, word), _mm_andnot_si128(less, *who));
}
FS_INLINE NAME(vec) NAME(lesser)(NAME(vec) a, NAME(vec) b) { return _mm_min_ps(a, b); }
FS_INLINE void NAME(put)(int32_t *p, NAME(index) who) { _mm_storeu_si128((void *)p, who); }
FS_INLINE NAME(index) NAME(get)(const int32_t *p) { return _mm_loadu_si128((const void *)p); }
#elif FS_WIDTH == 128
typedef int32x4_t NAME(index);
FS_INLINE NAME(index) NAME(every)(int word) { return vdupq_n_s32(word); }
FS_INLINE void NAME(keep)(NAME(vec) score, NAME(index) word, NAME(vec) * least, NAME(index) * who)
{
    const uint32x4_t less = vcltq_f32(score, *least);
    *least = vminq_f32(score, *least);
    *who = vbslq_s32(less, word, *who);
}
FS_INLINE NAME(vec) NAME(lesser)(NAME(vec) a, NAME(vec) b) { return vminq_f32(a, b); }
FS_INLINE void NAME(put)(int32_t *p, NAME(index) who) { vst1q_s32(p, who); }
FS_INLINE NAME(index) NAME(get)(const int32_t *p) { return vld1q_s32(p); }
#else
typedef int32_t NAME(index);
FS_INLINE NAME(index) NAME(every)(int word) { return word; }
FS_INLINE void NAME(keep)(NAME(vec) score, NAME(index) word, NAME(vec) * least, NAME(index) * who)
{
    *who = score < *least ? word : *who;
    *least = score < *least ? score : *least;
}
FS_INLINE NAME(vec) NAME(lesser)(NAME(vec) a, NAME(vec) b) { return a < b ? a : b; }
FS_INLINE void NAME(put)(int32_t *p, NAME(index) who) { *p = who; }
FS_INLINE NAME(index) NAME(get)(const int32_t *p) { return *p; }
#endif
FS_INLINE NAME(vec) NAME(look_up)(const float *table, NAME(index) who)
{
    int32_t at[NAME(lanes)];
    float found[NAME(lanes)];
    NAME(put)(at, who);
    for (int l = 0; l < LANES; l++)
        found[l] = table[at[l]];
    return NAME(load)(found);
}
#endif

/* product[c] = z . word c, of 16 words (count, 16), z (count x ROWS) */
FS_INLINE void NAME(products)(ptrdiff_t count, const float *z, const float *words, NAME(vec) (*product)[VECTORS])
{
    enum { TOGETHER = FS_WIDTH == 512 ? 8 : 4 };
    for (int c = 0; c < 16; c += TOGETHER) {
        NAME(vec) sum[TOGETHER][VECTORS];
        FS_UNROLL
        for (int w = 0; w < TOGETHER; w++) {
            const NAME(vec) word = NAME(set)(words[c + w]);
            EACH_VECTOR sum[w][v] = NAME(load)(z + v * LANES) * word;
        }
        for (ptrdiff_t k = 1; k < count; k++)
            FS_UNROLL
        for (int w = 0; w < TOGETHER; w++) {
            const NAME(vec) word = NAME(set)(words[16 * k + c + w]);
            EACH_VECTOR sum[w][v] = sum[w][v] + NAME(load)(z + k * ROWS + v * LANES) * word;
        }
        FS_UNROLL
        for (int w = 0; w < TOGETHER; w++)
            EACH_VECTOR product[c + w][v] = sum[w][v];
    }
}

/* first = argmin_c half[c] - z . word c */
FS_INLINE void NAME(nearest)(ptrdiff_t count, const float *z, const float *words, const float *half, int32_t *first)
{
    NAME(vec) product[16][VECTORS], least[VECTORS];
    NAME(index) who[VECTORS];
    NAME(products)(count, z, words, product);
    EACH_VECTOR
    {
        least[v] = NAME(set)(INFINITY);
        who[v] = NAME(every)(0);
    }
    for (int c = 0; c < 16; c++) {
        const NAME(vec) h = NAME(set)(half[c]);
        const NAME(index) word = NAME(every)(c);
        EACH_VECTOR NAME(keep)(h - product[c][v], word, &least[v], &who[v]);
    }
    EACH_VECTOR NAME(put)(first + v * LANES, who[v]);
}

/* With rest[b, a] = half[b, a] - z . word b of the second nibble: first = argmin_a min_b rest[b, a] - z . word a, and
 * second = argmin_b rest[b, first]. */
FS_INLINE void NAME(nearest_pair)(ptrdiff_t count, const float *z, const float *words, const float *half,
                                  int32_t *first, int32_t *second)
{
    NAME(vec) product[16][VECTORS], later[16][VECTORS], least[VECTORS];
    NAME(index) who[VECTORS];
    NAME(products)(count, z, words, product);
    NAME(products)(count, z, words + 16 * count, later);
    EACH_VECTOR
    {
        least[v] = NAME(set)(INFINITY);
        who[v] = NAME(every)(0);
    }
    for (int a = 0; a < 16; a++) {
        const NAME(index) word = NAME(every)(a);
        NAME(vec) rest[VECTORS], h = NAME(set)(half[a]);
        EACH_VECTOR rest[v] = h - later[0][v];
        FS_UNROLL
        for (int b = 1; b < 16; b++) {
            h = NAME(set)(half[16 * b + a]);
            EACH_VECTOR rest[v] = NAME(lesser)(h - later[b][v], rest[v]);
        }
        EACH_VECTOR NAME(keep)(rest[v] - product[a][v], word, &least[v], &who[v]);
    }
    NAME(index) at[VECTORS];
    EACH_VECTOR
    {
        at[v] = who[v];
        NAME(put)(first + v * LANES, at[v]);
        least[v] = NAME(set)(INFINITY);
        who[v] = NAME(every)(0);
    }
    for (int b = 0; b < 16; b++) {
        const NAME(index) word = NAME(every)(b);
        EACH_VECTOR NAME(keep)(NAME(look_up)(half + 16 * b, at[v]) - later[b][v], word, &least[v], &who[v]);
    }
    EACH_VECTOR NAME(put)(second + v * LANES, who[v]);
}

/* word = direction k of the words chosen in a group: of one nibble (m = 1), or the sum of two */
FS_INLINE void NAME(chosen)(ptrdiff_t count, ptrdiff_t k, ptrdiff_t m, const float *words, int32_t (*who)[ROWS],
                            float *word)
{
    for (int i = 0; i < ROWS; i += LANES) {
        NAME(vec) found = NAME(look_up)(words + 16 * k, NAME(get)(who[0] + i));
        if (m == 2)
            found = found + NAME(look_up)(words + 16 * (count + k), NAME(get)(who[1] + i));
        NAME(store)(word + i, found);
    }
}

/* sum += z z: exact products of floats, so one rounding each at every level */
FS_INLINE void NAME(add_own_squares)(const float *FS_RESTRICT z, double *FS_RESTRICT sum)
{
    for (int i = 0; i < ROWS; i++)
        sum[i] += (double)z[i] * (double)z[i];
}

/* sum += slope z (z - word) */
FS_INLINE void NAME(add_errors)(float slope, const float *FS_RESTRICT z, const float *FS_RESTRICT word,
                                double *FS_RESTRICT sum)
{
    for (int i = 0; i < ROWS; i++)
        sum[i] += (double)slope * (double)z[i] * ((double)z[i] - (double)word[i]);
}

FS_LOOP void NAME(quantize_panel)(const fs_quantizer *q, ptrdiff_t n, const float *z, const double *square,
                                  uint8_t *codes, void *scratch)
{
    scratch_of *s = scratch;
    const float *words = q->words, *weighted = q->weighted, *half = q->half;
    uint8_t *nibble = s->nibble;
    memset(s->sum, 0, sizeof s->sum);
    for (ptrdiff_t g = 0; g < q->n_groups; g++) {
        const ptrdiff_t count = q->count[g], m = q->nibbles[g];
        const float *from = z + q->start[g] * ROWS;
        for (int i = 0; i < ROWS; i += VECTORS * LANES) {
            if (m == 1)
                NAME(nearest)(count, from + i, weighted, half, s->who[0] + i);
            else
                NAME(nearest_pair)(count, from + i, weighted, half, s->who[0] + i, s->who[1] + i);
        }
        for (ptrdiff_t j = 0; j < m; j++, nibble += ROWS)
            for (int i = 0; i < ROWS; i++)
                nibble[i] = (uint8_t)s->who[j][i];
        for (ptrdiff_t k = 0; k < count && q->factor.bytes; k++) {
            NAME(chosen)(count, k, m, words, s->who, s->word);
            NAME(add_errors)(q->slope[q->start[g] + k], from + k * ROWS, s->word, s->sum[FS_ZE]);
        }
        words += 16 * count * m;
        weighted += 16 * count * m;
        half += m == 1 ? 16 : 256;
    }
    for (ptrdiff_t j = 0; j < q->n_directions && q->factor.bytes; j++)
        NAME(add_own_squares)(z + j * ROWS, s->sum[FS_ZZ]);
    /* two nibbles a byte, in place: byte b of row i at nibble[b * ROWS + i] */
    const ptrdiff_t bytes = (q->n_nibbles + 1) / 2;
    memset(nibble, 0, ROWS);
    for (ptrdiff_t b = 0; b < bytes; b++)
        for (int i = 0; i < ROWS; i++)
            s->nibble[b * ROWS + i] = (uint8_t)(s->nibble[2 * b * ROWS + i] | s->nibble[(2 * b + 1) * ROWS + i] << 4);
    for (ptrdiff_t i = 0; i < n; i++) {
        uint8_t *to = codes + i * q->width;
        for (ptrdiff_t b = 0; b < bytes; b++)
            *to++ = s->nibble[b * ROWS + i];
        double own[FS_SUMS] = {1, square[i]};
        for (int t = FS_ZZ; t < FS_SUMS; t++)
            own[t] = s->sum[t][i];
        const uint32_t u = small_float_of(q->factor, weighed(q->offset, own));
        for (int b = 0; b < q->factor.bytes; b++)
            *to++ = (uint8_t)(u >> 8 * b);
    }
}

FS_LOOP void NAME(words_panel)(const fs_quantizer *q, ptrdiff_t n, const uint8_t *codes, float *z, void *scratch)
{
    scratch_of *s = scratch;
    const float *words = q->words;
    ptrdiff_t nibble = 0;
    memset(z, 0, (size_t)(q->n_directions * ROWS) * sizeof *z);
    memset(s->who, 0, sizeof s->who);
    for (ptrdiff_t g = 0; g < q->n_groups; g++) {
        const ptrdiff_t count = q->count[g], m = q->nibbles[g];
        float *to = z + q->start[g] * ROWS;
        for (ptrdiff_t j = 0; j < m; j++, nibble++)
            for (ptrdiff_t i = 0; i < n; i++)
                s->who[j][i] = codes[i * q->width + nibble / 2] >> (nibble % 2 ? 4 : 0) & 15;
        for (ptrdiff_t k = 0; k < count; k++) {
            NAME(chosen)(count, k, m, words, s->who, to + k * ROWS);
            for (ptrdiff_t i = n; i < ROWS; i++)
                to[k * ROWS + i] = 0;
        }
        words += 16 * count * m;
    }
}

#undef LANES
#undef VECTORS
#undef EACH_VECTOR

#else

FS_DOOR(FS_TABLE, void, TYPED(quantize_panel),
        (const fs_quantizer *q, ptrdiff_t n, const float *z, const double *square, uint8_t *codes, void *scratch),
        (q, n, z, square, codes, scratch))
FS_DOOR(FS_TABLE, void, TYPED(words_panel),
        (const fs_quantizer *q, ptrdiff_t n, const uint8_t *codes, float *z, void *scratch), (q, n, codes, z, scratch))

#endif
