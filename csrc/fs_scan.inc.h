/* Body of fs_scan.c, included once per level. */
#ifndef FS_DOORS

/* out[r] = unit * float of the field at byte `at` of row r of n_blocks blocks; `beyond`: it spans two groups. */
FS_INLINE void NAME(read_field)(ptrdiff_t n_blocks, ptrdiff_t groups, const uint8_t *blocks, ptrdiff_t at,
                                uint32_t mask, const int beyond, int shift, float unit, float *FS_RESTRICT out)
{
    const uint32_t down = (uint32_t)(at % 4) * 8, one = 127u << 23;
    const uint8_t *from = blocks + at / 4 * 4 * FS_SCAN_ROWS;
    for (ptrdiff_t b = 0; b < n_blocks; b++, from += groups * 4 * FS_SCAN_ROWS, out += FS_SCAN_ROWS) {
        uint32_t words[2 * FS_SCAN_ROWS];
        float values[FS_SCAN_ROWS];
        memcpy(words, from, (size_t)(beyond ? 2 : 1) * 4 * FS_SCAN_ROWS);
        for (int r = 0; r < FS_SCAN_ROWS; r++) {
            const uint32_t bits = words[r] >> down | (beyond ? words[FS_SCAN_ROWS + r] << 8 : 0);
            words[r] = ((bits & mask) << shift) + one;
        }
        memcpy(values, words, sizeof values);
        for (int r = 0; r < FS_SCAN_ROWS; r++)
            out[r] = unit * values[r];
    }
}

FS_LOOP void NAME(scan_field)(ptrdiff_t n_blocks, ptrdiff_t groups, const uint8_t *blocks, ptrdiff_t at,
                              ptrdiff_t n_bytes, int shift, float unit, float *out)
{
    const uint32_t mask = n_bytes == 1 ? 0xff : 0xffff;
    if (at % 4 + n_bytes > 4)
        NAME(read_field)(n_blocks, groups, blocks, at, mask, 1, shift, unit, out);
    else if (n_bytes)
        NAME(read_field)(n_blocks, groups, blocks, at, mask, 0, shift, unit, out);
}

#if defined(FS_VPOPCNTDQ)

/* The steps of four tables are in one register, in which the low (or high) nibbles of four bytes of 16 rows are looked
 * up at once.  Their products with the weights are summed by fours: those of a row. */
FS_INLINE __mmask16 NAME(judge)(__m512i sum, const fs_scan_query *q, const strip *s, ptrdiff_t block)
{
    if (!s->offsets)
        return _mm512_cmple_epi32_mask(sum, _mm512_set1_epi32(q->most));
    const ptrdiff_t row = block * FS_SCAN_ROWS;
    const __m512 t = _mm512_fmadd_ps(_mm512_set1_ps(q->rise), _mm512_cvtepi32_ps(sum), _mm512_set1_ps(q->low));
    const __m512 score = _mm512_fmadd_ps(_mm512_loadu_ps(s->scales + row), t, _mm512_loadu_ps(s->offsets + row));
    __m512 limit = _mm512_set1_ps(q->limit);
    if (s->divisors)
        limit = _mm512_fmsub_ps(limit, _mm512_loadu_ps(s->divisors + row), _mm512_set1_ps(q->shift));
    return _mm512_cmp_ps_mask(score, limit, _CMP_NGT_UQ);
}

