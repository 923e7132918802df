/* Every loop of csrc at every level that this CPU has, in turn: seconds of one call, and whether a level is slower than
 * the one below it.  Built and run by `python bench/run.py levels`. */
#define _POSIX_C_SOURCE 200809L
#include "fs_csr.h"
#include "fs_dots.h"
#include "fs_hadamard.h"
#include "fs_hamming.h"
#include "fs_level.h"
#include "fs_panel.h"
#include "fs_project.h"
#include "fs_quantize.h"
#include "fs_rows.h"
#include "fs_scan.h"
#include "fs_secular.h"
#include "fs_sparse.h"
#include "fs_tridiag.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A level counts as slower than the one below it if it is so beyond all doubt: by more than this in the best of all
 * rounds, which other work on the machine can only lengthen, and in the median of the ratios of the two within a round,
 * which meet the same other work, by SURE standard errors of that median. What two places of the same code in memory
 * differ by stays below. */
#define TOLERANCE 1.05
#define SURE 3

static unsigned state = 1;
static double uniform(void)
{
    state = state * 1664525u + 1013904223u;
    return (double)(state >> 8) / (1 << 24) - 0.5;
}
static void *space(size_t bytes)
{
    void *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!p)
        exit(2);
    return memset(p, 0, bytes);
}
static double *doubles(size_t n)
{
    double *x = space(n * 8);
    for (size_t i = 0; i < n; i++)
        x[i] = uniform();
    return x;
}
static float *floats(size_t n)
{
    float *x = space(n * 4);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)uniform();
    return x;
}

enum { MOST = 1 << 21 };
static double *xd, *yd, *zd, *wd, *vd;
static float *xs, *ys, *zs, *ws;
static int32_t *ints, *more;
static int64_t *longs, *starts;
static uint32_t *scales;
static uint8_t *bytes, *steps; /* steps, scales: of a scan */
static uint64_t *words, *tile;
static ptrdiff_t A, B, C; /* sizes of the case that runs */

