"""Bits by variance, levels from a sample: what makes an encoder of a basis."""

from math import frexp, ldexp
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fastsketch.codes._factors import Minifloat
from fastsketch.codes._layout import Layout
from fastsketch.quantizing._encoder import MOST_EXPONENT, BookEncoder, Books

Array = NDArray[np.float64]

# Bytes of the two factors.
FACTOR_BYTES: Final = 2
# Bits that a direction may have, and the share of a normal variable's variance that the best levels of so many leave.
LEFT: Final = {0: 1.0, 1: 0.36338, 2: 0.11748, 4: 0.0094971, 8: 4.1e-5}
SIZES: Final = tuple(LEFT)
# Iterations of Lloyd's algorithm in one dimension.
LLOYD_ITERATIONS: Final = 20
# Rows of a cell below which a level stays where the normal distribution has it.
FEW_ROWS: Final = 3
# A factor's least and largest number, as multiples of those of the sample.
HEADROOM: Final = 2.0


def trained(mean: Array, basis: Array, variances: Array, sample: Array, *, n_bytes: int) -> BookEncoder:
    """The encoder of codes of n_bytes.

    mean (d,); basis (d, r) orthonormal columns, of the variances (r,), the largest first; sample: centred rows (n, d).
    """
    length = _unit(sample, variances)
    centred = sample / length
    bits = allotted(variances, 8 * (n_bytes - FACTOR_BYTES))
    used = np.flatnonzero(bits)
    bits, basis, spread = bits[used], basis[:, used], np.sqrt(variances[used]) / length
    z = centred @ basis
    books = _books(z, bits, spread)
    n2, zz = np.einsum("ij,ij->i", centred, centred), np.einsum("ij,ij->i", z, z)
    zr = np.einsum("ij,ij->i", z, books.encode(z.astype(np.float32))[1])
    scale = zz[zr > 0] / zr[zr > 0]
    layout = Layout(len(books.vectors), fitted(n2, 1), fitted(scale, 1))
    return BookEncoder(mean, basis, books, layout, weights=(1.0, 0.0, 0.0), length=length)


def _unit(sample: Array, variances: Array) -> float:
    """A power of two near to the root of the mean square of a centred row; 1 for rows that are all one."""
    top = max(float(np.abs(sample).max(initial=0.0)), float(np.sqrt(variances.max(initial=0.0))))
    if top == 0:
        return 1.0
    norm = top * float(np.sqrt(np.mean(np.square(sample / top).sum(axis=1)))) if len(sample) else top
    return ldexp(1.0, min(max(frexp(norm)[1], -MOST_EXPONENT), MOST_EXPONENT))


def allotted(variances: Array, total: int) -> NDArray[np.int64]:
    """Bits of each direction, `total` in all, a multiple of 4: the largest gain of a bit comes first."""
    bits = np.zeros(len(variances), np.int64)
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


def _books(z: Array, bits: NDArray[np.int64], spread: Array) -> Books:
    """Books of directions with these bits: 8 bits are two books, 4 one, smaller ones share."""
    order = np.argsort(-bits, kind="stable")
    found: list[list[tuple[int, Array]]] = []  # of each book: directions with 16 numbers
    room = 0
    for j in order:
        size, values = int(bits[j]), _levels(z[:, j], int(bits[j]), float(spread[j]))
        if size == 8:
            coarse = values.reshape(16, 16).mean(axis=1)
            fine = values[:16] - values[:16].mean()
            found += [[(int(j), coarse)], [(int(j), fine)]]
            continue
        if not room:
            found.append([])
            room = 4
        # the bits of the code that are this direction's: those above the ones of the directions before it
        part = np.arange(16) >> (4 - room) & ((1 << size) - 1)
        found[-1].append((int(j), values[part]))
        room -= size
    g = max(len(book) for book in found)
    directions, vectors = np.zeros((len(found), g), np.int32), np.zeros((len(found), 16, g), np.float32)
    for number, book in enumerate(found):
        for k, (j, values) in enumerate(book):
            directions[number, k], vectors[number, :, k] = j, values
    return Books(directions, vectors)


def _levels(z: Array, bits: int, spread: float) -> Array:
    """2^bits ascending levels of a sample z (n,): Lloyd's from those of a normal variable; 8 bits are uniform."""
    from scipy.special import ndtri

    n = 1 << bits
    if bits == 8:
        reach = max(4.0 * spread, float(np.abs(z).max(initial=0.0)))
        return reach * (2.0 * np.arange(n) + 1.0 - n) / n
    # the best levels of a normal variable of thrice the variance's density have equal shares
    levels = np.sqrt(3.0) * spread * ndtri((np.arange(n) + 0.5) / n)
    ordered = np.sort(z)
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    for _ in range(LLOYD_ITERATIONS):
        ends = np.concatenate([[0], np.searchsorted(ordered, (levels[1:] + levels[:-1]) / 2), [len(ordered)]])
        count = np.diff(ends)
        levels = np.where(count >= FEW_ROWS, np.diff(sums[ends]) / np.maximum(count, 1), levels)
    return np.sort(levels)


def fitted(values: Array, n_bytes: int) -> Minifloat:
    """The small numbers that hold what is like a sample's, as finely as they can."""
    good: NDArray[Any] = values[values > 0]
    low, high = (float(good.min()), float(good.max())) if len(good) else (1.0, 1.0)
    low, high = low / HEADROOM, high * HEADROOM
    bits = 8 * n_bytes
    octaves = max(1, int(np.ceil(np.log2(high / low))))
    exponent = min(7, (octaves - 1).bit_length()) if octaves > 1 else 0
    unit = np.float32(max(low, high * 2.0 ** -(2.0**exponent)))
    return Minifloat(n_bytes, bits - exponent, float(max(unit, np.finfo(np.float32).tiny)))
