# The loops of readout.pyx for one state, for few_rows.pyx.

cdef void rounds_of_two(Py_ssize_t p, Py_ssize_t n, const double* members, const double* numbers,
                        const double* sample_weight, double decay, double* w, double* h,
                        double* scores) noexcept nogil
cdef void rounds_of_two_numbers(Py_ssize_t n, const double* members, const double* targets, const double* sample_weight,
                                double* sums, double* scores, double decay) noexcept nogil
