# What the rounds of all sketched Newton learners share: the model, its small products, and how a round begins.

from libc.math cimport fabs, sqrt
from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset

from fastsketch._kernels.linalg.blas cimport blas_int, syevd
from fastsketch._kernels.losses cimport HUBER, bowl, finite, flat, loss_and_slope, squares_with
from fastsketch._kernels.online.basis cimport Basis, add, tolerance
from fastsketch._kernels.online.numbers cimport LOSS, MISTAKES, RANK, RESIDUALS, ROUND, ROWS, WEIGHTS
from fastsketch._kernels.pool cimport fs_blas_alone

# Of projection.py, which says what each computes.
ctypedef double (*step_length_t)(double slope, double f, double h, double z, int64_t project) noexcept nogil
ctypedef void (*bordered_inverse_t)(int64_t k, int64_t ld, double c, double f, double alpha, const double* q,
                                    double* inverse) noexcept nogil
ctypedef double (*flat_steps_t)(int64_t k, double share, const double* values, const double* p, double* first,
                                double* second) noexcept nogil
ctypedef void (*flat_projection_t)(int64_t k, double z, double x_square, double h, const double* p,
                                   const double* first, double* out) noexcept nogil


cdef inline double mu() noexcept nogil:
    return 0.125                 # C = 1: the curvature constant of the losses, RFD paper, section 6.2


cdef struct Model:
    Py_ssize_t d, m, k, spared   # d: of base, slots of sparse rows
    int loss
    bint same, ahead, grows
    bint by_loss                 # H is made of curvatures of the losses, not of gradients
    double loss_scale            # in the weights of the examples
    double* base
    double* scalar
    double decay
    int64_t* count
    # rows
    double* z                    # dense: Z' (m, d)
    double* kept                 # dense: X (2 m, d)
    Basis c                      # sparse
    # the small space
    double* frame
    double* factors
    double* small
    double* inverse
    double* b
    double* e
    # of the round: filled before it, or scratch (lay_out)
    double* zx                   # Z'x, then
    double* gx                   # X x
    double* bx                   # B x
    double* q
    double* p
    double* first
    double* second
    double* turn                 # (m, k): rows of B after a shrink from those before it
    double* values
    double* vectors
    double* lapack
    Py_ssize_t n_lapack
    double* copy
    double* products             # of the rows of a block
    double* line                 # of dense rows d, else k
    Py_ssize_t* places
    blas_int* ints
    Py_ssize_t rank              # after the shrink that must follow, or -1
    double x_square, base_x
    double extra                 # multiple of x that base is to get
    double curve                 # of the loss, by_loss
    double times                 # the weight of the example without loss_scale: as if it had come so many times
    step_length_t step_length
    bordered_inverse_t bordered_inverse
    flat_steps_t flat_steps
    flat_projection_t flat_projection


# -- small products ----------------------------------------------------------------------------------------------------
cdef inline void matrix_times(Py_ssize_t rows, Py_ssize_t n, const double* a, Py_ssize_t ld, const double* v,
                              double* out) noexcept nogil:
    # out = a v, each sum in order: four rows at a time, whose sums do not wait for each other
    cdef Py_ssize_t i = 0, j
    cdef double t0, t1, t2, t3
    cdef const double* row
    while i + 4 <= rows:
        row = a + i * ld
        t0 = t1 = t2 = t3 = 0
        for j in range(n):
            t0 += row[j] * v[j]
            t1 += row[ld + j] * v[j]
            t2 += row[2 * ld + j] * v[j]
            t3 += row[3 * ld + j] * v[j]
        out[i], out[i + 1], out[i + 2], out[i + 3] = t0, t1, t2, t3
        i += 4
    while i < rows:
        t0 = 0
        for j in range(n):
            t0 += a[i * ld + j] * v[j]
        out[i] = t0
        i += 1


cdef inline void transposed_times(Py_ssize_t rows, Py_ssize_t n, const double* a, Py_ssize_t ld, const double* v,
                                  double* out) noexcept nogil:
    # out = a'v
    cdef Py_ssize_t i
    memset(out, 0, n * sizeof(double))
    for i in range(rows):
        add(n, v[i], a + i * ld, out)


