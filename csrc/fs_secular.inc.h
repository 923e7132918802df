/* Body of fs_secular.c, included once per level. */
#ifndef FS_DOORS

/* Below this fraction of the last pole, pole + reach is too inexact to recover reach from it. */
#define SMALL_REACH 1e-6
/* A root is at least as far from its pole as 1e-79, by the least weight that fs_secular_deflate keeps in the sketches
 * with the smallest tolerance for deflation (_kernels/online/turning.pxd). With three other poles at this distance a
 * product is 1e-259. */
#define LEAST_APART 1e-60

#define LANES for (int l = 0; l < FS_ROOTS; l++)

/* Add four poles to psi and phi, the sums over poles left and right of the root, and to their derivatives; without
 * is_left all of them are on one side, that of psi. One division for four: division bounds the speed of these loops. */
FS_INLINE void NAME(add_four)(const double *d, const double *z, const double *at, const double *tau,
                              const double (*is_left)[FS_ROOTS], double *psi, double *dpsi, double *phi, double *dphi)
{
    LANES
    {
        const double a = (d[0] - at[l]) - tau[l], b = (d[1] - at[l]) - tau[l];
        const double g = (d[2] - at[l]) - tau[l], h = (d[3] - at[l]) - tau[l];
        const double ab = a * b, gh = g * h, r = 1 / (ab * gh), rab = r * gh, rgh = r * ab;
        const double t0 = z[0] * (b * rab), t1 = z[1] * (a * rab), t2 = z[2] * (h * rgh), t3 = z[3] * (g * rgh);
        const double w0 = z[0] * t0, w1 = z[1] * t1, w2 = z[2] * t2, w3 = z[3] * t3;
        const double q0 = t0 * t0, q1 = t1 * t1, q2 = t2 * t2, q3 = t3 * t3;
        if (is_left) {
            const double l0 = is_left[0][l], l1 = is_left[1][l], l2 = is_left[2][l], l3 = is_left[3][l];
            psi[l] += (l0 * w0 + l1 * w1) + (l2 * w2 + l3 * w3);
            dpsi[l] += (l0 * q0 + l1 * q1) + (l2 * q2 + l3 * q3);
            phi[l] += ((1 - l0) * w0 + (1 - l1) * w1) + ((1 - l2) * w2 + (1 - l3) * w3);
            dphi[l] += ((1 - l0) * q0 + (1 - l1) * q1) + ((1 - l2) * q2 + (1 - l3) * q3);
        } else {
            psi[l] += (w0 + w1) + (w2 + w3);
            dpsi[l] += (q0 + q1) + (q2 + q3);
        }
    }
}

/* Add one pole to the sums. */
FS_INLINE void NAME(add_pole)(double d, double z, const double *at, const double *tau, const double *is_left,
                              double *psi, double *dpsi, double *phi, double *dphi)
{
    LANES
    {
        const double t = z / ((d - at[l]) - tau[l]), w = z * t, q = t * t;
        psi[l] += is_left[l] * w;
        dpsi[l] += is_left[l] * q;
        phi[l] += (1 - is_left[l]) * w;
        dphi[l] += (1 - is_left[l]) * q;
    }
}

/* Add poles [first, stop) to the sum on one side of the roots and to its derivative; `apart`: see secular_roots. */
FS_INLINE void NAME(add_side)(ptrdiff_t first, ptrdiff_t stop, int apart, const double *d, const double *z,
                              const double *at, const double *tau, double *sum, double *slope)
{
    double s[FS_ROOTS], q[FS_ROOTS];
    LANES s[l] = sum[l], q[l] = slope[l];
    ptrdiff_t j = first;
    for (; apart && j + 3 < stop; j += 4)
        NAME(add_four)(d + j, z + j, at, tau, NULL, s, q, NULL, NULL);
    for (; j < stop; j++) {
        const double dj = d[j], zj = z[j];
        LANES
        {
            const double u = zj / ((dj - at[l]) - tau[l]);
            s[l] += zj * u;
            q[l] += u * u;
        }
    }
    LANES sum[l] = s[l], slope[l] = q[l];
}

