"""Encoder of a quantizer: a basis, a codebook for every nibble (4 bits) of a code, and an offset for each row."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.validation import Rows, as_integer, as_real, in_place, is_sparse, natural_dtype, not_finite
from fastsketch._kernels.codes import quantize as kernel
from fastsketch.data.files import _checks as checks
from fastsketch.neighbours.codes._encoder import Arrays, Encoder, Estimate, Tables
from fastsketch.neighbours.codes._layout import Codes, Layout
from fastsketch.neighbours.codes._packed_codes import as_codes
from fastsketch.sketching._plain_rows import plain_rows

Array = NDArray[np.float64]
Narrow = NDArray[np.float32]
Places = NDArray[np.int32]

NARROW: Final = np.dtype(np.float32)

# Bytes of rows of one call of the kernel, during which no interrupt is handled.
SLICE_BYTES: Final = 32 << 20
# The largest number of nibbles of a block: all combinations of their words are tried.
MAX_NIBBLES: Final = 2
# The largest binary exponent of the unit of length.
MAX_EXPONENT: Final = 1000
# The largest number of a word, a weight or a parameter of the offset in a file.
MAX_NUMBER: Final = 1e6
# The largest number of entries of all codebooks, from which tables are computed: 1 GB.
MAX_WORD_ENTRIES: Final = 1 << 28


@dataclass(frozen=True, eq=False)
class Books:
    """Codebooks of a quantizer. Each nibble (4 bits) of a code selects one of 16 vectors; a row is approximated by
    their sum.

    The directions of the basis are split into blocks: block b has the g directions start[b] : start[b + 1] and the
    nibbles first[b] : first[b + 1]. The codebook of a nibble has 16 codewords ("words"), vectors of g numbers. A block
    is decoded to the sum r of one word of each of its nibbles; encoding chooses the words of the smallest sum of
    weight_i (z_i - r_i)^2.

    Parameters
    ----------
    start, first : ndarray int32 (n_blocks + 1,)
        Ascending from 0.
    words : ndarray float32
        The codebooks (16, g) of all nibbles, concatenated.
    weights : ndarray float32 (r,)
        Positive.
    squares : ndarray float32 (n_nibbles, 16)
        The learned numbers of the words, which estimates of distances add up instead of an offset; 0 with offsets.
    """

    start: Places
    first: Places
    words: Narrow
    weights: Narrow
    squares: Narrow

    def blocks(self) -> list[tuple[slice, list[Narrow]]]:
        """Return a list of (slice of directions, list of codebooks (16, g)), one for each block of g directions.

        A block has one codebook for each of its nibbles (4 bits).
        """
        out: list[tuple[slice, list[Narrow]]] = []
        position = 0
        for b in range(len(self.start) - 1):
            g, n = int(self.start[b + 1] - self.start[b]), int(self.first[b + 1] - self.first[b])
            block_words = self.words[position : position + n * 16 * g].reshape(n, 16, g)
            position += n * 16 * g
            out.append((slice(int(self.start[b]), int(self.start[b + 1])), list(block_words)))
        return out

    @property
    def n_nibbles(self) -> int:
        """Number of nibbles (4 bits each) of a code."""
        return int(self.first[-1])

    def by_nibble(self) -> tuple[NDArray[np.int64], Narrow]:
        """Return the directions (n_nibbles, g) and the codewords (n_nibbles, 16, g) of each nibble (4 bits) of a code.

        Nibbles with fewer than g directions are padded with zeros.
        """
        max_directions = int(np.diff(self.start).max())
        directions, words = (
            np.zeros((self.n_nibbles, max_directions), np.int64),
            np.zeros((self.n_nibbles, 16, max_directions), np.float32),
        )
        nibble = 0
        for directions_of_block, words_of_block in self.blocks():
            for word in words_of_block:
                directions[nibble, : word.shape[1]] = np.arange(directions_of_block.start, directions_of_block.stop)
                words[nibble, :, : word.shape[1]] = word
                nibble += 1
        return directions, words

    def decode(self, nibbles: Codes) -> Narrow:
        """Convert nibbles to the approximate coordinates of rows that they stand for, in the basis of the encoder.

        Nibbles are (n, n_nibbles), coordinates float32 (n, r).
        """
        out = np.zeros((len(nibbles), len(self.weights)), np.float32)
        for b, (block, words) in enumerate(self.blocks()):
            for k, word in enumerate(words):
                out[:, block] += word[nibbles[:, int(self.first[b]) + k]]
        return out


@dataclass(frozen=True, eq=False)
class OffsetRule:
    """Formula for the offset stored in a code: the row's squared distance from the mean, corrected for the quantization
    error. It makes distance estimates more accurate.

    With n2 = ||x - mean||^2, and z and r the exact and the decoded coordinates,
    offset = n2 - 2 outside (n2 - z'z) - 2 sum over j of inside_j z_j (z_j - r_j) - lowest.
    The two sums are the expected inner products of the error of the code with a query near the row.

    Words cannot represent very long rows, and the correction would make such rows look near. A row of n2 > `reach` is
    therefore coded as the point between mean and row where n2 = reach, without a correction: its offset is
    reach - lowest. A row whose offset would be negative has the offset n2 - lowest.

    Parameters
    ----------
    inside : ndarray float32 (r,)
        Correlation of near rows in each direction.
    outside : float
        Correlation of near rows in all other directions.
    lowest, reach : float
    """

    inside: Narrow
    outside: float
    lowest: float
    reach: float

    def offsets(self, n2: Array, z: Array, decoded: Array) -> Array:
        """Return the offset (n,) that the code of each row stores, given exact and decoded coordinates of the rows.

        Arguments are squared distances from the mean (n,), exact coordinates (n, r) and decoded ones (n, r).
        """
        lost = (z * (z - decoded)) @ self.inside
        return n2 - 2.0 * self.outside * (n2 - np.einsum("ij,ij->i", z, z)) - 2.0 * lost - self.lowest

    def coefficients(self) -> Array:
        """Return the four coefficients of the offset formula as an array, in the order in which the kernel takes them.

        They are those of 1, n2, z'z and the sum over j.
        """
        return np.array([-self.lowest, 1.0 - 2.0 * self.outside, 2.0 * self.outside, -2.0])


class BookEncoder(Encoder):
    """Immutable encoder of a ``SketchQuantizer``, with its basis, codebooks and offsets.

    Attributes
    ----------
    n_features, width : int
    layout : Layout
        Nibbles, and the format of the offset.
    length : float
        A power of two: the unit of all numbers except the mean and the basis.
    """

    def __init__(
        self,
        mean: Array,
        basis: Narrow,
        books: Books,
        rule: OffsetRule,
        layout: Layout,
        *,
        length: float,
        norm: float | None = None,
    ) -> None:
        self.n_features, self.layout, self.length, self.norm = len(mean), layout, length, norm
        self._mean, self._basis, self._books, self._rule = mean, basis, books, rule
        self._by_nibble = books.by_nibble()
        self._kernel = self._create_kernel(mean)

    @cached_property
    def _uncentred_kernel(self) -> kernel.Quantizer:
        """Kernel that encodes rows without subtracting the mean, for inner products."""
        return self._create_kernel(np.zeros(self.n_features))

    def _create_kernel(self, mean: Array) -> kernel.Quantizer:
        """Return a compiled encoder with these codebooks that subtracts `mean` (d,) from rows."""
        books, rule, offset_format = self._books, self._rule, self.layout.offset
        return kernel.Quantizer(
            mean,
            self._basis,
            length=self.length,
            groups=[(block.start, words) for block, words in books.blocks()],
            factor=(offset_format.n_bytes, offset_format.mantissa_bits, offset_format.unit),
            offset=rule.coefficients(),
            weights=books.weights,
            slope=rule.inside,
        )

    @property
    def mean(self) -> Array:
        """Mean of the rows that the quantizer has learned from.

        It is a copy (d,) float64.
        """
        return self._mean.copy()

    @property
    def basis(self) -> Narrow:
        """Matrix with orthonormal columns, the directions in which rows have coordinates.

        It is a copy (d, r) float32.
        """
        return self._basis.copy()

    @property
    def books(self) -> Books:
        """The codebooks, which must not be modified."""
        return self._books

    def with_basis(self, basis: Array) -> "BookEncoder":
        """Return an encoder with another basis (d, r) and the same mean, codebooks and offsets."""
        narrow = basis.astype(np.float32)
        return BookEncoder(self._mean, narrow, self._books, self._rule, self.layout, length=self.length, norm=self.norm)

    # -- codes of rows ---------------------------------------------------------------------------------------------
    def encode(self, rows: Rows) -> Codes:
        checked = self.checked(rows)
        (n, d), dtype = checked.shape, natural_dtype(checked.dtype)
        out = np.empty((n, self.width), np.uint8)
        step = max(1, SLICE_BYTES // (d * dtype.itemsize))
        for start in range(0, n, step):
            bad = self._encode(checked[start : start + step], dtype, out[start : start + step])
            if bad >= 0:
                raise not_finite(start + bad)
        return out

    def _encode(self, rows: Any, dtype: Any, out: Codes) -> int:
        """Encode rows, and write the codes to `out`. Return the index of the first row that is not finite, or -1."""
        square = np.empty(len(out))
        if is_sparse(rows):
            first_bad = kernel.csr(
                self._kernel,
                in_place(rows.indptr, np.int64),
                in_place(rows.indices, np.int32),
                in_place(rows.data, dtype),
                codes=out,
                square=square,
            )
        else:
            rows = plain_rows(rows, dtype)
            first_bad = kernel.dense(self._kernel, rows, codes=out, square=square)
        if first_bad < 0:
            beyond_reach = np.flatnonzero(~(square <= self._rule.reach))
            if len(beyond_reach):
                out[beyond_reach] = self._encode_shortened(
                    rows[beyond_reach].toarray() if is_sparse(rows) else rows[beyond_reach], square[beyond_reach]
                )
            if self.layout.offset.n_bytes:
                end = self.layout.nibble_bytes
                low = np.flatnonzero(~out[:, end:].any(axis=1) | ~(square <= self._rule.reach))
                low_codes = out[low]
                self.layout.write_factors(
                    low_codes, np.minimum(square[low], self._rule.reach) - self._rule.lowest, None
                )
                out[low] = low_codes
        return first_bad

    def _encode_shortened(self, rows: Any, square: Array) -> Codes:
        """Return the codes of rows that are too far from the mean for the codebooks, after moving them closer to it.

        Rows are (n, d) with squared distances (n,) beyond the reach of ``OffsetRule``. Return codes (n, width).
        """
        with np.errstate(over="ignore", invalid="ignore"):
            share = np.sqrt(self._rule.reach / square)[:, np.newaxis]
            shortened = self._mean + np.where(share > 0, (rows - self._mean) * share, 0.0)
        codes = np.empty((len(shortened), self.width), np.uint8)
        kernel.dense(self._kernel, np.ascontiguousarray(shortened), codes=codes)
        return codes

    def decode(self, codes: ArrayLike) -> Narrow:
        checked = as_codes(codes, "codes")
        if checked.shape[1] != self.width:
            raise ValueError(f"codes must have {self.width} bytes, as this model makes them, got {checked.shape[1]}")
        out = np.empty((len(checked), self.n_features), np.float32)
        step = max(1, SLICE_BYTES // (4 * self.n_features))
        for start in range(0, len(checked), step):
            kernel.decode(self._kernel, checked[start : start + step], out[start : start + step])
        return out

    # -- search ----------------------------------------------------------------------------------------------------
    def tables(self, queries: Any, metric: Estimate) -> Tables:
        # the kernel sums in a fixed order: results do not depend on the batch or the machine
        wide = plain_rows(queries, np.dtype(np.float64))
        z, square = np.empty((len(wide), self._basis.shape[1]), np.float32), np.empty(len(wide))
        if metric == "euclidean":
            kernel.dense(self._kernel, wide, z=z, square=square)
            constant = square + self._rule.lowest
        else:
            kernel.dense(self._uncentred_kernel, wide, z=z, square=square)
            with np.errstate(over="ignore"):
                constant = np.ascontiguousarray(wide / self.length * (self._mean / self.length)).sum(axis=1)
        table = np.zeros((len(wide), self.layout.n_tables, 16), np.float32)
        directions, words = self._by_nibble
        for g in range(directions.shape[1]):
            table += z[:, directions[:, g], np.newaxis] * words[:, :, g]
        if metric == "euclidean":
            table -= np.float32(0.5) * self._books.squares
        return Tables(table, constant)

    # -- keeping it ------------------------------------------------------------------------------------------------
    def state(self) -> tuple[dict[str, Any], Arrays]:
        books, rule = self._books, self._rule
        state = {
            "n_features": self.n_features,
            "length": self.length,
            "outside": rule.outside,
            "lowest": rule.lowest,
            "reach": rule.reach,
            "layout": self.layout.state(),
        }
        if self.norm is not None:
            state["norm"] = self.norm
        return state, {
            "mean": self._mean,
            "basis": self._basis,
            "start": books.start,
            "first": books.first,
            "words": books.words,
            "weights": books.weights,
            "squares": books.squares,
            "inside": rule.inside,
        }

    @classmethod
    def of_state(cls, state: dict[str, Any], arrays: Arrays) -> Self:
        d = as_integer(state["n_features"], "n_features", 1, checks.MOST_COLUMNS)
        length = as_real(state["length"], "length", 2.0**-MAX_EXPONENT, 2.0**MAX_EXPONENT)
        if np.frexp(length)[0] != 0.5:
            raise ValueError(f"length must be a power of two, got {length}")
        outside, lowest = (as_real(state[name], name, -MAX_NUMBER, MAX_NUMBER) for name in ("outside", "lowest"))
        reach = as_real(state["reach"], "reach", 0.0, MAX_NUMBER)
        norm = state.get("norm")
        norm = None if norm is None else as_real(norm, "norm", 2.0**-MAX_EXPONENT, 2.0**MAX_EXPONENT)
        layout = Layout.of_state(state["layout"])
        checks.only(arrays, "mean", "basis", "start", "first", "words", "weights", "squares", "inside")
        start, first = (_ascending_array(arrays, name) for name in ("start", "first"))
        if len(start) != len(first):
            raise ValueError(f"{len(start) - 1} blocks of directions cannot have {len(first) - 1} of nibbles")
        r, n = int(start[-1]), int(first[-1])
        if n != layout.n_tables or layout.scale.n_bytes:
            raise ValueError(f"{n} nibbles and an offset are no code of this layout")
        checks.number_within(r, "directions of the basis", 1, min(d, MAX_WORD_ENTRIES // (16 * n)))
        widest = int(np.diff(first.astype(np.int64)).max())
        checks.number_within(widest, "nibbles of a block", 1, MAX_NIBBLES)
        n_words = 16 * sum(int(g) * int(m) for g, m in zip(np.diff(start), np.diff(first), strict=True))
        checks.finite(arrays, "mean", (d,))
        numbers = {"basis": (d, r), "words": (n_words,), "weights": (r,), "squares": (n, 16), "inside": (r,)}
        for name, shape in numbers.items():
            checks.finite(arrays, name, shape, NARROW)
            checks.number_within(float(np.abs(arrays[name]).max()), f"the largest number of {name}", 0, MAX_NUMBER)
        if not (arrays["weights"] > 0).all():
            raise ValueError("weights of directions must be positive")
        books = Books(start, first, arrays["words"], arrays["weights"], arrays["squares"])
        rule = OffsetRule(arrays["inside"], outside, lowest, reach)
        return cls(arrays["mean"], arrays["basis"], books, rule, layout, length=length, norm=norm)


def _ascending_array(arrays: Arrays, name: str) -> Places:
    """Return a named array of a file after validating it: int32, starting at 0 and strictly ascending. ValueError
    otherwise.
    """
    array = arrays.get(name)
    if array is None or array.ndim != 1 or len(array) < 2 or array.dtype != np.int32:
        raise ValueError(f"array {name!r} must be int32 (n_blocks + 1,)")
    if array[0] != 0 or (array[1:] <= array[:-1]).any():
        raise ValueError(f"array {name!r} must ascend from 0")
    return array
