# A step of adaptive subgradients with phi = strength |w|_1, for dense rows: w is base itself.

from libc.math cimport fabs, sqrt
from libc.string cimport memcpy, memset

from fastsketch._kernels.linalg.blas cimport gemm, gemv
from fastsketch._kernels.losses cimport dot
from fastsketch._kernels.online.adaptive_model cimport Model
from fastsketch._kernels.online.basis cimport add, solve_small
from fastsketch._kernels.online.numbers cimport DELTA, RANK, ROUND, ROWS

cdef enum:
    PACKED = 256                 # columns of C gathered for one product


cdef inline void turned_down(Model* s, const double* v, const double* root, double* out) noexcept nogil:
    # out = A v for A = diag(root) V' (rank, d); the second half of f is scratch
    cdef double* p = s.f + s.t.most
    cdef Py_ssize_t i
    gemv(c'T', s.d, s.t.count[ROWS], 1.0, s.rows, s.d, v, 0.0, p)
    for i in range(s.t.count[RANK]):
        out[i] = root[i] * dot(s.t.count[ROWS], s.t.turn + i * s.t.cap, p)


cdef inline double l1_dual(Model* s, const double* alpha, const double* root, const double* start,
                           const double* aw, double delta, double bound, double* u, double* w,
                           double* gap) noexcept nogil:
    """Compute u = start - A'alpha / delta, w = soft(u, bound), gap = alpha + aw - A w, the gradient of the value
    returned."""
    cdef Py_ssize_t i, rank = s.t.count[RANK], rows = s.t.count[ROWS]
    cdef double* p = s.f + s.t.most
    cdef double value = 0, total = 0
    memset(p, 0, rows * sizeof(double))
    for i in range(rank):
        add(rows, -root[i] * alpha[i] / delta, s.t.turn + i * s.t.cap, p)
    memcpy(u, start, s.d * sizeof(double))
    if rows:
        gemv(c'N', s.d, rows, 1.0, s.rows, s.d, p, 1.0, u)
    for i in range(s.d):
        w[i] = u[i] - bound if u[i] > bound else u[i] + bound if u[i] < -bound else 0.0
        total += w[i] * w[i]
    turned_down(s, w, root, gap)
    for i in range(rank):
        gap[i] = alpha[i] + aw[i] - gap[i]
        value += alpha[i] * (0.5 * alpha[i] + aw[i])
    return value + 0.5 * delta * total


cdef inline void step_l1(Model* s, const double* x) noexcept nogil:
    """Set w <- argmin <g, w> + bound delta |w|_1 + |w - w0|_H^2 / 2 by Newton steps on its dual of RANK variables.

    With H = delta I + A'A the dual is smooth, convex and piecewise quadratic (Becker and Fadili 2012); its gradient is
    brought below 1e-12 of its terms. s.extra: 3 d + 6 most + PACKED cap.
    """
    cdef Py_ssize_t i, j, c, rank = s.t.count[RANK], rows = s.t.count[ROWS], _turn, _tries, filled
    cdef double eta = s.eta, delta = s.scalar[DELTA], bound = eta * s.strength / delta, most, value, trial, slope, t
    cdef double* w0 = s.base
    cdef double* start = s.extra
    cdef double* u = start + s.d
    cdef double* w = u + s.d
    cdef double* root = w + s.d
    cdef double* alpha = root + s.t.most
    cdef double* aw = alpha + s.t.most
    cdef double* gap = aw + s.t.most
    cdef double* move = gap + s.t.most
    cdef double* other = move + s.t.most
    cdef double* pack = other + s.t.most
    cdef double* active = s.t.small                       # rows x rows
    cdef double* half = active + s.t.cap * s.t.cap          # rank x rows
    cdef double* jacobian = half + s.t.most * s.t.cap       # rank x rank
    for i in range(rank):
        root[i] = sqrt(sqrt(s.t.lam[i]) if s.t.root else s.t.lam[i])
    if s.dual:
        # from zero with the sum of gradients; the last w is where to begin
        add(s.d, s.slope, x, s.total)
        for i in range(s.d):
            start[i] = -eta / delta * s.total[i]
        bound *= s.t.count[ROUND]
        turned_down(s, w0, root, alpha)
        memset(aw, 0, rank * sizeof(double))
    else:
        memcpy(start, w0, s.d * sizeof(double))
        add(s.d, -eta / delta * s.slope, x, start)
        turned_down(s, w0, root, aw)
        memset(alpha, 0, rank * sizeof(double))
    value = l1_dual(s, alpha, root, start, aw, delta, bound, u, w, gap)
    for _turn in range(60):
        most, trial = 1.0, 0.0
        for i in range(rank):
            most = max(most, max(fabs(alpha[i]), fabs(aw[i])))
            trial = max(trial, fabs(gap[i]))
        if trial <= 1e-12 * most:
            break
        # J = I + diag(root) T' (C_D C_D') T diag(root) / delta, D: the nonzeros of w
        memset(active, 0, rows * s.t.cap * sizeof(double))
        c = 0
        while c < s.d:
            filled = 0
            while c < s.d and filled < PACKED:
                if w[c] != 0:
                    for i in range(rows):
                        pack[filled * s.t.cap + i] = s.rows[i * s.d + c]
                    filled += 1
                c += 1
            gemm(c'N', c'T', rows, rows, filled, 1.0, pack, s.t.cap, pack, s.t.cap, 1.0, active, s.t.cap)
        gemm(c'N', c'N', rows, rank, rows, 1.0, active, s.t.cap, s.t.turn, s.t.cap, 0.0, half, s.t.cap)
        gemm(c'T', c'N', rank, rank, rows, 1.0 / delta, s.t.turn, s.t.cap, half, s.t.cap, 0.0, jacobian, rank)
        slope = 0
        for i in range(rank):
            for j in range(rank):
                jacobian[i * rank + j] *= root[i] * root[j]
            jacobian[i * rank + i] += 1
            move[i] = -gap[i]
        if not solve_small(rank, jacobian, move, 1):
            break
        for i in range(rank):
            slope += gap[i] * move[i]
        t = 1
        for _tries in range(40):
            for i in range(rank):
                other[i] = alpha[i] + t * move[i]
            trial = l1_dual(s, other, root, start, aw, delta, bound, u, w, gap)
            # sufficient decrease (Nocedal and Wright 2006, page 33)
            if trial <= value + 1e-4 * t * slope or fabs(t * slope) <= 1e-15 * fabs(value):
                break
            t *= 0.5
        memcpy(alpha, other, rank * sizeof(double))
        value = trial
    memcpy(w0, w, s.d * sizeof(double))
