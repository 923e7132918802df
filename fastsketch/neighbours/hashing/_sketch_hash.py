"""Hash functions learned from a stream by sketching: FROSH, OSH and their relatives in one class."""

from typing import Any, Final, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.threads import one_blas_thread
from fastsketch._core.validation import as_array
from fastsketch._frame.model import Arrays
from fastsketch._frame.parameters import choice
from fastsketch.data.files import _checks as checks
from fastsketch.neighbours.hashing._hasher import Hasher
from fastsketch.neighbours.hashing._sign_encoder import LinearSignEncoder, SignEncoder, length_near
from fastsketch.neighbours.summaries._block_summary import SummarySetting
from fastsketch.neighbours.summaries._directions import top_of_moment, top_of_rows
from fastsketch.neighbours.summaries._forest import BlockNode
from fastsketch.neighbours.summaries._rotation import aligned, itq_rotation, random_rotation
from fastsketch.neighbours.summaries._summary_model import METHODS, RESERVOIR_ROWS, Method, SummaryModel

__all__ = ["METHODS", "RESERVOIR_ROWS", "ROTATIONS", "Method", "Rotation", "SketchHash"]

Array = NDArray[np.float64]
Rotation = Literal["random", "itq"] | None
ROTATIONS: Final = ("itq", "random", None)
# Sampled rows that are centred at a time, in memory that is used again.
ROWS_AT_ONCE = 256


