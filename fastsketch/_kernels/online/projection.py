"""The projected steps of the online Newton learner (Numba), which its rounds call through pointers to C functions.

A round (_kernels/online/newton) computes inner products; what follows from them is here: how long the step
w <- w - H^-1 g is that ends within |w'x| <= 1, and how the inverse that gave it changes. All arrays are float64; a
matrix comes with its leading dimension. A C function costs nothing to call, where a call through Python costs a quarter
of a round.
"""

# pyright: basic
# Numba has no types; what Python calls is typed in projection.pyi.

from fastsketch._kernels.jit import c_function, register_jitable, types

# Eigenvalues of B B' below this share of the largest count as zero.
RANK_SHARE = 1e-10
# x has a part in the null space of H if its square exceeds this share of that of x. It is x'x minus a sum over the
# eigenvalues that count, whose rounding is the unit roundoff divided by the smallest of them.
NULL_SHARE = 2.0**-52 / RANK_SHARE

REAL, SIZE, ARRAY = types.float64, types.int64, types.CPointer(types.float64)


@register_jitable
def excess(z):
    """Return tau(z) = sgn(z) max(|z| - 1, 0)."""
    if z > 1.0:
        return z - 1.0
    if z < -1.0:
        return z + 1.0
    return 0.0


def step_length(slope, f, h, z, project):
    """Return how far w moves along H^-1 x: -slope f with h = x'H^-1 x of the old H and f = 1 for the new one, then
    projected.

    project: whether w is to end where |w'x| <= 1, by the shortest way in the norm of H.
    """
    step = -slope * f
    if project:
        over = excess(z - slope * f * h)
        if over != 0.0 and h > 0.0:
            step -= over / h
    return step


def bordered_inverse(k, ld, c, f, alpha, q, inverse):
    """Extend M = (K + alpha I)^-1 to K with a border, the row c x: q = M B x, f = 1 / (1 + c^2 h); M (k + 1, k + 1)."""
    corner = f / alpha
    for i in range(k):
        for j in range(k):
            inverse[i * ld + j] += c * c * corner * q[i] * q[j]
        inverse[i * ld + k] = inverse[k * ld + i] = -c * corner * q[i]
    inverse[k * ld + k] = corner


def flat_steps(k, share, values, p, first, second):
    """Compute first = L^-1 p, second = L^-2 p for p = U'B x, L the values (ascending) that count; return x'H^+ x."""
    h = 0.0
    for i in range(k):
        first[i] = second[i] = 0.0
        if values[i] > share * values[k - 1]:
            h += (p[i] / values[i]) * (p[i] / values[i])
            first[i], second[i] = p[i] / values[i], p[i] / (values[i] * values[i])
    return h


def flat_projection(k, z, x_square, h, p, first, out):
    """Compute a step where H = B'B has no inverse: w += out[0] B'U first + out[1] B'U second + out[2] x, into |w'x| <=
    1.

    first = L^-1 p, second = L^-2 p; a part of x in the null space of H costs nothing, so the way goes along it.
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
    """Return the address of one of these as a C function, which is compiled when it is first asked for."""
    if function not in _made:
        _made[function] = c_function(function, SIGNATURES[function])
    return _made[function].address