/* buffers of a shrink: m = A rows, B columns of the Gram matrix, d = C */
static void gram_d(void) { fs_panel_gram_d(A, B, C, C, xd, yd, zd, 2 * A * A + 8 * A); }
static void gram_s(void) { fs_panel_gram_s(A, B, C, C, xs, ys, zs, 2 * A * A + 8 * A); }
static void rotate_d(void) { fs_panel_rotate_d(A, B, C, C, xd, wd, vd, zd, 2 * A * A + 8 * A); }
static void rotate_s(void) { fs_panel_rotate_s(A, B, C, C, xs, ws, vd, zs, 2 * A * A + 8 * A); }
static void tridiagonal_d(void)
{
    memcpy(yd, xd, (size_t)(A * A) * 8);
    fs_tridiagonalise_d(A, yd, zd, zd + A, zd + 2 * A, zd + 3 * A);
}
static void tridiagonal_s(void)
{
    memcpy(ys, xs, (size_t)(A * A) * 4);
    fs_tridiagonalise_s(A, ys, zs, zs + A, zs + 2 * A, zs + 3 * A);
}
/* poles 0, 1, 2 ... with weights about 1 / sqrt(A) */
static void roots(void) { fs_secular_roots(A, 0, A, vd, wd, 1.0, ints, yd); }
static void weights(void) { fs_secular_weights(A, 0, A, vd, ints, yd, zd); }
static void vectors_d(void) { fs_secular_vectors_d(A, 0, A, vd, ints, yd, wd, more, zd, xd); }
static void vectors_s(void) { fs_secular_vectors_s(A, 0, A, vd, ints, yd, wd, more, zd, xs); }
static void dots(void) { fs_dots_d(A, B, C, xd, C, wd, C, yd, B, A == B); }
static void topk(void)
{
    fs_hamming_begin(A, 10, NULL, ints, longs);
    const fs_hamming_rule rule = {NULL, NULL};
    fs_hamming_look(A, words, B, C, bytes, 8, 0, &rule, 10, tile, ints, longs);
    fs_hamming_sort(A, 10, NULL, ints, longs);
}
static void distances(void) { fs_hamming_distances(A, words, B, C, bytes, tile, ints, B); }
/* A queries, B codes of C nibbles and two factors */
enum { KEPT = 10 };
static fs_scan_query *asked;
static fs_offer *held;
static void scan_codes(void)
{
    const fs_scan_layout layout = {C, C / 2 + 2, 1, 1, 19, 19, 1.0f, 1.0f};
    const fs_scan_set set = {layout, B, 0, bytes, 1, 1.0f, -2.0f, NULL, NULL, NULL};
    const ptrdiff_t room = fs_least_room(KEPT, B);
    for (ptrdiff_t i = 0; i < A; i++) {
        asked[i] = (fs_scan_query){.table = xs + i * C * 16,
                                   .steps = steps + i * fs_scan_steps(&layout),
                                   .weights = scales + i * fs_scan_weights(&layout)};
        fs_scan_prepare(&set, asked + i);
        fs_least_begin(KEPT, room, NULL, held + i * room, &asked[i].least);
    }
    fs_scan_rows(&set, 0, B, A, asked, tile);
}
static void columns_d(void) { fs_fwht_columns_d(A, B, B, xd); }
static void columns_s(void) { fs_fwht_columns_s(A, B, B, xs); }
static void along_rows_d(void) { fs_fwht_rows_d(A, B, B, xd); }
static void along_rows_s(void) { fs_fwht_rows_s(A, B, B, xs); }
static void srht_d(void) { fs_srht_block_d(A, B, B, xd, wd, NULL, NULL, vd, C, more, wd, zd, yd, B); }
static void srht_s(void) { fs_srht_block_s(A, B, B, xs, ws, NULL, NULL, vd, C, more, ws, zs, ys, B); }
static void scatter_d(void) { fs_scatter_rows_d(A, B, B, xd, NULL, NULL, vd, 2, more, wd, yd, B); }
static void scatter_s(void) { fs_scatter_rows_s(A, B, B, xs, NULL, NULL, vd, 2, more, ws, ys, B); }
static void scan_d(void) { fs_check_rows_d(A, B, B, xd, vd); }
static void scan_s(void) { fs_check_rows_s(A, B, B, xs, vd); }
static void load_d(void) { fs_load_rows_d(A, B, B, xd, NULL, 1, 0.5, yd, B, vd); }
static void load_s(void) { fs_load_rows_s(A, B, B, xs, NULL, 1, 0.5, ys, B, vd); }
static void square_d(void) { fs_square_rows_d(A, B, B, xd, vd); }
static void square_s(void) { fs_square_rows_s(A, B, B, xs, vd); }
static void centre_d(void)
{
    fs_centre_rows_d(A, B, B, xd, yd, vd, 3, 4.0 * (double)A, zd, zd + B, zd + 2 * B, zd + 3 * B);
}
static void centre_s(void)
{
    fs_centre_rows_s(A, B, B, xs, ys, vd, 3, 4.0 * (double)A, zd, zd + B, zd + 2 * B, zd + 3 * B);
}
static void times_z_d(void) { fs_csr_times_z_d(A, C, C, starts, ints, xd, zd, yd); }
static void times_z_s(void) { fs_csr_times_z_s(A, C, C, starts, ints, xs, zs, ys); }
static void settle_d(void)
{
    fs_csr_settle_d(0, B, C, C, C, more, more + B, xd + MOST / 2, wd, NULL, NULL, 0, yd, zd + MOST / 2, zd, vd);
}
static void settle_s(void)
{
    fs_csr_settle_s(0, B, C, C, C, more, more + B, xs + MOST / 2, ws, NULL, NULL, 0, ys, zs + MOST / 2, zs, vd);
}
static void z_dot_d(void) { fs_z_dot_d(B, C, C, zd, wd, vd); }
static void z_dot_s(void) { fs_z_dot_s(B, C, C, zs, wd, vd); }
static void z_rank_one_d(void) { fs_z_rank_one_d(B, C, C, wd, vd, zd); }
static void z_rank_one_s(void) { fs_z_rank_one_s(B, C, C, wd, vd, zs); }
static ptrdiff_t where;
static void check_32(void) { fs_check_csr_32(1, B, A, more + 2 * A, ints, &where); }
static void check_64(void) { fs_check_csr_64(1, B, A, starts, longs, &where); }
/* a panel of rows of d = B, to C directions in all; A groups of B directions, each of C nibbles */
static fs_quantizer quantizer;
static double shares[FS_SUMS];
static void project_d(void) { fs_project_rows_d(A, B, B, xd, wd, 1.0, C / FS_PROJECT_TILE, ws, ys, zs, vd); }
static void project_s(void) { fs_project_rows_s(A, B, B, xs, wd, 1.0, C / FS_PROJECT_TILE, ws, ys, zs, vd); }
static void project_back(void) { fs_project_back_s(A, C, B, zs, wd, 1.0, ws, ys); }
static void project_csr_d(void)
{
    fs_project_csr_d(FS_PROJECT_ROWS, B, starts, ints, xd, wd, 1.0, 1.0, C / FS_PROJECT_TILE, ws, zd, yd, zs, vd);
}
static void project_csr_s(void)
{
    fs_project_csr_s(FS_PROJECT_ROWS, B, starts, ints, xs, wd, 1.0, 1.0, C / FS_PROJECT_TILE, ws, zd, yd, zs, vd);
}
static void quantize(void) { fs_quantize_panel_s(&quantizer, FS_PROJECT_ROWS, xs, vd, bytes, zd); }
static void to_words(void) { fs_words_panel_s(&quantizer, FS_PROJECT_ROWS, bytes, xs, zd); }

