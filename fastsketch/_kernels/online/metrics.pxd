# The loops of metrics.pyx, for few_rows.pyx.

cdef void loop_two(double* sums, double* bins, Py_ssize_t n, const double* scores, const double* targets,
                   const double* weights, double decay, int how) noexcept nogil
cdef void loop_real(double* sums, Py_ssize_t n, const double* predicted, const double* targets, const double* weights,
                    double decay) noexcept nogil
