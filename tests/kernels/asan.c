/* Every C kernel at every level that this CPU has, on small and awkward sizes, for the sanitizers; also checks results
 * against plain loops, and that levels which round alike return the same bits. */
#include "fs_adagrad.h"
#include "fs_csr.h"
#include "fs_dots.h"
#include "fs_hadamard.h"
#include "fs_hamming.h"
#include "fs_level.h"
#include "fs_panel.h"
#include "fs_project.h"
#include "fs_ql.h"
#include "fs_quantize.h"
#include "fs_rows.h"
#include "fs_scan.h"
#include "fs_secular.h"
#include "fs_sparse.h"
#include "fs_threads.h"
#include "fs_tridiag.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned state = 1;
static double uniform(void)
{
    state = state * 1664525u + 1013904223u;
    return (double)(state >> 8) / (1 << 24) - 0.5;
}
static void check(int good, const char *what)
{
    if (!good) {
        printf("FAILED: %s\n", what);
        exit(1);
    }
}
/* A digest (FNV-1a) of all that kernels have returned at one level; one of what all levels must return alike. */
#define FNV_OFFSET 14695981039346656037u
static uint64_t digest, digest_of_all;
static void note_in(uint64_t *in, const void *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        *in = (*in ^ ((const unsigned char *)p)[i]) * 1099511628211u;
}
static void note(const void *p, size_t bytes) { note_in(&digest, p, bytes); }
static void note_of_all(const void *p, size_t bytes) { note_in(&digest_of_all, p, bytes); }
/* exactly as large as asked for: one element beyond is caught */
static void *space(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    check(p != NULL, "memory");
    return p;
}

/* Arrays of any content: each check ends within them, and says the same for both widths. */
static void csr(ptrdiff_t n, ptrdiff_t stored)
{
    int32_t *indptr = space((size_t)n + 1, 4), *indices = space((size_t)stored, 4);
    int64_t *wide_indptr = space((size_t)n + 1, 8), *wide_indices = space((size_t)stored, 8);
    for (int trial = 0; trial < 200; trial++) {
        for (ptrdiff_t i = 0; i <= n; i++)
            indptr[i] = (int32_t)(i * stored / (n ? n : 1));
        for (ptrdiff_t e = 0; e < stored; e++)
            indices[e] = (int32_t)(20 * (uniform() + 0.5));
        if (trial % 2)
            indptr[(ptrdiff_t)((double)(n + 1) * (uniform() + 0.5))] += (int32_t)(12 * uniform());
        if (trial % 3 == 1 && stored)
            indices[(ptrdiff_t)((double)stored * (uniform() + 0.5))] = trial % 4 ? -1 : INT32_MAX;
        for (ptrdiff_t i = 0; i <= n; i++)
            wide_indptr[i] = indptr[i];
        for (ptrdiff_t e = 0; e < stored; e++)
            wide_indices[e] = indices[e];
        ptrdiff_t where, other;
        const int64_t width = trial % 5 ? 20 : trial % 7 - 1;
        const int status = fs_check_csr_32(n, width, stored, indptr, indices, &where);
        check(status == fs_check_csr_64(n, width, stored, wide_indptr, wide_indices, &other) && where == other, "csr");
        check(status != FS_CSR_ORDERED || indptr[n] <= stored, "csr end");
    }
    free(indptr), free(indices), free(wide_indptr), free(wide_indices);
}

static void rows(ptrdiff_t n, ptrdiff_t d)
{
    double *x = space((size_t)(n * d), 8), *y = space((size_t)(n * d), 8), *square = space((size_t)n, 8), top;
    double *root = space((size_t)n, 8);
    float *u = space((size_t)(n * d), 4), *v = space((size_t)(n * d), 4);
    for (ptrdiff_t i = 0; i < n * d; i++)
        u[i] = (float)(x[i] = uniform());
    for (ptrdiff_t i = 0; i < n; i++)
        root[i] = 2;
    check(fs_check_rows_d(n, d, d, x, &top) == -1 && fs_check_rows_s(n, d, d, u, &top) == -1, "scan");
    fs_load_rows_d(n, d, d, x, root, 1, 0.5, y, d, square);
    check(memcmp(x, y, (size_t)(n * d) * 8) == 0, "load");
    if (n)
        fs_load_rows_d(n, d, d, x, NULL, -1, 1.0, y + (n - 1) * d, -d, square);
    check(n == 0 || memcmp(x, y + (n - 1) * d, (size_t)d * 8) == 0, "load downward");
    fs_load_rows_s(n, d, d, u, root, 1, 0.5, v, d, square);
    fs_square_rows_d(n, d, d, x, square);
    fs_square_rows_s(n, d, d, u, square);
    if (n * d) {
        x[n * d - 1] = INFINITY;
        u[n * d - 1] = NAN;
        check(fs_check_rows_d(n, d, d, x, &top) == n - 1 && fs_check_rows_s(n, d, d, u, &top) == n - 1, "scan of inf");
    }
    double *mean = space((size_t)d, 8), *shift = space((size_t)d, 8), *last = space((size_t)d, 8);
    double *low = space((size_t)d, 8), *base = space((size_t)d, 8), *old = space((size_t)d, 8);
    float *flast = space((size_t)d, 4);
    if (n * d)
        x[n * d - 1] = u[n * d - 1] = 0.25f;
    for (ptrdiff_t i = 0; i < n * d; i++)
        y[i] = 1e6 + x[i], v[i] = 1e6f + u[i];
    for (ptrdiff_t j = 0; j < d; j++)
        old[j] = mean[j] = 1e6;
    /* columns do not meet: some, then the others */
    const ptrdiff_t half = d / 2;
    fs_centre_rows_d(n, half, d, y, last, root, 3, 4.0 * (double)n, mean, low, base, shift);
    fs_centre_rows_d(n, d - half, d, y + half, last + half, root, 3, 4.0 * (double)n, mean + half, low + half,
                     base + half, shift + half);
    for (ptrdiff_t j = 0; j < d; j++) {
        double sum = 0, about = 0;
        for (ptrdiff_t i = 0; i < n; i++)
            sum += y[i * d + j], about += x[i * d + j] / (double)n;
        check(fabs(sum) < 1e-9 * (double)(n + 1), "centred rows have no mean");
        check(n == 0 || fabs(last[j] - sqrt(3 * 4.0 * (double)n / (3 + 4.0 * (double)n)) * about) < 1e-8, "correction");
        check(n == 0 || fabs(mean[j] - old[j] - 4.0 * (double)n / (3 + 4.0 * (double)n) * about) < 1e-9, "mean");
        check(fabs(low[j]) <= 1e-9, "low part of the mean");
    }
    fs_centre_rows_s(n, d, d, v, flast, root, 3, 4.0 * (double)n, mean, low, base, shift);
    fs_centre_rows_s(n, d, d, v, flast, root, 3, 0, mean, low, base, shift); /* no weight: rows of zeros */
    for (ptrdiff_t i = 0; i < n * d; i++)
        check(v[i] == 0, "rows without weight");
    fs_square_rows_d(n, d, d, x, square);
    note(square, (size_t)n * 8), note(y, (size_t)(n * d) * 8), note(mean, (size_t)d * 8), note(last, (size_t)d * 8);
    fs_square_rows_s(n, d, d, u, square);
    note(square, (size_t)n * 8), note(low, (size_t)d * 8);
    free(low), free(base), free(old);
    free(x), free(y), free(square), free(root), free(u), free(v), free(mean), free(shift), free(last), free(flast);
}

