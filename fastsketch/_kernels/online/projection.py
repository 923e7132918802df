"""The projected steps of the online Newton learner, compiled by Numba to C functions.

A round (newton_round.pxd) computes inner products and calls these functions through pointers: the length of the step
w <- w - H^-1 g that ends within |w'x| <= 1, and the update of (B B' + alpha I)^-1. All arrays are float64; a matrix
comes with its leading dimension. A call through Python instead would cost a quarter of a round.
"""

# pyright: basic
# Numba has no types; what Python calls is typed in projection.pyi.

from fastsketch._kernels.jit import c_function, register_jitable, types

# Eigenvalues of B B' below this share of the largest count as zero.
RANK_SHARE = 1e-10
# x has a component in the null space of H if its squared length exceeds this share of x'x. It is computed as x'x minus
# a sum over the eigenvalues above RANK_SHARE; its rounding error is the unit roundoff divided by the smallest of them.
NULL_SHARE = 2.0**-52 / RANK_SHARE

REAL, SIZE, ARRAY = types.float64, types.int64, types.CPointer(types.float64)


@register_jitable
def excess(z):
    """Return how far a score z lies outside [-1, 1], with its sign: tau(z) = sgn(z) max(|z| - 1, 0)."""
    if z > 1.0:
        return z - 1.0
    if z < -1.0:
        return z + 1.0
    return 0.0


def step_length(slope, f, h, z, project):
    """Return the length of the step of w along H^-1 x.

    It is -slope f, where h = x'H^-1 x and f converts from the old H to the new one (1 if h is that of the new H).
    project: also project w, in the norm of H, so that |w'x| <= 1.
    """
    step = -slope * f
    if project:
        over = excess(z - slope * f * h)
        if over != 0.0 and h > 0.0:
            step -= over / h
    return step


def bordered_inverse(k, ld, c, f, alpha, q, inverse):
    """Extend M = (K + alpha I)^-1 in place from (k, k) to (k + 1, k + 1), for the new row c x of B.

    q = M B x, f = 1 / (1 + c^2 h).
    """
    corner = f / alpha
    for i in range(k):
        for j in range(k):
            inverse[i * ld + j] += c * c * corner * q[i] * q[j]
        inverse[i * ld + k] = inverse[k * ld + i] = -c * corner * q[i]
    inverse[k * ld + k] = corner


def flat_steps(k, share, values, p, first, second):
    """Compute first = L^-1 p and second = L^-2 p for p = U'B x; return x'H^+ x.

    L has the eigenvalues `values` (ascending); those below `share` of the largest count as zero, with entries 0.
    """
    h = 0.0
    for i in range(k):
        first[i] = second[i] = 0.0
        if values[i] > share * values[k - 1]:
            h += (p[i] / values[i]) * (p[i] / values[i])
            first[i], second[i] = p[i] / values[i], p[i] / (values[i] * values[i])
    return h


def flat_projection(k, z, x_square, h, p, first, out):
    """Compute the projection to |w'x| <= 1 where H = B'B is singular.

    It is w += out[0] B'U first + out[1] B'U second + out[2] x with first = L^-1 p, second = L^-2 p for p = U'B x. If x
    has a component in the null space of H, the step follows it, as its norm in H is zero.
    """
    over, inside = excess(z), 0.0
    out[0] = out[1] = out[2] = 0.0
    for i in range(k):
        inside += p[i] * first[i]
    null = x_square - inside
    if null > NULL_SHARE * x_square:
        # w -= over / null (x - B'K^+ B x)
        out[0], out[2] = over / null, -over / null
    elif h > 0.0:
        out[1] = -over / h


SIGNATURES = {
    step_length: REAL(REAL, REAL, REAL, REAL, SIZE),
    bordered_inverse: types.void(SIZE, SIZE, REAL, REAL, REAL, ARRAY, ARRAY),
    flat_steps: REAL(SIZE, REAL, ARRAY, ARRAY, ARRAY, ARRAY),
    flat_projection: types.void(SIZE, REAL, REAL, REAL, ARRAY, ARRAY, ARRAY),
}
_made = {}


def address(function):
    """Return the address of the C function compiled from `function` by Numba, which happens at the first call."""
    if function not in _made:
        _made[function] = c_function(function, SIGNATURES[function])
    return _made[function].address