/* n_q <= 4 queries and n_b <= 4 blocks, both constants, so that sums are in registers. */
FS_INLINE void NAME(few)(const int n_q, const int n_b, const strip *s, ptrdiff_t block, const fs_scan_query *queries,
                         uint16_t *masks)
{
    const __m512i nibble = _mm512_set1_epi8(15), place = _mm512_set1_epi32(0x30201000);
    __m512i sums[4][4];
    FS_UNROLL
    for (int i = 0; i < 4; i++)
        FS_UNROLL
    for (int j = 0; j < 4; j++)
        sums[i][j] = _mm512_setzero_si512();
    const uint8_t *from = s->blocks + block * s->groups * 64;
    for (ptrdiff_t g = 0; g < s->looked; g++) {
        __m512i low[4], high[4];
        FS_UNROLL
        for (int j = 0; j < n_b; j++) {
            const __m512i x = _mm512_loadu_si512(from + (j * s->groups + g) * 64);
            low[j] = _mm512_ternarylogic_epi32(x, nibble, place, 0xea); /* x & nibble | place */
            high[j] = _mm512_ternarylogic_epi32(_mm512_srli_epi32(x, 4), nibble, place, 0xea);
        }
        FS_UNROLL
        for (int i = 0; i < n_q; i++) {
            const uint8_t *steps = queries[i].steps + g * STEPS;
            const uint32_t *weights = queries[i].weights + g * WEIGHTS;
            const __m512i steps_low = _mm512_loadu_si512(steps), steps_high = _mm512_loadu_si512(steps + 64);
            const __m512i by_low = _mm512_set1_epi32((int)weights[0]), by_high = _mm512_set1_epi32((int)weights[1]);
            FS_UNROLL
            for (int j = 0; j < n_b; j++) {
                sums[i][j] = _mm512_dpbusd_epi32(sums[i][j], _mm512_permutexvar_epi8(low[j], steps_low), by_low);
                sums[i][j] = _mm512_dpbusd_epi32(sums[i][j], _mm512_permutexvar_epi8(high[j], steps_high), by_high);
            }
        }
    }
    FS_UNROLL
    for (int i = 0; i < n_q; i++) {
        __mmask16 found[4] = {0}, any = 0;
        FS_UNROLL
        for (int j = 0; j < n_b; j++) {
            found[j] = NAME(judge)(sums[i][j], queries + i, s, block + j);
            any = _kor_mask16(any, found[j]);
        }
        if (!_kortestz_mask16_u8(any, any)) /* rare; masks are initially 0 */
            for (int j = 0; j < n_b; j++)
                masks[i * FS_SCAN_BLOCKS + block + j] = found[j];
    }
}

FS_INLINE void NAME(strip)(const int n_q, const strip *s, const fs_scan_query *queries, uint16_t *masks)
{
    ptrdiff_t b = 0;
    for (; b + 4 <= s->n_blocks; b += 4)
        NAME(few)(n_q, 4, s, b, queries, masks);
    for (; b < s->n_blocks; b++)
        NAME(few)(n_q, 1, s, b, queries, masks);
}

FS_LOOP void NAME(scan_filter)(const strip *s, ptrdiff_t n_queries, const fs_scan_query *queries, uint16_t *masks)
{
    for (; n_queries >= 4; n_queries -= 4, queries += 4, masks += 4 * FS_SCAN_BLOCKS)
        NAME(strip)(4, s, queries, masks);
    if (n_queries == 3)
        NAME(strip)(3, s, queries, masks);
    else if (n_queries == 2)
        NAME(strip)(2, s, queries, masks);
    else if (n_queries == 1)
        NAME(strip)(1, s, queries, masks);
}

#elif FS_X86 && FS_WIDTH == 256

/* The bytes of two blocks are transposed once for all queries: byte b of a group, of rows 0-3 and 8-11 of both blocks,
 * then of rows 4-7 and 12-15.  The steps of low and high nibbles are interleaved, multiplied by the weights and added
 * in pairs, which gives the sums of the rows of a block in each register. */
