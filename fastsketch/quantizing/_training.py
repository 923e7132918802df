"""Bits, levels and offsets from a basis and a sample of rows: what makes an encoder."""

from math import frexp, ldexp
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fastsketch.codes._factors import Minifloat
from fastsketch.codes._layout import Layout
from fastsketch.quantizing._allotment import Nibble, allotted, packed
from fastsketch.quantizing._encoder import MOST_EXPONENT, MOST_NUMBER, BookEncoder, Books, OffsetRule
from fastsketch.quantizing._levels import NIBBLE, Direction
from fastsketch.quantizing._near import Nearness, nearness

Array = NDArray[np.float64]

# Bytes of the offset, at least; it has two where one is too coarse.
FACTOR_BYTES: Final = 1
# An error in a direction counts as much as near rows differ in it, to this power: 1 would be what estimates of near
# rows lose; less is better for those that are farther.
OF_APART: Final = 0.75
# Rows that what the sketch knows of a direction's variance counts as.
KNOWN: Final = 8.0
# A direction in which near rows are (almost) equal counts as this share of the one that counts most.
LEAST_WEIGHT: Final = 1e-6
# One byte is too coarse if it makes an error larger than this, in units of the median error of the codes of near rows.
COARSE: Final = 0.5
# An offset's range, as a multiple of that of the sample.
HEADROOM: Final = 1.25


def trained(mean: Array, basis: Array, spread: Array, sample: Array, *, n_bytes: int) -> BookEncoder:
    """The encoder of codes of n_bytes.

    mean (d,); basis (d, r) orthonormal columns, of the standard deviations `spread` (r,), the largest first; sample:
    centred rows (n, d).
    """
    length = _unit(sample, spread)
    centred, spread = sample / length, spread / length
    z = centred @ basis
    near = nearness(centred, z, spread)
    directions, weight = _directions(z, near, spread)
    for factor_bytes in (FACTOR_BYTES, FACTOR_BYTES + 1):
        bits = allotted(directions, weight, 8 * (n_bytes - factor_bytes))
        order, books = books_of(packed(bits), directions)
        narrow = basis[:, order].astype(np.float32)
        rule = OffsetRule(near.shared[order].astype(np.float32), near.shared_outside(order), 0.0)
        layout = Layout(books.n_nibbles)
        draft = BookEncoder(np.zeros(len(mean)), narrow, books, rule, layout, length=1.0)
        decoded = books.decode(layout.nibbles(draft.encode(centred))).astype(np.float64)
        offsets = rule.offsets(np.einsum("ij,ij->i", centred, centred), z[:, order], decoded)
        kind, lowest = fitted(offsets, factor_bytes)
        if n_bytes <= factor_bytes + 1 or kind.unit / 256.0 <= _bearable(z[:, order], decoded, near):
            break
    rule = OffsetRule(rule.inside, rule.outside, lowest)
    return BookEncoder(mean, narrow, books, rule, Layout(books.n_nibbles, kind), length=length)


def _unit(sample: Array, spread: Array) -> float:
    """A power of two near to the root of the mean square of a centred row; 1 for rows that are all one."""
    top = max(float(np.abs(sample).max(initial=0.0)), float(spread.max(initial=0.0)))
    if top == 0:
        return 1.0
    norm = top * float(np.sqrt(np.mean(np.square(sample / top).sum(axis=1)))) if len(sample) else top
    return ldexp(1.0, min(max(frexp(norm)[1], -MOST_EXPONENT), MOST_EXPONENT))


def _directions(z: Array, near: Nearness, spread: Array) -> tuple[list[Direction], Array]:
    """The sample by directions, and how much an error in each counts (r,)."""
    total = float(near.weight.sum())
    variance = (near.variance * total + np.square(spread) * KNOWN) / (total + KNOWN)
    directions = [Direction(z[:, j], near.weight, float(np.sqrt(v))) for j, v in enumerate(variance)]
    top = float(near.apart.max(initial=0.0))
    if top == 0:
        return directions, np.ones(len(directions))
    return directions, np.maximum(near.apart / top, LEAST_WEIGHT) ** OF_APART


def books_of(blocks: list[list[Nibble]], directions: list[Direction]) -> tuple[list[int], Books]:
    """The directions in the order of the blocks, and the words of their nibbles."""
    order, start, first, words = list[int](), [0], [0], list[Array]()
    for block in blocks:
        held = list(dict.fromkeys(part.direction for nibble in block for part in nibble))
        bits = dict.fromkeys(held, 0)
        for nibble in block:
            for part in nibble:
                bits[part.direction] += part.bits
        for nibble in block:
            word, low = np.zeros((16, len(held))), 0
            for part in nibble:
                levels = directions[part.direction].levels(bits[part.direction])
                index = np.arange(16) >> low & ((1 << part.bits) - 1)
                word[:, held.index(part.direction)] = (levels.fine if part.fine else levels.coarse)[index]
                low += part.bits
            assert low == NIBBLE
            words.append(word)
        order += held
        start.append(start[-1] + len(held))
        first.append(first[-1] + len(block))
    flat = np.concatenate([word.ravel() for word in words]).astype(np.float32)
    return order, Books(np.array(start, np.int32), np.array(first, np.int32), flat, np.ones(len(order), np.float32))


def _bearable(z: Array, decoded: Array, near: Nearness) -> float:
    """The step of an offset's byte that is lost in what the codes of near rows (n, r) get wrong anyway."""
    if not len(near.one):
        return np.inf
    gap = z[near.one] - z[near.two]
    wrong = np.abs(2.0 * np.einsum("ij,ij->i", gap, z[near.two] - decoded[near.two]))
    return COARSE * float(np.median(wrong))


def fitted(values: Array, n_bytes: int) -> tuple[Minifloat, float]:
    """Small numbers, and the lowest that they are above, for what is like a sample's values, as fine as they can be."""
    low, high = (float(values.min()), float(values.max())) if len(values) else (1.0, 1.0)
    middle, half = (low + high) / 2, max((high - low) / 2, 1e-6 * (abs(low) + abs(high)), 1e-30) * HEADROOM
    # one octave is a linear scale: unit to twice the unit
    unit = float(np.float32(2.0 * half))
    return Minifloat(n_bytes, 8 * n_bytes, unit), min(max(middle - half - unit, -MOST_NUMBER), MOST_NUMBER)
