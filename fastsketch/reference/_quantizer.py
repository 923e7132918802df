"""Vector quantization of rows in plain NumPy, with the same bits as csrc/fs_project.c and fs_quantize.c.

Notation: rows X (n, d), their mean (d,), a basis W (d, r), a unit of length; z = (X - mean) W / length in float32.
A group is (start, words): one or two arrays of words (16, count) for directions start .. start + count - 1 of z.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Group = tuple[int, Sequence[Floats]]
BOUND = 2.0**50


class SmallFloat(NamedTuple):
    """Storage format of a positive number as a float of 0, 1 or 2 bytes."""

    n_bytes: int
    mantissa_bits: int = 0
    unit: float = 1.0


def project(rows: Any, mean: Any, basis: Floats, *, length: float = 1.0) -> tuple[Floats, NDArray[np.float64]]:
    """Return (projections, squared lengths) of centred, scaled rows on a basis, in float32.

    Every product and sum is rounded to float32, columns in order.
    """
    centred = (np.asarray(rows, np.float64) - mean) * (1.0 / length)
    x = np.clip(centred, -BOUND, BOUND).astype(np.float32)
    z = np.zeros((len(x), basis.shape[1]), np.float32)
    square = np.zeros(len(x))
    for k in range(x.shape[1]):
        z += x[:, k, np.newaxis] * basis[k]
        square += x[:, k].astype(np.float64) ** 2
    return z, square


def project_sparse(rows: Any, mean: Any, basis: Floats, *, length: float = 1.0) -> tuple[Floats, NDArray[np.float64]]:
    """Return (projections, squared lengths) of centred, scaled CSR rows on a basis.

    Only stored entries are read. Sums are in float64 and rounded once.
    """
    scale = 1.0 / length
    wide, scaled = basis.astype(np.float64), np.asarray(mean) * scale
    base, mean_square = np.zeros(basis.shape[1]), 0.0
    for k in range(len(scaled)):
        base += scaled[k] * wide[k]
        mean_square += scaled[k] * scaled[k]
    z, square = np.empty((rows.shape[0], basis.shape[1]), np.float32), np.empty(rows.shape[0])
    for i in range(rows.shape[0]):
        total, size = -base, mean_square
        for e in range(rows.indptr[i], rows.indptr[i + 1]):
            k = rows.indices[e]
            x = float(np.clip(float(rows.data[e]) * scale, -BOUND, BOUND))
            size += (x - scaled[k]) * (x - scaled[k]) - scaled[k] * scaled[k]
            total = total + x * wide[k]
        z[i], square[i] = total, max(size, 0.0)
    return z, square


def _products(z: Any, words: Any) -> Any:
    total: Any = z[:, 0, np.newaxis] * words[:, 0]
    for k in range(1, words.shape[1]):
        total = total + z[:, k, np.newaxis] * words[:, k]
    return total


def _half_square(words: Any, weights: Any) -> Any:
    total = np.zeros(words.shape[:-1])
    for k in range(words.shape[-1]):
        total += words[..., k].astype(np.float64) ** 2 * float(weights[k])
    return (total / 2).astype(np.float32)


def nibbles(z: Floats, groups: Sequence[Group], weights: Floats) -> NDArray[np.uint8]:
    """Return the 4-bit indices of the codewords nearest to each row by weighted squared distance.
    Of equal distances, the lowest index is returned.

    The result is (n, number of nibbles).
    """
    out: list[Any] = []
    for start, group in groups:
        words: list[Any] = list(group)
        own = slice(start, start + words[0].shape[1])
        part, weight = z[:, own], weights[own]
        if len(words) == 1:
            out.append(np.argmin(_half_square(words[0], weight) - _products(part, words[0] * weight), axis=1))
            continue
        # rest[i, b, a]: what is left to the first nibble when it is a and the second b
        half = _half_square(words[0][np.newaxis] + words[1][:, np.newaxis], weight)
        rest = half - _products(part, words[1] * weight)[:, :, np.newaxis]
        first = np.argmin(rest.min(axis=1) - _products(part, words[0] * weight), axis=1)
        out += [first, np.argmin(rest[np.arange(len(z)), :, first], axis=1)]
    return np.array(out, np.uint8).reshape(len(out), len(z)).T


def chosen(codes: NDArray[np.uint8], groups: Sequence[Group], r: int) -> Floats:
    """Return the codewords that 4-bit indices select; directions that belong to no group are zero."""
    out: Any = np.zeros((len(codes), r), np.float32)
    j = 0
    for start, words in groups:
        for at, table in enumerate(words):
            word: Any = table[codes[:, j]]
            part = slice(start, start + table.shape[1])
            out[:, part] = out[:, part] + word if at else word
            j += 1
    return out


def sums(z: Floats, square: Any, word: Floats, groups: Sequence[Group], slope: Floats) -> NDArray[np.float64]:
    """Return four numbers (n, 4) of each row, of which the offset in its code is a linear combination.

    They are 1, |row - mean|^2, |z|^2, and the sum of slope z (z - word) by group.
    """
    wide, taken = z.astype(np.float64), word.astype(np.float64)
    out = np.zeros((len(z), 4))
    out[:, 0], out[:, 1] = 1, square
    for j in range(z.shape[1]):
        out[:, 2] += wide[:, j] ** 2
    for start, words in groups:
        for k in range(start, start + words[0].shape[1]):
            out[:, 3] += float(slope[k]) * wide[:, k] * (wide[:, k] - taken[:, k])
    return out


def _weighed(coefficients: Any, values: Any) -> Any:
    total = np.zeros(len(values))
    for t in range(4):
        total += coefficients[t] * values[:, t]
    return total


def small_float(kind: SmallFloat, values: Any) -> NDArray[np.uint8]:
    """Return numbers encoded as small floats of 0, 1 or 2 bytes, with the low byte first."""
    with np.errstate(over="ignore"):
        ratio: Any = np.asarray(values).astype(np.float32) / np.float32(kind.unit)
    shift = 23 - kind.mantissa_bits
    bits = np.maximum(ratio, np.float32(1)).view(np.uint32).astype(np.int64) - (127 << 23)
    u = np.minimum((bits + ((1 << shift) >> 1)) >> shift, (1 << 8 * kind.n_bytes) - 1)
    return np.stack([(u >> (8 * b)).astype(np.uint8) for b in range(kind.n_bytes)], axis=-1)


def encode(
    z: Floats,
    square: Any,
    groups: Sequence[Group],
    *,
    factor: SmallFloat,
    offset: Any,
    weights: Floats,
    slope: Floats,
) -> NDArray[np.uint8]:
    """Encode projected rows as bytes: two 4-bit codeword indices in each byte, then an offset as a small float.

    The low nibble of a byte comes first. The offset is a weighted sum of the four statistics of ``sums``.
    """
    halves = nibbles(z, groups, weights)
    if halves.shape[1] % 2:
        halves = np.column_stack([halves, np.zeros(len(halves), np.uint8)])
    parts: list[Any] = [halves[:, ::2] | halves[:, 1::2] << 4]
    if factor.n_bytes:
        values = sums(z, square, chosen(halves, groups, z.shape[1]), groups, slope)
        parts.append(small_float(factor, _weighed(offset, values)))
    return np.concatenate(parts, axis=1).astype(np.uint8)