static void panels(ptrdiff_t m, ptrdiff_t columns, ptrdiff_t d)
{
    const ptrdiff_t n_pack = 40 * (m + 32), r = m / 2 + 1;
    double *f = space((size_t)(m * d), 8), *g = space((size_t)(m * m), 8), *pack = space((size_t)n_pack, 8);
    double *w = space((size_t)(m * r), 8), *square = space((size_t)r, 8), *old = space((size_t)(m * d), 8);
    float *fs = space((size_t)(m * d), 4), *gs = space((size_t)(m * m), 4), *packs = space((size_t)n_pack, 4);
    float *ws = space((size_t)(m * r), 4);
    for (ptrdiff_t i = 0; i < m * d; i++)
        fs[i] = (float)(old[i] = f[i] = uniform());
    for (ptrdiff_t i = 0; i < m * r; i++)
        ws[i] = (float)(w[i] = uniform());
    /* the sum over parts of the columns */
    const ptrdiff_t half = d / 2;
    double *other = space((size_t)(m * m), 8);
    fs_panel_gram_d(m, columns, half, d, f, g, pack, n_pack);
    fs_panel_gram_d(m, columns, d - half, d, f + half, other, pack, n_pack);
    for (ptrdiff_t j = 0; j < columns; j++)
        for (ptrdiff_t i = j; i < m; i++)
            g[j * m + i] = (half ? g[j * m + i] : 0) + (half < d ? other[j * m + i] : 0);
    free(other);
    fs_panel_gram_s(m, columns, d, d, fs, gs, packs, n_pack);
    for (ptrdiff_t j = 0; j < columns; j++)
        for (ptrdiff_t i = j; i < m; i++) {
            double sum = 0;
            for (ptrdiff_t k = 0; k < d; k++)
                sum += f[i * d + k] * f[j * d + k];
            check(fabs(sum - g[j * m + i]) < 1e-12 * (double)(d + 1), "panel gram");
            check(fabs(sum - gs[j * m + i]) < 1e-5 * (double)(d + 1), "panel gram, float");
            note(g + j * m + i, 8), note(gs + j * m + i, 4);
        }
    double *more = space((size_t)r, 8);
    fs_panel_rotate_d(m, r, half, d, f, w, square, pack, n_pack);
    fs_panel_rotate_d(m, r, d - half, d, f + half, w, more, pack, n_pack);
    for (ptrdiff_t i = 0; i < r; i++) {
        double norm = 0;
        square[i] += more[i];
        for (ptrdiff_t c = 0; c < d; c++) {
            double sum = 0;
            for (ptrdiff_t k = 0; k < m; k++)
                sum += w[i * m + k] * old[k * d + c];
            norm += sum * sum;
            check(i == r - 1 || fabs(sum - f[(m - 1 - i) * d + c]) < 1e-12 * (double)m, "panel rotate");
        }
        check(fabs(norm - square[i]) < 1e-10 * (double)(m * d), "panel rotate, norm");
    }
    note(f, (size_t)(m * d) * 8), note(square, (size_t)r * 8);
    fs_panel_rotate_s(m, r, d, d, fs, ws, square, packs, n_pack);
    note(fs, (size_t)(m * d) * 4), note(square, (size_t)r * 8);
    free(f), free(g), free(pack), free(w), free(square), free(old), free(fs), free(gs), free(packs), free(ws),
        free(more);
}

