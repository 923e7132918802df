#include "fs_hamming.h"

#include <string.h>

#if defined(__GNUC__)
#define COUNT_BITS(x) __builtin_popcountll(x)
#else
static int count_bits(uint64_t x)
{
    x -= (x >> 1) & 0x5555555555555555u;
    x = (x & 0x3333333333333333u) + ((x >> 2) & 0x3333333333333333u);
    x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fu;
    return (int)((x * 0x0101010101010101u) >> 56);
}
#define COUNT_BITS(x) count_bits(x)
#endif

/* Distances are compared in groups of this many before a single one is looked at. */
#define GROUP 32

ptrdiff_t fs_hamming_words(ptrdiff_t n_bytes) { return (n_bytes + 7) / 8; }

void fs_hamming_pad(ptrdiff_t n, ptrdiff_t n_bytes, const uint8_t *codes, uint64_t *words)
{
    const ptrdiff_t n_words = fs_hamming_words(n_bytes);
    for (ptrdiff_t i = 0; i < n; i++) {
        words[(i + 1) * n_words - 1] = 0;
        memcpy(words + i * n_words, codes + i * n_bytes, (size_t)n_bytes);
    }
}

/* tile[w * FS_HAMMING_TILE + j] = word w of code j: the words of many codes side by side, for the vector units.
 * n_after: bytes that may be read after the n codes. */
static void load_tile(ptrdiff_t n, ptrdiff_t n_bytes, const uint8_t *codes, ptrdiff_t n_after, uint64_t *tile)
{
    const ptrdiff_t whole = n_bytes / 8, rest = n_bytes % 8;
    for (ptrdiff_t w = 0; w < whole; w++)
        for (ptrdiff_t j = 0; j < n; j++)
            memcpy(tile + w * FS_HAMMING_TILE + j, codes + j * n_bytes + 8 * w, 8);
    if (!rest)
        return;
    uint64_t *last = tile + whole * FS_HAMMING_TILE;
    /* a whole word where it does not end beyond the array; its first `rest` bytes count */
    uint64_t mask = 0;
    memset(&mask, 0xff, (size_t)rest);
    ptrdiff_t safe = (n * n_bytes + n_after - 8 * whole - 8) / n_bytes + 1;
    safe = n * n_bytes + n_after < 8 * whole + 8 ? 0 : safe < n ? safe : n;
    for (ptrdiff_t j = 0; j < safe; j++) {
        uint64_t word;
        memcpy(&word, codes + j * n_bytes + 8 * whole, 8);
        last[j] = word & mask;
    }
    for (ptrdiff_t j = safe; j < n; j++) {
        last[j] = 0;
        memcpy(last + j, codes + j * n_bytes + 8 * whole, (size_t)rest);
    }
}

FS_INLINE void count_tile(ptrdiff_t words, const uint64_t *query, const uint64_t *tile, int32_t *out)
{
    uint64_t sum[FS_HAMMING_TILE];
    const uint64_t first = query[0];
    for (int j = 0; j < FS_HAMMING_TILE; j++)
        sum[j] = (uint64_t)COUNT_BITS(tile[j] ^ first);
    for (ptrdiff_t w = 1; w < words; w++) {
        const uint64_t word = query[w];
        const uint64_t *FS_RESTRICT column = tile + w * FS_HAMMING_TILE;
        for (int j = 0; j < FS_HAMMING_TILE; j++)
            sum[j] += (uint64_t)COUNT_BITS(column[j] ^ word);
    }
    for (int j = 0; j < FS_HAMMING_TILE; j++)
        out[j] = (int32_t)sum[j];
}

FS_CLONES static void count_tile_anywhere(ptrdiff_t words, const uint64_t *query, const uint64_t *tile, int32_t *out)
{
    count_tile(words, query, tile, out);
}

