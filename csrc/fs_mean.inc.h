/* Part of fs_rows.c, included once per level. */
#ifndef FS_DOORS

FS_LOOP void NAME(move_mean)(ptrdiff_t d, double old_weight, double block_weight, double *mean, double *low,
                             double *base, const double *shift)
{
    const double total = old_weight + block_weight;
    const double lever = sqrt(old_weight / total) * sqrt(block_weight);
    /* From the mean of the heavier side: what is rounded is then small on its scale. The first block sets the mean
     * exactly, for any old value. */
    const int heavier = block_weight > old_weight;
    const double step = heavier ? -(old_weight / total) : block_weight / total;
    FS_INDEPENDENT
    for (ptrdiff_t j = 0; j < d; j++) {
        double rest, error;
        const double block = two_sum(base[j], shift[j], &rest);
        const double move = (block - mean[j]) + (rest - low[j]);
        const double sum = two_sum(heavier ? block : mean[j], step * move, &error);
        error += heavier ? rest : low[j];
        base[j] = lever * move;
        mean[j] = sum + error;
        low[j] = error - (mean[j] - sum);
    }
}

#else

FS_DOOR(FS_TABLE_FROM_AVX2, void, move_mean,
        (ptrdiff_t d, double old_weight, double block_weight, double *mean, double *low, double *base,
         const double *shift),
        (d, old_weight, block_weight, mean, low, base, shift))

#endif