static void sparse(ptrdiff_t n, ptrdiff_t d, ptrdiff_t k)
{
    int64_t *indptr = space((size_t)n + 1, 8);
    int32_t *indices = space((size_t)(n * d), 4);
    double *data = space((size_t)(n * d), 8), *v = space((size_t)d, 8), *z = space((size_t)(d * (k + 1)), 8);
    float *sdata = space((size_t)(n * d), 4), *sz = space((size_t)(d * (k + 1)), 4);
    for (ptrdiff_t i = 0; i < n; i++) {
        indptr[i + 1] = indptr[i];
        for (ptrdiff_t j = 0; j < d; j++)
            if (uniform() < 0) {
                indices[indptr[i + 1]] = (int32_t)j;
                sdata[indptr[i + 1]] = (float)uniform();
                data[indptr[i + 1]++] = uniform();
            }
    }
    double *out = space((size_t)(n * k), 8), *vectors = space((size_t)(n + k), 8);
    float *sout = space((size_t)(n * k), 4);
    int32_t *stop = space((size_t)d, 4), *row = space((size_t)indptr[n], 4);
    double *turned = space((size_t)indptr[n], 8);
    float *sturned = space((size_t)indptr[n], 4);
    fs_csr_times_z_d(n, k, k + 1, indptr, indices, data, z, out);
    fs_csr_times_z_s(n, k, k + 1, indptr, indices, sdata, sz, sout);
    int32_t t = 0; /* the entries feature by feature */
    for (ptrdiff_t j = 0; j < d; j++) {
        for (ptrdiff_t i = 0; i < n; i++)
            for (int64_t e = indptr[i]; e < indptr[i + 1]; e++)
                if (indices[e] == j) {
                    row[t] = (int32_t)i;
                    sturned[t] = sdata[e];
                    turned[t++] = data[e];
                }
        stop[j] = t;
        v[j] = j % 3 ? uniform() : 0;
    }
    const ptrdiff_t half = d / 2;
    /* kept rows: turned ones, what the new rows bring, less a multiple of the mean */
    double *panel = space((size_t)(d * k), 8), *sum = space((size_t)k, 8), *square = space((size_t)k, 8);
    float *spanel = space((size_t)(d * k), 4), *ssum = space((size_t)k, 4);
    double *along = space((size_t)k, 8), *wanted = space((size_t)(d * k), 8);
    for (ptrdiff_t c = 0; c < k; c++)
        square[c] = 0, along[c] = uniform();
    for (ptrdiff_t i = 0; i < d * k; i++)
        wanted[i] = panel[i] = uniform(), spanel[i] = (float)panel[i];
    for (ptrdiff_t j = 0; j < d; j++)
        for (ptrdiff_t c = 0; c < k; c++) {
            wanted[j * k + c] -= v[j] * along[c];
            for (ptrdiff_t i = 0; i < n; i++)
                for (int64_t e = indptr[i]; e < indptr[i + 1]; e++)
                    wanted[j * k + c] += indices[e] == j ? data[e] * out[i * k + c] : 0;
        }
    fs_csr_settle_s(0, d, k, k + 1, k + 1, stop, row, sturned, sout, NULL, along, 0, spanel, ssum, sz, square);
    for (ptrdiff_t c = 0; c < k; c++)
        square[c] = 0;
    fs_csr_settle_d(0, half, k, k + 1, k + 1, stop, row, turned, out, v, along, 0, panel, sum, z, square);
    fs_csr_settle_d(half, d, k, k + 1, k + 1, stop, row, turned, out, v, along, 0, panel + half * k, sum, z, square);
    for (ptrdiff_t c = 0; c < k; c++)
        for (ptrdiff_t j = 0; j < d; j++) {
            check(fabs(z[j * (k + 1) + c] - wanted[j * k + c]) < 1e-11 && z[j * (k + 1) + k] == 0, "settled features");
            square[c] -= z[j * (k + 1) + c] * z[j * (k + 1) + c];
        }
    for (ptrdiff_t c = 0; c < k; c++)
        check(fabs(square[c]) < 1e-9, "squares of settled features");
    note(z, (size_t)(d * (k + 1)) * 8);
    free(panel), free(sum), free(square), free(spanel), free(ssum), free(along), free(wanted);
    fs_z_dot_d(d, k, k + 1, z, v, vectors);
    fs_z_dot_s(d, k, k + 1, sz, v, vectors);
    fs_z_rank_one_d(d, k, k + 1, v, vectors, z);
    fs_z_rank_one_s(d, k, k + 1, v, vectors, sz);
    note(out, (size_t)(n * k) * 8), note(z, (size_t)(d * (k + 1)) * 8), note(sz, (size_t)(d * (k + 1)) * 4);
    free(indptr), free(indices), free(data), free(v), free(z), free(sdata), free(sz), free(out);
    free(vectors), free(sout), free(stop), free(row), free(turned), free(sturned);
}

static void secular(ptrdiff_t n)
{
    double *d = space((size_t)n, 8), *z = space((size_t)n, 8), *poles = space((size_t)n, 8), *w = space((size_t)n, 8);
    double *tau = space((size_t)n, 8), *v = space((size_t)n, 8), *turn = space((size_t)(2 * n), 8);
    double *s = space((size_t)(n * n), 8);
    float *fs = space((size_t)(n * n), 4);
    int32_t *order = space((size_t)n, 4), *keep = space((size_t)n, 4), *type = space((size_t)n, 4);
    int32_t *pair = space((size_t)(2 * n), 4), *origin = space((size_t)n, 4), *place = space((size_t)n, 4);
    ptrdiff_t turns;
    for (ptrdiff_t j = 0; j < n; j++) {
        order[j] = place[j] = (int32_t)j;
        d[j] = (double)(j / 2) + (j % 2 ? 1e-17 : 0); /* pairs that deflate */
        z[j] = j % 5 ? uniform() : 0;                 /* and columns without weight */
    }
    const ptrdiff_t k = fs_secular_deflate(n, n / 2, 2.0, 1e-16, d, z, order, keep, type, pair, turn, &turns);
    check(k >= 0 && k <= n && turns <= n, "deflate");
    for (ptrdiff_t i = 0; i < k; i++)
        poles[i] = d[keep[i]], w[i] = z[keep[i]];
    const ptrdiff_t half = k / 2 / FS_ROOTS * FS_ROOTS;
    fs_secular_roots(k, half, k, poles, w, 2.0, origin, tau);
    fs_secular_roots(k, 0, half, poles, w, 2.0, origin, tau);
    for (ptrdiff_t i = 0; i < k; i++) {
        const double root = poles[origin[i]] + tau[i];
        check(root >= poles[i] && (i + 1 == k || root <= poles[i + 1]), "roots interlace");
    }
    fs_secular_weights(k, half, k, poles, origin, tau, w);
    fs_secular_weights(k, 0, half, poles, origin, tau, w);
    fs_secular_vectors_d(k, 0, k, poles, origin, tau, w, place, v, s);
    fs_secular_vectors_s(k, 0, k, poles, origin, tau, w, place, v, fs);
    note(w, (size_t)k * 8), note(tau, (size_t)k * 8), note(s, (size_t)(k * k) * 8), note(fs, (size_t)(k * k) * 4);
    for (ptrdiff_t a = 0; a < k; a++)
        for (ptrdiff_t b = 0; b <= a; b++) {
            double sum = a == b ? -1 : 0;
            for (ptrdiff_t j = 0; j < k; j++)
                sum += s[a * k + j] * s[b * k + j];
            check(fabs(sum) < 1e-13, "vectors are orthonormal");
        }
    free(d), free(z), free(poles), free(w), free(tau), free(v), free(turn), free(s), free(fs), free(order);
    free(keep), free(type), free(pair), free(origin), free(place);
}