FS_INLINE void NAME(turn)(const strip *s)
{
    const __m256i four =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    for (ptrdiff_t b = 0; b < s->n_blocks; b += 2) {
        const uint8_t *one = s->blocks + b * s->groups * 64;
        const uint8_t *two = b + 1 < s->n_blocks ? one + s->groups * 64 : one;
        uint8_t *out = s->space + b * s->looked * 64;
        for (ptrdiff_t g = 0; g < s->looked; g++, out += 128) {
            const __m256i a0 = _mm256_shuffle_epi8(_mm256_loadu_si256((const void *)(one + 64 * g)), four);
            const __m256i a1 = _mm256_shuffle_epi8(_mm256_loadu_si256((const void *)(one + 64 * g + 32)), four);
            const __m256i b0 = _mm256_shuffle_epi8(_mm256_loadu_si256((const void *)(two + 64 * g)), four);
            const __m256i b1 = _mm256_shuffle_epi8(_mm256_loadu_si256((const void *)(two + 64 * g + 32)), four);
            const __m256i a_low = _mm256_unpacklo_epi32(a0, a1), a_high = _mm256_unpackhi_epi32(a0, a1);
            const __m256i b_low = _mm256_unpacklo_epi32(b0, b1), b_high = _mm256_unpackhi_epi32(b0, b1);
            _mm256_storeu_si256((void *)out, _mm256_unpacklo_epi64(a_low, b_low));
            _mm256_storeu_si256((void *)(out + 32), _mm256_unpackhi_epi64(a_low, b_low));
            _mm256_storeu_si256((void *)(out + 64), _mm256_unpacklo_epi64(a_high, b_high));
            _mm256_storeu_si256((void *)(out + 96), _mm256_unpackhi_epi64(a_high, b_high));
        }
    }
}

FS_INLINE int NAME(judge_eight)(__m128i sum, const fs_scan_query *q, const strip *s, ptrdiff_t row)
{
    const __m256 t = _mm256_fmadd_ps(_mm256_set1_ps(q->rise), _mm256_cvtepi32_ps(_mm256_cvtepu16_epi32(sum)),
                                     _mm256_set1_ps(q->low));
    const __m256 score = _mm256_fmadd_ps(_mm256_loadu_ps(s->scales + row), t, _mm256_loadu_ps(s->offsets + row));
    __m256 limit = _mm256_set1_ps(q->limit);
    if (s->divisors)
        limit = _mm256_fmsub_ps(limit, _mm256_loadu_ps(s->divisors + row), _mm256_set1_ps(q->shift));
    return _mm256_movemask_ps(_mm256_cmp_ps(score, limit, _CMP_NGT_UQ));
}

FS_INLINE uint16_t NAME(judge)(__m256i sum, const fs_scan_query *q, const strip *s, ptrdiff_t block)
{
    sum = _mm256_permute4x64_epi64(sum, 0xd8);
    const __m128i first = _mm256_castsi256_si128(sum), second = _mm256_extracti128_si256(sum, 1);
    if (s->offsets) {
        const ptrdiff_t row = block * FS_SCAN_ROWS;
        return (uint16_t)(NAME(judge_eight)(first, q, s, row) | NAME(judge_eight)(second, q, s, row + 8) << 8);
    }
    if (q->most < 0)
        return 0;
    const __m128i most = _mm_set1_epi16((short)(q->most < 65535 ? q->most : 65535)), zero = _mm_setzero_si128();
    const __m128i low = _mm_cmpeq_epi16(_mm_subs_epu16(first, most), zero);
    const __m128i high = _mm_cmpeq_epi16(_mm_subs_epu16(second, most), zero);
    return (uint16_t)_mm_movemask_epi8(_mm_packs_epi16(low, high));
}

