/* Body of fs_secular.c, included once per level. */
#ifndef FS_DOORS

/* Below this share of the last pole, pole + reach is too inexact to give reach back. */
#define SMALL_REACH 1e-6

#define LANES for (int l = 0; l < FS_ROOTS; l++)

/* psi and phi are the sums over poles left and right of the root, with their derivatives, at origin + tau. */
FS_INLINE void NAME(add_pole)(double dj, double zj, const double *at, const double *tau, const double *left,
                              double *psi, double *dpsi, double *phi, double *dphi)
{
    LANES
    {
        const double t = zj / ((dj - at[l]) - tau[l]);
        const double w = zj * t, q = t * t;
        psi[l] += left[l] * w;
        dpsi[l] += left[l] * q;
        phi[l] += (1 - left[l]) * w;
        dphi[l] += (1 - left[l]) * q;
    }
}

FS_INLINE void NAME(add_side)(ptrdiff_t first, ptrdiff_t stop, const double *d, const double *z, const double *at,
                              const double *tau, double *sum, double *slope)
{
    double s[FS_ROOTS], q[FS_ROOTS];
    LANES s[l] = sum[l], q[l] = slope[l];
    ptrdiff_t j = first;
    for (; j + 1 < stop; j += 2) { /* one division for two poles: division bounds the speed of this loop */
        const double dj = d[j], zj = z[j], dk = d[j + 1], zk = z[j + 1];
        LANES
        {
            const double a = (dj - at[l]) - tau[l], b = (dk - at[l]) - tau[l], r = 1 / (a * b);
            const double t = zj * (b * r), u = zk * (a * r);
            s[l] += zj * t + zk * u;
            q[l] += t * t + u * u;
        }
    }
    for (; j < stop; j++) {
        const double dj = d[j], zj = z[j];
        LANES
        {
            const double t = zj / ((dj - at[l]) - tau[l]);
            s[l] += zj * t;
            q[l] += t * t;
        }
    }
    LANES sum[l] = s[l], slope[l] = q[l];
}

FS_LOOP void NAME(eight_roots)(ptrdiff_t k, ptrdiff_t base, const double *d, const double *z, double rho, double reach,
                               int32_t *origin, double *tau_out)
{
    double at[FS_ROOTS], tau[FS_ROOTS], low[FS_ROOTS], high[FS_ROOTS], left_pole[FS_ROOTS], right_pole[FS_ROOTS];
    double psi[FS_ROOTS], dpsi[FS_ROOTS], phi[FS_ROOTS], dphi[FS_ROOTS];
    ptrdiff_t root[FS_ROOTS], from[FS_ROOTS];
    const ptrdiff_t stop = base + FS_ROOTS < k ? base + FS_ROOTS : k;
    const double constant = 1 / rho;
    LANES
    {
        root[l] = base + l < k ? base + l : k - 1; /* lanes beyond the last root repeat it */
        from[l] = root[l];
        at[l] = d[root[l]];
        left_pole[l] = d[root[l]];
        /* the last root has no pole on its right, but a bound */
        right_pole[l] = root[l] + 1 < k ? d[root[l] + 1] : d[root[l]] + reach;
        tau[l] = 0.5 * (right_pole[l] - left_pole[l]);
        /* an update so small that pole + reach has lost reach in rounding: as little may come as one gradient of a
         * target that is all but met */
        if (root[l] + 1 == k && reach < SMALL_REACH * fabs(left_pole[l]))
            tau[l] = 0.5 * reach;
    }
    for (int round = 0; round < 200; round++) {
        int open = 0;
        LANES psi[l] = dpsi[l] = phi[l] = dphi[l] = 0;
        NAME(add_side)(0, base, d, z, at, tau, psi, dpsi);
        for (ptrdiff_t j = base; j < stop; j++) {
            double left[FS_ROOTS];
            LANES left[l] = j <= root[l];
            NAME(add_pole)(d[j], z[j], at, tau, left, psi, dpsi, phi, dphi);
        }
        NAME(add_side)(stop, k, d, z, at, tau, phi, dphi);
        LANES
        {
            const double f = constant + psi[l] + phi[l];
            if (round == 0) {
                /* measure from the nearer pole: there d_j - root keeps its relative precision */
                const double half = tau[l];
                if (f >= 0 || root[l] + 1 == k) {
                    low[l] = f >= 0 ? 0 : half;
                    high[l] = f >= 0 ? half : 2 * half;
                } else {
                    from[l] = root[l] + 1;
                    at[l] = d[from[l]];
                    tau[l] = -half;
                    low[l] = -half;
                    high[l] = 0;
                }
            } else if (f < 0) {
                low[l] = tau[l];
            } else {
                high[l] = tau[l];
            }
            const double noise = 8 * (fabs(psi[l]) + fabs(phi[l])) + 2 * constant + fabs(tau[l]) * (dpsi[l] + dphi[l]);
            if (fabs(f) <= DBL_EPSILON * noise ||
                high[l] - low[l] <= 2 * DBL_EPSILON * LARGER(fabs(low[l]), fabs(high[l])))
                continue;
            open = 1;
            /* one rational term on each side that matches value and slope: a quadratic for the step */
            const double left = (left_pole[l] - at[l]) - tau[l], right = (right_pole[l] - at[l]) - tau[l];
            double step;
            if (root[l] + 1 == k) {
                step = left * f / (f - left * dpsi[l]);
            } else {
                const double c = f - left * dpsi[l] - right * dphi[l];
                const double a = (left + right) * f - left * right * (dpsi[l] + dphi[l]), b = left * right * f;
                const double under = sqrt(LARGER(a * a - 4 * b * c, 0));
                step = a <= 0 ? (a - under) / (2 * c) : 2 * b / (a + under);
            }
            const double next = tau[l] + step;
            tau[l] = next > low[l] && next < high[l] ? next : 0.5 * (low[l] + high[l]);
        }
        if (!open)
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
    for (ptrdiff_t j = 0; j < k; j++)
        reach += z[j] * z[j];
    reach *= rho * (1 + 4 * DBL_EPSILON * (double)k);
    for (ptrdiff_t base = first; base < stop; base += FS_ROOTS)
        NAME(eight_roots)(k, base, d, z, rho, reach, origin, tau);
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
#undef LANES

#else

FS_DOOR(FS_TABLE_AVX2_ALONE, void, secular_roots,
        (ptrdiff_t k, ptrdiff_t first, ptrdiff_t stop, const double *d, const double *z, double rho, int32_t *origin,
         double *tau),
        (k, first, stop, d, z, rho, origin, tau))
FS_DOOR(FS_TABLE_FROM_AVX2, void, secular_weights,
        (ptrdiff_t k, ptrdiff_t first, ptrdiff_t stop, const double *d, const int32_t *origin, const double *tau,
         double *z),
        (k, first, stop, d, origin, tau, z))

#endif