/* The vector population count, which target_clones does not know by name. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(FS_NO_CLONES)
__attribute__((target("avx512f,avx512vl,avx512vpopcntdq"))) static void
count_tile_vpopcnt(ptrdiff_t words, const uint64_t *query, const uint64_t *tile, int32_t *out)
{
    count_tile(words, query, tile, out);
}

static void tile_distances(ptrdiff_t words, const uint64_t *query, const uint64_t *tile, int32_t *out)
{
    if (__builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("avx512vl"))
        count_tile_vpopcnt(words, query, tile, out);
    else
        count_tile_anywhere(words, query, tile, out);
}
#else
#define tile_distances count_tile_anywhere
#endif

void fs_hamming_distances(ptrdiff_t n_queries, const uint64_t *queries, ptrdiff_t n, ptrdiff_t n_bytes,
                          const uint8_t *codes, uint64_t *tile, int32_t *out, ptrdiff_t ld)
{
    const ptrdiff_t words = fs_hamming_words(n_bytes);
    int32_t distance[FS_HAMMING_TILE];
    for (ptrdiff_t start = 0; start < n; start += FS_HAMMING_TILE) {
        const ptrdiff_t count = n - start < FS_HAMMING_TILE ? n - start : FS_HAMMING_TILE;
        load_tile(count, n_bytes, codes + start * n_bytes, (n - start - count) * n_bytes, tile);
        for (ptrdiff_t i = 0; i < n_queries; i++) {
            tile_distances(words, queries + i * words, tile, distance);
            memcpy(out + i * ld + start, distance, (size_t)count * sizeof *distance);
        }
    }
}

/* Whether (d, i) comes after (e, j) in the order of results. */
static int after(int32_t d, int64_t i, int32_t e, int64_t j) { return d > e || (d == e && i > j); }

/* The heap of the best so far has the worst of them at its root; put (d, i) there and let it sink. */
static void sink(ptrdiff_t k, int32_t *distance, int64_t *index, int32_t d, int64_t i)
{
    ptrdiff_t at = 0;
    for (;;) {
        ptrdiff_t child = 2 * at + 1;
        if (child >= k)
            break;
        if (child + 1 < k && after(distance[child + 1], index[child + 1], distance[child], index[child]))
            child++;
        if (!after(distance[child], index[child], d, i))
            break;
        distance[at] = distance[child];
        index[at] = index[child];
        at = child;
    }
    distance[at] = d;
    index[at] = i;
}

FS_CLONES static int any_below(const int32_t *distance, int32_t limit)
{
    int found = 0;
    for (int j = 0; j < GROUP; j++)
        found |= distance[j] < limit;
    return found;
}

void fs_hamming_topk(ptrdiff_t n_queries, const uint64_t *queries, ptrdiff_t n, ptrdiff_t n_bytes, const uint8_t *codes,
                     ptrdiff_t k, uint64_t *tile, int32_t *distance, int64_t *index)
{
    const ptrdiff_t words = fs_hamming_words(n_bytes);
    int32_t found[FS_HAMMING_TILE];
    for (ptrdiff_t i = 0; i < n_queries * k; i++) {
        distance[i] = INT32_MAX; /* further than any code: replaced, since k <= n */
        index[i] = INT64_MAX;
    }
    for (ptrdiff_t start = 0; start < n; start += FS_HAMMING_TILE) {
        const ptrdiff_t count = n - start < FS_HAMMING_TILE ? n - start : FS_HAMMING_TILE;
        load_tile(count, n_bytes, codes + start * n_bytes, (n - start - count) * n_bytes, tile);
        for (ptrdiff_t i = 0; i < n_queries; i++) {
            int32_t *heap = distance + i * k;
            int64_t *who = index + i * k;
            tile_distances(words, queries + i * words, tile, found);
            for (ptrdiff_t j = count; j < FS_HAMMING_TILE; j++)
                found[j] = INT32_MAX;
            for (ptrdiff_t group = 0; group < count; group += GROUP) {
                if (!any_below(found + group, heap[0]))
                    continue;
                /* codes come in the order of their index, so one as far as the worst is not better */
                for (ptrdiff_t j = group; j < group + GROUP; j++)
                    if (found[j] < heap[0])
                        sink(k, heap, who, found[j], (int64_t)(start + j));
            }
        }
    }
    for (ptrdiff_t i = 0; i < n_queries; i++) {
        int32_t *heap = distance + i * k;
        int64_t *who = index + i * k;
        for (ptrdiff_t left = k - 1; left > 0; left--) { /* the worst to the end, again and again */
            const int32_t d = heap[left];
            const int64_t j = who[left];
            heap[left] = heap[0];
            who[left] = who[0];
            sink(left, heap, who, d, j);
        }
    }
}
