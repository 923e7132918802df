"""Training of a quantizer: bits, levels and offsets from a basis and a sample of rows.

The method is transform coding (Gersho and Gray, Vector Quantization and Signal Compression, 1992, chapter 8): principal
directions, bits given one at a time to the direction where one more lowers the error most (section 8.3), and Lloyd's
levels in each direction (section 6.2).
"""

from dataclasses import replace
from math import frexp, ldexp
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fastsketch.neighbours.codes._code_factors import Minifloat
from fastsketch.neighbours.codes._layout import Codes, Layout
from fastsketch.neighbours.quantizing._bit_allocation import Nibble, allocate_bits, pack_directions
from fastsketch.neighbours.quantizing._book_encoder import MAX_EXPONENT, MAX_NUMBER, BookEncoder, Books, OffsetRule
from fastsketch.neighbours.quantizing._levels import MAX_BITS, NIBBLE, Direction
from fastsketch.neighbours.quantizing._sample_neighbours import (
    NeighbourStatistics,
    measure_recall,
    neighbour_statistics,
)

Array = NDArray[np.float64]

# Bytes that every code can spare for the offset, and the largest number of bytes of an offset.
FACTOR_BYTES: Final = 1
MAX_OFFSET_BYTES: Final = 2
# The smallest weight of a direction, as a share of the largest one: near rows may be equal in a direction.
MIN_WEIGHT: Final = 1e-6
# Rows have one length if the standard deviation of their lengths is at most this share of the mean length: the rounding
# of normalised rows that are stored in half precision.
MAX_LENGTH_DEVIATION: Final = float(np.finfo(np.float16).eps)


def train_encoder(mean: Array, basis: Array, spread: Array, sample: Array, *, n_bytes: int) -> BookEncoder:
    """Return a quantizer's encoder for codes of n_bytes bytes, trained on a sample of rows.
    Bits are allocated to directions, and levels and offsets are fitted.

    The offset takes 0, 1 or 2 of the bytes, whichever has the best recall.

    Parameters
    ----------
    mean : ndarray (d,)
    basis : ndarray (d, r)
        Orthonormal columns.
    spread : ndarray (r,)
        Standard deviations of the rows in these directions, the largest first.
    sample : ndarray (n, d)
        Centred rows.
    n_bytes : int
    """
    length = _length_unit(sample, spread)
    centred, spread = sample / length, spread / length
    z = centred @ basis
    statistics = neighbour_statistics(centred, z, spread)
    directions, weight = _fit_directions(z, statistics, spread)
    n2 = np.einsum("ij,ij->i", centred, centred)
    norm = _common_length(centred + mean / length)
    best: tuple[float, BookEncoder] | None = None
    for offset_bytes in range(MAX_OFFSET_BYTES + 1):
        if offset_bytes >= n_bytes or (offset_bytes == 0 and NIBBLE * len(spread) < 8 * n_bytes):
            continue
        # without an offset, tables hold the squares of words; the square of a sum of two words is not a sum
        max_bits = MAX_BITS if offset_bytes else NIBBLE
        bits = allocate_bits(directions, weight, 8 * (n_bytes - offset_bytes), max_bits=max_bits)
        order, books = create_books(pack_directions(bits), directions)
        narrow, ordered_z = basis[:, order].astype(np.float32), z[:, order]
        # rows beyond the reach of the words are shortened; without an offset no row is
        reach = min(max(float(n2.max(initial=0.0)), 1.0), MAX_NUMBER) if offset_bytes else MAX_NUMBER
        rule = OffsetRule(
            statistics.correlation[order].astype(np.float32), statistics.correlation_outside(order), 0.0, reach
        )
        layout = Layout(books.n_nibbles)
        nibbles = layout.nibbles(
            BookEncoder(np.zeros(len(mean)), narrow, books, rule, layout, length=1.0).encode(centred)
        )
        decoded = books.decode(nibbles).astype(np.float64)
        if offset_bytes:
            offsets = rule.offsets(n2, ordered_z, decoded)
            offset_format, lowest = fit_offset_format(offsets, offset_bytes)
            rule, layout = replace(rule, lowest=lowest), Layout(books.n_nibbles, offset_format)
            offset_estimates = offset_format.decode(offset_format.encode(offsets - lowest)).astype(np.float64)
        else:
            books, offset_estimates = learn_squares(books, nibbles, ordered_z, decoded, rule)
        recall = measure_recall(offset_estimates, ordered_z, decoded, statistics)
        if best is None or recall > best[0]:
            best = recall, BookEncoder(mean, narrow, books, rule, layout, length=length, norm=norm)
    assert best is not None
    return best[1]