static void ql(ptrdiff_t n)
{
    const ptrdiff_t ld = n + 3;
    double *d = space((size_t)n, 8), *e = space((size_t)n, 8), *values = space((size_t)n, 8);
    double *z = space((size_t)(n * ld), 8), trace = 0;
    float *fd = space((size_t)n, 4), *fe = space((size_t)n, 4), *fz = space((size_t)(n * ld), 4);
    for (ptrdiff_t i = 0; i < n; i++) {
        fd[i] = (float)(d[i] = i % 3 ? uniform() : 0);
        fe[i] = (float)(e[i] = i % 5 == 4 ? 1e-300 : uniform()); /* blocks that split */
        trace += d[i];
    }
    memset(z, 0, (size_t)(n * ld) * 8), memset(fz, 0, (size_t)(n * ld) * 4);
    check(fs_ql_s(n, fd, fe, values, fz, ld) == 0 && fs_ql_d(n, d, e, values, z, ld) == 0, "QL converges");
    note(values, (size_t)n * 8), note(z, (size_t)(n * ld) * 8), note(fz, (size_t)(n * ld) * 4);
    for (ptrdiff_t a = 0; a < n; a++) {
        check(a == 0 || values[a - 1] <= values[a], "eigenvalues ascend");
        trace -= values[a];
        for (ptrdiff_t i = 0; i < n; i++) {
            double residual = (d[i] - values[a]) * z[a * ld + i];
            residual += i > 0 ? e[i - 1] * z[a * ld + i - 1] : 0;
            residual += i + 1 < n ? e[i] * z[a * ld + i + 1] : 0;
            check(fabs(residual) < 1e-14, "eigenvectors");
        }
        for (ptrdiff_t b = 0; b <= a; b++) {
            double sum = a == b ? -1 : 0;
            for (ptrdiff_t i = 0; i < n; i++)
                sum += z[a * ld + i] * z[b * ld + i];
            check(fabs(sum) < 1e-13, "eigenvectors are orthonormal");
        }
    }
    check(fabs(trace) < 1e-13, "the trace remains");
    free(d), free(e), free(values), free(z), free(fd), free(fe), free(fz);
}

static void tridiagonal(ptrdiff_t n)
{
    double *a = space((size_t)(n * n), 8), *d = space((size_t)n, 8), *e = space((size_t)n, 8);
    double *tau = space((size_t)n, 8), *work = space((size_t)(4 * n), 8), trace = 0, square = 0;
    float *fa = space((size_t)(n * n), 4), *fd = space((size_t)n, 4), *fe = space((size_t)n, 4);
    float *ftau = space((size_t)n, 4), *fwork = space((size_t)(4 * n), 4);
    for (ptrdiff_t j = 0; j < n; j++)
        for (ptrdiff_t i = j; i < n; i++) {
            fa[j * n + i] = (float)(a[j * n + i] = uniform());
            trace += i == j ? a[j * n + i] : 0;
            square += (i == j ? 1 : 2) * a[j * n + i] * a[j * n + i];
        }
    double float_trace = trace, float_square = square;
    fs_tridiagonalise_d(n, a, d, e, tau, work);
    fs_tridiagonalise_s(n, fa, fd, fe, ftau, fwork);
    note(a, (size_t)(n * n) * 8), note(d, (size_t)n * 8), note(e, (size_t)(n - 1) * 8), note(tau, (size_t)(n - 1) * 8);
    note(fa, (size_t)(n * n) * 4), note(fd, (size_t)n * 4), note(fe, (size_t)(n - 1) * 4);
    for (ptrdiff_t j = 0; j < n; j++) {
        trace -= d[j];
        square -= d[j] * d[j] + (j + 1 < n ? 2 * e[j] * e[j] : 0);
        float_trace -= fd[j];
        float_square -= fd[j] * fd[j] + (j + 1 < n ? 2 * fe[j] * fe[j] : 0);
    }
    check(fabs(float_trace) < 1e-4 && fabs(float_square) < 1e-2, "the reduction in float is a similarity");
    check(fabs(trace) < 1e-12 && fabs(square) < 1e-10, "the reduction is a similarity");
    free(a), free(d), free(e), free(tau), free(work), free(fa), free(fd), free(fe), free(ftau), free(fwork);
}

static void hadamard(ptrdiff_t m, ptrdiff_t d)
{
    double *x = space((size_t)(m * d), 8), *y = space((size_t)(m * d), 8);
    float *u = space((size_t)(m * d), 4);
    for (ptrdiff_t i = 0; i < m * d; i++)
        u[i] = (float)(y[i] = x[i] = uniform());
    fs_fwht_columns_d(m, d, d, x);
    fs_fwht_columns_s(m, d, d, u);
    for (ptrdiff_t j = 0; j < d; j++) {
        double sum = 0;
        for (ptrdiff_t i = 0; i < m; i++)
            sum += y[i * d + j];
        check(fabs(sum - x[j]) < 1e-10 * (double)m && fabs(sum - u[j]) < 1e-4 * (double)m, "fwht, first row");
    }
    fs_fwht_columns_d(m, d, d, x);
    for (ptrdiff_t i = 0; i < m * d; i++)
        check(fabs(x[i] / (double)m - y[i]) < 1e-12 * (double)m, "fwht twice");
    fs_fwht_rows_d(d, m, m, x); /* the same memory as d rows of m */
    fs_fwht_rows_s(d, m, m, u);
    note(x, (size_t)(m * d) * 8), note(u, (size_t)(m * d) * 4);
    fs_fwht_rows_d(d, m, m, x);
    for (ptrdiff_t i = 0; i < m * d; i++)
        check(fabs(x[i] / ((double)m * (double)m) - y[i]) < 1e-12 * (double)m, "fwht of rows, twice");
    free(x), free(y), free(u);
}