cdef inline void times_basis(Model* s, Py_ssize_t n, double* out) noexcept nogil:
    """Compute out = B x."""
    cdef Py_ssize_t r = s.count[RANK], j
    matrix_times(r, r, s.frame, s.k, s.zx, out)
    for j in range(n):
        out[r + j] = s.factors[j] * s.gx[j]


cdef inline void add_basis(Model* s, double scale, const double* v, Py_ssize_t n) noexcept nogil:
    """Add scale * B'v to w."""
    cdef Py_ssize_t r = s.count[RANK], j
    transposed_times(r, r, s.frame, s.k, v, s.line)
    for j in range(r):
        s.b[j] += scale * s.line[j]
    for j in range(n):
        s.e[j] += scale * s.factors[j] * v[r + j]


cdef inline int decompose(Model* s, Py_ssize_t k) noexcept nogil:
    # K = U diag(values) U', ascending; row i of `vectors` is column i of U
    cdef Py_ssize_t i
    cdef int info
    for i in range(k):
        memcpy(s.vectors + i * k, s.small + i * s.k, k * sizeof(double))
    fs_blas_alone(1)
    info = syevd(c'V', c'L', k, s.vectors, k, s.values, s.lapack, s.n_lapack, s.ints, 3 + 5 * s.k)
    fs_blas_alone(0)
    return info


# -- one round ---------------------------------------------------------------------------------------------------------
cdef inline bint begin(Model* s, double y, double weight, double z, double* slope) noexcept nogil:
    """Count an example scored z; False, with nothing changed, if numbers would leave their range.

    weight: loss_scale times that of the example.
    """
    cdef double value = weight * loss_and_slope(s.loss, z, y, slope), scale, squares = 0
    cdef bint robust = s.by_loss and s.loss == HUBER
    if s.by_loss:
        # the mean loss so far, of this example too
        scale = (s.scalar[LOSS] + value) / (s.count[ROUND] + 1)
        if robust:
            squares = squares_with(HUBER, s.scalar[RESIDUALS], s.scalar[WEIGHTS], y, z - y, weight)
            scale = sqrt(squares / (s.scalar[WEIGHTS] + weight))
        s.curve = weight * bowl(s.loss, z, y, scale, slope)
    slope[0] *= weight
    s.times = weight / s.loss_scale
    if not (finite(slope[0]) and finite(slope[0] * slope[0] * s.x_square) and finite(squares)):
        return False
    if s.times < 1 and slope[0] != 0 and not finite(slope[0] * slope[0] * s.x_square / s.times):
        return False
    if robust:
        s.scalar[RESIDUALS] = squares
        s.scalar[WEIGHTS] += weight
    s.scalar[LOSS] += value
    s.count[ROUND] += 1
    s.count[MISTAKES] += z * y <= 0
    return True


cdef inline bint teaches(const Model* s, double slope) noexcept nogil:
    # whether an example changes anything: only a division by slopes has to fear small ones
    return s.x_square > 0 and (slope != 0 if s.by_loss else not flat(slope))


cdef inline double factor_of(const Model* s, double slope, double faded) noexcept nogil:
    # c of the new row c x of B, which counts `faded` of what is stored. A weight is in the slope: its square would
    # make steps the shorter the more a row weighs, so H gets it once, as from a row that comes so many times
    return sqrt(s.curve / faded) if s.by_loss else sqrt((mu() + 1.0 / s.count[ROUND]) / faded) * slope / sqrt(s.times)


cdef inline double over(double z) noexcept nogil:
    # the end of the interval that z has left, or z
    return 1.0 if z > 1 else -1.0 if z < -1 else z


cdef inline double at_end(double z) noexcept nogil:
    # the end of the interval that z is at but for rounding, or z: the absolute loss is at its kink there, or it is not
    return z if fabs(fabs(z) - 1) > tolerance() else 1.0 if z > 0 else -1.0


cdef inline double score(Model* s, Py_ssize_t r) noexcept nogil:
    # w'x
    cdef Py_ssize_t j
    cdef double z = s.base_x
    for j in range(r):
        z += s.zx[j] * s.b[j]
    for j in range(s.count[ROWS]):
        z += s.gx[j] * s.e[j]
    return z