FS_INLINE void NAME(few)(const int n_q, const strip *s, ptrdiff_t block, const fs_scan_query *queries, uint16_t *masks)
{
    const __m256i nibble = _mm256_set1_epi8(15);
    __m256i one[2], two[2];
    FS_UNROLL
    for (int i = 0; i < 2; i++)
        one[i] = two[i] = _mm256_setzero_si256();
    const uint8_t *from = s->space + block * s->looked * 64;
    for (ptrdiff_t g = 0; g < s->looked; g++)
        FS_UNROLL
    for (int b = 0; b < 4; b++, from += 32) {
        const __m256i x = _mm256_loadu_si256((const void *)from);
        const __m256i low = _mm256_and_si256(x, nibble), high = _mm256_and_si256(_mm256_srli_epi16(x, 4), nibble);
        FS_UNROLL
        for (int i = 0; i < n_q; i++) {
            const uint8_t *steps = queries[i].steps + g * STEPS + 16 * b;
            const __m256i weights = _mm256_set1_epi32((int)queries[i].weights[g * WEIGHTS + 2 + b]);
            const __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)steps));
            const __m256i other = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)(steps + 64)));
            const __m256i of_low = _mm256_shuffle_epi8(table, low), of_high = _mm256_shuffle_epi8(other, high);
            one[i] = _mm256_add_epi16(one[i], _mm256_maddubs_epi16(_mm256_unpacklo_epi8(of_low, of_high), weights));
            two[i] = _mm256_add_epi16(two[i], _mm256_maddubs_epi16(_mm256_unpackhi_epi8(of_low, of_high), weights));
        }
    }
    FS_UNROLL
    for (int i = 0; i < n_q; i++) {
        masks[i * FS_SCAN_BLOCKS + block] = NAME(judge)(one[i], queries + i, s, block);
        if (block + 1 < s->n_blocks)
            masks[i * FS_SCAN_BLOCKS + block + 1] = NAME(judge)(two[i], queries + i, s, block + 1);
    }
}

FS_LOOP void NAME(scan_filter)(const strip *s, ptrdiff_t n_queries, const fs_scan_query *queries, uint16_t *masks)
{
    NAME(turn)(s);
    for (; n_queries >= 2; n_queries -= 2, queries += 2, masks += 2 * FS_SCAN_BLOCKS)
        for (ptrdiff_t b = 0; b < s->n_blocks; b += 2)
            NAME(few)(2, s, b, queries, masks);
    for (ptrdiff_t b = 0; n_queries && b < s->n_blocks; b += 2)
        NAME(few)(1, s, b, queries, masks);
}

#elif FS_ARM && FS_WIDTH == 128

FS_INLINE unsigned NAME(judge_four)(uint32x4_t sum, const fs_scan_query *q, const strip *s, ptrdiff_t row)
{
    const uint32x4_t bits = {1, 2, 4, 8};
    const float32x4_t t = vfmaq_f32(vdupq_n_f32(q->low), vdupq_n_f32(q->rise), vcvtq_f32_u32(sum));
    const float32x4_t score = vfmaq_f32(vld1q_f32(s->offsets + row), vld1q_f32(s->scales + row), t);
    float32x4_t limit = vdupq_n_f32(q->limit);
    if (s->divisors)
        limit = vfmaq_f32(vdupq_n_f32(-q->shift), limit, vld1q_f32(s->divisors + row));
    return vaddvq_u32(vbicq_u32(bits, vcgtq_f32(score, limit)));
}

FS_INLINE unsigned NAME(judge_eight)(uint16x8_t sum, const fs_scan_query *q, const strip *s, ptrdiff_t row)
{
    if (s->offsets)
        return NAME(judge_four)(vmovl_u16(vget_low_u16(sum)), q, s, row) |
               NAME(judge_four)(vmovl_high_u16(sum), q, s, row + 4) << 4;
    if (q->most < 0)
        return 0;
    const uint16x8_t bits = {1, 2, 4, 8, 16, 32, 64, 128};
    const uint16x8_t most = vdupq_n_u16((uint16_t)(q->most < 65535 ? q->most : 65535));
    return vaddvq_u16(vandq_u16(bits, vcleq_u16(sum, most)));
}