static void srht(ptrdiff_t p, ptrdiff_t d, ptrdiff_t q)
{
    double *x = space((size_t)(p * d), 8), *factor = space((size_t)p, 8), *flip = space((size_t)q, 8);
    double *out = space((size_t)(q * d), 8), *work = space((size_t)fs_srht_work_d(p), 8), *sums = space((size_t)d, 8);
    double *shift = space((size_t)d, 8), *root = space((size_t)p, 8);
    float *fx = space((size_t)(p * d), 4), *ffactor = space((size_t)p, 4), *fflip = space((size_t)q, 4);
    float *fout = space((size_t)(q * d), 4), *fwork = space((size_t)fs_srht_work_s(p), 4);
    float *fshift = space((size_t)d, 4);
    int32_t *lo = space((size_t)q, 4), *target = space((size_t)(2 * p), 4);
    double *value = space((size_t)(2 * p), 8);
    float *fvalue = space((size_t)(2 * p), 4);
    for (ptrdiff_t i = 0; i < p * d; i++)
        fx[i] = (float)(x[i] = uniform());
    for (ptrdiff_t i = 0; i < p; i++) {
        ffactor[i] = (float)(factor[i] = uniform() < 0 ? -1 : 1);
        root[i] = 0.5;
        target[2 * i] = (int32_t)(i % q), target[2 * i + 1] = (int32_t)((i * 7) % q);
        fvalue[2 * i] = (float)(value[2 * i] = 1), fvalue[2 * i + 1] = (float)(value[2 * i + 1] = -0.5);
    }
    for (ptrdiff_t k = 0; k < q; k++)
        lo[k] = (int32_t)((k * 5) % p), fflip[k] = (float)(flip[k] = k % 2 ? -1 : 1);
    fs_srht_block_d(p, d, d, x, factor, NULL, NULL, sums, q, lo, flip, work, out, d);
    for (ptrdiff_t k = 0; k < q; k++)
        for (ptrdiff_t j = 0; j < d; j++) {
            double sum = 0;
            for (ptrdiff_t i = 0; i < p; i++)
                sum +=
                    flip[k] * (__builtin_parityll((unsigned long long)(lo[k] & i)) ? -1 : 1) * factor[i] * x[i * d + j];
            check(fabs(sum - out[k * d + j]) < 1e-11 * (double)p, "srht");
        }
    fs_srht_block_d(p, d, d, x, factor, root, shift, sums, q, lo, flip, work, out, d);
    fs_srht_block_d(p, d, d, x, factor, root, shift, NULL, q, lo, flip, work, out, d);
    fs_srht_block_s(p, d, d, fx, ffactor, NULL, fshift, sums, q, lo, fflip, fwork, fout, d);
    fs_srht_block_s(p, d, d, fx, ffactor, root, NULL, sums, q, lo, fflip, fwork, fout, d);
    fs_scatter_rows_d(p, d, d, x, root, shift, sums, 2, target, value, out, d);
    fs_scatter_rows_s(p, d, d, fx, NULL, NULL, NULL, 2, target, fvalue, fout, d);
    fs_scatter_rows_s(p, d, d, fx, NULL, fshift, sums, 0, NULL, NULL, fout, d);
    note(out, (size_t)(q * d) * 8), note(fout, (size_t)(q * d) * 4), note(sums, (size_t)d * 8);
    free(x), free(factor), free(flip), free(out), free(work), free(sums), free(shift), free(root), free(fx);
    free(ffactor), free(fflip), free(fout), free(fwork), free(fshift), free(lo), free(target), free(value),
        free(fvalue);
}

static void hamming(ptrdiff_t n, ptrdiff_t n_bytes)
{
    const ptrdiff_t words = fs_hamming_words(n_bytes), k = n / 2 + 1;
    uint8_t *codes = space((size_t)(n * n_bytes), 1);
    uint64_t *queries = space((size_t)(n * words), 8), *tile = space((size_t)(words * FS_HAMMING_TILE), 8);
    int32_t *all = space((size_t)(n * n), 4), *distance = space((size_t)(n * k), 4);
    int64_t *index = space((size_t)(n * k), 8);
    for (ptrdiff_t i = 0; i < n * n_bytes; i++)
        codes[i] = (uint8_t)(256 * (uniform() + 0.5));
    fs_hamming_pad(n, n_bytes, codes, queries);
    fs_hamming_distances(n, queries, n, n_bytes, codes, tile, all, n);
    const fs_hamming_rule any = {NULL, NULL};
    fs_hamming_begin(n, k, NULL, distance, index);
    fs_hamming_look(n, queries, n, n_bytes, codes, 0, 0, &any, k, tile, distance, index);
    /* the same in two ranges, by way of tiles, each with heaps of its own; ids in the order of indices, all allowed */
    const ptrdiff_t half = n / 2 / 8 * 8, tiles = (n + FS_HAMMING_TILE - 1) / FS_HAMMING_TILE;
    uint64_t *both = space((size_t)(tiles * words * FS_HAMMING_TILE), 8);
    int32_t *near = space((size_t)(n * k), 4), *other = space((size_t)(n * k), 4);
    int64_t *who = space((size_t)(n * k), 8), *whose = space((size_t)(n * k), 8), *ids = space((size_t)n, 8);
    uint8_t *allow = space((size_t)(n + 7) / 8, 1);
    for (ptrdiff_t i = 0; i < n; i++)
        ids[i] = 3 * i - n, allow[i / 8] |= (uint8_t)(1 << i % 8);
    const fs_hamming_rule rule = {allow, ids};
    fs_hamming_begin(n, k, NULL, near, who);
    fs_hamming_begin(n, k, NULL, other, whose);
    fs_hamming_tiles(half, n_bytes, codes, (n - half) * n_bytes, both);
    fs_hamming_scan(n, queries, half, words, both, 0, &rule, k, near, who);
    fs_hamming_tiles(n - half, n_bytes, codes + half * n_bytes, 0, both);
    fs_hamming_scan(n, queries, n - half, words, both, half, &rule, k, other, whose);
    fs_hamming_join(n, k, other, whose, ids, near, who);
    fs_hamming_sort(n, k, NULL, distance, index);
    fs_hamming_sort(n, k, ids, near, who);
    for (ptrdiff_t i = 0; i < n * k; i++)
        check(near[i] == distance[i] && who[i] == index[i], "neighbours in two ranges");
    free(ids), free(allow);
    free(both), free(near), free(other), free(who), free(whose);
    for (ptrdiff_t i = 0; i < n; i++) {
        check(all[i * n + i] == 0, "distance to itself");
        for (ptrdiff_t j = 0; j < k; j++) {
            check(distance[i * k + j] == all[i * n + index[i * k + j]], "distance of a neighbour");
            check(j == 0 || distance[i * k + j] >= distance[i * k + j - 1], "order of neighbours");
        }
    }
    note(all, (size_t)(n * n) * 4), note(index, (size_t)(n * k) * 8);
    free(codes), free(queries), free(tile), free(all), free(distance), free(index);
}

