"""Bits by variance, levels from a sample, offsets that are right for near rows: what makes an encoder of a basis."""

from math import frexp, ldexp
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fastsketch.codes._factors import Minifloat
from fastsketch.codes._layout import Layout
from fastsketch.quantizing._encoder import MOST_EXPONENT, MOST_NUMBER, BookEncoder, Books, OffsetRule

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Bytes of the offset.
FACTOR_BYTES: Final = 1
# Bits that a direction may have, and the share of a normal variable's variance that the best levels of so many leave.
LEFT: Final = {0: 1.0, 1: 0.36338, 2: 0.11748, 4: 0.0094971, 8: 4.1e-5}
SIZES: Final = tuple(LEFT)
# Iterations of Lloyd's algorithm in one dimension.
LLOYD_ITERATIONS: Final = 20
# Rows of a cell below which a level stays where the normal distribution has it.
FEW_ROWS: Final = 3
# Rows of the sample whose nearest others tell how far near rows are apart, and how many of these.
NEAR_ROWS: Final = 500
NEAR: Final = 10
# An offset's range, as a multiple of that of the sample.
HEADROOM: Final = 1.5


def trained(mean: Array, basis: Array, spread: Array, sample: Array, *, n_bytes: int) -> BookEncoder:
    """The encoder of codes of n_bytes.

    mean (d,); basis (d, r) orthonormal columns, of the standard deviations `spread` (r,), the largest first; sample:
    centred rows (n, d).
    """
    length = _unit(sample, spread)
    centred, spread = sample / length, spread / length
    z = centred @ basis
    inside, outside = near_shares(centred, z)
    bits = allotted(spread, 8 * (n_bytes - FACTOR_BYTES))
    order = np.argsort(-bits, kind="stable")[: np.count_nonzero(bits)]
    basis, z = basis[:, order], z[:, order]
    books = books_of(z, bits[order], spread[order])
    rule = OffsetRule(inside[order].astype(np.float32), outside, 0.0)
    layout, narrow = Layout(books.n_nibbles), basis.astype(np.float32)
    draft = BookEncoder(np.zeros(len(mean)), narrow, books, rule, layout, length=1.0)
    decoded = books.decode(layout.nibbles(draft.encode(centred))).astype(np.float64)
    kind, lowest = fitted(rule.offsets(np.einsum("ij,ij->i", centred, centred), z, decoded), FACTOR_BYTES)
    rule = OffsetRule(rule.inside, outside, lowest)
    return BookEncoder(mean, narrow, books, rule, Layout(books.n_nibbles, kind), length=length)


def _unit(sample: Array, spread: Array) -> float:
    """A power of two near to the root of the mean square of a centred row; 1 for rows that are all one."""
    top = max(float(np.abs(sample).max(initial=0.0)), float(spread.max(initial=0.0)))
    if top == 0:
        return 1.0
    norm = top * float(np.sqrt(np.mean(np.square(sample / top).sum(axis=1)))) if len(sample) else top
    return ldexp(1.0, min(max(frexp(norm)[1], -MOST_EXPONENT), MOST_EXPONENT))


def near_shares(centred: Array, z: Array) -> tuple[Array, float]:
    """(r,) and one number: how much of a row's error in each direction, and outside of all, a near query shares.

    1 - m_j / (2 v_j), m_j the mean square of differences of near rows, v_j of all: 1 where near rows are equal.
    """
    some = centred[:NEAR_ROWS]
    if len(centred) <= NEAR:
        return np.ones(z.shape[1]), 1.0
    distances = np.einsum("ij,ij->i", centred, centred) - 2.0 * (some @ centred.T)
    np.fill_diagonal(distances, np.inf)
    near = np.argpartition(distances, NEAR, axis=1)[:, :NEAR]
    one, two = np.repeat(np.arange(len(some)), NEAR), near.ravel()
    apart = np.square(z[one] - z[two]).mean(axis=0)
    all_apart = float(np.square(centred[one] - centred[two]).sum(axis=1).mean())
    variance, total = np.square(z).mean(axis=0), float(np.square(centred).sum(axis=1).mean())
    outside = max(total - float(variance.sum()), 0.0)
    inside = 1.0 - apart / np.where(variance > 0, 2.0 * variance, np.inf)
    left = max(all_apart - float(apart.sum()), 0.0)
    return np.clip(inside, 0.0, 1.0), float(np.clip(1.0 - left / (2.0 * outside), 0.0, 1.0)) if outside > 0 else 1.0


