"""Hash functions learned from a stream by sketching: FROSH, OSH and related methods."""

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
from fastsketch.neighbours.summaries._directions import top_eigenvectors, top_right_singular_vectors
from fastsketch.neighbours.summaries._forest import BlockNode
from fastsketch.neighbours.summaries._rotation import align_to_target, itq_rotation, random_rotation
from fastsketch.neighbours.summaries._summary_model import METHODS, RESERVOIR_ROWS, Method, SummaryModel

__all__ = ["METHODS", "RESERVOIR_ROWS", "ROTATIONS", "Method", "Rotation", "SketchHash"]

Array = NDArray[np.float64]
Rotation = Literal["random", "itq"] | None
ROTATIONS: Final = ("itq", "random", None)
# Sampled rows that are centred at a time, in one buffer.
ROWS_AT_ONCE = 256


def _scores_of(sample: NDArray[Any], mean: Array, basis: Array) -> NDArray[np.float32]:
    """Return the projections of the centred rows of a sample on a basis, divided by the largest entry of the sample.
    The division prevents overflow.
    """
    top = max(float(sample.max(initial=0.0)), -float(sample.min(initial=0.0))) or 1.0
    out, directions = np.empty((len(sample), basis.shape[1]), np.float32), basis.astype(np.float32)
    for start in range(0, len(sample), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        centred = sample[rows] / top - mean / top
        np.matmul(centred.astype(np.float32), directions, out=out[rows])
    return out


class _LearnedHash(NamedTuple):
    """Result of fitting a hash: its encoder and directions, and the summary of rows that they were computed from."""

    node: BlockNode
    components: Array  # W as (n_bits, d)
    encoder: LinearSignEncoder  # without factors


class SketchHash(Hasher, SummaryModel):
    """Hash that maps rows to binary codes, learned from a stream of rows in one pass (FROSH, OSH).

    The code of a row a is sgn((a - mu) W R), where mu is the mean of all rows, W (d x r) has the top right singular
    vectors of a sketch of the centred rows as columns, and R is a rotation.

    Parameters
    ----------
    n_bits : int
        Bits r of a code, between 1 and the number of features.
    method : {"srht", "fd", "exact", "countsketch", "sparse", "gaussian", "sampling", "auto"}, default "srht"
        How rows are sketched. "srht" is FROSH: a subsampled randomized Hadamard transform (SRHT) reduces blocks of m
        rows to l / 2 rows, and Frequent Directions merges them. "fd" is OSH: Frequent Directions only. "exact" sums
        A'A (d x d). "countsketch", "sparse", "gaussian" and "sampling" use other random maps instead of the SRHT.
        "auto" is "exact" where that is also fastest (d <= 2 l), else "srht".
    sketch_size : int, optional
        Size l of the sketch, default 2 n_bits. n_bits is at most l // 2 for random maps and l - 1 for "fd".
    block_rows : int, optional
        Rows m of a block, at least l // 2; default 4 d. With larger blocks a random map has a larger error and costs
        less.
    rotation : {"itq", "random", None}, default "itq"
        The rotation R. "itq" (iterative quantization) is fitted to a reservoir sample of ``reservoir_size`` rows.
        "random" depends on the seed only. None is the identity, as in the FROSH paper: bits then have very different
        variances, and from 64 bits on codes are worse than those of random hyperplanes.
    seed : int, default 0
        Seed of the random maps, the sample and the rotation.
    part, first_block : int, default 0
        The blocks of a distributed job that this model sees: see the notes.
    reservoir_size : int, default 2000
        Rows of the reservoir sample, for "itq" only.
    dtype : float32 or float64, optional
        Data type of the sketch; default: that of the first batch.

    Attributes
    ----------
    n_rows, n_features : int
    resolved : dict
        Parameters, with the values in use for those that are None or "auto".
    notes : dict
        Metadata of your own, JSON values; saved with the state.

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of range.

    Notes
    -----
    The model is a function of the rows, their order and the parameters: batches of any sizes, and models of different
    blocks that are merged in any order, give bitwise identical results, if every block of a part except the last is
    complete. Summaries of blocks are merged like the carries of a binary counter, so that memory grows with the
    logarithm of the number of blocks: each summary takes l / 2 rows (a d x d matrix with "exact").

    Merging: models of the same ``part`` are pieces of one stream. They merge to the model of the stream if each piece
    begins at row ``first_block * block_rows`` of it. Models of different parts are taken as complete: merging seals
    them, and more rows can only be added to the merged model. Results do not depend on the order or grouping of merges.

    A model can continue to learn; ``encode`` uses the rows seen so far. Codes made before and after more rows are
    comparable as far as W has not changed. ``anchor`` keeps them comparable by an orthogonal alignment.

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
        n_kept = {"fd": size - 1, "exact": self.n_bits}.get(self.method, size // 2)
        if self.n_bits > n_kept:
            raise ValueError(
                f"n_bits must be at most {n_kept}, the rows that method={self.method!r} keeps with sketch_size={size}, "
                f"got {self.n_bits}"
            )
        super()._check()

    @property
    def _size(self) -> int:
        """Sketch size in use: the parameter, or the default if it is None."""
        size = 2 * self.n_bits if self.sketch_size is None else self.sketch_size
        return max(size, 3) if self.method == "fd" and self.n_bits == 1 else size

    def _method_for(self, d: int) -> str:
        """Return the sketching method for rows of d features, after "auto" has been resolved."""
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
            first_block=self._place,
            reservoir_size=self.reservoir_size if self.rotation == "itq" else None,
        )

    _merge = SummaryModel._merge_summary

    # -- reading: never changes the state --------------------------------------------------------------------------
    @one_blas_thread
    def _learned_from(self, node: BlockNode) -> _LearnedHash:
        exact = self._method_for(len(node.mean)) == "exact"
        components = (top_eigenvectors if exact else top_right_singular_vectors)(node.rows, self.n_bits, seed=self.seed)
        projection = self._rotated(components.T, node.mean)
        # scaled so that squares do not overflow
        top = 1.0 if exact else float(np.abs(node.rows).max(initial=0.0)) or 1.0
        squares = np.trace(node.rows) if exact else np.square(node.rows / top, dtype=np.float64).sum()
        length = length_near(top * float(np.sqrt(squares / node.n_rows)))
        encoder = LinearSignEncoder(
            projection, node.mean, node.mean @ projection, factors=False, spans=True, length=length
        )
        return _LearnedHash(node, components, encoder)

    def _rotated(self, basis: Array, mean: Array) -> Array:
        """Return a projection (d, n_bits) for the codes: the basis after a rotation that lowers the quantization error.
        With a reference set by ``anchor``, the rotation aligns the basis with it instead.

        The basis and the result have shape (d, n_bits).
        """
        if self._anchor is not None:
            return align_to_target(basis, self._anchor)
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
        """Set a reference projection, so that codes stay comparable when the model learns more rows.

        Later projections are rotated towards the reference.

        W changes while rows arrive, and singular vectors of close singular values may change places: the code of a row
        then changes although it carries the same information. With an anchor P0 the projection is W Q instead of W R,
        where Q is the rotation for which W Q is nearest to P0 (orthogonal Procrustes).

        Parameters
        ----------
        projection : array_like (d, n_bits), optional
            The anchor P0, so that the models of a job can share it. Default: the present ``projection``.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If the model has seen no rows, or the projection is not a finite matrix of this shape.
        """
        if projection is None:
            anchor = self.projection
        else:
            array = as_array(projection, "projection")
            if array.dtype.kind not in "fiub":
                raise TypeError(f"projection must hold real numbers, got dtype {array.dtype}")
            anchor = array.astype(np.float64)
            if anchor.ndim != 2 or anchor.shape != (self.n_features or anchor.shape[0], self.n_bits):
                raise ValueError(f"projection must have shape ({self.n_features}, {self.n_bits}), got {anchor.shape}")
            if not np.isfinite(anchor).all():
                raise ValueError("projection must be finite")
        return self._anchor_at(anchor)

    @property
    def projection(self) -> Array:
        """Matrix by which centred rows are multiplied before the signs are taken as the code.

        It is (d, n_bits) float64 with orthonormal columns: W R, or W aligned with the anchor.
        """
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