/* The k least scores among n codes of n_tables nibbles, against scoring all of them: from rows and from blocks, in one
 * range and in two, with each of the factors or none. */
static void scan(ptrdiff_t n, ptrdiff_t n_tables)
{
    const ptrdiff_t k = n / 3 + 1, m = 5;
    for (int kind = 0; kind < 18; kind++) {
        const ptrdiff_t offset_bytes = kind % 3, scale_bytes = kind / 3 % 3, with = kind / 9;
        const ptrdiff_t width = (n_tables + 1) / 2 + offset_bytes + scale_bytes;
        const fs_scan_layout layout = {
            n_tables, width, offset_bytes, scale_bytes, offset_bytes == 2 ? 12 : 18, scale_bytes == 2 ? 12 : 19,
            0.5f,     2.0f};
        const ptrdiff_t room = fs_least_room(k, n), bytes = fs_scan_block(&layout);
        uint8_t *codes = space((size_t)(n * width), 1), *again = space((size_t)(n * width), 1);
        uint8_t *blocks = space((size_t)((n + FS_SCAN_ROWS - 1) / FS_SCAN_ROWS * bytes), 1);
        uint8_t *allow = space((size_t)(n + 7) / 8, 1);
        float *table = space((size_t)(m * n_tables * 16), 4), *divisor = space((size_t)n, 4);
        float *score = space((size_t)(m * k), 4), *scores = space((size_t)(m * k), 4);
        int64_t *place = space((size_t)(m * k), 8), *places = space((size_t)(m * k), 8), *ids = space((size_t)n, 8);
        uint8_t *steps = space((size_t)(m * fs_scan_steps(&layout)), 1);
        uint32_t *weights = space((size_t)(m * fs_scan_weights(&layout)), 4);
        fs_offer *held = space((size_t)(2 * m * room), sizeof *held);
        float *all[2] = {space((size_t)n, 4), space((size_t)n, 4)};
        fs_scan_query *queries = space((size_t)(2 * m), sizeof *queries);
        float *scratch = space(fs_scan_scratch(&layout, m) / 4 + 1, 4);
        for (ptrdiff_t i = 0; i < n * width; i++)
            codes[i] = (uint8_t)(256 * (uniform() + 0.5));
        for (ptrdiff_t i = 0; i < m * n_tables * 16; i++)
            table[i] = (float)(uniform() * (i / 16 % 3 ? 1 : 30));
        for (ptrdiff_t i = 0; i < n; i++) {
            divisor[i] = (float)(uniform() + 1), ids[i] = -7 * i;
            allow[i / 8] |= (uint8_t)((i % 5 > 0) << i % 8);
        }
        fs_scan_pack(&layout, 0, n / 2, codes, blocks);
        fs_scan_pack(&layout, n / 2, n - n / 2, codes + n / 2 * width, blocks);
        fs_scan_unpack(&layout, 0, n, blocks, again);
        check(memcmp(codes, again, (size_t)(n * width)) == 0, "codes from blocks");
        fs_scan_set set = {layout,           n, 0, codes, 0, 1.0f, -2.0f, with ? divisor : NULL, with ? allow : NULL,
                           with ? ids : NULL};
        const ptrdiff_t half = n / 2 / FS_SCAN_STRIP * FS_SCAN_STRIP;
        for (int way = 0; way < 2; way++) {
            for (ptrdiff_t i = 0; i < 2 * m; i++) {
                queries[i].table = table + i % m * n_tables * 16, queries[i].constant = (float)(i % m);
                queries[i].steps = steps + i % m * fs_scan_steps(&layout);
                queries[i].weights = weights + i % m * fs_scan_weights(&layout);
                fs_scan_prepare(&set, queries + i);
                fs_least_begin(k, room, NULL, held + i * room, &queries[i].least);
            }
            fs_scan_rows(&set, 0, way ? half : n, m, queries, scratch);
            if (way)
                fs_scan_rows(&set, half, n, m, queries + m, scratch);
            for (ptrdiff_t i = 0; i < m; i++) {
                fs_least_join(&queries[m + i].least, set.ids, &queries[i].least);
                fs_least_sort(set.ids, &queries[i].least, (way ? scores : score) + i * k,
                              (way ? places : place) + i * k);
            }
            fs_scan_scores(&set, 0, half, queries, all[way], scratch);
            fs_scan_scores(&set, half, n, queries, all[way] + half, scratch);
            set.codes = blocks, set.in_blocks = 1;
        }
        check(memcmp(all[0], all[1], (size_t)n * 4) == 0, "scores of rows and of blocks");
        if (!with)
            check(place[0] < 0 || all[0][place[0]] == score[0], "the least of all scores");
        note(all[0], (size_t)n * 4);
        check(memcmp(score, scores, (size_t)(m * k) * 4) == 0 && memcmp(place, places, (size_t)(m * k) * 8) == 0,
              "the least in two ranges");
        for (ptrdiff_t i = 0; i < m * k; i++)
            check(i % k == 0 || place[i] < 0 || score[i - 1] <= score[i], "order of scores");
        note(score, (size_t)(m * k) * 4), note(place, (size_t)(m * k) * 8);
        free(codes), free(again), free(blocks), free(allow), free(table), free(divisor), free(score), free(scores);
        free(place), free(places), free(ids), free(steps), free(weights), free(held), free(queries), free(scratch);
        free(all[0]), free(all[1]);
    }
}

