# Cholesky solution of small positive definite systems, for which a call of LAPACK would take longer.

from libc.math cimport sqrt


cdef inline bint solve_definite(Py_ssize_t t, double* h, double* g) noexcept nogil:
    # g <- h^-1 g, reading the lower triangle of h (t, t), which is overwritten; False if it is not positive definite
    cdef Py_ssize_t i, j, k
    cdef double d, s
    for j in range(t):
        d = h[j * t + j]
        for k in range(j):
            d -= h[j * t + k] * h[j * t + k]
        if not d > 1e-300:
            return False
        d = sqrt(d)
        h[j * t + j] = d
        for i in range(j + 1, t):
            s = h[i * t + j]
            for k in range(j):
                s -= h[i * t + k] * h[j * t + k]
            h[i * t + j] = s / d
        s = g[j]
        for k in range(j):
            s -= h[j * t + k] * g[k]
        g[j] = s / d
    for j in range(t - 1, -1, -1):
        s = g[j]
        for k in range(j + 1, t):
            s -= h[k * t + j] * g[k]
        g[j] = s / h[j * t + j]
    return True
