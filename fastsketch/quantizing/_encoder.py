"""A frozen quantizer: a basis, books of 16 vectors a nibble in it, and the rule of a row's two factors."""

from dataclasses import dataclass
from typing import Any, Final, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._threads import one_blas_thread
from fastsketch._validation import Rows, as_integer, as_real, not_finite
from fastsketch.codes._encoder import Arrays, Encoder, Estimate, Tables
from fastsketch.codes._layout import Codes, Layout
from fastsketch.codes._packed import as_codes
from fastsketch.io import _checks as checks
from fastsketch.sketching._plain_rows import plain_rows

Array = NDArray[np.float64]
Narrow = NDArray[np.float32]

# Rows projected at a time, filled up with zeros: every row meets the same instructions, whatever batch it came in.
ENCODE_ROWS = 256
# Directions that a code may use: with all 16-vector books over all of them, what a file may ask for stays small.
MOST_DIRECTIONS = 1 << 12
# Binary exponents of the unit of length.
MOST_EXPONENT = 1000
# Of centred rows in units of length: their squares, and sums of them, are float32 numbers.
FARTHEST: Final = 1e15
# Of a term of the offset.
MOST_WEIGHT: Final = 1e6
# Numbers of all books over all directions, which tables are made of: 1 GB.
MOST_BOOK_ENTRIES: Final = 1 << 28
# A scale that is no number, of a row whose decoded vector says nothing of it.
NO_SCALE = 0.0


@dataclass(frozen=True, eq=False)
class Books:
    """What nibbles stand for: vector c of book j is vectors[j, c] at the directions of the basis that book j is about.

    A row's z, its coordinates in the basis, is encoded book after book: each takes the vector nearest to what is left
    of z in its directions, and leaves the rest to the books after it. The decoded r is the sum of the chosen vectors.

    Parameters
    ----------
    directions : ndarray int32 (n_books, g)
        Directions of each book, filled up with direction 0 where a book has fewer.
    vectors : ndarray float32 (n_books, 16, g)
        Zero where directions are filled up.
    """

    directions: NDArray[np.int32]
    vectors: Narrow

    def dense(self, r: int) -> Narrow:
        """float32 (n_books, 16, r): the vectors with an entry for every direction."""
        n, _, g = self.vectors.shape
        out = np.zeros((n, 16, r), np.float32)
        for k in range(g):
            out[np.arange(n), :, self.directions[:, k]] += self.vectors[:, :, k]
        return out

    def encode(self, z: Narrow) -> tuple[Codes, Narrow]:
        """Nibbles uint8 (n, n_books) of z (n, r), and r (n, r)."""
        n, (n_books, g) = len(z), self.directions.shape
        left = np.array(z.T, order="C")
        nibbles = np.empty((n_books, n), np.uint8)
        for j, vectors in enumerate(self.vectors):
            distance = np.zeros((16, n), np.float32)
            for k in range(g):
                if vectors[:, k].any():
                    difference = left[self.directions[j, k]] - vectors[:, k, np.newaxis]
                    distance += difference * difference
            chosen = nibbles[j] = distance.argmin(axis=0)
            for k in range(g):
                left[self.directions[j, k]] -= vectors[chosen, k]
        return nibbles.T, z - left.T

    def decode(self, nibbles: Codes, r: int) -> Narrow:
        """r float32 (n, r), added up book after book."""
        out = np.zeros((r, len(nibbles)), np.float32)
        for j, vectors in enumerate(self.vectors):
            for k, direction in enumerate(self.directions[j]):
                out[direction] += vectors[nibbles[:, j], k]
        return out.T