/* Every inner product, and the same bits when asked for alone. */
static void dots(ptrdiff_t n, ptrdiff_t m, ptrdiff_t d)
{
    double *x = space((size_t)(n * d), sizeof *x), *b = space((size_t)(m * d), sizeof *b);
    double *out = space((size_t)(n * m), sizeof *out), one;
    for (ptrdiff_t i = 0; i < n * d; i++)
        x[i] = uniform();
    for (ptrdiff_t i = 0; i < m * d; i++)
        b[i] = uniform();
    fs_dots_d(n, m, d, x, d, b, d, out, m, 0);
    for (ptrdiff_t i = 0; i < n; i++)
        for (ptrdiff_t j = 0; j < m; j++) {
            double sum = 0;
            for (ptrdiff_t k = 0; k < d; k++)
                sum += x[i * d + k] * b[j * d + k];
            fs_dots_d(1, 1, d, x + i * d, d, b + j * d, d, &one, 1, 0);
            check(fabs(sum - out[i * m + j]) <= 1e-12 * (double)(d + 1) && one == out[i * m + j], "dots");
        }
    note(out, (size_t)(n * m) * 8);
    fs_dots_d(n, m, d, x, d, b, d, out, m, 1);
    free(x);
    free(b);
    free(out);
}

/* The step in every column, to the bit: no two operations are rounded as one, at any level. */
static void adagrad(ptrdiff_t d)
{
    const double slope = 4 * uniform(), step = uniform(), delta = 0.01 + fabs(uniform());
    double *x = space((size_t)d, 8), *squares = space((size_t)d, 8), *w = space((size_t)d, 8);
    double *expected = space((size_t)d, 8), *sum = space((size_t)d, 8);
    for (ptrdiff_t j = 0; j < d; j++)
        expected[j] = w[j] = uniform();
    for (int round = 0; round < 3; round++) {
        for (ptrdiff_t j = 0; j < d; j++) {
            x[j] = (j + round) % 5 ? uniform() : 0;
            const double g = slope * x[j], square = g * g;
            sum[j] += square;
            const double part = step * x[j] / (delta + sqrt(sum[j]));
            expected[j] -= part;
        }
        fs_adagrad_d(d, slope, step, delta, x, squares, w);
        check(memcmp(squares, sum, (size_t)d * 8) == 0 && memcmp(w, expected, (size_t)d * 8) == 0, "adagrad");
    }
    note(squares, (size_t)d * 8), note(w, (size_t)d * 8);
    free(x), free(squares), free(w), free(expected), free(sum);
}

/* Rows to directions, to codes, to words and back: r directions in groups of `count`, every second of two nibbles. */
static void quantize(ptrdiff_t n, ptrdiff_t d, ptrdiff_t r, ptrdiff_t count)
{
    const ptrdiff_t tiles = (r + FS_PROJECT_TILE - 1) / FS_PROJECT_TILE,
                    back = (d + FS_PROJECT_TILE - 1) / FS_PROJECT_TILE;
    const ptrdiff_t width = tiles * FS_PROJECT_TILE, groups = r / count;
    double *x = space((size_t)(n * d), 8), *mean = space((size_t)d, 8), *square = space(FS_PROJECT_ROWS, 8);
    double *base = space((size_t)width, 8), *sum = space((size_t)width, 8);
    float *u = space((size_t)(n * d), 4), *w = space((size_t)(width * d), 4), *panel = space(FS_PROJECT_PANEL, 4);
    float *z = space((size_t)(width * FS_PROJECT_ROWS), 4), *turned = space((size_t)(back * FS_PROJECT_TILE * r), 4);
    const ptrdiff_t n_words = 32 * count * groups;
    float *words = space((size_t)n_words, 4), *half = space((size_t)(256 * groups), 4);
    float *out = space((size_t)(n * d), 4);
    int32_t *shape = space((size_t)(3 * groups), 4), *indices = space((size_t)(n * d), 4);
    int64_t *indptr = space((size_t)n + 1, 8);
    for (ptrdiff_t i = 0; i < n * d; i++) {
        u[i] = (float)(x[i] = 4 * uniform());
        indices[i] = (int32_t)(i % d);
        indptr[i / d + 1] = i + 1;
    }
    for (ptrdiff_t k = 0; k < d; k++) {
        mean[k] = uniform();
        for (ptrdiff_t j = 0; j < r; j++) {
            const float entry = (float)uniform();
            w[(j / FS_PROJECT_TILE * d + k) * FS_PROJECT_TILE + j % FS_PROJECT_TILE] = entry;
            turned[(k / FS_PROJECT_TILE * r + j) * FS_PROJECT_TILE + k % FS_PROJECT_TILE] = entry;
            base[j] += 0.5 * mean[k] * (double)entry;
        }
    }
    ptrdiff_t n_nibbles = 0;
    for (ptrdiff_t g = 0; g < groups; g++) {
        shape[g] = (int32_t)(g * count), shape[groups + g] = (int32_t)count;
        n_nibbles += shape[2 * groups + g] = g % 2 ? 1 : 2;
    }
    for (ptrdiff_t i = 0; i < n_words; i++)
        words[i] = (float)uniform();
    for (ptrdiff_t i = 0; i < 256 * groups; i++)
        half[i] = (float)(uniform() + 0.5);
    const double offset[FS_SUMS] = {-1, 1, 0.5, 1};
    const fs_quantizer q = {.n_directions = r,
                            .n_groups = groups,
                            .n_nibbles = n_nibbles,
                            .width = (n_nibbles + 1) / 2 + 2,
                            .start = shape,
                            .count = shape + groups,
                            .nibbles = shape + 2 * groups,
                            .words = words,
                            .weighted = words,
                            .half = half,
                            .slope = words,
                            .offset = offset,
                            .factor = {2, 10, 0.5f}};
    uint8_t *codes = space((size_t)(n * q.width), 1), *again = space((size_t)q.width, 1);
    void *scratch = space(fs_quantize_scratch(n_nibbles), 1);

    fs_project_csr_d(n, d, indptr, indices, x, mean, 0.5, 1, tiles, w, base, sum, z, square);
    note_of_all(z, (size_t)(width * FS_PROJECT_ROWS) * 4), note_of_all(square, (size_t)n * 8);
    fs_project_csr_s(n, d, indptr, indices, u, mean, 0.5, 1, tiles, w, base, sum, z, square);
    note_of_all(z, (size_t)(width * FS_PROJECT_ROWS) * 4), note_of_all(square, (size_t)n * 8);
    fs_project_rows_d(n, d, d, x, mean, 0.5, tiles, w, panel, z, square);
    note_of_all(z, (size_t)(width * FS_PROJECT_ROWS) * 4);
    fs_project_rows_s(n, d, d, u, mean, 0.5, tiles, w, panel, z, square);
    note_of_all(z, (size_t)(width * FS_PROJECT_ROWS) * 4), note_of_all(square, (size_t)n * 8);
    for (ptrdiff_t i = 0; i < n; i++)
        for (ptrdiff_t j = 0; j < r; j++) {
            double dot = 0;
            for (ptrdiff_t k = 0; k < d; k++)
                dot += 0.5 * ((double)u[i * d + k] - mean[k]) *
                       (double)w[(j / FS_PROJECT_TILE * d + k) * FS_PROJECT_TILE + j % FS_PROJECT_TILE];
            check(fabs(dot - (double)z[j * FS_PROJECT_ROWS + i]) < 1e-5 * (double)(d + 1), "directions");
        }
    fs_quantize_panel_s(&q, n, z, square, codes, scratch);
    note_of_all(codes, (size_t)(n * q.width));
    if (n) { /* the last row alone */
        fs_project_rows_s(1, d, d, u + (n - 1) * d, mean, 0.5, tiles, w, panel, z, square);
        fs_quantize_panel_s(&q, 1, z, square, again, scratch);
        check(memcmp(again, codes + (n - 1) * q.width, (size_t)q.width) == 0, "a row's code is its own");
    }
    float *word = space((size_t)(r * FS_PROJECT_ROWS), 4);
    fs_words_panel_s(&q, n, codes, word, scratch);
    fs_project_back_s(n, r, d, word, mean, 2, turned, out);
    note_of_all(out, (size_t)(n * d) * 4);
    free(x), free(mean), free(square), free(base), free(sum), free(u), free(w), free(panel), free(z), free(turned);
    free(words), free(half), free(out), free(shape), free(indices), free(indptr), free(codes), free(again);
    free(scratch), free(word);
}

