"""Bits, levels and offsets from a basis and a sample of rows: what makes an encoder."""

from dataclasses import replace
from math import exp, frexp, ldexp
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fastsketch.neighbours.codes._code_factors import Minifloat
from fastsketch.neighbours.codes._layout import Codes, Layout
from fastsketch.neighbours.quantizing._allotment import Nibble, allotted, packed
from fastsketch.neighbours.quantizing._book_encoder import MOST_EXPONENT, MOST_NUMBER, BookEncoder, Books, OffsetRule
from fastsketch.neighbours.quantizing._levels import MOST_BITS, NIBBLE, Direction
from fastsketch.neighbours.quantizing._near import NEAR, Nearness, nearness

Array = NDArray[np.float64]

# Bytes of the offset that a code of any size has room for, and at most.
FACTOR_BYTES: Final = 1
MOST_OFFSET: Final = 2
# An error in a direction counts as much as near rows differ in it, to this power: 1 would be what estimates of near
# rows lose; less is better for those that are farther.
OF_APART: Final = 0.75
# Rows that what the sketch knows of a direction's variance counts as.
KNOWN: Final = 8.0
# A direction in which near rows are (almost) equal counts as this share of the one that counts most.
LEAST_WEIGHT: Final = 1e-6
# What an offset must be worth, in errors of estimates: near rows of a sample are farther than those of all, where words
# that are too few count for more. The power of e is of the share that the offset has of a code's bytes.
DEARER: Final = 1.2
CHEAPER: Final = 0.92
# The same once more where some rows are long: few words are about these, and by its offset a row whose words are short
# looks far from its own kind.
DEARER_LONG: Final = 1.4
VERY_LONG: Final = 32.0  # as a multiple of the median square
# An offset's range, as a multiple of that of the sample.
HEADROOM: Final = 1.25
# An offset this far below the share LOW of the sample's, in units of what is between it and the median, has no part in
# the range: words do not reach the row.
LOW: Final = 1e-3
BELOW: Final = 0.5
# The reach of codes is a multiple of the longest row of the sample, or of that at a quantile of their squares if this
# is less than half: then long rows are coded as shorter ones, and the offset of others is finer.
REACH: Final = 1.1
# Lengths of rows that spread (standard deviation) by less than this share of their mean are one length.
ONE_LENGTH: Final = 0.01
REACHED: Final = (0.999, 0.98)


def trained(mean: Array, basis: Array, spread: Array, sample: Array, *, n_bytes: int) -> BookEncoder:
    """Return the encoder of codes of n_bytes.

    mean (d,); basis (d, r) orthonormal columns, of the standard deviations `spread` (r,), the largest first; sample:
    centred rows (n, d).
    """
    length = _unit(sample, spread)
    centred, spread = sample / length, spread / length
    z = centred @ basis
    near = nearness(centred, z, spread)
    directions, weight = _directions(z, near, spread)
    n2 = np.einsum("ij,ij->i", centred, centred)
    long = bool((n2 > VERY_LONG * np.median(n2)).any()) if len(n2) else False
    norm = _norm(centred + mean / length)
    best: tuple[float, BookEncoder] | None = None
    for offset_bytes in range(MOST_OFFSET + 1):
        if offset_bytes >= n_bytes or (offset_bytes == 0 and NIBBLE * len(spread) < 8 * n_bytes):
            continue
        # without an offset, tables have the squares of words, and those of two nibbles are no sum
        most = MOST_BITS if offset_bytes else NIBBLE
        bits = allotted(directions, weight, 8 * (n_bytes - offset_bytes), most=most)
        order, books = books_of(packed(bits), directions)
        narrow, its = basis[:, order].astype(np.float32), z[:, order]
        # without an offset, the square of the outermost words is what is known of a long row
        for reach in _reaches(n2) if offset_bytes else [MOST_NUMBER]:
            rule = OffsetRule(near.shared[order].astype(np.float32), near.outside(order), 0.0, reach)
            layout = Layout(books.n_nibbles)
            nibbles = layout.nibbles(
                BookEncoder(np.zeros(len(mean)), narrow, books, rule, layout, length=1.0).encode(centred)
            )
            decoded = books.decode(nibbles).astype(np.float64)
            held, far = np.minimum(n2, reach), n2 > reach
            on_way = its * np.sqrt(np.divide(held, n2, out=np.ones_like(n2), where=far))[:, np.newaxis]
            known_books = books
            if offset_bytes:
                offsets = rule.offsets(held, on_way, decoded)
                kind, lowest = fitted(offsets[~far], offset_bytes)
                rule, layout = replace(rule, lowest=lowest), Layout(books.n_nibbles, kind)
                stated = np.where(far | (kind.rounded(offsets - lowest) == 0), held, offsets)
                known = kind.decode(kind.encode(stated - lowest)).astype(np.float64)
            else:
                known_books, known = with_squares(books, nibbles, on_way, decoded, rule, near)
            wrong = _wrong(known, n2, its, decoded, near)
            if offset_bytes:
                wrong *= CHEAPER * exp(DEARER * offset_bytes / n_bytes) * (DEARER_LONG if long else 1.0)
            if best is None or wrong < best[0]:
                best = wrong, BookEncoder(mean, narrow, known_books, rule, layout, length=length, norm=norm)
    assert best is not None
    return best[1]


