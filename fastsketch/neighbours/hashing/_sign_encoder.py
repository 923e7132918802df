"""Encoders of rows as sign bits, and estimates of distances from these bits."""

from abc import abstractmethod
from collections.abc import Iterator
from itertools import product
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.validation import Rows, as_flag, as_real, check_finite, is_sparse, natural_dtype
from fastsketch._kernels.hashing.encode import rows_of_part
from fastsketch.data.files import _checks as checks
from fastsketch.neighbours.codes import Encoder
from fastsketch.neighbours.codes._code_factors import NOTHING, Minifloat
from fastsketch.neighbours.codes._encoder import Arrays, Estimate, Tables
from fastsketch.neighbours.codes._layout import Codes, Layout
from fastsketch.neighbours.codes._packed_codes import as_codes, pack
from fastsketch.neighbours.hashing._linear_scores import compute_scores

Array = NDArray[np.float64]

# A factor has two bytes: its relative error is below 2^-10, and its range is 2^-64 to 2^64 units. With factors of one
# byte, over 16 powers of two, the recall on sift5k with 128 bits was 0.005 lower than 0.597.
FACTOR = Minifloat(2, 9, 2.0**-64)
FACTOR_BYTES = 2 * FACTOR.n_bytes
# Rows whose scores are computed at a time.
PIECE_ROWS = 2048
# The largest binary exponent of the unit of length.
MAX_EXPONENT = 500
# Signs of the four bits of a nibble, (16, 4).
SIGNS = np.array([signs[::-1] for signs in product((-1.0, 1.0), repeat=4)])


class ProjectedRows(NamedTuple):
    """Rows after projection: signed distances to the hyperplane of each bit, and squared distances from the mean.

    Scores are (n, n_bits) and squares (n,), in units of ``length`` and its square.
    """

    scores: Array
    squares: Array


