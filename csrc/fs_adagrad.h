/* The update of a learner with a diagonal matrix H by one dense row. */
#ifndef FS_ADAGRAD_H
#define FS_ADAGRAD_H
#include "fs_common.h"

/* In d columns: squares += (slope x)^2, then w -= step x / (delta + sqrt(squares)). All levels give the same bits. */
void fs_adagrad_d(ptrdiff_t d, double slope, double step, double delta, const double *x, double *squares, double *w);

#endif