/* numbers of the right kind for the case that follows */
static void shrink_numbers(void)
{
    for (ptrdiff_t i = 0; i < MOST; i++) {
        xd[i] = wd[i] = uniform();
        xs[i] = ws[i] = (float)xd[i];
    }
}
static void secular_numbers(void)
{
    for (ptrdiff_t i = 0; i < A + 8; i++) {
        vd[i] = (double)i;
        wd[i] = 0.1 + uniform() / 20;
        more[i] = (int32_t)i;
    }
    roots();
}
static void sparse_numbers(void)
{
    shrink_numbers();
    const ptrdiff_t each = 20;
    for (ptrdiff_t i = 0; i <= A; i++)
        starts[i] = i * each;
    for (ptrdiff_t i = 0; i < A * each; i++)
        ints[i] = (int32_t)((double)B * (uniform() + 0.5));
    memset(zd, 0, MOST * 8), memset(zs, 0, MOST * 4);
    for (ptrdiff_t c = 0; c < C; c++)
        vd[c] = 1e-9;
    /* feature by feature: stop, then rows; values in the second halves */
    int32_t *row = more + B, t = 0;
    for (int32_t j = 0; j < B; j++) {
        for (ptrdiff_t e = 0; e < A * each; e++)
            if (ints[e] == j) {
                row[t] = (int32_t)(e / each);
                xs[MOST / 2 + t] = xs[e];
                xd[MOST / 2 + t++] = xd[e];
            }
        more[j] = t;
    }
}
static void row_numbers(void)
{
    shrink_numbers();
    for (ptrdiff_t i = 0; i < A; i++)
        zd[i] = 1, vd[i] = 2;
    for (ptrdiff_t i = 0; i < 2 * A; i++)
        more[i] = (int32_t)((i * 7) % C);
}
static void code_numbers(void)
{
    for (ptrdiff_t i = 0; i < B * C + 8; i++)
        bytes[i] = (uint8_t)(256 * (uniform() + 0.5));
    fs_hamming_pad(A, C, bytes, words);
}
static void scan_numbers(void)
{
    for (ptrdiff_t i = 0; i < B * (C / 2 + 6); i++)
        bytes[i] = (uint8_t)(256 * (uniform() + 0.5));
    for (ptrdiff_t i = 0; i < A * C * 16; i++)
        xs[i] = (float)uniform();
}
static void check_numbers(void)
{
    for (ptrdiff_t i = 0; i < A; i++)
        longs[i] = ints[i] = (int32_t)i;
    starts[1] = more[2 * A + 1] = (int32_t)A;
    starts[0] = more[2 * A] = 0;
}