def _norm(rows: Array) -> float | None:
    """Return the length of all rows, or None where they have many, or none."""
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    mean = float(norms.mean()) if len(norms) else 0.0
    if not 2.0**-MOST_EXPONENT <= mean <= 2.0**MOST_EXPONENT or float(norms.std()) > ONE_LENGTH * mean:
        return None
    return mean


def _reaches(n2: Array) -> list[float]:
    """Return the squares of rows to try: beyond them a row is coded as a shorter one."""
    top = float(n2.max(initial=0.0))
    out = [min(max(REACH * top, 1.0), MOST_NUMBER)]
    quantiles: list[float] = np.quantile(n2, REACHED).tolist() if top > 0 else []
    for quantile in quantiles:
        if 0 < REACH * quantile < out[-1] / 2:
            out.append(REACH * quantile)
    return out


def _unit(sample: Array, spread: Array) -> float:
    """Return a power of two near to the root of the mean square of a centred row; 1 for rows that are all one."""
    top = max(float(np.abs(sample).max(initial=0.0)), float(spread.max(initial=0.0)))
    if top == 0:
        return 1.0
    scaled: Array = sample / top
    norm = top * float(np.sqrt(np.square(scaled).sum(axis=1).mean())) if len(sample) else top
    return ldexp(1.0, min(max(frexp(norm)[1], -MOST_EXPONENT), MOST_EXPONENT))


def _directions(z: Array, near: Nearness, spread: Array) -> tuple[list[Direction], Array]:
    """Return the sample by directions, and how much an error in each counts (r,)."""
    total = float(near.weight.sum())
    variance: Array = (near.variance * total + np.square(spread) * KNOWN) / (total + KNOWN)
    known: list[float] = np.sqrt(variance).tolist()
    directions = [Direction(z[:, j], near.weight, s) for j, s in enumerate(known)]
    top = float(near.apart.max(initial=0.0))
    if top == 0:
        return directions, np.ones(len(directions))
    return directions, np.maximum(near.apart / top, LEAST_WEIGHT) ** OF_APART


def books_of(blocks: list[list[Nibble]], directions: list[Direction]) -> tuple[list[int], Books]:
    """Return the directions in the order of the blocks, and the words of their nibbles."""
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
    ones, zeros = np.ones(len(order), np.float32), np.zeros((first[-1], 16), np.float32)
    return order, Books(np.array(start, np.int32), np.array(first, np.int32), flat, ones, zeros)


def with_squares(
    books: Books, nibbles: Codes, z: Array, decoded: Array, rule: OffsetRule, near: Nearness
) -> tuple[Books, Array]:
    """Return books with a number for every word in place of offsets, and the numbers of the rows (n,)."""
    squares = np.zeros((books.n_nibbles, 16), np.float32)
    known = np.zeros(len(z))
    shares = np.square(z) - 2.0 * rule.inside * z * (z - decoded)
    for j, (part, (word,)) in enumerate(books.blocks()):
        place, own = nibbles[:, j], np.square(word.astype(np.float64)).sum(axis=1)
        rows = np.bincount(place, near.weight, 16)
        total = np.bincount(place, near.weight * shares[:, part].sum(axis=1), 16)
        squares[j] = (total + own) / (rows + 1.0)
        known += squares[j].astype(np.float64)[place]
    return Books(books.start, books.first, books.words, books.weights, squares), known


def _wrong(known: Array, n2: Array, z: Array, decoded: Array, near: Nearness) -> float:
    """Return how wrong estimates of near rows' squared distances are: what differs among a query's, in units of them.

    known (n,) stands for the squares n2 (n,) of rows; z, decoded (n, r).
    """
    if not len(near.one):
        return 0.0
    of_two = known[near.two] - 2.0 * np.einsum("ij,ij->i", z[near.one], decoded[near.two])
    true = n2[near.two] - 2.0 * near.products
    wrong = (of_two - true).reshape(-1, NEAR)
    gap = (true + n2[near.one]).reshape(-1, NEAR).mean(axis=1)
    ok = gap > 0
    return float((wrong.std(axis=1)[ok] / gap[ok]).mean()) if ok.any() else 0.0


def fitted(values: Array, n_bytes: int) -> tuple[Minifloat, float]:
    """Return a format of small numbers, and the lowest they are above, for what is like a sample, as fine as can be."""
    low, high = (float(values.min()), float(values.max())) if len(values) else (1.0, 1.0)
    if len(values):
        least, middle = np.quantile(values, [LOW, 0.5]).tolist()
        low = max(low, least - BELOW * (middle - least))
    middle, half = (low + high) / 2, max((high - low) / 2, 1e-6 * (abs(low) + abs(high)), 1e-30) * HEADROOM
    # one octave is a linear scale: unit to twice the unit
    unit = float(np.float32(2.0 * half))
    return Minifloat(n_bytes, 8 * n_bytes, unit), min(max(middle - half - unit, -MOST_NUMBER), MOST_NUMBER)