class SignEncoder(Encoder):
    """Encoder that stores the signs of a row's projections, and optionally two numbers that refine distances.

    The scores z have the signs s. With `factors` a code also has an offset and a scale.

    A row x is approximated by mu + scale P s, where P has the directions of the scores as columns. With factors,
    offset = ||x - mu||^2, and scale = ||z||^2 / ||z||_1 if P is orthonormal (`spans`), else ||x - mu||^2 / ||z||_1.
    Then the estimated inner product of a row with itself is exact (the estimator of RaBitQ, in learned directions).
    Without factors a row is taken to have the length and the scale of the query, so that only angles are compared.

    A subclass sets ``n_features``, ``length`` and ``spans``, and calls ``_set_layout``.
    """

    has_bits: ClassVar[bool] = True

    n_bits: int
    factors: bool
    spans: bool

    def _set_layout(self, n_bits: int, *, factors: bool) -> None:
        """Set the attributes ``n_bits``, ``factors`` and ``layout`` of a new encoder."""
        factor = FACTOR if factors else NOTHING
        self.n_bits, self.factors = n_bits, factors
        self.layout = Layout(-(-n_bits // 4), factor, factor)

    @abstractmethod
    def _project(self, rows: Any) -> ProjectedRows:
        """Return the projections of validated rows: signed distances to the hyperplanes, and squared distances from the
        mean.
        """

    @abstractmethod
    def _project_uncentred(self, rows: Any) -> tuple[Array, Array]:
        """Return the projections of rows without subtracting the mean, and the rows' inner products with the mean.
        Inner-product search needs both.

        Rows are validated floats. Scores are (n, n_bits), inner products (n,).
        """

    def scores(self, rows: Any) -> NDArray[np.floating[Any]]:
        """Compute the signed distances of validated rows to the hyperplanes of the bits.

        They are (n, n_bits), float32 for float32 rows, else float64.
        """
        out = np.empty((rows.shape[0], self.n_bits), natural_dtype(rows.dtype))
        for block, rows_block in self._blocks_of(rows):
            out[block] = self._project(rows_block).scores
        return out

    def bits(self, rows: Any) -> Codes:
        """Return the packed sign bits of validated rows.

        They are uint8 (n, ceil(n_bits / 8)).
        """
        out = np.empty((rows.shape[0], self.layout.nibble_bytes), np.uint8)
        for block, rows_block in self._blocks_of(rows):
            out[block] = pack(self._project(rows_block).scores > 0)
        return out

    def encode(self, rows: Rows) -> Codes:
        """Encode rows as packed sign bits, followed by two numbers of each row if `factors` is set.

        Rows are array_like or scipy.sparse (n, d), or one row (d,). Codes are uint8 (n, width).
        """
        checked = self.checked(rows)
        if not self.factors:
            return self.bits(checked)
        out = np.empty((checked.shape[0], self.width), np.uint8)
        for block, rows_block in self._blocks_of(checked):
            projected = self._project(rows_block)
            out[block, : self.layout.nibble_bytes] = pack(projected.scores > 0)
            self.layout.write_factors(out[block], projected.squares, self._scale(projected))
        return out

    def _block_rows(self) -> int:
        """Return how many rows are projected at a time, to limit memory."""
        return PIECE_ROWS

    def _blocks_of(self, rows: Any) -> Iterator[tuple[slice, Any]]:
        """Yield (slice, float rows) for consecutive slices of rows. Raise ValueError if a row is not finite."""
        step = self._block_rows()
        for start in range(0, rows.shape[0], step):
            piece = rows[start : start + step]
            check_finite(piece, offset=start)
            yield slice(start, start + step), piece.astype(natural_dtype(piece.dtype), copy=False)

    def _scale(self, projected: ProjectedRows) -> Array:
        """Return for each row the factor on its signs that makes their product with the row its squared length.

        It is (n,), and 0 for a row at the mean.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            squares = _row_sums(projected.scores * projected.scores) if self.spans else projected.squares
            sums = _row_sums(np.abs(projected.scores))
            out = squares / np.where(sums > 0, sums, 1.0)
        return np.where(np.isnan(out), np.inf, out)

    def tables(self, queries: Any, metric: Estimate) -> Tables:
        with np.errstate(over="ignore", invalid="ignore"):
            queries = queries.astype(np.float64)
            projected = self._project(queries)
            scores, constant = (
                (projected.scores, projected.squares) if metric == "euclidean" else self._project_uncentred(queries)
            )
            if not self.factors:
                scores = scores * self._scale(projected)[:, np.newaxis]
                constant = 2.0 * constant if metric == "euclidean" else constant
            return Tables(_sign_tables(scores), constant)


def _row_sums(values: Array) -> Array:
    """Return the sum of each row, added in an order that depends only on the length of a row."""
    return np.ascontiguousarray(values).sum(axis=1)


def _sign_tables(scores: Array) -> NDArray[np.float32]:
    """Return lookup tables for queries: for every four projections, their sums with all 16 patterns of signs.

    Tables are (m, n_tables, 16) for scores (m, n_bits).
    """
    m, n_bits = scores.shape
    n_tables = -(-n_bits // 4)
    groups = np.zeros((m, n_tables, 4))
    groups.reshape(m, 4 * n_tables)[:, :n_bits] = scores
    # T = groups @ SIGNS.T, summed in a fixed order
    out = groups[:, :, 0, np.newaxis] * SIGNS[:, 0]
    for b in range(1, 4):
        out += groups[:, :, b, np.newaxis] * SIGNS[:, b]
    limit = float(np.finfo(np.float32).max)
    return np.clip(out, -limit, limit).astype(np.float32)


class LinearSignEncoder(SignEncoder):
    """Encoder of the signs of (x - mean) @ projection for each row x.

    Parameters
    ----------
    projection : ndarray float64 (d, n_bits)
    mean : ndarray float64 (d,)
    offsets : ndarray float64 (n_bits,)
        mean @ projection.
    factors : bool
    spans : bool
        Whether the columns of the projection are orthonormal.
    length : float
        A power of two near the typical distance of rows from their mean; 1 if it is unknown.
    """

    def __init__(
        self, projection: Array, mean: Array, offsets: Array, *, factors: bool, spans: bool, length: float = 1.0
    ) -> None:
        self.n_features = len(projection)
        self.projection, self.mean, self.offsets = projection, mean, offsets
        self.spans, self.length = spans, length
        self._set_layout(len(offsets), factors=factors)

    @property
    def basis(self) -> Array | None:
        """The projection if codes can be decoded with it, else None.

        Codes can be decoded if the columns of the projection are orthonormal and codes have factors.
        """
        return self.projection if self.spans and self.factors else None

    def with_factors(self) -> "LinearSignEncoder":
        """Return an encoder with the same bits that also stores an offset and a scale for each row."""
        return LinearSignEncoder(
            self.projection, self.mean, self.offsets, factors=True, spans=self.spans, length=self.length
        )

    def scores(self, rows: Any) -> NDArray[np.floating[Any]]:
        """Compute the signed distances of validated rows to the hyperplanes of the bits.

        They are (n, n_bits), float32 for float32 rows, else float64.
        """
        return self._scores(rows, self.offsets)

    def bits(self, rows: Any) -> Codes:
        """Return the packed sign bits of validated rows.

        They are uint8 (n, ceil(n_bits / 8)).
        """
        out = np.empty((rows.shape[0], self.layout.nibble_bytes), np.uint8)
        compute_scores(rows, self.projection, self.offsets, codes=out)
        return out

    def _block_rows(self) -> int:  # a multiple of the kernel's task size, so that results equal those of one call
        task_rows = rows_of_part(self.n_features, self.n_bits)
        return max(1, PIECE_ROWS // task_rows) * task_rows

    def _project(self, rows: Any) -> ProjectedRows:
        return ProjectedRows(self._scores(rows, self.offsets) / self.length, self._squares(rows))

    def _project_uncentred(self, rows: Any) -> tuple[Array, Array]:
        centre = np.ascontiguousarray(self.mean[:, np.newaxis])
        products = np.empty((rows.shape[0], 1), rows.dtype)
        compute_scores(rows, centre, np.zeros(1), scores=products)
        scores = self._scores(rows, np.zeros(self.n_bits)) / self.length
        return scores, products[:, 0] / self.length / self.length

    def _scores(self, rows: Any, offsets: Array) -> NDArray[Any]:
        """Compute rows @ projection - offsets, (n, n_bits)."""
        out = np.empty((rows.shape[0], self.n_bits), natural_dtype(rows.dtype))
        compute_scores(rows, self.projection, offsets, scores=out)
        return out

    def _squares(self, rows: Any) -> Array:
        """Compute the squared distance of each row from the mean, in units of ``length`` squared."""
        with np.errstate(over="ignore"):
            if not is_sparse(rows):
                centred = (rows - self.mean) / self.length
                return _row_sums(centred * centred)
            # mean'mean + sum over stored entries of (x - mean)^2 - mean^2, without a dense copy
            stored_means = self.mean[rows.indices]
            x, mu = (rows.data - stored_means) / self.length, stored_means / self.length
            out = np.full(rows.shape[0], float(_row_sums((self.mean / self.length)[np.newaxis] ** 2)[0]))
            lengths: NDArray[np.int64] = np.diff(rows.indptr)
            n: int = rows.shape[0]
            entries = np.repeat(np.arange(n), lengths)
            out += np.bincount(entries, weights=x * x - mu * mu, minlength=rows.shape[0])
            return np.maximum(out, 0.0)

    def decode(self, codes: ArrayLike) -> NDArray[np.float32]:
        """Decode codes to approximate rows. Raise TypeError without factors or without orthonormal directions.

        Rows are float32 (n, d): mean + scale P s.
        """
        if not (self.factors and self.spans):
            condition = "with factors alone" if self.spans else "of orthonormal directions alone"
            raise TypeError(f"signs stand for rows {condition}: these codes cannot be decoded")
        packed = as_codes(codes, "codes", width=self.width)
        body = packed[:, : self.layout.nibble_bytes]
        signs = 2.0 * np.unpackbits(body, axis=1, count=self.n_bits, bitorder="little") - 1.0
        scale = self.layout.scales(packed)
        assert scale is not None  # it has factors
        weighted = signs * (scale.astype(np.float64) * self.length)[:, np.newaxis]
        return (self.mean + weighted @ self.projection.T).astype(np.float32)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        arrays = {"projection": self.projection, "mean": self.mean, "offsets": self.offsets}
        return {"factors": self.factors, "spans": self.spans, "length": self.length}, arrays

    @classmethod
    def of_state(cls, state: dict[str, Any], arrays: Arrays) -> Self:
        checks.only(arrays, "projection", "mean", "offsets")
        d, n_bits = arrays["mean"].size, arrays["offsets"].size
        checks.number_within(d, "n_features", 1, checks.MOST_COLUMNS)
        checks.number_within(n_bits, "n_bits", 1, checks.MOST_COLUMNS)
        for name, shape in (("projection", (d, n_bits)), ("mean", (d,)), ("offsets", (n_bits,))):
            checks.finite(arrays, name, shape)
        return cls(
            arrays["projection"],
            arrays["mean"],
            arrays["offsets"],
            factors=as_flag(state["factors"], "factors"),
            spans=as_flag(state["spans"], "spans"),
            length=as_length(state["length"]),
        )


def as_length(value: Any) -> float:
    """Validate a unit of length, which must be a power of two whose square does not overflow. Return it as a float."""
    length = as_real(value, "length", 2.0**-MAX_EXPONENT, 2.0**MAX_EXPONENT)
    if np.frexp(length)[0] != 0.5:
        raise ValueError(f"length must be a power of two, got {length}")
    return length


def length_near(size: float) -> float:
    """Return the largest power of two that is at most `size`, as a unit of length. Return 1 if `size` is 0 or not
    finite.
    """
    if not (size > 0 and np.isfinite(size)):
        return 1.0
    return float(np.ldexp(1.0, int(np.clip(np.frexp(size)[1] - 1, -MAX_EXPONENT, MAX_EXPONENT))))
