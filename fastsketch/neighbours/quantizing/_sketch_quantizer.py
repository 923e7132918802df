"""Quantizer of rows by transform coding, learned from a stream."""

from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.threads import one_blas_thread
from fastsketch._core.validation import Rows, as_integer
from fastsketch._frame.batches import require_same_names
from fastsketch._frame.model import Arrays
from fastsketch._frame.parameters import choice, integer
from fastsketch.neighbours.codes._encoder import Encoder, encoder_state, restore_encoder
from fastsketch.neighbours.codes._layout import Codes
from fastsketch.neighbours.codes._packed_codes import as_codes
from fastsketch.neighbours.codes._search import check_width, search
from fastsketch.neighbours.quantizing._book_encoder import BookEncoder
from fastsketch.neighbours.quantizing._training import FACTOR_BYTES, train_encoder
from fastsketch.neighbours.summaries._block_summary import SummarySetting
from fastsketch.neighbours.summaries._directions import top_eigenvectors, top_right_singular_vectors
from fastsketch.neighbours.summaries._forest import BlockNode
from fastsketch.neighbours.summaries._rotation import align_to_target
from fastsketch.neighbours.summaries._summary_model import METHODS, Method, SummaryModel

Array = NDArray[np.float64]

# Number of directions that a sketch retains unless sketch_size is given: more gain nothing at 64 bytes.
MAX_DIRECTIONS = 256
# Rows of the sample. With 4,000 the recall on 500,000 patches of photographs is 0.01 lower, with 2,000 also on MNIST.
RESERVOIR_ROWS = 8000
# Up to this number of features the exact covariance is summed: it is cheaper than a sketch of the same quality.
EXACT_FEATURES = 1024


class _LearnedQuantizer(NamedTuple):
    """Result of fitting a quantizer: its encoder, and the summary of the rows that it was computed from."""

    node: BlockNode
    components: Array  # (r, d)
    spread: Array  # (r,) standard deviations
    encoder: BookEncoder


