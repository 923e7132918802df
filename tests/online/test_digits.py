"""The rounds of RFD0 against the same algorithm at 60 digits, where the sketch is still singular when it shrinks.

As printed, a shrink adds half of the square of singular value m to alpha. Of a sketch of lower rank that square is 0,
and in float64 about 1e-31: alpha is then positive, H has no null space any more, and 1 / alpha makes noise of every
step. Rounding counts as 0 here (`rank_share` of the rounds, RANK of the reference), and rows of zeros take no place.

Measured on the first 1,500 rows of w8a with m = 50 and 51 digits: a shrink at round 100 has rank 10 and an
algorithm without that rule leaves the exact one at round 103. w of dense and of sparse rows is right to 8e-9, that of
the reference to 5e-8, which is what H of rows whose squared singular values span 1 to 7e-9 can give; 425 mistakes are
right, and 426 come of a score that is 0 (round 130).
"""

from decimal import Decimal, localcontext

import numpy as np
import pytest
from scipy.sparse import csr_array

from fastsketch.reference import fast_online_newton
from tests.helpers import papers

DIGITS, NOTHING = 60, Decimal("1e-40")


def exactly(values):
    return np.array([[Decimal(float(value)) for value in row] for row in values], dtype=object)


def eigen(a):
    """Return (values, rows of vectors) of a symmetric matrix, the largest first, by Jacobi's rotations."""
    n = len(a)
    a, vectors = a.copy(), exactly(np.eye(n))
    least = NOTHING * NOTHING.sqrt() * max([abs(a[i, i]) for i in range(n)], default=Decimal(0))
    for _ in range(40):
        pairs = [(p, q) for p in range(n) for q in range(p + 1, n) if abs(a[p, q]) > least]
        if not pairs:
            break
        for p, q in pairs:
            if abs(a[p, q]) <= least:
                continue
            half = (a[q, q] - a[p, p]) / (2 * a[p, q])
            t = (1 if half >= 0 else -1) / (abs(half) + (half * half + 1).sqrt())
            c = 1 / (t * t + 1).sqrt()
            turn = np.array([[c, -t * c], [t * c, c]], dtype=object)
            a[[p, q]] = turn @ a[[p, q]]
            a[:, [p, q]] = a[:, [p, q]] @ turn.T
            vectors[[p, q]] = turn @ vectors[[p, q]]
    order = sorted(range(n), key=lambda i: -a[i, i])
    return [a[i, i] for i in order], vectors[order]


def printed(x, y, m):
    """RFD paper, Algorithm 6 with alpha0 = 0 and the square loss (z - y)^2; what is 0 at 60 digits is 0."""
    x, y = exactly(x), [Decimal(int(target)) for target in y]
    d = x.shape[1]
    w, b, alpha = exactly(np.zeros((1, d)))[0], np.zeros((0, d), dtype=object), Decimal(0)
    scores, ranks = [], []
    for t, (row, target) in enumerate(zip(x, y, strict=True), 1):
        z = row @ w
        scores.append(float(z))
        g = 2 * (z - target) * row
        if g @ g <= NOTHING:
            continue
        b = np.vstack([b, (Decimal(1) / 8 + Decimal(1) / t).sqrt() * g])
        # B = V s U': the right singular vectors that count, and their squares
        values, left = eigen(b @ b.T)
        held = sum(value > NOTHING * values[0] for value in values)
        squares = list(values[:held])
        v = np.array([left[i] @ b / squares[i].sqrt() for i in range(held)], dtype=object)
        if len(b) == 2 * m:
            ranks.append(held)
            delta = squares[m - 1] if held >= m else Decimal(0)
            squares = [square - delta for square in squares[: m - 1] if square > delta]
            v = v[: len(squares)]
            b = np.array([square.sqrt() for square in squares], dtype=object)[:, None] * v
            alpha += delta / 2
        inside = v @ row
        parts = np.array([p / (s + alpha) for p, s in zip(inside, squares, strict=True)], dtype=object)
        null = row - inside @ v
        inverse = parts @ v + (null / alpha if alpha else 0 * null)  # H^-1 x, or H^+ x
        w = w - 2 * (z - target) * inverse
        over = row @ w
        over = (abs(over) - 1) * (1 if over > 0 else -1) if abs(over) > 1 else Decimal(0)
        if not alpha and null @ null > Decimal("1e-9") * (row @ row):
            w = w - over / (null @ null) * null
        else:
            w = w - over / (row @ inverse) * inverse
    return w.astype(float), np.array(scores), float(alpha), ranks


@pytest.mark.parametrize("seed", range(3))
def test_rounds_are_those_of_exact_arithmetic(seed):
    rng = np.random.default_rng(seed)
    m, d = 4, 9
    x = (rng.random((60, d)) < 0.3).astype(float)
    x[:22] = x[rng.integers(0, 3, 22)]  # three rows again and again: the first shrinks lose nothing
    x[rng.integers(0, 60, 6)] = 0
    y = np.where(rng.random(60) < 0.5, 1.0, -1.0)
    with localcontext(prec=DIGITS):
        w, scores, alpha, ranks = printed(x, y, m)
    assert min(ranks) < m <= max(ranks)  # both kinds of shrinks
    theirs, _, before = fast_online_newton(x, y, sketch_size=m, loss="square", loss_scale=2.0)
    np.testing.assert_allclose(before, scores, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(theirs, w, rtol=1e-9, atol=1e-9)
    for rows in (x, csr_array(x)):
        model = papers.SketchedNewton(m, alpha0=0, loss="square", loss_scale=2.0, constraint="current").update(rows, y)
        np.testing.assert_allclose(model.last_scores, scores, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(model.coef, w, rtol=1e-9, atol=1e-9)
        assert model.alpha == pytest.approx(alpha, rel=1e-9)


def test_a_shrink_of_a_singular_sketch_leaves_alpha_at_zero():
    rng = np.random.default_rng(0)
    x = (rng.random((3, 12)) < 0.5).astype(float)[rng.integers(0, 3, 40)]
    y = np.where(rng.random(40) < 0.5, 1.0, -1.0)
    model = papers.SketchedNewton(5, alpha0=0, loss="square", loss_scale=2.0, constraint="current").update(x, y)
    assert model.alpha == 0.0
    assert np.abs(model.last_scores).max() <= 1 + 1e-9