/* Every kernel that has more than one level. */
static void every_kernel(void)
{
    const ptrdiff_t sizes[] = {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 100};
    const int n_sizes = (int)(sizeof sizes / sizeof *sizes);
    for (int a = 0; a < n_sizes; a++)
        for (int b = 1; b < n_sizes; b++) {
            rows(sizes[a], sizes[b]);
            csr(sizes[a], sizes[b] - 1);
            if (sizes[a] >= 2)
                panels(sizes[a], sizes[a] / 2 + 1, sizes[b]);
            if (sizes[a] >= 2)
                panels(sizes[a], sizes[a], sizes[b]);
            dots(sizes[a] % 9 + 1, sizes[b] % 7 + 1, sizes[b]);
            if (sizes[a] > 0)
                sparse(sizes[a], sizes[b], sizes[(a + b) % n_sizes] + 1);
        }
    for (ptrdiff_t n = 0; n <= FS_PROJECT_ROWS; n += n < 2 ? 1 : 15)
        for (ptrdiff_t count = 1; count < 6; count++)
            quantize(n, count == 3 ? 300 : 7 * count, 3 * count + 1, count);
    /* more than a block of rows, of columns, and than a piece of d */
    dots(29, 70, 517);
    dots(13, 33, 256);
    dots(1, 40, 1031);
    for (int a = 0; a < n_sizes; a++)
        adagrad(sizes[a]);
    for (int a = 1; a < n_sizes; a++) {
        secular(sizes[a]);
        if (sizes[a] <= FS_QL_MOST)
            ql(sizes[a]);
        tridiagonal(sizes[a]);
        for (int b = 1; b < 5; b++)
            hamming(sizes[a] * 9, sizes[b]);
        scan(sizes[a] * 11, sizes[a]);
        scan(sizes[a], sizes[n_sizes - a]);
        for (int bits = 0; bits < 12; bits++)
            hadamard((ptrdiff_t)1 << bits, sizes[a]);
        for (int bits = 3; bits < 10; bits++)
            srht((ptrdiff_t)1 << bits, sizes[a], sizes[a] < 1 << bits ? sizes[a] : 3);
    }
}

/* Levels without fused products, and those with them, are two sets of bits; what must be one set is that. */
static void every_level(void)
{
    uint64_t expected[2] = {0, 0}, expected_of_all = 0;
    for (int level = 0; fs_level_supported(level); level++) {
        const char *name = fs_level_name(level);
        const int fused = strcmp(name, "plain") != 0 && strcmp(name, "sse2") != 0;
        fs_level_share(&level);
        state = 1;
        digest = digest_of_all = FNV_OFFSET;
        every_kernel();
        printf("%s: %016llx\n", name, (unsigned long long)digest);
        check(expected[fused] == 0 || expected[fused] == digest, "levels that round alike return the same bits");
        expected[fused] = digest;
        check(expected_of_all == 0 || expected_of_all == digest_of_all, "codes have the same bits at every level");
        expected_of_all = digest_of_all;
    }
    static const int best = 0;
    fs_level_share(&best);
}

static void add_own_number(void *context, ptrdiff_t part, void *scratch)
{
    memset(scratch, (int)part, 100);
    ((double *)context)[part] += (double)part;
}

/* Every part of a job once, with fewer and with more threads than parts. */
static void pool(void)
{
    char scratch[100];
    fs_pool_share(fs_threads_service());
    for (int threads = 1; threads < 9; threads++) {
        fs_threads_set(threads);
        for (ptrdiff_t n_parts = 0; n_parts < 40; n_parts++) {
            double *out = space((size_t)n_parts, 8);
            for (int again = 0; again < 5; again++)
                fs_pool_run(n_parts, add_own_number, out, scratch, sizeof scratch);
            for (ptrdiff_t i = 0; i < n_parts; i++)
                check(out[i] == 5.0 * (double)i, "pool");
            free(out);
        }
    }
    check(fs_threads_started() == 7, "threads of the pool");
}

int main(void)
{
    every_level();
    pool();
    puts("all C kernels: clean");
    return 0;
}
