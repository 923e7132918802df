"""Greedy allocation of bits to directions, and packing of directions into nibbles, the 4-bit units of a code."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch.neighbours.quantizing._levels import MAX_BITS, NIBBLE, Direction

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

N_SIZES: Final = MAX_BITS + 1


class NibblePart(NamedTuple):
    """Some bits of one direction that share a nibble (4 bits) of a code with bits of other directions.

    A direction of more than four bits has coarse bits in one nibble and fine bits in another.
    """

    direction: int
    fine: bool
    bits: int


# The directions that share a nibble, from its low bits to its high bits.
Nibble = list[NibblePart]


def allocate_bits(directions: list[Direction], weight: Array, total: int, *, max_bits: int) -> Integers:
    """Return the number of bits (r,) of each direction, chosen greedily: each bit goes where it lowers the error most.

    Each bit goes to the direction where it lowers the weighted mean squared error most (Gersho and Gray 1992, section
    8.3). Then as few bits as possible are moved so that ``pack_directions`` can pack the directions into nibbles.

    Parameters
    ----------
    directions : list of Direction
        Scalar quantizers of the r directions.
    weight : ndarray (r,)
        Weights of their squared errors.
    total : int
        Number of bits of a code, a multiple of 4.
    max_bits : int
        Largest number of bits of a direction, 4 or 8.
    """
    bits = np.zeros(len(directions), np.int64)
    gain = np.array([_error_reduction(direction, 0) for direction in directions]) * weight
    for _ in range(total):
        j = int(np.argmax(gain))
        bits[j] += 1
        gain[j] = weight[j] * _error_reduction(directions[j], int(bits[j])) if bits[j] < max_bits else -np.inf
    return _make_packable(bits, directions, weight, max_bits)


def _error_reduction(direction: Direction, bits: int) -> float:
    """Return by how much the mean squared error of a direction decreases if it gets one more bit."""
    return direction.residual_error(bits) - direction.residual_error(bits + 1)


def count_missing_directions(counts: Integers) -> int:
    """Return how many directions with one bit must be added so that all directions can be packed into whole nibbles.
    A nibble is 4 bits of a code; the result is 0 if packing is possible already.

    counts[b] directions have b bits.
    """
    ones, twos, threes = (int(counts[b]) for b in (1, 2, 3))
    fives, sixes, sevens = (int(counts[NIBBLE + b]) for b in (1, 2, 3))
    pairs = min(fives, threes)
    fives, threes = fives - pairs, threes - pairs
    needed = sevens + threes
    pairs = min(sixes, twos)
    sixes, twos = sixes - pairs, twos - pairs
    needed += 2 * sixes
    pairs = min(fives, twos)
    fives, twos = fives - pairs, twos - pairs
    needed += pairs + 3 * fives + 2 * (twos % 2)
    return max(needed - ones, 0)


def _make_packable(bits: Integers, directions: list[Direction], weight: Array, max_bits: int) -> Integers:
    """Return numbers of bits (r,) that fill whole nibbles (4 bits), changed from `bits` at the lowest cost.

    If no move helps, all bits are allocated again in steps of four.
    """
    bits = bits.copy()
    counts = np.bincount(bits, minlength=N_SIZES)
    n_missing = count_missing_directions(counts)
    while n_missing:
        donors, receivers = (
            _cheapest_moves(bits, directions, weight, give=give, max_bits=max_bits) for give in (False, True)
        )
        best: tuple[float, int, int] | None = None
        for source, (cost, i) in donors.items():
            for target, (receiver_cost, j) in receivers.items():
                if i == j:
                    continue
                new_counts = counts.copy()
                np.add.at(new_counts, [source, source - 1, target, target + 1], [-1, 1, -1, 1])
                reduction = n_missing - count_missing_directions(new_counts)
                if reduction > 0 and (best is None or (cost + receiver_cost) / reduction < best[0]):
                    best = (cost + receiver_cost) / reduction, i, j
        if best is None:
            return _allocate_nibbles(directions, weight, int(bits.sum()), max_bits)
        bits[best[1]] -= 1
        bits[best[2]] += 1
        counts = np.bincount(bits, minlength=N_SIZES)
        n_missing = count_missing_directions(counts)
    return bits


def _cheapest_moves(
    bits: Integers, directions: list[Direction], weight: Array, *, give: bool, max_bits: int
) -> dict[int, tuple[float, int]]:
    """Return {b: (cost, direction)}: for each number of bits b, the direction that loses (or gains) a bit most cheaply.

    With `give` directions gain a bit, otherwise they lose one. Costs are changes of the weighted squared error.
    """
    out: dict[int, tuple[float, int]] = {}
    for j, size in enumerate(bits.tolist()):
        if size == (max_bits if give else 0):
            continue
        cost = weight[j] * (
            -_error_reduction(directions[j], size) if give else _error_reduction(directions[j], size - 1)
        )
        if size not in out or cost < out[size][0]:
            out[size] = float(cost), j
    return out


def _allocate_nibbles(directions: list[Direction], weight: Array, total: int, max_bits: int) -> Integers:
    """Allocate bits greedily in steps of four, which can always be packed into nibbles. Return the number of bits of
    each direction.

    Such directions can always be packed into nibbles.
    """
    bits = np.zeros(len(directions), np.int64)
    for _ in range(total // NIBBLE):
        reductions = [
            weight[j] * (d.residual_error(int(b)) - d.residual_error(int(b) + NIBBLE)) if b < max_bits else -np.inf
            for j, (d, b) in enumerate(zip(directions, bits, strict=True))
        ]
        bits[int(np.argmax(reductions))] += NIBBLE
    return bits


def pack_directions(bits: Integers) -> list[list[Nibble]]:
    """Assign the bits of all directions to nibbles (4 bits), and return a list of blocks of one or two nibbles.

    The second nibble of a block has the fine bits of that direction. No direction is in two blocks.
    """
    by_size = [list(np.flatnonzero(bits == size)) for size in range(N_SIZES)]
    unpacked = {size: [NibblePart(int(j), False, size) for j in by_size[size]] for size in (1, 2, 3)}
    blocks: list[list[Nibble]] = []
    for size in range(MAX_BITS, NIBBLE, -1):
        for j in by_size[size]:
            nibble_part = NibblePart(int(j), True, size - NIBBLE)
            blocks.append(
                [
                    [NibblePart(int(j), False, NIBBLE)],
                    [nibble_part, *_take_partners(NIBBLE - nibble_part.bits, unpacked)],
                ]
            )
    blocks += [[[NibblePart(int(j), False, NIBBLE)]] for j in by_size[NIBBLE]]
    for size in (3, 2, 1):
        while unpacked[size]:
            nibble_part = unpacked[size].pop(0)
            blocks.append([[nibble_part, *_take_partners(NIBBLE - nibble_part.bits, unpacked)]])
    return blocks


def _take_partners(n_bits: int, unpacked: dict[int, list[NibblePart]]) -> Nibble:
    """Remove directions with `n_bits` bits in total from `unpacked`, in place, and return them as a list.

    They fill the rest of a nibble (4 bits).
    """
    out: Nibble = []
    while n_bits:
        size = next(size for size in range(n_bits, 0, -1) if unpacked[size])
        out.append(unpacked[size].pop(0))
        n_bits -= size
    return out