class SketchQuantizer(SummaryModel):
    """Quantizer that compresses rows to short codes, learned from a stream in one pass without k-means.

    The method is transform coding (Gersho and Gray 1992, chapter 8). Rows are projected on the principal directions of
    a sketch of the centred rows. Bits are allocated greedily to the directions, and each coordinate is rounded to a
    level that Lloyd's algorithm fitted to a sample of the rows. Codes are searched by real-valued queries (``search``)
    and can be decoded.

    Parameters
    ----------
    n_bytes : int
        Bytes of a code, offset included: at least 2, at most one for each feature and one more.
    method : {"auto", "exact", "fd", "srht", "countsketch", "sparse", "gaussian", "sampling"}, default "auto"
        How rows are sketched, as in ``SketchHash``. "auto" is "exact" (the d x d sum of squares) up to 1,024 features
        or if d <= sketch_size, else "srht".
    sketch_size : int, optional
        Size l of the sketch: Frequent Directions retain l - 1 directions, random maps l // 2. Default: twice the number
        of bits of a code, at most 512.
    block_rows : int, optional
        Rows m of a block, at least l // 2; default as in ``SketchHash``.
    seed : int, default 0
    part, first_block : int, default 0
        The blocks of a distributed job that this model sees: see ``SketchHash``.
    reservoir_size : int, default 8000
        Rows of the reservoir sample that levels are fitted to.
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
    Bits are allocated one at a time, to the direction where one more lowers the weighted mean squared error most. The
    error is that of the optimal quantizer of a normal variable (Max 1960). Its weight is the mean squared difference of
    near rows of the sample in that direction, to which the error of an estimated distance is proportional. More than
    four bits of a direction stand for an even grid over the range of the sample.

    A squared distance is estimated as ||q - mean||^2 - 2 q'x + s, where q is the centred query, x the decoded row, and
    s an estimate of its squared length. s is either a sum of learned numbers, one for each level, or an offset that is
    stored in one or two of the bytes and corrected for the expected inner product of the coding error with near
    queries. Offsets of zero, one and two bytes are tried; the one with the best recall of the ten nearest rows of 1,000
    rows of the sample is taken.

    Levels are fitted to all rows of the sample, outliers included. Where 0.3% of the rows were ten times as long as the
    others, the recall of the ten nearest was a third lower with 12 bytes and a twelfth lower with 32 bytes.

    The model is a function of the rows, their order and the parameters, as in ``SketchHash``: batches of any sizes, and
    models of different blocks that are merged in any order, give bitwise identical results.

    A model can continue to learn. ``encode``, ``decode`` and ``search`` use ``encoder()``, the frozen quantizer of the
    rows seen so far, and codes can only be read by the encoder that made them. Store it with the codes, or ``anchor``
    the model: mean, bits and levels then stay fixed, and later bases are rotated to be nearest to the anchor's.

    References
    ----------
    A. Gersho and R. M. Gray, Vector Quantization and Signal Compression, Kluwer, 1992.
    J. Max, "Quantizing for minimum distortion", IRE Transactions on Information Theory 6, 1960.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((5000, 100)) * np.linspace(3, 0.1, 100)
    >>> model = fs.SketchQuantizer(20).update(rows)
    >>> codes = model.encode(rows)
    >>> codes.shape
    (5000, 20)
    >>> distances, found = model.search(rows[:1], codes, k=1)
    >>> int(found[0, 0])
    0
    """

    n_bytes: int = integer(at_least=1, below=1 << 15, kw_only=False)
    method: Method = choice(METHODS, default="auto")
    reservoir_size: int = integer(default=RESERVOIR_ROWS, at_least=1)

    def _check(self) -> None:
        if self.n_bytes <= FACTOR_BYTES:
            raise ValueError(
                f"n_bytes must be at least {FACTOR_BYTES + 1}, {FACTOR_BYTES} of them for the factor of a row, got "
                f"{self.n_bytes}"
            )
        super()._check()

    @property
    def _bits(self) -> int:
        """Number of bits of a code that are left for coordinates if one byte stores the squared length of the row."""
        return 8 * (self.n_bytes - FACTOR_BYTES)

    @property
    def _size(self) -> int:
        """Sketch size in use: the parameter, or the default if it is None."""
        return 2 * min(self._bits, MAX_DIRECTIONS) if self.sketch_size is None else self.sketch_size

    def _method_for(self, d: int) -> str:
        """Return the sketching method for rows of d features, after "auto" has been resolved."""
        if self.method != "auto":
            return self.method
        return "exact" if d <= max(EXACT_FEATURES, self._size) else "srht"

    def _setting(self, d: int) -> SummarySetting:
        max_bytes = d + FACTOR_BYTES
        if self.n_bytes > max_bytes:
            raise ValueError(
                f"n_bytes must be at most {max_bytes}, 8 bits for each of the {d} features of the rows and "
                f"{FACTOR_BYTES} for the factor, got {self.n_bytes}"
            )
        method, size = self._method_for(d), self._size
        n_kept = {"fd": size - 1, "exact": MAX_DIRECTIONS}.get(method, size // 2)
        if 8 * n_kept < self._bits:
            raise ValueError(
                f"sketch_size={size} keeps {n_kept} directions with method={method!r}: of 8 bits each, too few for "
                f"n_bytes={self.n_bytes}"
            )
        return SummarySetting(
            method=method,
            n_directions=min(d, n_kept, self._bits),
            sketch_size=size,
            block_rows=self.block_rows,
            seed=self.seed,
            first_block=self._place,
            reservoir_size=self.reservoir_size,
        )

    _merge = SummaryModel._merge_summary

    # -- reading: never changes the state --------------------------------------------------------------------------
    @one_blas_thread
    def _learned_from(self, node: BlockNode) -> _LearnedQuantizer:
        assert self._summary is not None  # it has seen rows
        setting = self._setting(len(node.mean))
        exact = setting.method == "exact"
        components = (top_eigenvectors if exact else top_right_singular_vectors)(
            node.rows, self._n_directions(setting), seed=self.seed
        )
        spread = _standard_deviations(node, components, exact=exact)
        if self._anchor is not None:
            target = self._anchor.basis.astype(np.float64)
            encoder = self._anchor.with_basis(align_to_target(components[: target.shape[1]].T, target))
        else:
            centred = np.subtract(self._summary.sample(), node.mean, dtype=np.float64)
            encoder = train_encoder(node.mean, components.T, spread, centred, n_bytes=self.n_bytes)
        return _LearnedQuantizer(node, components, spread, encoder)

    def _n_directions(self, setting: SummarySetting) -> int:
        """Return the larger number of principal directions: that of the setting, or of the reference of ``anchor``."""
        return max(setting.n_directions, 0 if self._anchor is None else self._anchor.basis.shape[1])

    def encoder(self) -> Encoder:
        """Return an immutable encoder, which encodes rows as the model does now.

        It never changes: its codes can be decoded and searched with it whatever the model learns later.

        Raises
        ------
        ValueError
            Before the first row.
        """
        encoder = self._read().encoder
        encoder.feature_names = self._feature_names
        return encoder

    def encode(self, rows: Rows) -> Codes:
        """Encode rows as codes of ``n_bytes`` bytes each.

        Parameters
        ----------
        rows : array_like or scipy.sparse (n, d), or one row (d,)

        Returns
        -------
        ndarray uint8 (n, n_bytes)

        Raises
        ------
        TypeError, ValueError
            If the model has seen no rows, or rows are not a finite real matrix of its width.

        Notes
        -----
        The code of a row does not depend on the batch or the number of threads. Sums over sparse rows are computed in
        another order than over dense rows of the same numbers, so that the two may be rounded to different codes.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((2000, 100)) * np.linspace(3, 0.1, 100)
        >>> model = fs.SketchQuantizer(20).update(rows)
        >>> model.encode(rows[:3]).shape
        (3, 20)
        """
        return self.encoder().encode(rows)

    def decode(self, codes: ArrayLike) -> NDArray[np.float32]:
        """Decode codes to approximate rows.

        Parameters
        ----------
        codes : ndarray uint8 (n, n_bytes)

        Returns
        -------
        ndarray float32 (n, d)

        Raises
        ------
        TypeError, ValueError
            If the model has seen no rows, or codes do not have this length.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((2000, 100)) * np.linspace(3, 0.1, 100)
        >>> model = fs.SketchQuantizer(20).update(rows)
        >>> again = model.decode(model.encode(rows))
        >>> round(float(((again - rows) ** 2).sum() / (rows**2).sum()), 2)
        0.25
        """
        return self.encoder().decode(codes)

    search = search

    def _encoder_for(self, codes: Codes) -> Encoder:
        return self.encoder()

    def to_faiss(
        self,
        codes: ArrayLike | None = None,
        *,
        metric: Literal["euclidean", "inner_product"] = "euclidean",
        n_lists: int | None = None,
    ) -> Any:
        """Create a faiss index that ranks codes of this quantizer as ``search`` does.

        This requires the package faiss.

        The index holds the same bytes as ``encode`` returns. Its scores t are larger for nearer rows: for "euclidean"
        the estimated squared distance is ``squared_norm_of_query - 2 t`` plus a constant, in units of
        ``encoder().length`` squared. ``index.add(rows)`` encodes rows by this quantizer as it is now. In a copy of the
        index that faiss has written and read, ``add`` is faiss's own method, which makes different codes; add rows to
        this index instead, or make a new one.

        Parameters
        ----------
        codes : ndarray uint8 (n, n_bytes), optional
            Codes to add at once, as ``encode`` returns them.
        metric : {"euclidean", "inner_product"}, default "euclidean"
            The metric of the ranking.
        n_lists : int, optional
            Make an inverted file (IVF) of this many lists, by faiss's k-means of the decoded rows. A search scans
            ``nprobe`` lists. At least as many codes as lists must be given. Default: a flat index.

        Returns
        -------
        faiss.IndexPreTransform
            Over an IndexPQ of 4 bits with the inner product, or over an IndexIVFPQ.

        Raises
        ------
        ImportError
            Without faiss.
        TypeError, ValueError
            If the model has seen no rows, codes do not have this length or are fewer than lists, or faiss cannot
            compute the estimate: inner products of rows that all have one length are computed from distances here.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((2000, 100)) * np.linspace(3, 0.1, 100)
        >>> model = fs.SketchQuantizer(20).update(rows)
        >>> index = model.to_faiss(model.encode(rows))  # doctest: +SKIP
        >>> scores, found = index.search(rows[:1].astype(np.float32), 10)  # doctest: +SKIP
        """
        from fastsketch.neighbours._faiss import pq_index

        encoder = self.encoder()
        checked = np.empty((0, encoder.width), np.uint8) if codes is None else as_codes(codes, "codes")
        check_width(checked, encoder)
        if n_lists is not None:
            as_integer(n_lists, "n_lists", 1, len(checked) + 1)
        return pq_index(encoder, checked, metric=metric, n_lists=n_lists)

    def anchor(self, encoder: Encoder | None = None) -> Self:
        """Set a reference encoder, so that codes stay comparable when the model learns more rows.

        Mean, bits and levels stay those of the reference, and later bases are rotated towards its basis.

        Parameters
        ----------
        encoder : Encoder, optional
            The encoder of a quantizer of the same n_bytes, so that the models of a job can share an anchor. Default:
            the present encoder.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If the model has seen no rows, or the encoder is not that of a quantizer of this width.
        """
        anchor = self.encoder() if encoder is None else encoder
        if not isinstance(anchor, BookEncoder):
            raise TypeError(f"encoder must be that of a SketchQuantizer, got {type(anchor).__name__}")
        self._require_anchor(anchor)
        self._feature_names = require_same_names(anchor.feature_names, self._feature_names, "the rows of encoder")
        return self._anchor_at(anchor)

    def _require_anchor(self, anchor: Encoder, n_features: int | None = None) -> None:
        """Raise ValueError unless the codes of a reference encoder have the width and the features of this model."""
        d = self.n_features if n_features is None else n_features
        if anchor.width != self.n_bytes or anchor.n_features != (d or anchor.n_features):
            raise ValueError(
                f"encoder must make codes of {self.n_bytes} bytes of rows of {d} features, got "
                f"{anchor.width} bytes of {anchor.n_features} features"
            )

    @property
    def variances(self) -> Array:
        """Variance of the rows along each principal direction.

        It is (r,) float64, for the directions of ``components``.
        """
        with np.errstate(over="ignore", under="ignore"):
            return np.square(self._read().spread)

    # -- keeping it ------------------------------------------------------------------------------------------------
    def _state(self) -> tuple[dict[str, Any], Arrays]:
        state, arrays = self._summary_state()
        state = {"summary": state or None, "anchor": None}
        if self._anchor is not None:
            state["anchor"], anchor_arrays = encoder_state(self._anchor)
            arrays = {**arrays, **{f"anchor_{name}": array for name, array in anchor_arrays.items()}}
        return state, arrays

    def _validate(self, state: dict[str, Any], arrays: Arrays) -> None:
        anchor_arrays, summary_arrays = _split_arrays(arrays)
        d = None
        if state["summary"] is not None:
            d = self._validate_summary(state["summary"], summary_arrays)
        elif summary_arrays:
            raise ValueError("it has arrays of a summary, and none")
        if state["anchor"] is not None:
            anchor = restore_encoder(state["anchor"], anchor_arrays)
            if not isinstance(anchor, BookEncoder):
                raise ValueError(f"its anchor must be an encoder of a quantizer, got {type(anchor).__name__}")
            self._require_anchor(anchor, d)
        elif anchor_arrays:
            raise ValueError("it has arrays of an anchor, and none")

    def _restore(self, state: dict[str, Any], arrays: Arrays) -> None:
        anchor_arrays, summary_arrays = _split_arrays(arrays)
        if state["anchor"] is not None:
            anchor = restore_encoder(state["anchor"], anchor_arrays)
            assert isinstance(anchor, BookEncoder)
            self._anchor_at(anchor)
        if state["summary"] is not None:
            self._restore_summary(state["summary"], summary_arrays)


def _standard_deviations(node: BlockNode, components: Array, *, exact: bool) -> Array:
    """Return the standard deviations (r,) of the summarised rows along orthonormal directions (r, d)."""
    top = float(np.abs(node.rows).max(initial=0.0))
    if top == 0:
        return np.zeros(len(components))
    projected = components @ (node.rows / top).T.astype(np.float64, copy=False)
    if exact:  # diag(W'(A'A)W)
        return np.sqrt(np.maximum(np.einsum("ij,ij->i", projected, components), 0.0) / node.n_rows) * np.sqrt(top)
    # those of B'B, plus half of the total shrinkage, as in RobustFrequentDirections
    lost = node.shrinkage / top / top / 2 if np.isfinite(node.shrinkage) else 0.0
    return np.sqrt((np.einsum("ij,ij->i", projected, projected) + lost) / node.n_rows) * top


def _split_arrays(arrays: Arrays) -> tuple[Arrays, Arrays]:
    """Split the arrays of a state file into those of the reference encoder (``anchor``) and those of the summary.
    Return both dicts.
    """
    anchor_arrays = {
        name.removeprefix("anchor_"): array for name, array in arrays.items() if name.startswith("anchor_")
    }
    return anchor_arrays, {name: array for name, array in arrays.items() if not name.startswith("anchor_")}