def _common_length(rows: Array) -> float | None:
    """Return the length of the rows if all have nearly the same one, else None. With a common length, inner products
    follow from distances.

    It is also None if they are extremely small or large.
    """
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    mean = float(norms.mean()) if len(norms) else 0.0
    if not 2.0**-MAX_EXPONENT <= mean <= 2.0**MAX_EXPONENT or float(norms.std()) > MAX_LENGTH_DEVIATION * mean:
        return None
    return mean


def _length_unit(sample: Array, spread: Array) -> float:
    """Return the unit of length of an encoder, a power of two near the root mean squared length of centred rows; 1 if
    all rows are equal.
    """
    top = max(float(np.abs(sample).max(initial=0.0)), float(spread.max(initial=0.0)))
    if top == 0:
        return 1.0
    scaled: Array = sample / top
    norm = top * float(np.sqrt(np.square(scaled).sum(axis=1).mean())) if len(sample) else top
    return ldexp(1.0, min(max(frexp(norm)[1], -MAX_EXPONENT), MAX_EXPONENT))


def _fit_directions(z: Array, statistics: NeighbourStatistics, spread: Array) -> tuple[list[Direction], Array]:
    """Return a list of scalar quantizers, one fitted to each direction, and the weights (r,) of their squared errors.

    The error of a coordinate enters an estimated distance multiplied by the difference of the coordinates of query and
    row. The weight of a direction in the allocation of bits is therefore the mean squared difference of near rows.
    """
    directions = [Direction(z[:, j], s) for j, s in enumerate(spread.tolist())]
    top = float(statistics.difference.max(initial=0.0))
    if top == 0:
        return directions, np.ones(len(directions))
    return directions, np.maximum(statistics.difference / top, MIN_WEIGHT)


def create_books(blocks: list[list[Nibble]], directions: list[Direction]) -> tuple[list[int], Books]:
    """Return (order of the directions, codebooks) for a packing of directions into blocks of nibbles (4 bits).

    Directions are in the order of the blocks.
    """
    order, start, first, words = list[int](), [0], [0], list[Array]()
    for block in blocks:
        block_directions = list(dict.fromkeys(nibble_part.direction for nibble in block for nibble_part in nibble))
        bits = dict.fromkeys(block_directions, 0)
        for nibble in block:
            for nibble_part in nibble:
                bits[nibble_part.direction] += nibble_part.bits
        for nibble in block:
            word, low = np.zeros((16, len(block_directions))), 0
            for nibble_part in nibble:
                levels = directions[nibble_part.direction].levels(bits[nibble_part.direction])
                index = np.arange(16) >> low & ((1 << nibble_part.bits) - 1)
                word[:, block_directions.index(nibble_part.direction)] = (
                    levels.fine if nibble_part.fine else levels.coarse
                )[index]
                low += nibble_part.bits
            assert low == NIBBLE
            words.append(word)
        order += block_directions
        start.append(start[-1] + len(block_directions))
        first.append(first[-1] + len(block))
    flat = np.concatenate([word.ravel() for word in words]).astype(np.float32)
    ones, zeros = np.ones(len(order), np.float32), np.zeros((first[-1], 16), np.float32)
    return order, Books(np.array(start, np.int32), np.array(first, np.int32), flat, ones, zeros)


def learn_squares(books: Books, nibbles: Codes, z: Array, decoded: Array, rule: OffsetRule) -> tuple[Books, Array]:
    """Return new codebooks with a number for each codeword, and the sums (n,) of these numbers over each row's code.

    The sum replaces the stored offset of a row. The number of a codeword is the mean contribution to the offset of the
    rows coded by it. One row at the codeword itself is counted in addition, for codewords without rows.
    """
    squares = np.zeros((books.n_nibbles, 16), np.float32)
    sums = np.zeros(len(z))
    shares = np.square(z) - 2.0 * rule.inside * z * (z - decoded)
    for j, (block, (word,)) in enumerate(books.blocks()):
        codes, word_squares = nibbles[:, j], np.square(word.astype(np.float64)).sum(axis=1)
        total = np.bincount(codes, shares[:, block].sum(axis=1), 16)
        squares[j] = (total + word_squares) / (np.bincount(codes, minlength=16) + 1.0)
        sums += squares[j].astype(np.float64)[codes]
    return Books(books.start, books.first, books.words, books.weights, squares), sums


def fit_offset_format(values: Array, n_bytes: int) -> tuple[Minifloat, float]:
    """Return (number format of n_bytes, number to subtract) with which offsets in the range of `values` are stored."""
    low, high = (float(values.min()), float(values.max())) if len(values) else (1.0, 1.0)
    # a minifloat of mantissa bits only is linear, from unit to twice the unit
    unit = float(np.float32(max(high - low, 1e-6 * (abs(low) + abs(high)), 1e-30)))
    return Minifloat(n_bytes, 8 * n_bytes, unit), min(max(low - unit, -MAX_NUMBER), MAX_NUMBER)