class BookEncoder(Encoder):
    """A frozen ``SketchQuantizer``: codes of rows by the basis, the bits and the levels of one moment.

    With z = (x - mean) basis, r the decoded z and n2 = ||x - mean||^2, all in units of ``length``, the factors of a row
    are offset = a n2 + b z'r + c r'r, (a, b, c) the ``weights``, and scale = z'z / z'r, if a code has one.

    Attributes
    ----------
    n_features, width : int
    layout : fastsketch.codes.Layout
    length : float
    """

    def __init__(
        self,
        mean: Array,
        basis: Array,
        books: Books,
        layout: Layout,
        *,
        weights: tuple[float, float, float],
        length: float,
    ) -> None:
        self.n_features, self.layout, self.length = len(mean), layout, length
        self._mean, self._basis, self._books, self._weights = mean, basis, books, weights
        self._narrow_basis = basis.astype(np.float32)
        r = basis.shape[1]
        self._flat = books.dense(r).reshape(-1, r)  # every vector of every book, for tables

    @property
    def mean(self) -> Array:
        """(d,) float64: what rows are centred by."""
        return self._mean.copy()

    @property
    def basis(self) -> Array:
        """(d, r) float64, orthonormal columns: the directions that codes are about."""
        return self._basis.copy()

    def turned(self, basis: Array) -> "BookEncoder":
        """The same mean, books and factors in another basis (d, r)."""
        return BookEncoder(self._mean, basis, self._books, self.layout, weights=self._weights, length=self.length)

    # -- codes of rows ---------------------------------------------------------------------------------------------
    def encode(self, rows: Rows) -> Codes:
        checked = self.checked(rows)
        n = checked.shape[0]
        out = np.empty((n, self.width), np.uint8)
        for start in range(0, n, ENCODE_ROWS):
            self._encode(checked[start : start + ENCODE_ROWS], out[start : start + ENCODE_ROWS], start)
        return out

    def _encode(self, rows: Any, out: Codes, start: int) -> None:
        centred = self._centred(rows, start, "rows")
        z = self._projected(centred)
        nibbles, decoded = self._books.encode(z)
        zr = np.einsum("ij,ij->i", z, decoded)
        offset = scale = None
        if self.layout.offset.n_bytes:
            a, b, c = (np.float32(weight) for weight in self._weights)
            n2 = np.einsum("ij,ij->i", centred, centred)
            offset = a * n2 + b * zr + c * np.einsum("ij,ij->i", decoded, decoded)
        if self.layout.scale.n_bytes:
            zz = np.einsum("ij,ij->i", z, z)
            scale = np.divide(zz, zr, out=np.full_like(zz, NO_SCALE), where=zr > 0)
        out[:] = self.layout.packed(nibbles, offset, scale)

    def _centred(self, rows: Any, start: int, name: str) -> Narrow:
        """(x - mean) / length in float32; ValueError for what is not finite, counted from -start."""
        wide = plain_rows(rows, np.dtype(np.float64))
        with np.errstate(over="ignore", invalid="ignore"):
            out = ((wide - self._mean) / self.length).astype(np.float32)
        good = np.isfinite(wide).all(axis=1)
        if not good.all():
            raise not_finite(start + int(np.argmin(good)), name=name)
        # what float32 does not hold is far outside of all that was learned from
        return np.clip(out, -FARTHEST, FARTHEST, out=out)

    @one_blas_thread
    def _projected(self, centred: Narrow) -> Narrow:
        """z (n, r) of at most ENCODE_ROWS centred rows: the same bits in whichever batch a row comes."""
        n = len(centred)
        if n < ENCODE_ROWS:
            centred = np.vstack([centred, np.zeros((ENCODE_ROWS - n, self.n_features), np.float32)])
        return (centred @ self._narrow_basis)[:n]

    # -- and back --------------------------------------------------------------------------------------------------
    def decode(self, codes: ArrayLike) -> Narrow:
        checked = as_codes(codes, "codes")
        if checked.shape[1] != self.width:
            raise ValueError(f"codes must have {self.width} bytes, as this model makes them, got {checked.shape[1]}")
        out = np.empty((len(checked), self.n_features), np.float32)
        for start in range(0, len(checked), ENCODE_ROWS):
            piece = checked[start : start + ENCODE_ROWS]
            out[start : start + ENCODE_ROWS] = self._decoded(piece)
        return out

    @one_blas_thread
    def _decoded(self, codes: Codes) -> Narrow:
        n = len(codes)
        decoded = np.zeros((ENCODE_ROWS, self._basis.shape[1]), np.float32)
        decoded[:n] = self._books.decode(self.layout.nibbles(codes), self._basis.shape[1])
        # mean + length * decoded @ basis.T
        with np.errstate(over="ignore"):
            return ((decoded @ self._narrow_basis.T)[:n] * self.length + self._mean).astype(np.float32)

    # -- search ----------------------------------------------------------------------------------------------------
    @one_blas_thread
    def tables(self, queries: Any, metric: Estimate) -> Tables:
        wide = plain_rows(queries, np.dtype(np.float64))
        m, n_books = len(wide), len(self._books.vectors)
        with np.errstate(over="ignore"):
            if metric == "euclidean":
                asked = (wide - self._mean) / self.length
                constant = np.einsum("ij,ij->i", asked, asked)
            else:
                asked = wide / self.length
                constant = asked @ (self._mean / self.length)
            z = (asked @ self._basis).astype(np.float32)
        return Tables((z @ self._flat.T).reshape(m, n_books, 16), constant)

    # -- keeping it ------------------------------------------------------------------------------------------------
    def state(self) -> tuple[dict[str, Any], Arrays]:
        state = {
            "n_features": self.n_features,
            "length": self.length,
            "weights": list(self._weights),
            "layout": self.layout.state(),
        }
        books = self._books
        return state, {
            "mean": self._mean,
            "basis": self._basis,
            "directions": books.directions,
            "vectors": books.vectors,
        }

    @classmethod
    def of_state(cls, state: dict[str, Any], arrays: Arrays) -> Self:
        d = as_integer(state["n_features"], "n_features", 1, checks.MOST_COLUMNS)
        length = as_real(state["length"], "length", 2.0**-MOST_EXPONENT, 2.0**MOST_EXPONENT)
        weights = cast("list[Any]", state["weights"])
        if not isinstance(weights, list) or len(weights) != 3:
            raise ValueError(f"weights must be three numbers, got {weights!r}")
        a, b, c = (as_real(weight, "a weight", -MOST_WEIGHT, MOST_WEIGHT) for weight in weights)
        layout = Layout.of_state(state["layout"])
        checks.only(arrays, "mean", "basis", "directions", "vectors")
        for name, axes in (("basis", 2), ("directions", 2)):
            if name not in arrays or arrays[name].ndim != axes:
                raise ValueError(f"array {name!r} must have {axes} axes")
        r, g = arrays["basis"].shape[1], arrays["directions"].shape[1]
        checks.number_within(r, "directions of the basis", 1, min(d, MOST_DIRECTIONS))
        checks.number_within(g, "directions of a book", 1, r)
        checks.finite(arrays, "mean", (d,))
        checks.finite(arrays, "basis", (d, r))
        n = layout.n_tables
        checks.number_within(n, "n_tables", 1, MOST_BOOK_ENTRIES // (16 * r))
        directions = checks.array_of(arrays, "directions", (n, g), np.dtype(np.int32))
        if directions.min() < 0 or directions.max() >= r:
            raise ValueError(f"a book is about a direction outside [0, {r})")
        checks.finite(arrays, "vectors", (n, 16, g), np.dtype(np.float32))
        books = Books(directions, arrays["vectors"])
        return cls(arrays["mean"], arrays["basis"], books, layout, weights=(a, b, c), length=length)
