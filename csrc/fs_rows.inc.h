/* Body of fs_rows.c, included once per level and REAL (float, double). */
#ifndef FS_DOORS

FS_LOOP ptrdiff_t NAME(check_rows)(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const REAL *x, double *largest)
{
    /* |x| as unsigned bits is ordered like |x|, and NaN and inf come last: one integer maximum detects both. */
    const BITS sign_off = (BITS) ~((BITS)1 << (8 * sizeof(BITS) - 1));
    BITS all = 0;
    ptrdiff_t bad = -1;
    for (ptrdiff_t i = 0; i < n; i++) {
        const REAL *FS_RESTRICT row = x + i * ld;
        BITS top = 0;
        for (ptrdiff_t j = 0; j < d; j++) {
            BITS bits;
            memcpy(&bits, row + j, sizeof bits);
            bits &= sign_off;
            top = bits > top ? bits : top;
        }
        if (top >= INF_BITS) {
            bad = i;
            break;
        }
        all = top > all ? top : all;
    }
    REAL value;
    memcpy(&value, &all, sizeof value);
    *largest = (double)value;
    return bad;
}

FS_LOOP void NAME(load_rows)(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const REAL *x, const double *root_weight,
                             ptrdiff_t root_step, double scale, REAL *out, ptrdiff_t ld_out, double *square)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        const REAL *FS_RESTRICT from = x + i * ld;
        REAL *FS_RESTRICT to = out + i * ld_out;
        const REAL factor = (REAL)(root_weight ? scale * root_weight[i * root_step] : scale);
        double lane[FS_LANES] = {0};
        double sum = 0;
        ptrdiff_t j = 0;
        for (; j + FS_LANES <= d; j += FS_LANES)
            for (int k = 0; k < FS_LANES; k++) {
                const REAL v = from[j + k] * factor;
                to[j + k] = v;
                lane[k] += (double)v * (double)v;
            }
        for (; j < d; j++) {
            const REAL v = from[j] * factor;
            to[j] = v;
            sum += (double)v * (double)v;
        }
        for (int k = 0; k < FS_LANES; k++)
            sum += lane[k];
        square[i] = sum;
    }
}

FS_LOOP void NAME(square_rows)(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const REAL *x, double *square)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        const REAL *FS_RESTRICT row = x + i * ld;
        double lane[FS_LANES] = {0};
        double sum = 0;
        ptrdiff_t j = 0;
        for (; j + FS_LANES <= d; j += FS_LANES)
            for (int k = 0; k < FS_LANES; k++)
                lane[k] += (double)row[j + k] * (double)row[j + k];
        for (; j < d; j++)
            sum += (double)row[j] * (double)row[j];
        for (int k = 0; k < FS_LANES; k++)
            sum += lane[k];
        square[i] = sum;
    }
}

FS_LOOP void NAME(centre_rows)(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, REAL *x, REAL *correction,
                               const double *root_weight, double old_weight, double block_weight, double *mean,
                               double *low, double *base, double *shift)
{
    double *FS_RESTRICT from = base;
    double *FS_RESTRICT by = shift;
    ptrdiff_t heaviest = 0;
    if (!(block_weight > 0)) {
        for (ptrdiff_t i = 0; i < n; i++)
            memset(x + i * ld, 0, (size_t)d * sizeof *x);
        memset(correction, 0, (size_t)d * sizeof *x);
        return;
    }
    for (ptrdiff_t i = 1; i < n; i++)
        heaviest = root_weight[i] > root_weight[heaviest] ? i : heaviest;
    for (ptrdiff_t j = 0; j < d; j++) {
        from[j] = (double)x[heaviest * ld + j];
        by[j] = 0;
    }
    /* shift = sum_i w_i (x_i - base) / h, four rows at a time: fewer passes over shift and base */
    ptrdiff_t first = 0;
    for (; first + 4 <= n; first += 4) {
        const REAL *FS_RESTRICT row = x + first * ld;
        double w[4];
        for (int k = 0; k < 4; k++)
            w[k] = root_weight[first + k] * (root_weight[first + k] / block_weight);
        for (ptrdiff_t j = 0; j < d; j++)
            by[j] = (((by[j] + w[0] * ((double)row[j] - from[j])) + w[1] * ((double)row[ld + j] - from[j])) +
                     w[2] * ((double)row[2 * ld + j] - from[j])) +
                    w[3] * ((double)row[3 * ld + j] - from[j]);
    }
    for (; first < n; first++) {
        const REAL *FS_RESTRICT row = x + first * ld;
        const double w = root_weight[first] * (root_weight[first] / block_weight);
        for (ptrdiff_t j = 0; j < d; j++)
            by[j] += w * ((double)row[j] - from[j]);
    }
    for (ptrdiff_t i = 0; i < n; i++) {
        REAL *FS_RESTRICT row = x + i * ld;
        const double r = root_weight[i];
        for (ptrdiff_t j = 0; j < d; j++)
            row[j] = (REAL)(r * (((double)row[j] - from[j]) - by[j]));
    }
    fs_move_mean(d, old_weight, block_weight, mean, low, base, shift);
    for (ptrdiff_t j = 0; j < d; j++)
        correction[j] = (REAL)base[j];
}

#else

FS_DOOR(FS_TABLE_FROM_AVX2, ptrdiff_t, TYPED(check_rows),
        (ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const REAL *x, double *largest), (n, d, ld, x, largest))
FS_DOOR(LOADS, void, TYPED(load_rows),
        (ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const REAL *x, const double *root_weight, ptrdiff_t root_step,
         double scale, REAL *out, ptrdiff_t ld_out, double *square),
        (n, d, ld, x, root_weight, root_step, scale, out, ld_out, square))
FS_DOOR(FS_TABLE_FROM_AVX2, void, TYPED(square_rows),
        (ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const REAL *x, double *square), (n, d, ld, x, square))
FS_DOOR(FS_TABLE_FROM_AVX2, void, TYPED(centre_rows),
        (ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, REAL *x, REAL *correction, const double *root_weight,
         double old_weight, double block_weight, double *mean, double *low, double *base, double *shift),
        (n, d, ld, x, correction, root_weight, old_weight, block_weight, mean, low, base, shift))

#endif