static void book_numbers(void)
{
    shrink_numbers();
    memset(bytes, 0x5a, MOST);
    shares[FS_SQUARE] = shares[FS_ZE] = 1;
    for (ptrdiff_t g = 0; g < A; g++)
        ints[g] = (int32_t)(g * B), more[g] = (int32_t)B, more[A + g] = (int32_t)C;
    quantizer = (fs_quantizer){.n_directions = A * B,
                               .n_groups = A,
                               .n_nibbles = A * C,
                               .width = A * C / 2 + 1,
                               .start = ints,
                               .count = more,
                               .nibbles = more + A,
                               .words = ws,
                               .weighted = ws,
                               .half = ws,
                               .slope = ws,
                               .offset = shares,
                               .factor = {1, 5, 1}};
}

static int panels_d(void) { return fs_panel_pays(A, 8); }
static int panels_s(void) { return fs_panel_pays(A, 4); }
static int own_d(void) { return fs_tridiagonal_pays(A, 8); }
static int own_s(void) { return fs_tridiagonal_pays(A, 4); }
static int always(void) { return 1; }

static const struct {
    const char *name;
    void (*run)(void), (*numbers)(void);
    int (*pays)(void); /* else other code does the work */
    ptrdiff_t a, b, c;
} cases[] = {
    {"gram d", gram_d, shrink_numbers, panels_d, 64, 33, 8192},
    {"gram d", gram_d, shrink_numbers, panels_d, 128, 65, 2048},
    {"gram d", gram_d, shrink_numbers, panels_d, 256, 129, 2048},
    {"gram s", gram_s, shrink_numbers, panels_s, 64, 33, 8192},
    {"gram s", gram_s, shrink_numbers, panels_s, 128, 65, 2048},
    {"gram s", gram_s, shrink_numbers, panels_s, 256, 129, 2048},
    {"gram d", gram_d, shrink_numbers, panels_d, 512, 257, 2048},
    {"rotate d", rotate_d, shrink_numbers, panels_d, 512, 256, 2048},
    {"rotate d", rotate_d, shrink_numbers, panels_d, 64, 32, 8192},
    {"rotate d", rotate_d, shrink_numbers, panels_d, 128, 64, 2048},
    {"rotate d", rotate_d, shrink_numbers, panels_d, 256, 128, 2048},
    {"rotate s", rotate_s, shrink_numbers, panels_s, 64, 32, 8192},
    {"rotate s", rotate_s, shrink_numbers, panels_s, 128, 64, 2048},
    {"rotate s", rotate_s, shrink_numbers, panels_s, 256, 128, 2048},
    {"tridiagonal d", tridiagonal_d, shrink_numbers, own_d, 64, 0, 0},
    {"tridiagonal d", tridiagonal_d, shrink_numbers, own_d, 128, 0, 0},
    {"tridiagonal d", tridiagonal_d, shrink_numbers, own_d, 256, 0, 0},
    {"tridiagonal s", tridiagonal_s, shrink_numbers, own_s, 64, 0, 0},
    {"tridiagonal s", tridiagonal_s, shrink_numbers, own_s, 128, 0, 0},
    {"tridiagonal s", tridiagonal_s, shrink_numbers, own_s, 256, 0, 0},
    {"secular roots", roots, secular_numbers, always, 64, 0, 0},
    {"secular weights", weights, secular_numbers, always, 64, 0, 0},
    {"secular vectors d", vectors_d, secular_numbers, always, 64, 0, 0},
    {"secular vectors s", vectors_s, secular_numbers, always, 64, 0, 0},
    {"dots", dots, shrink_numbers, always, 40, 40, 4000},
    {"dots", dots, shrink_numbers, always, 1, 40, 4000},
    {"dots", dots, shrink_numbers, always, 20, 40, 300},
    {"hamming topk", topk, code_numbers, always, 20, 50000, 8},
    {"hamming topk", topk, code_numbers, always, 20, 50000, 16},
    {"hamming topk", topk, code_numbers, always, 20, 50000, 32},
    {"hamming topk", topk, code_numbers, always, 20, 50000, 64},
    {"scan of codes", scan_codes, scan_numbers, always, 1, 40000, 32},
    {"scan of codes", scan_codes, scan_numbers, always, 20, 40000, 32},
    {"scan of codes", scan_codes, scan_numbers, always, 20, 40000, 90},
    {"hamming distances", distances, code_numbers, always, 20, 50000, 13},
    {"fwht columns d", columns_d, shrink_numbers, always, 1024, 64, 0},
    {"fwht columns s", columns_s, shrink_numbers, always, 1024, 64, 0},
    {"fwht rows d", along_rows_d, shrink_numbers, always, 32, 2048, 0},
    {"fwht rows s", along_rows_s, shrink_numbers, always, 32, 2048, 0},
    {"srht d", srht_d, row_numbers, always, 256, 1000, 64},
    {"srht s", srht_s, row_numbers, always, 256, 1000, 64},
    {"scatter d", scatter_d, row_numbers, always, 64, 1000, 64},
    {"scatter s", scatter_s, row_numbers, always, 64, 1000, 64},
    {"scan rows d", scan_d, row_numbers, always, 64, 500, 64},
    {"scan rows s", scan_s, row_numbers, always, 64, 500, 64},
    {"load rows d", load_d, row_numbers, always, 64, 500, 64},
    {"load rows s", load_s, row_numbers, always, 64, 500, 64},
    {"square rows d", square_d, row_numbers, always, 64, 500, 64},
    {"square rows s", square_s, row_numbers, always, 64, 500, 64},
    {"centre rows d", centre_d, row_numbers, always, 64, 500, 64},
    {"centre rows s", centre_s, row_numbers, always, 64, 500, 64},
    {"csr times z d", times_z_d, sparse_numbers, always, 500, 1000, 40},
    {"csr times z s", times_z_s, sparse_numbers, always, 500, 1000, 40},
    {"csr times z d", times_z_d, sparse_numbers, always, 500, 1000, 64},
    {"csr times z s", times_z_s, sparse_numbers, always, 500, 1000, 64},
    {"csr settle d", settle_d, sparse_numbers, always, 500, 1000, 40},
    {"csr settle s", settle_s, sparse_numbers, always, 500, 1000, 40},
    {"csr settle d", settle_d, sparse_numbers, always, 500, 1000, 64},
    {"csr settle s", settle_s, sparse_numbers, always, 500, 1000, 64},
    {"z dot d", z_dot_d, sparse_numbers, always, 500, 1000, 40},
    {"z dot s", z_dot_s, sparse_numbers, always, 500, 1000, 40},
    {"z rank one d", z_rank_one_d, sparse_numbers, always, 500, 1000, 40},
    {"z rank one s", z_rank_one_s, sparse_numbers, always, 500, 1000, 40},
    {"project d", project_d, shrink_numbers, always, 32, 128, 64},
    {"project s", project_s, shrink_numbers, always, 32, 128, 64},
    {"project s", project_s, shrink_numbers, always, 32, 784, 64},
    {"project back", project_back, shrink_numbers, always, 32, 128, 64},
    {"project csr d", project_csr_d, sparse_numbers, always, 500, 1000, 64},
    {"project csr s", project_csr_s, sparse_numbers, always, 500, 1000, 64},
    {"quantize, a nibble", quantize, book_numbers, always, 32, 1, 1},
    {"quantize, a nibble", quantize, book_numbers, always, 32, 2, 1},
    {"quantize, two nibbles", quantize, book_numbers, always, 16, 4, 2},
    {"to words", to_words, book_numbers, always, 32, 2, 1},
    {"check csr 32", check_32, check_numbers, always, 50000, 60000, 0},
    {"check csr 64", check_64, check_numbers, always, 50000, 60000, 0},
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum { MOST_ROUNDS = 400 };
static double taken[FS_LEVELS][MOST_ROUNDS]; /* seconds of a call; 0 where other code does the work */
static int rounds;

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double best(int level)
{
    double least = taken[level][0];
    for (int i = 1; i < rounds; i++)
        least = taken[level][i] < least ? taken[level][i] : least;
    return least;
}

/* How much slower a level is than the one below: the median of the rounds, and what it may be off by. */
static double ratio(int level, double *error)
{
    static double ratios[MOST_ROUNDS];
    for (int i = 0; i < rounds; i++)
        ratios[i] = taken[level][i] / taken[level - 1][i];
    qsort(ratios, (size_t)rounds, sizeof *ratios, ascending);
    /* of a median: 1.25 standard deviations over the root of n, these by the middle half, 1.35 of them wide */
    *error = 1.25 / 1.35 * (ratios[3 * rounds / 4] - ratios[rounds / 4]) / sqrt(rounds);
    return ratios[rounds / 2];
}

/* 0: not slower; 1: it looks so; 2: it is */
static int slower_than_below(int level)
{
    double error;
    if (level == 0 || taken[level][0] == 0 || taken[level - 1][0] == 0 || best(level) <= TOLERANCE * best(level - 1))
        return 0;
    return 1 + (ratio(level, &error) - SURE * error > TOLERANCE);
}

static int any_looks_slower(void)
{
    for (int level = 1; fs_level_supported(level); level++)
        if (slower_than_below(level))
            return 1;
    return 0;
}

/* A call, in seconds; of as many as take a millisecond: the clock is coarse, and a level may need to wake up. */
static double one_call(void (*run)(void))
{
    int calls = 0;
    const double start = (run(), now());
    do
        run(), calls++;
    while (now() - start < 1e-3);
    return (now() - start) / calls;
}

/* Arguments: how many times each is measured (default 15), then a part of the names that are wanted. */
int main(int n, char **arguments)
{
    int repeats = n > 1 ? atoi(arguments[1]) : 15;
    int slower = 0, level;
    repeats = repeats < 4 ? 4 : repeats > MOST_ROUNDS / 4 ? MOST_ROUNDS / 4 : repeats;
    xd = doubles(MOST), yd = doubles(MOST), zd = doubles(MOST), wd = doubles(MOST), vd = doubles(MOST);
    xs = floats(MOST), ys = floats(MOST), zs = floats(MOST), ws = floats(MOST);
    ints = space(MOST * 4), more = space(MOST * 4), longs = space(MOST * 8), starts = space(MOST * 8);
    bytes = space(MOST * 4), words = space(MOST * 8);
    tile = space(MOST * 8), steps = space(MOST), scales = space(MOST);
    asked = space(20 * sizeof *asked), held = space(20 * 2 * (KEPT + 16) * sizeof *held);
    fs_level_share(&level);
    printf("%-20s %16s", "microseconds", "");
    for (level = 0; fs_level_supported(level); level++)
        printf(" %*s", level < 4 ? 9 : 16, fs_level_name(level));
    puts("");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char sizes[40];
        if (n > 2 && !strstr(cases[i].name, arguments[2]))
            continue;
        A = cases[i].a, B = cases[i].b, C = cases[i].c;
        snprintf(sizes, sizeof sizes, "%td x %td x %td", A, B, C);
        level = 0;
        cases[i].numbers();
        /* the levels in turn; what looks slower is measured for longer */
        for (rounds = 0; rounds < repeats || (rounds < 4 * repeats && any_looks_slower()); rounds++)
            for (level = 0; fs_level_supported(level); level++)
                taken[level][rounds] = cases[i].pays() ? one_call(cases[i].run) : 0;
        printf("%-20s %16s", cases[i].name, sizes);
        for (level = 0; fs_level_supported(level); level++)
            if (taken[level][0] > 0)
                printf(" %*.2f%s", level < 4 ? 8 : 15, 1e6 * best(level), slower_than_below(level) == 2 ? "!" : " ");
            else
                printf(" %*s", level < 4 ? 9 : 16, "-");
        for (level = 1; fs_level_supported(level); level++)
            if (slower_than_below(level) == 2) {
                double error;
                const double median = ratio(level, &error);
                printf("  %s: %.2f +- %.2f", fs_level_name(level), median, SURE * error);
                slower++;
            }
        puts("");
        fflush(stdout);
    }
    printf("%d times a level is slower than the one below it\n", slower);
    return slower != 0;
}