def _scores_of(sample: NDArray[Any], mean: Array, basis: Array) -> NDArray[np.float32]:
    """Return the centred rows of a sample in a basis, in a unit in which they are numbers of float32."""
    top = max(float(sample.max(initial=0.0)), -float(sample.min(initial=0.0))) or 1.0
    out, directions = np.empty((len(sample), basis.shape[1]), np.float32), basis.astype(np.float32)
    for start in range(0, len(sample), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        centred = sample[rows] / top - mean / top
        np.matmul(centred.astype(np.float32), directions, out=out[rows])
    return out


class _LearnedHash(NamedTuple):
    """The hash functions, learned from the rows seen so far."""

    node: BlockNode
    components: Array  # W as (n_bits, d)
    encoder: LinearSignEncoder  # without factors


class SketchHash(Hasher, SummaryModel):
    """Binary codes learned from a stream of rows in one pass: FROSH, OSH and relatives.

    The code of a row a is sgn((a - mu) W R): mu the mean of all rows, W (d x r) the top right singular vectors of a
    sketch of the centred rows, R a rotation.

    Parameters
    ----------
    n_bits : int
        r >= 1, bits of a code; at most the number of features.
    method : {"srht", "fd", "exact", "countsketch", "sparse", "gaussian", "sampling", "auto"}, default "srht"
        "srht" is FROSH: blocks of m rows become l / 2 by a subsampled randomized Hadamard transform, and Frequent
        Directions joins them. "fd" is OSH: Frequent Directions alone. "exact" sums A'A (d x d). "countsketch",
        "sparse", "gaussian" and "sampling" are other random maps in the place of the SRHT. "auto" takes "exact" where
        it is also the fastest (d <= 2 l), else "srht".
    sketch_size : int, optional
        l, default 2 n_bits. n_bits is at most l // 2 for random maps, l - 1 for "fd".
    block_rows : int, optional
        m, rows of a block, at least l // 2; default 4 d. The error of a random map grows with m, its cost falls.
    rotation : {"itq", "random", None}, default "itq"
        R. "itq" is learned on ``reservoir_size`` rows sampled from the stream; "random" is fixed by
        the seed. With None, as the FROSH paper has it, bits are of very different worth: from 64 bits on they are worse
        than those of random hyperplanes.
    seed : int, default 0
    part, first_block : int, default 0
        Which blocks of a distributed job this model sees: see the notes.
    reservoir_size : int, default 2000
    dtype : float32 or float64, optional
        Of the sketch; by default that of the first batch.

    Attributes
    ----------
    n_rows, n_features : int
    resolved : dict
        The parameters with the value in use for each that was None or "auto".
    notes : dict
        Anything that json can write; saved with the state.

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of range.

    Notes
    -----
    The result is a function of the rows, their order and the parameters: batches of any sizes, and models that saw
    different blocks and were merged in any order, give the same bits, as long as every block but the last of a part is
    complete. Memory: blocks join like the digits of a binary counter, l / 2 rows (d x d for "exact") a digit.

    Merging: two models of the same ``part`` are pieces of one stream; they merge to the model of the whole stream if
    each begins at a multiple of ``block_rows`` rows, ``first_block`` times that many. Models of different parts are
    complete: merging seals them, and no more rows of these parts can be added but to the merged model. The bits depend
    neither on the order nor on the grouping of merges.

    The model learns on: ``encode`` uses what was learned so far. Codes made before and after more rows stay comparable
    as far as W stays; ``anchor`` keeps them so by an orthogonal alignment.

    References
    ----------
    FROSH: Chen, Yang, Zhao, King, Lyu, *Making Online Sketching Hashing Even Faster*, Algorithms 1 to 3. OSH: Leng, Wu,
    Cheng, Bai, Lu, CVPR 2015. ITQ: Gong, Lazebnik, CVPR 2011.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((5000, 100))
    >>> model = fs.SketchHash(16).update(rows)
    >>> codes = model.encode(rows)
    >>> codes.shape
    (5000, 2)
    >>> distances, found = model.search(rows[:1], codes, k=1, metric="hamming")
    >>> int(distances[0, 0])
    0
    >>> distances, found = model.search(rows[:1], model.encode(rows, factors=True), k=1, rescore=rows, oversample=20)
    >>> int(found[0, 0]), float(distances[0, 0])
    (0, 0.0)
    """

    rotation: Rotation = choice(ROTATIONS, default="itq")

    def _check(self) -> None:
        size = self._size
        kept = {"fd": size - 1, "exact": self.n_bits}.get(self.method, size // 2)
        if self.n_bits > kept:
            raise ValueError(
                f"n_bits must be at most {kept}, the rows that method={self.method!r} keeps with sketch_size={size}, "
                f"got {self.n_bits}"
            )
        super()._check()

    @property
    def _size(self) -> int:
        """Return the l in use."""
        size = 2 * self.n_bits if self.sketch_size is None else self.sketch_size
        return max(size, 3) if self.method == "fd" and self.n_bits == 1 else size

    def _method_for(self, d: int) -> str:
        """Return the method in use for rows of d features: exact where it is also the fastest."""
        if self.method != "auto":
            return self.method
        return "exact" if d <= 2 * self._size else "srht"

    def _setting(self, d: int) -> SummarySetting:
        if self.n_bits > d:
            raise ValueError(f"n_bits must be at most the {d} features of the rows, got {self.n_bits}")
        return SummarySetting(
            method=self._method_for(d),
            n_directions=self.n_bits,
            sketch_size=self._size,
            block_rows=self.block_rows,
            seed=self.seed,
            place=self._place,
            reservoir_size=self.reservoir_size if self.rotation == "itq" else None,
        )

    _merge = SummaryModel._merge_summary

    # -- reading: never changes the state --------------------------------------------------------------------------
    @one_blas_thread
    def _learned_from(self, node: BlockNode) -> _LearnedHash:
        exact = self._method_for(len(node.mean)) == "exact"
        components = (top_of_moment if exact else top_of_rows)(node.rows, self.n_bits, seed=self.seed)
        projection = self._rotated(components.T, node.mean)
        # squares of what it divides are numbers
        top = 1.0 if exact else float(np.abs(node.rows).max(initial=0.0)) or 1.0
        squares = np.trace(node.rows) if exact else np.square(node.rows / top, dtype=np.float64).sum()
        length = length_near(top * float(np.sqrt(squares / node.n_rows)))
        encoder = LinearSignEncoder(
            projection, node.mean, node.mean @ projection, factors=False, spans=True, length=length
        )
        return _LearnedHash(node, components, encoder)

    def _rotated(self, basis: Array, mean: Array) -> Array:
        """Return the projection (d, n_bits) from W (d, n_bits)."""
        if self._anchor is not None:
            return aligned(basis, self._anchor)
        if self.rotation is None:
            return basis.copy()
        rotation = random_rotation(self.n_bits, self.seed)
        if self.rotation == "itq" and self._summary is not None:
            rotation = itq_rotation(_scores_of(self._summary.sample(), mean, basis), rotation)
        return basis @ rotation

    def _encoder(self, *, factors: bool) -> SignEncoder:
        encoder = self._read().encoder
        return encoder.with_factors() if factors else encoder

    def anchor(self, projection: ArrayLike | None = None) -> Self:
        """Keep codes comparable from here on: later projections are turned to lie nearest to the present one.

        W moves while rows arrive, and where singular values are close its vectors change places; the code of a row then
        changes though its meaning does not. With an anchor P0 the projection is W Q, Q the rotation that brings it
        nearest to P0 (orthogonal Procrustes), instead of W R.

        Parameters
        ----------
        projection : array_like (d, n_bits), optional
            P0, the present ``projection`` if not given: so that models of one job can share an anchor.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If there is no present projection, or the one given is no finite matrix of this shape.
        """
        if projection is None:
            anchor = self.projection
        else:
            given = as_array(projection, "projection")
            if given.dtype.kind not in "fiub":
                raise TypeError(f"projection must hold real numbers, got dtype {given.dtype}")
            anchor = given.astype(np.float64)
            if anchor.ndim != 2 or anchor.shape != (self.n_features or anchor.shape[0], self.n_bits):
                raise ValueError(f"projection must have shape ({self.n_features}, {self.n_bits}), got {anchor.shape}")
            if not np.isfinite(anchor).all():
                raise ValueError("projection must be finite")
        return self._anchor_at(anchor)

    @property
    def projection(self) -> Array:
        """Return (d, n_bits) float64, orthonormal columns: W R, or W turned to the anchor."""
        return self._read().encoder.projection.copy()

    # -- keeping it ------------------------------------------------------------------------------------------------
    def _state(self) -> tuple[dict[str, Any], Arrays]:
        state, arrays = self._summary_state()
        return state, arrays if self._anchor is None else {**arrays, "anchor": self._anchor}

    def _validate(self, state: dict[str, Any], arrays: Arrays) -> None:
        anchor = arrays.get("anchor")
        if anchor is not None:
            rows = len(anchor) if anchor.ndim else 0
            checks.finite(arrays, "anchor", (rows, self.n_bits))
        if not state:
            checks.only(arrays, "anchor")
            return
        d = self._validate_summary(state, {name: array for name, array in arrays.items() if name != "anchor"})
        if anchor is not None and len(anchor) != d:
            raise ValueError(f"the anchor must have {d} rows, got {len(anchor)}")

    def _restore(self, state: dict[str, Any], arrays: Arrays) -> None:
        if "anchor" in arrays:
            self.anchor(arrays["anchor"])
        if state:
            self._restore_summary(state, arrays)