FS_LOOP void NAME(scan_filter)(const strip *s, ptrdiff_t n_queries, const fs_scan_query *queries, uint16_t *masks)
{
    for (ptrdiff_t i = 0; i < n_queries; i++, masks += FS_SCAN_BLOCKS) {
        const fs_scan_query *q = queries + i;
        for (ptrdiff_t block = 0; block < s->n_blocks; block++) {
            uint16x8_t first = vdupq_n_u16(0), second = vdupq_n_u16(0);
            for (ptrdiff_t g = 0; g < s->looked; g++) {
                const uint8x16x4_t bytes = vld4q_u8(s->blocks + (block * s->groups + g) * 64);
                const uint8_t *steps = q->steps + g * STEPS;
                const uint32_t *weights = q->weights + g * WEIGHTS;
                for (int b = 0; b < 4; b++) {
                    const uint8x16_t low = vqtbl1q_u8(vld1q_u8(steps + 16 * b), vandq_u8(bytes.val[b], vdupq_n_u8(15)));
                    const uint8x16_t high = vqtbl1q_u8(vld1q_u8(steps + 64 + 16 * b), vshrq_n_u8(bytes.val[b], 4));
                    const uint8x16_t by_low = vdupq_n_u8((uint8_t)(weights[0] >> (8 * b)));
                    const uint8x16_t by_high = vdupq_n_u8((uint8_t)(weights[1] >> (8 * b)));
                    first = vmlal_u8(first, vget_low_u8(low), vget_low_u8(by_low));
                    first = vmlal_u8(first, vget_low_u8(high), vget_low_u8(by_high));
                    second = vmlal_high_u8(second, low, by_low);
                    second = vmlal_high_u8(second, high, by_high);
                }
            }
            const ptrdiff_t row = block * FS_SCAN_ROWS;
            masks[block] =
                (uint16_t)(NAME(judge_eight)(first, q, s, row) | NAME(judge_eight)(second, q, s, row + 8) << 8);
        }
    }
}

#else

FS_LOOP void NAME(scan_filter)(const strip *s, ptrdiff_t n_queries, const fs_scan_query *queries, uint16_t *masks)
{
    for (ptrdiff_t i = 0; i < n_queries; i++, masks += FS_SCAN_BLOCKS) {
        const fs_scan_query *q = queries + i;
        for (ptrdiff_t block = 0; block < s->n_blocks; block++) {
            int32_t sums[FS_SCAN_ROWS] = {0};
            for (ptrdiff_t g = 0; g < s->looked; g++) {
                const uint8_t *bytes = s->blocks + (block * s->groups + g) * 64, *steps = q->steps + g * STEPS;
                const uint32_t *weights = q->weights + g * WEIGHTS;
                for (int b = 0; b < 4; b++) {
                    const int low = weights[0] >> (8 * b) & 255, high = weights[1] >> (8 * b) & 255;
                    for (int r = 0; r < FS_SCAN_ROWS; r++) {
                        const int byte = bytes[4 * r + b];
                        sums[r] += low * steps[16 * b + (byte & 15)] + high * steps[64 + 16 * b + (byte >> 4)];
                    }
                }
            }
            unsigned mask = 0;
            for (int r = 0; r < FS_SCAN_ROWS; r++) {
                int ruled_out = sums[r] > q->most;
                if (s->offsets) {
                    const ptrdiff_t row = block * FS_SCAN_ROWS + r;
                    const float score = s->offsets[row] + s->scales[row] * (q->low + q->rise * (float)sums[r]);
                    ruled_out = score > (s->divisors ? q->limit * s->divisors[row] - q->shift : q->limit);
                }
                mask |= (unsigned)!ruled_out << r;
            }
            masks[block] = (uint16_t)mask;
        }
    }
}

#endif

#else

FS_DOOR(FS_TABLE_FROM_AVX2, void, scan_field,
        (ptrdiff_t n_blocks, ptrdiff_t groups, const uint8_t *blocks, ptrdiff_t at, ptrdiff_t n_bytes, int shift,
         float unit, float *out),
        (n_blocks, groups, blocks, at, n_bytes, shift, unit, out))
#if FS_X86
#define TABLE(loop) {loop##_plain, loop##_plain, loop##_avx2, loop##_avx2, loop##_avx512vpopcntdq}
#else
#define TABLE FS_TABLE
#endif
FS_DOOR(TABLE, void, scan_filter, (const strip *s, ptrdiff_t n_queries, const fs_scan_query *queries, uint16_t *masks),
        (s, n_queries, queries, masks))
#undef TABLE

#endif