FS_LOOP void NAME(eight_roots)(ptrdiff_t k, ptrdiff_t base, const double *d, const double *z, double rho, double reach,
                               int apart, int32_t *origin, double *tau_out)
{
    double at[FS_ROOTS], tau[FS_ROOTS], low[FS_ROOTS], high[FS_ROOTS], left_pole[FS_ROOTS], right_pole[FS_ROOTS];
    double psi[FS_ROOTS], dpsi[FS_ROOTS], phi[FS_ROOTS], dphi[FS_ROOTS], open[FS_ROOTS], is_last[FS_ROOTS];
    double is_left[FS_ROOTS][FS_ROOTS];
    ptrdiff_t root[FS_ROOTS], from[FS_ROOTS];
    const ptrdiff_t stop = base + FS_ROOTS < k ? base + FS_ROOTS : k;
    const double constant = 1 / rho;
    LANES
    {
        root[l] = base + l < k ? base + l : k - 1; /* lanes beyond the last root repeat it */
        from[l] = root[l];
        at[l] = d[root[l]];
        left_pole[l] = d[root[l]];
        is_last[l] = root[l] + 1 == k;
        open[l] = 1;
        /* the last root has no pole on its right, but a bound */
        right_pole[l] = root[l] + 1 < k ? d[root[l] + 1] : d[root[l]] + reach;
        tau[l] = 0.5 * (right_pole[l] - left_pole[l]);
        /* an update so small that pole + reach has lost reach in rounding: as little may come as one gradient of a
         * target that is all but met */
        if (root[l] + 1 == k && reach < SMALL_REACH * fabs(left_pole[l]))
            tau[l] = 0.5 * reach;
    }
    for (int i = 0; i < FS_ROOTS; i++)
        LANES is_left[i][l] = base + i <= root[l];
    for (int round = 0; round < 200; round++) {
        double n_open = 0;
        ptrdiff_t j = base;
        LANES psi[l] = dpsi[l] = phi[l] = dphi[l] = 0;
        NAME(add_side)(0, base, apart, d, z, at, tau, psi, dpsi);
        for (; apart && j + 3 < stop; j += 4)
            NAME(add_four)(d + j, z + j, at, tau, (const double (*)[FS_ROOTS])is_left + (j - base), psi, dpsi, phi,
                           dphi);
        for (; j < stop; j++)
            NAME(add_pole)(d[j], z[j], at, tau, is_left[j - base], psi, dpsi, phi, dphi);
        NAME(add_side)(stop, k, apart, d, z, at, tau, phi, dphi);
        if (round == 0) {
            LANES
            {
                /* From the middle of the interval: a root of the two terms of its ends with what the others are here
                 * (LAPACK's laed4). It is measured from the nearer pole, where d_j - root keeps its relative precision.
                 */
                const double f = constant + psi[l] + phi[l], half = tau[l];
                const double zl = z[root[l]], zr = is_last[l] != 0 ? 0 : z[root[l] + 1], wl = zl * zl, wr = zr * zr;
                const double others = f + (wl - wr) / half, at_left = f >= 0 || is_last[l] != 0 ? 1 : -1;
                const double a = wl + wr + at_left * others * 2 * half, b = (at_left > 0 ? wl : wr) * 2 * half;
                const double under = sqrt(LARGER(a * a - at_left * 4 * b * others, 0));
                double next = a > 0 ? 2 * b / (a + under) : at_left * (a - under) / (2 * others);
                if (is_last[l] != 0)
                    next = half * half * dpsi[l] / (f + half * dpsi[l]);
                if (at_left < 0) {
                    from[l] = root[l] + 1;
                    at[l] = d[from[l]];
                }
                low[l] = at_left < 0 ? -half : f >= 0 ? 0 : half;
                high[l] = at_left < 0 ? 0 : f >= 0 ? half : 2 * half;
                next *= at_left;
                tau[l] = next > low[l] && next < high[l] ? next : 0.5 * (low[l] + high[l]);
            }
            continue;
        }
        LANES /* without branches, so that all lanes are computed at the same time */
        {
            const double f = constant + psi[l] + phi[l], slope = dpsi[l] + dphi[l], x = tau[l];
            const double lo = f < 0 ? x : low[l], hi = f < 0 ? high[l] : x;
            const double noise = 8 * (fabs(psi[l]) + fabs(phi[l])) + 2 * constant + fabs(x) * slope;
            const double width = hi - lo - 2 * DBL_EPSILON * LARGER(fabs(lo), fabs(hi));
            /* one rational term on each side that matches value and slope: a quadratic for the step */
            const double left = (left_pole[l] - at[l]) - x, right = (right_pole[l] - at[l]) - x;
            const double c = f - left * dpsi[l] - right * dphi[l];
            const double a = (left + right) * f - left * right * slope, b = left * right * f;
            const double under = sqrt(LARGER(a * a - 4 * b * c, 0));
            const double top = a <= 0 ? a - under : 2 * b, bottom = a <= 0 ? 2 * c : a + under;
            const double up = is_last[l] != 0 ? left * f : top, down = is_last[l] != 0 ? f - left * dpsi[l] : bottom;
            const double next = x + up / down;
            const double inside = (next > lo ? 1.0 : 0.0) * (next < hi ? 1.0 : 0.0);
            const double y = inside != 0 ? next : 0.5 * (lo + hi), step = y - x;
            const double moves = (fabs(f) > DBL_EPSILON * noise ? 1.0 : 0.0) * (width > 0 ? 1.0 : 0.0) * open[l];
            /* the relative error after a step is about the square of the step: a small one needs no other round */
            const double small = inside * (step * step <= DBL_EPSILON * x * x ? 1.0 : 0.0);
            low[l] = lo;
            high[l] = hi;
            tau[l] = moves != 0 ? y : x;
            open[l] = moves * (1 - small);
            n_open += open[l];
        }
        if (n_open == 0)
            break;
    }
    for (ptrdiff_t i = base; i < stop; i++) {
        origin[i] = (int32_t)from[i - base];
        tau_out[i] = tau[i - base];
    }
}

