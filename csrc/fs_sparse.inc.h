/* Body of fs_sparse.c, included once per REAL (float, double). */

#include "fs_each_level.inc.h"

ptrdiff_t FS_JOIN(fs, TYPED(scan_csr))(ptrdiff_t n, const int64_t *indptr, const REAL *data, double *largest)
{
    double top = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        double row = 0;
        for (int64_t e = indptr[i]; e < indptr[i + 1]; e++) {
            const double v = fabs((double)data[e]);
            if (!(v <= 1.7976931348623157e308)) { /* NaN or inf */
                *largest = top;
                return i;
            }
            row = v > row ? v : row;
        }
        top = row > top ? row : top;
    }
    *largest = top;
    return -1;
}

double FS_JOIN(fs, TYPED(load_csr))(ptrdiff_t nnz, const REAL *data, double factor, REAL *out)
{
    const REAL f = (REAL)factor;
    double sum = 0;
    for (ptrdiff_t e = 0; e < nnz; e++) {
        out[e] = data[e] * f;
        sum += (double)out[e] * (double)out[e];
    }
    return sum;
}

int64_t FS_JOIN(fs, TYPED(csr_pivots))(ptrdiff_t n, ptrdiff_t n_chosen, const int64_t *indptr, const int32_t *indices,
                                       const REAL *data, const double *root_weight, const int32_t *chosen,
                                       const int32_t *slot, double *present, double *pivot)
{
    int64_t entries = 0;
    for (ptrdiff_t c = 0; c < n_chosen; c++)
        present[chosen[c]] = -1; /* from here on: the root weight of the row whose value is the pivot */
    for (ptrdiff_t i = 0; i < n; i++)
        for (int64_t e = indptr[i]; e < indptr[i + 1]; e++) {
            const int32_t j = indices[e];
            if (!slot[j])
                continue;
            entries++;
            if (root_weight[i] > present[j]) {
                present[j] = root_weight[i];
                pivot[j] = (double)data[e];
            }
        }
    return entries;
}

void FS_JOIN(fs, TYPED(csr_fill))(ptrdiff_t n, ptrdiff_t n_chosen, int64_t n_fill, int64_t *indptr, int32_t *indices,
                                  REAL *data, const int32_t *chosen, const int32_t *slot, int32_t *stamp)
{
    int64_t to = indptr[n] + n_fill;
    for (ptrdiff_t c = 0; c < n_chosen; c++)
        stamp[c] = -1;
    /* from the last row to the first: what is written lies behind all that is still to be read */
    for (ptrdiff_t i = n - 1; i >= 0; i--) {
        const int64_t end = to;
        for (int64_t e = indptr[i]; e < indptr[i + 1]; e++)
            if (slot[indices[e]])
                stamp[slot[indices[e]] - 1] = (int32_t)i;
        for (ptrdiff_t c = 0; c < n_chosen; c++)
            if (stamp[c] != i) {
                indices[--to] = chosen[c];
                data[to] = 0;
            }
        for (int64_t e = indptr[i + 1] - 1; e >= indptr[i]; e--) {
            indices[--to] = indices[e];
            data[to] = data[e];
        }
        indptr[i + 1] = end;
    }
}

void FS_JOIN(fs, TYPED(csr_weigh))(ptrdiff_t n, const int64_t *indptr, const int32_t *indices, REAL *data,
                                   const double *root_weight, const double *pivot)
{
    for (ptrdiff_t i = 0; i < n; i++)
        for (int64_t e = indptr[i]; e < indptr[i + 1]; e++)
            data[e] = (REAL)(root_weight[i] * ((double)data[e] - pivot[indices[e]]));
}

void FS_JOIN(fs, TYPED(csr_turn))(ptrdiff_t n, ptrdiff_t d, const int64_t *indptr, const int32_t *indices,
                                  const REAL *data, int32_t *stop, int32_t *row, REAL *value, int32_t *place)
{
    int32_t begin = 0;
    for (ptrdiff_t j = 0; j < d; j++)
        stop[j] = 0;
    for (int64_t e = 0; e < indptr[n]; e++)
        stop[indices[e]]++;
    for (ptrdiff_t j = 0; j < d; j++) {
        const int32_t count = stop[j];
        stop[j] = begin; /* the next entry's place: where the feature begins, and at last where it ends */
        begin += count;
    }
    for (ptrdiff_t i = 0; i < n; i++)
        for (int64_t e = indptr[i]; e < indptr[i + 1]; e++) {
            const int32_t t = stop[indices[e]]++;
            row[t] = (int32_t)i;
            value[t] = data[e];
            place[e] = t;
        }
}

void FS_JOIN(fs, TYPED(csr_gram_row))(ptrdiff_t n, ptrdiff_t i, const int64_t *indptr, const int32_t *indices,
                                      const REAL *data, const int32_t *stop, const int32_t *row, const REAL *value,
                                      const int32_t *place, double *gram)
{
    for (ptrdiff_t k = i; k < n; k++)
        gram[k] = 0;
    for (int64_t e = indptr[i]; e < indptr[i + 1]; e++) {
        const double v = (double)data[e];
        const int32_t end = stop[indices[e]];
        for (int32_t t = place[e]; t < end; t++)
            gram[row[t]] += v * (double)value[t];
    }
}

void FS_JOIN(fs, TYPED(csr_gram_before))(ptrdiff_t i, const int64_t *indptr, const int32_t *indices, const REAL *data,
                                         const int32_t *stop, const int32_t *row, const REAL *value,
                                         const int32_t *place, double *gram)
{
    double square = 0;
    for (ptrdiff_t k = 0; k < i; k++)
        gram[k] = 0;
    for (int64_t e = indptr[i]; e < indptr[i + 1]; e++) {
        const double v = (double)data[e];
        const int32_t j = indices[e];
        square += v * v;
        for (int32_t t = j > 0 ? stop[j - 1] : 0; t < place[e]; t++)
            gram[row[t]] += v * (double)value[t];
    }
    gram[i] = square;
}

void FS_JOIN(fs, TYPED(csr_column_sums))(ptrdiff_t first, ptrdiff_t beyond, const int32_t *stop, const int32_t *row,
                                         const REAL *value, const double *coefficient, double *out)
{
    int32_t t = first > 0 ? stop[first - 1] : 0;
    for (ptrdiff_t j = first; j < beyond; j++) {
        double sum = 0;
        for (; t < stop[j]; t++)
            sum += coefficient[row[t]] * (double)value[t];
        out[j] = sum;
    }
}

void FS_JOIN(fs, TYPED(csr_dot))(ptrdiff_t n, const int64_t *indptr, const int32_t *indices, const REAL *data,
                                 const double *v, double *out)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        double sum = 0;
        for (int64_t e = indptr[i]; e < indptr[i + 1]; e++)
            sum += v[indices[e]] * (double)data[e];
        out[i] = sum;
    }
}
