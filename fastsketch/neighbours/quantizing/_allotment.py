"""Greedy allocation of bits to directions, and packing of directions into nibbles, the 4-bit units of a code."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch.neighbours.quantizing._levels import MOST_BITS, NIBBLE, Direction

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

SIZES: Final = MOST_BITS + 1


class NibblePart(NamedTuple):
    """The bits of one direction that are stored in one nibble (4 bits) of a code.

    A direction of more than four bits has coarse bits in one nibble and fine bits in another.
    """

    direction: int
    fine: bool
    bits: int


# The directions that share a nibble, from its low bits to its high bits.
Nibble = list[NibblePart]


def allotted(directions: list[Direction], weight: Array, total: int, *, most: int) -> Integers:
    """Allocate the bits of a code to directions, greedily. Return the number of bits of each direction.

    `total` is a multiple of 4. A direction gets at most `most` bits, 4 or 8.

    Each bit goes to the direction where it lowers the weighted mean squared error most (Gersho and Gray 1992, section
    8.3). Then as few bits as possible are moved so that the directions can be ``packed`` into nibbles.
    """
    bits = np.zeros(len(directions), np.int64)
    gain = np.array([_saved(direction, 0) for direction in directions]) * weight
    for _ in range(total):
        j = int(np.argmax(gain))
        bits[j] += 1
        gain[j] = weight[j] * _saved(directions[j], int(bits[j])) if bits[j] < most else -np.inf
    return _packable(bits, directions, weight, most)


def _saved(direction: Direction, bits: int) -> float:
    """Compute how much one more bit reduces the mean squared error of a direction."""
    return direction.left(bits) - direction.left(bits + 1)


def missing(counts: Integers) -> int:
    """Return how many more directions of one bit are needed to fill all nibbles (4 bits) of a code.

    counts[b] directions have b bits.
    """
    one, two, three = (int(counts[b]) for b in (1, 2, 3))
    after_one, after_two, after_three = (int(counts[NIBBLE + b]) for b in (1, 2, 3))
    both = min(after_one, three)
    after_one, three = after_one - both, three - both
    need = after_three + three
    both = min(after_two, two)
    after_two, two = after_two - both, two - both
    need += 2 * after_two
    both = min(after_one, two)
    after_one, two = after_one - both, two - both
    need += both + 3 * after_one + 2 * (two % 2)
    return max(need - one, 0)


def _packable(bits: Integers, directions: list[Direction], weight: Array, most: int) -> Integers:
    """Move bits between directions, where it costs least, until they fill whole nibbles. Return the new bits.

    If no move helps, all bits are allocated again in steps of four.
    """
    bits = bits.copy()
    counts = np.bincount(bits, minlength=SIZES)
    lacking = missing(counts)
    while lacking:
        taken, given = (_cheapest(bits, directions, weight, give=give, most=most) for give in (False, True))
        best: tuple[float, int, int] | None = None
        for source, (cost, i) in taken.items():
            for target, (more, j) in given.items():
                if i == j:
                    continue
                after = counts.copy()
                np.add.at(after, [source, source - 1, target, target + 1], [-1, 1, -1, 1])
                fewer = lacking - missing(after)
                if fewer > 0 and (best is None or (cost + more) / fewer < best[0]):
                    best = (cost + more) / fewer, i, j
        if best is None:
            return _by_nibbles(directions, weight, int(bits.sum()), most)
        bits[best[1]] -= 1
        bits[best[2]] += 1
        counts = np.bincount(bits, minlength=SIZES)
        lacking = missing(counts)
    return bits


def _cheapest(
    bits: Integers, directions: list[Direction], weight: Array, *, give: bool, most: int
) -> dict[int, tuple[float, int]]:
    """Find, for each number of bits, the direction that gains or loses one bit at the lowest cost.

    Return {bits: (cost, direction)}. With `give` directions gain a bit, else they lose one.
    """
    out: dict[int, tuple[float, int]] = {}
    for j, size in enumerate(bits.tolist()):
        if size == (most if give else 0):
            continue
        cost = weight[j] * (-_saved(directions[j], size) if give else _saved(directions[j], size - 1))
        if size not in out or cost < out[size][0]:
            out[size] = float(cost), j
    return out


def _by_nibbles(directions: list[Direction], weight: Array, total: int, most: int) -> Integers:
    """Allocate bits greedily in steps of four. Return the number of bits of each direction.

    Such directions can always be packed into nibbles.
    """
    bits = np.zeros(len(directions), np.int64)
    for _ in range(total // NIBBLE):
        saved = [
            weight[j] * (d.left(int(b)) - d.left(int(b) + NIBBLE)) if b < most else -np.inf
            for j, (d, b) in enumerate(zip(directions, bits, strict=True))
        ]
        bits[int(np.argmax(saved))] += NIBBLE
    return bits


def packed(bits: Integers) -> list[list[Nibble]]:
    """Pack directions into blocks of one nibble (4 bits), or of two if a direction has more than four bits.

    The second nibble of a block has the fine bits of that direction. No direction is in two blocks.
    """
    by_size = [list(np.flatnonzero(bits == size)) for size in range(SIZES)]
    left = {size: [NibblePart(int(j), False, size) for j in by_size[size]] for size in (1, 2, 3)}
    blocks: list[list[Nibble]] = []
    for size in range(MOST_BITS, NIBBLE, -1):
        for j in by_size[size]:
            part = NibblePart(int(j), True, size - NIBBLE)
            blocks.append([[NibblePart(int(j), False, NIBBLE)], [part, *_partners(NIBBLE - part.bits, left)]])
    blocks += [[[NibblePart(int(j), False, NIBBLE)]] for j in by_size[NIBBLE]]
    for size in (3, 2, 1):
        while left[size]:
            part = left[size].pop(0)
            blocks.append([[part, *_partners(NIBBLE - part.bits, left)]])
    return blocks


def _partners(room: int, left: dict[int, list[NibblePart]]) -> Nibble:
    """Remove directions with `room` bits in total from `left`, the largest first. Return them."""
    out: Nibble = []
    while room:
        size = next(size for size in range(room, 0, -1) if left[size])
        out.append(left[size].pop(0))
        room -= size
    return out