def allotted(spread: Array, total: int) -> Integers:
    """Bits of each direction, `total` in all, a multiple of 4: the largest gain of a bit comes first."""
    bits = np.zeros(len(spread), np.int64)
    top = float(spread.max(initial=0.0))
    variances: Array = np.square(spread / top) if top > 0 else np.zeros(len(spread))
    gain, step = np.empty(len(bits)), np.empty(len(bits), np.int64)

    def look(j: int, left: int) -> None:
        sizes = [size for size in SIZES if bits[j] < size <= bits[j] + left]
        step[j] = sizes[0] - bits[j] if sizes else 0
        saved = LEFT[int(bits[j])] - LEFT[sizes[0]] if sizes else 0.0
        gain[j] = variances[j] * saved / step[j] if sizes else -1.0

    left = total
    for j in range(len(bits)):
        look(j, left)
    while left:
        j = int(np.argmax(gain))
        left -= int(step[j])
        bits[j] += step[j]
        for other in range(len(bits)) if left < SIZES[-1] else (j,):  # the last steps may be too large for what is left
            look(other, left)
    return bits


def books_of(z: Array, bits: Integers, spread: Array) -> Books:
    """Words of directions with these bits, in falling order: 8 bits are two nibbles, 4 one, smaller ones share."""
    start, first, words = [0], [0], list[Array]()
    j = 0
    while j < len(bits):
        if bits[j] == 8:
            levels = _levels(z[:, j], 8, float(spread[j]))
            words += [levels.reshape(16, 16).mean(axis=1)[:, np.newaxis], (levels[:16] - levels[:16].mean())[:, None]]
            j += 1
            first.append(first[-1] + 2)
        else:
            word, room = np.empty((16, 0)), 4
            while room:
                size = int(bits[j])
                levels = _levels(z[:, j], size, float(spread[j]))
                # the bits of the nibble that are this direction's: above those of the directions before it
                part = np.arange(16) >> (4 - room) & ((1 << size) - 1)
                word = np.column_stack([word, levels[part]])
                room -= size
                j += 1
            words.append(word)
            first.append(first[-1] + 1)
        start.append(j)
    flat = np.concatenate([word.ravel() for word in words]).astype(np.float32)
    return Books(np.array(start, np.int32), np.array(first, np.int32), flat, np.ones(len(bits), np.float32))


def _levels(z: Array, bits: int, spread: float) -> Array:
    """2^bits ascending levels of a sample z (n,): Lloyd's from those of a normal variable; 8 bits are uniform."""
    from scipy.special import ndtri

    n = 1 << bits
    if bits == 8:
        reach = max(4.0 * spread, float(np.abs(z).max(initial=0.0)))
        return reach * (2.0 * np.arange(n) + 1.0 - n) / n
    # the best levels of a normal variable have equal shares of one of thrice its variance
    levels = np.sqrt(3.0) * spread * ndtri((np.arange(n) + 0.5) / n)
    ordered = np.sort(z)
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    for _ in range(LLOYD_ITERATIONS):
        ends = np.concatenate([[0], np.searchsorted(ordered, (levels[1:] + levels[:-1]) / 2), [len(ordered)]])
        count = np.diff(ends)
        levels = np.where(count >= FEW_ROWS, np.diff(sums[ends]) / np.maximum(count, 1), levels)
    return np.sort(levels)


def fitted(values: Array, n_bytes: int) -> tuple[Minifloat, float]:
    """Small numbers, and the lowest that they are above, for what is like a sample's values, as fine as they can be."""
    low, high = (float(values.min()), float(values.max())) if len(values) else (1.0, 1.0)
    middle, half = (low + high) / 2, max((high - low) / 2, 1e-6 * (abs(low) + abs(high)), 1e-30) * HEADROOM
    # one octave is a linear scale: unit to twice the unit
    unit = float(np.float32(2.0 * half))
    return Minifloat(n_bytes, 8 * n_bytes, unit), min(max(middle - half - unit, -MOST_NUMBER), MOST_NUMBER)
