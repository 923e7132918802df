"""Rows on which bounds are near, or fail, in lengths that numbers of a double just hold."""

import numpy as np


def noise(rng, n, d):
    return rng.standard_normal((n, d))


def repeated(rng, n, d):
    return np.tile(rng.standard_normal(d), (n, 1))


def alternating(rng, n, d):
    """Two directions in turn, of lengths that grow slowly."""
    pair = np.linalg.qr(rng.standard_normal((d, 2)))[0].T
    return pair[np.arange(n) % 2] * np.linspace(1, 1.1, n)[:, None]


def spikes(rng, n, d):
    """Small rows, then at the end some of a thousand times their length in directions of their own."""
    rows = 0.01 * rng.standard_normal((n, d))
    late = max(1, n // 20)
    rows[-late:] = 10 * np.eye(d)[np.arange(late) % d]
    return rows


def heavy(rng, n, d):
    return np.clip(rng.standard_cauchy((n, d)), -1e6, 1e6)


def cycles(rng, n, d):
    """Every column in turn: a shrink of fewer rows than columns loses as much as there can be."""
    return np.eye(d)[np.arange(n) % d]


def growing(rng, n, d):
    """Each row longer than those before it together, up to 1e30."""
    return rng.standard_normal((n, d)) * np.minimum(2.0 ** np.arange(n), 1e30)[:, None]


def steep(rng, n, d):
    return rng.standard_normal((n, d)) * np.logspace(0, -8, d) @ np.linalg.qr(rng.standard_normal((d, d)))[0]


def tiny(rng, n, d):
    return 1e-100 * rng.standard_normal((n, d))


def huge(rng, n, d):
    return 1e100 * rng.standard_normal((n, d))


ADVERSARIAL = {
    made.__name__: made for made in (noise, repeated, alternating, spikes, heavy, cycles, growing, steep, tiny, huge)
}
EPS = np.finfo(float).eps


def worst(ratios):
    """Return the largest of {what: left side / right side}, which is printed with what it is of."""
    what = max(ratios, key=ratios.get)
    print(f"worst ratio {ratios[what]:.4f}: {what}, of {len(ratios)}")
    return ratios[what]