FS_LOOP void NAME(secular_roots)(ptrdiff_t k, ptrdiff_t first, ptrdiff_t stop, const double *d, const double *z,
                                 double rho, int32_t *origin, double *tau)
{
    double reach = 0;
    int apart = 1; /* whether no product of four differences of poles and roots underflows */
    for (ptrdiff_t j = 0; j < k; j++) {
        reach += z[j] * z[j];
        apart &= j == 0 || d[j] - d[j - 1] >= LEAST_APART;
    }
    reach *= rho * (1 + 4 * DBL_EPSILON * (double)k);
    for (ptrdiff_t base = first; base < stop; base += FS_ROOTS)
        NAME(eight_roots)(k, base, d, z, rho, reach, apart, origin, tau);
}

FS_LOOP void NAME(secular_weights)(ptrdiff_t k, ptrdiff_t first, ptrdiff_t last, const double *d, const int32_t *origin,
                                   const double *tau, double *z)
{
    /* z_j^2 = prod_i (root_i - d_j) / prod_{i != j} (d_i - d_j), factors paired so that no product leaves the range */
    enum { CHUNK = 64 };
    double w[CHUNK];
    for (ptrdiff_t start = first; start < last; start += CHUNK) {
        const ptrdiff_t stop = start + CHUNK < last ? start + CHUNK : last;
        for (ptrdiff_t j = start; j < stop; j++)
            w[j - start] = (d[origin[j]] - d[j]) + tau[j];
        for (ptrdiff_t i = 0; i < k; i++) {
            const double at = d[origin[i]], t = tau[i], di = d[i];
            const ptrdiff_t gap = i < start ? start : i < stop ? i : stop;
            for (ptrdiff_t j = start; j < gap; j++)
                w[j - start] *= ((at - d[j]) + t) / (di - d[j]);
            for (ptrdiff_t j = gap + (i >= start && i < stop); j < stop; j++)
                w[j - start] *= ((at - d[j]) + t) / (di - d[j]);
        }
        for (ptrdiff_t j = start; j < stop; j++)
            z[j] = copysign(sqrt(fabs(w[j - start])), z[j]);
    }
}

#undef SMALL_REACH
#undef LEAST_APART
#undef LANES

#else

FS_DOOR(FS_TABLE_FROM_AVX2, void, secular_roots,
        (ptrdiff_t k, ptrdiff_t first, ptrdiff_t stop, const double *d, const double *z, double rho, int32_t *origin,
         double *tau),
        (k, first, stop, d, z, rho, origin, tau))
FS_DOOR(FS_TABLE_FROM_AVX2, void, secular_weights,
        (ptrdiff_t k, ptrdiff_t first, ptrdiff_t stop, const double *d, const int32_t *origin, const double *tau,
         double *z),
        (k, first, stop, d, origin, tau, z))

#endif
