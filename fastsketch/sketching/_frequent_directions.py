"""The FrequentDirections sketch, its robust variant, and SecondPass, which refines a sketch by rereading the rows."""

# pyright: reportPrivateUsage=false
# (SecondPass uses protected methods of its sketch)

from collections.abc import Generator, Sequence
from copy import deepcopy
from dataclasses import replace
from math import ceil, inf, ldexp, sqrt
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fastsketch._core.validation import (
    MOST_SIZE,
    as_choice,
    as_dtype,
    as_flag,
    as_integer,
    as_real,
    as_rows,
    as_vector,
    as_weights,
    natural_dtype,
    rows_with_weight,
)
from fastsketch._core.warning import warn_caller
from fastsketch._frame.batches import Batch
from fastsketch._frame.loading import inner_model
from fastsketch._frame.model import Arrays, MergeableModel
from fastsketch._frame.parameters import choice, flag, float_dtype, integer, parameter, real
from fastsketch._kernels.guard import changes, reads
from fastsketch._kernels.linalg.products import product
from fastsketch._kernels.sketching.state import ROUNDING_PER_SHRINK
from fastsketch.data.files import _checks as checks
from fastsketch.sketching._engines import (
    AnyEngine,
    EngineSetting,
    ExactEngine,
    MappedEngine,
    Reference,
    SketchSummary,
    SolverName,
    SparseEngine,
    Tolerance,
    add_rows,
    by_column,
    copy_to_read,
    exact_pays,
    kind_for,
    make_engine,
    merge_engines,
    merges_in_place,
    misses_tolerance,
    put_summary,
)
from fastsketch.sketching._methods import METHODS, MethodName
from fastsketch.sketching._random_maps import Compressor, MapKind, as_compressor
from fastsketch.sketching._read_out import (
    SketchReadOut,
    allowance,
    gram_operator,
    inverse_operator,
    read_out,
    solve_gram,
)
from fastsketch.sketching._rereading import (
    CERTAIN,
    Audit,
    KrylovSpace,
    OtherRows,
    Product,
    Readable,
    RowsAgain,
    StoredForm,
    block_krylov,
    blocks_of,
    nystrom,
    spectral_norm,
    validate_refined,
)
from fastsketch.sketching._spectrum import Spectrum, SpectrumOverview, overview_of

if TYPE_CHECKING:
    from scipy.sparse import csr_array
    from scipy.sparse.linalg import LinearOperator

MOST = float(np.finfo(np.float64).max)
# Initial l with a tolerance. A start that is too small costs some shrinks that are rolled back; l never decreases.
START_SIZE = 4
# A part of a job has at most 2**PART_BITS blocks.
PART_BITS = 32
# Relative difference allowed between the squared norms of two passes over the same rows, by itemsize of the dtype.
SAME_ROWS = {4: 1e-5, 8: 1e-9}
# Extra directions in each block of the Krylov method, as n_oversamples of scikit-learn's randomized_svd.
OVERSAMPLING = 10
# By these shares of the bound and of the squared norm an audit may exceed the bound: its own rounding.
OF_BOUND, OF_NORM = 1e-9, 1e-12
# Largest deviation from orthonormality of the directions in a state file.
ORTHONORMAL = 1e-6


class FrequentDirections(MergeableModel):
    """Sketch a stream of rows by Frequent Directions, with a certified bound on the error.

    The rows A (n x d) are summarised by a matrix B of at most ``sketch_size`` = l rows, such that B'B is close to A'A.
    New rows go to a buffer. When the buffer is full, it is *shrunk*: its singular values and right singular vectors are
    computed, the l-th squared singular value is subtracted from the squares of all, and l - 1 rows remain. The sum of
    what was subtracted bounds the spectral norm of the error; it is the *certificate* (``error_bound``).

    Parameters
    ----------
    sketch_size : int, default 64
        l >= 2, the largest number of rows of the sketch. With l > d nothing is ever removed, and the sketch is exact.
        With a tolerance: the initial l, by default 4.
    method : {"rfd", "fd", "pfd", "tfd", "cfd", "isvd"}, default "rfd"
        The member of the family:

        - "fd": Frequent Directions; B'B <= A'A.
        - "rfd": Robust Frequent Directions; the same B, and a regulariser ``alpha`` that grows by half of what each
          shrink subtracts. B'B + alpha I has half of the error of B'B.
        - "pfd": parameterized Frequent Directions; the top l - floor(beta l) rows keep their length in a shrink.
        - "tfd": Tracked Frequent Directions; as many rows keep their length, namely those along which A'A is estimated
          to be largest. The estimates come from a log of the mass that shrinks removed in each direction
          (docs/read-outs.md), which ``spectrum`` uses too. Best for principal components.
        - "cfd": compensative Frequent Directions; ``sketch`` adds what was subtracted to every squared singular value.
        - "isvd": iterative SVD; nothing is subtracted, and there is no a-priori bound.
    alpha0 : float, default 0.0
        Initial regulariser of "rfd": the target is A'A + alpha0 I. In units of squared rows.
    beta : float in [0, 1], optional
        Share of the rows that "pfd" and "tfd" shorten in a shrink; by default 0.2 and 0.45.
    buffer_size : int, optional
        b, the number of rows collected between shrinks in addition to l. By default l for dense rows; 6 l for sparse
        rows; 48 l for sparse rows with 131,072 columns or more, which are shrunk eight times at once when as many
        columns have been seen. With 0 every row is followed by a shrink, as in the papers' basic algorithms.
    solver : {"auto", "gram", "svd", "exact"}, default "auto"
        How singular values are computed: "gram", from the Gram matrix of the buffer; "svd", by LAPACK's gesdd. "exact"
        does not shrink: it accumulates A'A (d x d, float64), and ``sketch`` shrinks it once. "auto" chooses "exact" up
        to d = 11 l + 300, where it is faster, else "gram".
    center : bool, default False
        Subtract the mean of all rows seen, exactly and online, so that B'B is close to (A - mu)'(A - mu).
    decay : float in (0, 1], default 1.0
        Factor by which every new row multiplies the weight of all earlier rows. See also ``fade``.
    dtype : float32 or float64, optional
        Of the sketch; by default float32 if the first batch is float16 or float32, else float64.
    compressor : fs.Compressor or its kind ("srht", "countsketch", "sparse", "gaussian", "sampling"), optional
        A random map that turns every m rows into q before they reach the sketch (q = ``sketch_size`` unless given).
        "srht" is Fast Frequent Directions of FROSH, Algorithm 2. It is several times faster than a sketch without, and
        several times less accurate on most rows; far less accurate where few directions hold nearly all of A. The bound
        then covers the shrinks only, not the error of the random map, and ``squared_norm`` is an estimate.
    tolerance : float in (0, 1), optional
        A precision instead of a size. l grows with the stream, so that ``error_bound`` never exceeds this share of the
        reference named by ``tolerance_relative_to``, and ``sketch()`` has as few rows as meet it. Not with a
        compressor.
    tolerance_relative_to : {"squared_norm", "largest_eigenvalue"}, default "squared_norm"
        ||A||_F^2, or the certified lower bound of the largest eigenvalue of A'A. With the former l is at most about
        1 / tolerance ("rfd": half of that), whatever the rows. With the latter only d bounds l, and merging parts whose
        leading directions differ may exceed the tolerance, with a UserWarning.
    max_sketch_size : int, optional
        Upper bound on l with a tolerance, at least ``sketch_size``. If it is reached before the tolerance is met, one
        UserWarning reports it; ``error_bound`` remains valid.

    Attributes
    ----------
    n_rows, n_features : int
        Number of rows seen, except those of weight 0, and of columns d; n_features is None before the first batch.
    notes : dict
        Anything that json can write; saved with the state.

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of range; the message names it.

    Notes
    -----
    Guarantees, at any moment and after any merges, with Delta = ``shrinkage``: 0 <= A'A - B'B <= Delta I for "fd",
    "pfd", "tfd" and "isvd"; an error within [-Delta, Delta] for "cfd", and within [-Delta/2, Delta/2] of B'B + alpha I
    for "rfd". For "fd", "cfd" and "rfd" Delta <= ||A - A_k||_F^2 / (l - k) for every k < l; for "pfd" and "tfd" the
    same holds with floor(beta l) instead of l.

    Cost: about 7 d l flops a row; memory (l + b) d + 3 (l + b)^2 numbers. For sparse rows d is the number of columns
    seen so far, and the b rows between shrinks stay sparse.

    Updates are atomic. An update of more than eight buffers keeps a copy of the buffer while it runs, and restores it
    if the update is refused or interrupted; a shorter update ends before an interrupt is handled. While a thread
    updates a model, other threads that update or read it get a RuntimeError.

    Parameters read as they were given; ``resolved`` has the sketch_size, solver, buffer_size, dtype and compressor in
    use. Sketches that differ only in sketch_size merge into the larger size (not with a compressor).

    With a tolerance, a shrink that would remove more than nine tenths of what the rows so far allow is rolled back: l
    grows by at least 15%, and nothing is lost. The remaining tenth is left to ``sketch``. solver="auto" changes to
    "exact" where l has grown so far that "exact" is faster; with solver="exact" only the size of ``sketch()`` follows
    the tolerance.

    References
    ----------
    Liberty 2013; Ghashami, Liberty, Phillips, Woodruff 2016; Desai, Ghashami, Phillips 2016; RFD: Luo, Chen, Zhang, Li,
    Zhang, JMLR 20 (2019), Algorithms 1, 2, 4, 5 and 8. Centring: FROSH Algorithm 1, step 7.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((500, 40))
    >>> s = fs.FrequentDirections(16, solver="gram").update(rows)
    >>> error = np.linalg.norm(rows.T @ rows - s.sketch().T @ s.sketch() - s.alpha * np.eye(40), 2)
    >>> bool(error <= s.error_bound), s.n_rows
    (True, 500)
    """

    sketch_size: int = integer(default=64, at_least=2, below=MOST_SIZE, kw_only=False)
    method: MethodName = choice(tuple(METHODS), default="rfd")
    alpha0: float = real(default=0.0, high=MOST)
    beta: float | None = real(default=None, high=1.0)
    buffer_size: int | None = integer(default=None, below=MOST_SIZE)
    solver: SolverName = choice(("auto", "gram", "svd", "exact"), default="auto")
    center: bool = flag(default=False)
    decay: float = real(default=1.0, high=1.0, low_open=True)
    dtype: DTypeLike | None = float_dtype(default=None)
    compressor: Compressor | MapKind | None = parameter(as_compressor, default=None)

    tolerance: float | None = real(default=None, high=1.0, low_open=True, high_open=True)
    tolerance_relative_to: Reference = choice(("squared_norm", "largest_eigenvalue"), default="squared_norm")
    max_sketch_size: int | None = integer(default=None, at_least=2, below=MOST_SIZE)

    def _set_up(self, given: dict[str, Any]) -> None:
        if given.get("tolerance") is not None and "sketch_size" not in given:
            most = given.get("max_sketch_size")
            start = START_SIZE if most is None else min(START_SIZE, as_integer(most, "max_sketch_size", 2))
            given = {**given, "sketch_size": start}
        super()._set_up(given)

    def _check(self) -> None:
        if self.tolerance is None:
            if self.max_sketch_size is not None:
                raise ValueError(f"max_sketch_size belongs to tolerance, got {self.max_sketch_size} without one")
            if self.tolerance_relative_to != "squared_norm":
                raise ValueError(
                    f"tolerance_relative_to belongs to tolerance, got {self.tolerance_relative_to!r} without one"
                )
        elif self.compressor is not None:
            raise ValueError("tolerance does not go with a compressor: its error is not in the certificate")
        elif self.max_sketch_size is not None and self.max_sketch_size < self.sketch_size:
            raise ValueError(
                f"max_sketch_size must be at least sketch_size={self.sketch_size}, got {self.max_sketch_size}"
            )
        if self.alpha0 and not METHODS[self.method].regularises:
            raise ValueError(f"alpha0 belongs to method='rfd', got alpha0={self.alpha0:g} with method={self.method!r}")
        if self.beta is not None and not METHODS[self.method].takes_beta:
            raise ValueError(
                f"beta belongs to method='pfd' or 'tfd', got beta={self.beta!r} with method={self.method!r}"
            )
        if self.center and self.buffer_size == 0:
            raise ValueError("buffer_size must be at least 1 with center=True: a block needs a row for its mean")
        if self.compressor is not None and self.decay != 1.0:
            raise ValueError(
                f"decay must be 1 with a compressor, which mixes rows of a block, got {self.decay:g}: use fade"
            )

    def _begin(self) -> None:
        self._method = method = METHODS[self.method]
        self._setting = EngineSetting(
            self.sketch_size,
            share_lowered=method.share_lowered if self.beta is None else self.beta,
            ledger=method.tracks,
            buffer_size=self.buffer_size,
            solver=self.solver,
            center=self.center,
            decay=self.decay,
            compressor=Compressor(self.compressor) if isinstance(self.compressor, str) else self.compressor,
            tolerance=None
            if self.tolerance is None
            else Tolerance(
                self.tolerance,
                self.tolerance_relative_to,
                counts=method.error_bound(1.0),
                largest=self.max_sketch_size,
                chooses=self.solver == "auto",
            ),
        )
        self._warned = False
        self._engine: AnyEngine | None = None
        self._reading: SketchReadOut | None = None
        # Results of a second pass, in squared units of the rows: the part of Delta that was given back to the retained
        # directions; upper bounds and estimates of the leading eigenvalues of A'A, valid until more rows are added.
        self._regained = 0.0
        self._certain_high: NDArray[np.float64] | None = None
        self._estimates: NDArray[np.float64] | None = None

    # -- the engine ------------------------------------------------------------------------------------------------
    def _seen_engine(self) -> AnyEngine:
        if self._engine is None:
            raise ValueError("the sketch has seen no rows: call update first")
        return self._engine

    def _replace(
        self,
        engine: AnyEngine,
        regained: float,
        certain_high: NDArray[np.float64] | None = None,
        estimates: NDArray[np.float64] | None = None,
    ) -> None:
        """Set the engine and the results of a second pass in one step, and clear the cached results.

        An interrupt therefore leaves a consistent state.
        """
        bounds = regained, certain_high, estimates
        (self._engine, self._reading), (self._regained, self._certain_high, self._estimates) = (engine, None), bounds

    def _is_exact(self) -> bool:
        return self._seen_engine().setting.solver == "exact"

    @property
    def n_rows(self) -> int:
        """Return the number of rows seen."""
        return 0 if self._engine is None else self._engine.n_rows

    @property
    def n_features(self) -> int | None:
        """Return the number of columns, or None before the first batch."""
        return None if self._engine is None else self._engine.n_features

    def _copied(self) -> Self:
        other = type(self)(**self.parameters)
        other.notes, other._feature_names = deepcopy(self.notes), self._feature_names
        if self._engine is not None:
            certain = [None if array is None else array.copy() for array in (self._certain_high, self._estimates)]
            other._replace(self._engine.clone(), self._regained, *certain)
        return other

    # -- rows ------------------------------------------------------------------------------------------------------
    @changes
    def update(self, rows: Batch, sample_weight: ArrayLike | None = None) -> Self:
        """Add one row or many to the sketch.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), or scipy.sparse (n, d), table, or source
            Real and finite. Sparse rows are never made dense as a whole, and explicit zeros are allowed. Tables,
            sources (``fs.open_rows``) and arrays outside of memory (h5py, Zarr, Dask, memory maps) are read in chunks.
        sample_weight : array_like (n,) or float, optional
            Finite, >= 0. A row of weight w counts as sqrt(w) times itself, so that A'A is that of w equal rows. A row
            of weight 0 is checked and then ignored: it is not counted, and earlier rows do not decay.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If the rows are not a matrix of finite real numbers with the number of columns seen before. The sketch is
            then unchanged.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((500, 40)) * np.arange(1, 41) ** -0.5
        >>> s = fs.FrequentDirections(8, solver="gram").update(rows[0])
        >>> s.update(rows[1:400]).update(rows[400:], sample_weight=2.0).n_rows
        500
        >>> s.total_weight
        600.0
        """
        return self._take_rows(rows, sample_weight)

    def _update(self, rows: Any, sample_weight: Any) -> None:
        engine = self._engine
        checked = as_rows(rows, None if engine is None else engine.n_features)
        self._absorb(*rows_with_weight(checked, as_weights(sample_weight, checked.shape[0])))

    def _absorb(self, checked: Any, weights: NDArray[np.float64] | None) -> None:
        """Add validated rows to the sketch: all of them, or none if one is refused. The first rows decide which engine
        is created.

        A row of weight 0 adds nothing, but with ``decay`` it ages the rows before it. ``update`` removes such rows
        before it calls this method; a model that holds rows out for validation passes them with weight 0.
        """
        engine = self._engine
        if engine is not None and not checked.shape[0]:
            return
        if engine is None or not engine.n_rows:  # or has seen no row that could decide
            dtype = natural_dtype(checked.dtype) if self.dtype is None else np.dtype(self.dtype)
            engine = make_engine(self._setting, checked, dtype=dtype)
        self._reading = None
        if self._certain_high is not None or self._estimates is not None:
            engine = self._update_refined(engine, checked, weights)
        elif engine.setting.tolerance is None:
            engine.update(checked, weights)
        else:
            engine = add_rows(engine, checked, weights)
        self._engine = engine
        if engine.setting.tolerance is not None and self.max_sketch_size is not None and misses_tolerance(engine):
            self._say_that_it_misses(self._at_most())

    def _update_refined(self, engine: AnyEngine, rows: Any, weights: NDArray[np.float64] | None) -> AnyEngine:
        certain, before = (self._certain_high, self._estimates), engine.n_rows
        try:
            self._certain_high = self._estimates = None
            # assigned here: an interrupt after this line would otherwise find the bounds dropped and no row learned
            self._engine = engine = add_rows(engine, rows, weights)
        except BaseException:
            if engine.n_rows == before:
                self._certain_high, self._estimates = certain
            raise
        return engine

    @changes
    def fade(self, factor: float) -> Self:
        """Multiply the weight of all rows seen so far by a factor, for example once per batch or per day.

        Parameters
        ----------
        factor : float in (0, 1]

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((500, 40)) * np.arange(1, 41) ** -0.5
        >>> s = fs.FrequentDirections(8).update(rows)
        >>> s.total_weight, s.fade(0.5).total_weight
        (500.0, 250.0)
        """
        factor = as_real(factor, "factor", 0.0, 1.0, low_open=True)
        if self._engine is not None:
            engine = self._engine.clone()
            engine.fade(factor)
            self._replace(engine, self._regained * factor)
        return self

    @changes
    def _begin_with(self, engine: AnyEngine, certain_high: NDArray[np.float64] | None = None) -> None:
        """Set the state of this sketch to an engine that was made from all rows at once.

        No shrink may have shortened a retained row. certain_high: upper bounds of the leading eigenvalues of A'A, if
        they are known.
        """
        unit = ldexp(1.0, engine.exponent)
        with np.errstate(over="ignore", under="ignore"):
            regained = engine.shrinkage * unit * unit
        self._replace(engine, regained, certain_high)

    # -- the matrix, its certificate and the spectrum ----------------------------------------------------------------
    @reads
    def _read(self) -> SketchReadOut:
        return self._last_reading()

    def _last_reading(self) -> SketchReadOut:
        engine = self._seen_engine()
        if self._reading is None:
            self._reading = read_out(engine, compensates=self._method.compensates, regained=self._regained)
            if engine.setting.tolerance is not None:
                self._hold_to_tolerance(engine.setting.tolerance, self._reading)
        return self._reading

    def _hold_to_tolerance(self, tolerance: Tolerance, reading: SketchReadOut) -> None:
        longest = float(reading.s[0]) if len(reading.s) else 0.0
        top = longest * longest - reading.rounding - (reading.shrinkage if self._method.compensates else 0.0)
        bound = self._method.error_bound(reading.shrinkage) + reading.rounding
        if not bound <= tolerance.allowed(reading.squared_norm, top) and bound > 0.0:
            bounded = self.max_sketch_size is not None and len(reading.s) >= self.max_sketch_size - 1
            self._say_that_it_misses(
                self._at_most()
                if bounded
                else "merges, or the rounding of the dtype, have used it up; raise the tolerance"
            )

    def _at_most(self) -> str:
        return f"max_sketch_size={self.max_sketch_size} is reached; raise max_sketch_size or the tolerance"

    def _say_that_it_misses(self, why: str) -> None:
        if not self._warned:
            self._warned = True
            warn_caller(f"the tolerance of {self.tolerance:g} is not met: {why}; error_bound says what holds instead")

    @overload
    def sketch(self, *, sparse: Literal[False] = False) -> NDArray[Any]: ...
    @overload
    def sketch(self, *, sparse: Literal[True]) -> "csr_array": ...
    @reads
    def sketch(self, *, sparse: bool = False) -> "NDArray[Any] | csr_array":
        """Return the sketch matrix B, whose product B'B approximates A'A for all rows A seen so far.

        With a tolerance, B has as few rows as meet it. The state does not change.

        Parameters
        ----------
        sparse : bool, default False
            Return a scipy.sparse.csr_array. For a sketch of sparse rows this takes memory and time of the columns seen
            so far only; with millions of columns a dense B may be too large.

        Returns
        -------
        ndarray or csr_array (r, d), r <= sketch_size
            A new array. Its rows are orthogonal, the longest first: ``singular_values`` times ``components``.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((500, 40)) * np.arange(1, 41) ** -0.5
        >>> s = fs.FrequentDirections(8, solver="gram").update(rows)
        >>> b = s.sketch()
        >>> b.shape
        (7, 40)
        >>> bool(np.allclose(np.linalg.norm(b, axis=1), s.singular_values))
        True
        """
        engine, reading = self._seen_engine(), self._last_reading()
        b = np.multiply(reading.s[:, np.newaxis], reading.vt, order="C")
        if not as_flag(sparse, "sparse"):
            return by_column(engine, b)
        from scipy.sparse import csr_array

        if not isinstance(engine, SparseEngine):
            return csr_array(b)
        # the columns ascend, as scipy has them
        columns, r = engine.slot_columns, len(b)
        order = np.argsort(columns)
        indptr = np.arange(r + 1) * len(columns)
        return csr_array((b[:, order].ravel(), np.tile(columns[order], r), indptr), shape=(r, engine.n_features))

    @property
    def singular_values(self) -> NDArray[Any]:
        """Return the singular values of the sketch matrix, in descending order.

        They are the lengths (r,) of the rows of ``sketch()``. Except for "cfd" they are at most the singular values of
        A; ``spectrum`` gives estimates and intervals of those.
        """
        return self._read().s.copy()

    @property
    def components(self) -> NDArray[Any]:
        """Return the right singular vectors of the sketch matrix, one per row.

        They are the orthonormal directions (r, d) of the rows of ``sketch()``, in the same order. The sign of each is
        chosen such that its largest entry is positive.
        """
        return by_column(self._seen_engine(), self._read().vt.copy())

    @property
    def shrinkage(self) -> float:
        """Return the total that shrinks have subtracted from the squared singular values (Delta in the papers).

        It belongs to ``sketch()`` as it is now, whose shrink is included.
        """
        return 0.0 if self._engine is None else self._read().shrinkage

    @property
    @reads
    def error_bound(self) -> float:
        """Return a guaranteed upper bound on the spectral norm of A'A - B'B, the error of the sketch.

        This is the certificate, known from one pass.

        For "rfd" it bounds A'A + alpha0 I - B'B - alpha I. It is Delta (half of it for "rfd") plus an allowance for the
        rounding of shrinks and read-out, which matters in float32 where Delta is within about 1e-5 of ||A||_2^2. For
        centred rows it is relative to their spread, not to their mean. It is infinite if squares overflow, and with a
        compressor, whose error no certificate covers (``shrinkage`` is that of the mapped rows).

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((500, 40)) * np.arange(1, 41) ** -0.5
        >>> s = fs.FrequentDirections(8, solver="gram", method="fd").update(rows)
        >>> error = np.linalg.norm(rows.T @ rows - s.gram(), 2)
        >>> round(float(error)), round(s.error_bound), round(s.squared_norm)
        (138, 139, 2113)
        """
        if self._engine is None:
            return 0.0
        if self.compressor is not None:
            return inf
        return self._method.error_bound(self.shrinkage) + self._read().rounding

    @property
    def alpha(self) -> float:
        """Return the regularisation alpha that method "rfd" adds to the sketch as alpha I; 0 for other methods.

        It is alpha0 + Delta / 2 with Delta = ``shrinkage``.
        """
        return self.alpha0 + self.shrinkage / 2 if self._method.regularises else 0.0

    @property
    def mean(self) -> NDArray[np.float64] | None:
        """Return the weighted mean of the rows seen, or None without centring or before the first row.

        (d,) float64.
        """
        mean = None if self._engine is None or not self.center else self._read().mean
        return None if mean is None else by_column(self._seen_engine(), mean.copy())

    @property
    @reads
    def squared_norm(self) -> float:
        """Return the sum of squares of all entries of the rows, after weighting, decay and centring.

        This is ||A||_F^2. With a compressor it is that of the mapped rows.
        """
        engine = self._engine
        if engine is None:
            return 0.0
        if self.center or self.compressor is not None:
            return self._read().squared_norm
        unit = ldexp(1.0, engine.exponent)
        return engine.squared_norm * unit * unit

    @property
    def total_weight(self) -> float:
        """Return the sum of the weights of all rows seen, after decay.

        It equals n_rows if there are neither weights nor decay.
        """
        return 0.0 if self._engine is None else self._engine.weight

    def _facts(self) -> dict[str, Any]:
        squared, bound = self.squared_norm, self.error_bound
        return {
            "squared_norm": squared,
            "error_bound": bound,
            "relative_error_bound": bound / squared if 0 < squared < inf else inf if bound else 0.0,
            "alpha": self.alpha,
            "total_weight": self.total_weight,
            "singular_values": [] if self._engine is None else self.singular_values.tolist(),
        }

    @reads
    def spectrum(self) -> Spectrum:
        """Estimate the leading eigenvalues of A'A for the rows A seen so far, each with a guaranteed interval.

        Returns
        -------
        Spectrum
            ``values`` (r,), ``vectors`` (r, d), ``low`` and ``high`` (r,), r <= min(sketch_size, d), float64, in
            squared units of the rows. A is weighted, decayed and centred. The i-th largest eigenvalue lies in [low[i],
            high[i]] for every stream, rounding included; the eigenvalues that are not listed lie between 0 and the
            certificate. Values lie in their intervals. They are exact with solver="exact" and as long as nothing was
            removed, nearly exact after ``refine``, and most accurate with method="tfd". For "fd", "cfd" and "rfd" they
            are the upper ends, for "pfd" and "isvd" the lower ends. With a compressor values are those of the mapped
            rows, and intervals are [0, inf).

        Raises
        ------
        ValueError
            If the sketch has seen no rows.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((500, 40)) * np.arange(1, 41) ** -0.5
        >>> top = fs.FrequentDirections(16, solver="gram", method="tfd").update(rows).spectrum()
        >>> for value, low, high in zip(top.values[:3].round(), top.low[:3].round(), top.high[:3].round()):
        ...     print(f"{value:.0f} in [{low:.0f}, {high:.0f}]")
        519 in [519, 577]
        248 in [248, 307]
        155 in [154, 213]
        >>> np.linalg.eigvalsh(rows.T @ rows)[::-1][:3].round()
        array([519., 248., 156.])
        """
        return self._overview().spectrum

    @reads
    def _overview(self, most: int | None = None) -> SpectrumOverview:
        """Return estimated eigenvalues of A'A with further results of the sketch, as a SpectrumOverview.

        The sketch does not change. `most`: number of eigenpairs to compute with solver="exact".
        """
        return overview_of(
            self._seen_engine(),
            self._method,
            regained=self._regained,
            certain_high=self._certain_high,
            estimates=self._estimates,
            most=most,
        )

    @property
    def singular_value_interval(self) -> NDArray[np.float64]:
        """Return guaranteed intervals for the leading singular values of the rows, as (low, high) pairs.

        (r, 2), the square roots of ``low`` and ``high`` of ``spectrum``.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((500, 40)) * np.arange(1, 41) ** -0.5
        >>> s = fs.FrequentDirections(16, solver="gram", method="tfd").update(rows)
        >>> low, high = s.singular_value_interval.T
        >>> true = np.linalg.svd(rows, compute_uv=False)[: len(low)]
        >>> bool(((low <= true) & (true <= high)).all())
        True
        """
        spectrum = self.spectrum()
        return np.sqrt(np.column_stack([spectrum.low, spectrum.high]))

    # -- the matrix as an operator -----------------------------------------------------------------------------------
    @reads
    def gram(self) -> NDArray[np.float64]:
        """Return the sketch's approximation of A'A as a square float64 matrix.

        This is B'B + alpha I, or A'A itself with solver="exact", (d, d).

        Takes memory d^2. With "exact" its only error is rounding, while ``error_bound`` is that of ``sketch()``.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((500, 40)) * np.arange(1, 41) ** -0.5
        >>> s = fs.FrequentDirections(8, solver="gram").update(rows)
        >>> error = np.linalg.norm(rows.T @ rows - s.gram(), 2)
        >>> bool(error <= s.error_bound)
        True
        """
        engine = self._seen_engine()
        if isinstance(engine, ExactEngine):
            engine = engine.clone()
            unit = ldexp(1.0, engine.exponent)
            with np.errstate(over="ignore", under="ignore"):
                return engine.gram() * unit * unit
        b = np.ascontiguousarray(self.sketch(), np.float64)
        out = product(b, b, turned=True)
        out[np.diag_indices_from(out)] += self.alpha
        return out

    def operator(self, *, inverse: bool = False, alpha: float | None = None) -> "LinearOperator":
        """Return B'B + alpha I for the sketch matrix B, or its inverse, as a scipy LinearOperator.

        Parameters
        ----------
        inverse : bool, default False
            Return the inverse, for example as the preconditioner ``M`` of scipy.sparse.linalg.cg.
        alpha : float, optional
            Regulariser used instead of the sketch's own ``alpha``.

        Returns
        -------
        LinearOperator
            Of float64; a product with a vector costs O(d l).

        Raises
        ------
        ValueError
            If the inverse is requested and the matrix is singular.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((500, 40)) * np.arange(1, 41) ** -0.5
        >>> from scipy.sparse.linalg import cg
        >>> s = fs.FrequentDirections(16, solver="gram").update(rows)
        >>> s.operator().shape
        (40, 40)
        >>> x, failed = cg(rows.T @ rows, np.ones(40), M=s.operator(inverse=True))
        >>> failed
        0
        """
        s, vt, alpha = self._regularised(alpha, inverse=inverse)
        return inverse_operator(s, vt, alpha=alpha) if inverse else gram_operator(s, vt, alpha=alpha)

    def solve(self, v: ArrayLike, *, alpha: float | None = None) -> NDArray[np.float64]:
        """Solve (B'B + alpha I) x = v for the sketch matrix B, by the Woodbury identity.

        Costs O(d l) for each right-hand side.

        Parameters
        ----------
        v : array_like (d,) or (d, k)
            Finite right-hand sides.
        alpha : float, optional
            Regulariser used instead of the sketch's own ``alpha``; required where that is 0 and B'B is singular.

        Returns
        -------
        ndarray of the shape of v
            float64.

        Raises
        ------
        TypeError, ValueError
            If v does not fit, or the matrix is singular.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((500, 40)) * np.arange(1, 41) ** -0.5
        >>> s = fs.FrequentDirections(16, solver="gram").update(rows)
        >>> x = s.solve(np.ones(40))
        >>> bool(np.allclose(s.gram() @ x, 1.0))
        True
        """
        s, vt, alpha = self._regularised(alpha, inverse=True)
        return solve_gram(s, vt, alpha=alpha, v=as_vector(v, vt.shape[1]).astype(np.float64, copy=False))

    @reads
    def _regularised(
        self, alpha: float | None, *, inverse: bool
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        reading, engine, alpha = self._read(), self._seen_engine(), self._regulariser(alpha, inverse=inverse)
        return reading.s.astype(np.float64), by_column(engine, reading.vt.astype(np.float64)), alpha

    def _regulariser(self, alpha: float | None, *, inverse: bool) -> float:
        """Return alpha, or if it is None that of the sketch. ValueError if the matrix is singular and `inverse`."""
        alpha = self.alpha if alpha is None else as_real(alpha, "alpha", 0.0, MOST)
        if inverse and alpha == 0 and len(self._read().s) < self._seen_engine().n_features:
            raise ValueError(
                "alpha must be positive: the sketch is singular, its alpha 0 (with 'rfd' until it shrinks)"
            )
        return alpha

    # -- second reads of the rows --------------------------------------------------------------------------------------
    @changes
    def refine(self, rows: Readable, sample_weight: ArrayLike | None = None) -> Self:
        """Read the same rows a second time, and replace the sketch by a nearly exact one.

        B becomes the Nystrom approximation Y (V Y)^-1 Y' of A'A with Y = A'A V', where V are the directions of the
        sketch. It keeps B'B <= A'A <= B'B + Delta I, with a Delta that is at most the old one. Until more rows are
        added ``spectrum`` also has upper ends that are nearly exact.

        Parameters
        ----------
        rows : as for ``update``, or path, folder or glob, or several of them, as ``fs.open_rows`` takes them
            All rows that the sketch has seen, in any order. They are rounded to its dtype, as in ``update``.
        sample_weight : array_like (n,) or float, optional
            The weights that ``update`` had.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If the rows have another number of columns, or the sketch has decayed rows or a compressor. The sketch is
            then unchanged.

        Warns
        -----
        UserWarning
            If the rows are not those seen: in number, in squared norm, or along the directions of the sketch by more
            than its certificate allows; or if float32 rows are given to a sketch of float64 rows. The sketch is then
            unchanged.

        Notes
        -----
        Costs 4 n d l flops and memory d l (float64). Each further call is one more step of subspace iteration. With
        solver="exact" nothing has been lost: rows are checked, and not multiplied.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((500, 40)) * np.arange(1, 41) ** -0.5
        >>> s = fs.FrequentDirections(8, solver="gram").update(rows)
        >>> before = s.spectrum()
        >>> after = s.refine(rows).spectrum()
        >>> float((before.high - before.low)[0].round(1)), float((after.high - after.low)[0].round(1))
        (139.0, 0.0)
        """
        self._rereadable("refine")
        again = RowsAgain(rows, self._basis_view(), sample_weight, feature_names=self._feature_names)
        if (
            self.dtype is None
            and self._seen_engine().dtype == np.float64
            and getattr(rows, "dtype", None) == np.float32
        ):
            warn_caller("refine has float32 rows for a sketch of float64 rows: it stays as it was")
        elif not self._is_exact():
            vt = self._basis()
            self._take_products(vt, again.multiply(vt.T))
        return self

    def _refine_leading(
        self, rows: Readable, sample_weight: ArrayLike | None, k: int, *, most_passes: int, tol: float
    ) -> KrylovSpace | None:
        """Refine the sketch, in place, by at most `most_passes` passes over its rows, for k leading eigenvalues.
        Return the Krylov space, or None, after a warning, if the rows are not those seen.

        A block Krylov method is used until the eigenvalues are accurate to `tol`.
        """
        self._rereadable("refine")
        again = RowsAgain(rows, self._basis_view(), sample_weight, feature_names=self._feature_names)
        width = min(k + OVERSAMPLING, self.resolved["sketch_size"])
        refined = copy_to_read(self._seen_engine())
        start = by_column(refined, refined.summary().vt)
        space = block_krylov(again.multiply, start, k, width=width, most_passes=most_passes, tol=tol)
        return space if self._take_products(space.basis, space.products, refined) else None

    def _basis(self) -> NDArray[np.float64]:
        """Return the right singular vectors of the sketch matrix as rows, shape (r, d)."""
        engine = copy_to_read(self._seen_engine())
        return by_column(engine, engine.summary().vt)

    def _take_products(self, vt: NDArray[np.float64], reread: Product, refined: AnyEngine | None = None) -> bool:
        """Replace this sketch by a nearly exact one, made from products of A'A with directions; return True if done.

        The products with `vt` (r, d) come from a second pass over the rows A. Nothing changes but for a warning, and
        the result is False, if they cannot be those of the rows seen. `refined` is what ``copy_to_read`` returns for
        this sketch, if that is known; it is changed.
        """
        refined = copy_to_read(self._seen_engine()) if refined is None else refined
        summary, unit = refined.summary(), ldexp(1.0, refined.exponent)
        if not self._compare(reread, "refine", "the sketch stays as it was", refined, summary, vt=vt):
            return False
        assert not isinstance(refined, MappedEngine)  # a sketch with a compressor was refused above
        state = refined.state
        shrinkage = state.shrinkage + sqrt(state.rounding)
        result = nystrom(reread, vt, shrinkage=shrinkage, most=self.resolved["sketch_size"])
        directions = refined.in_slots(result.vt) if isinstance(refined, SparseEngine) else result.vt
        seen, d = np.diag(result.squares), refined.n_features
        put_summary(refined, SketchSummary(result.squares, directions, seen, result.leaked, result.lost, d))
        state.shrinkage = min(shrinkage + result.dropped, result.lost)
        stored = ROUNDING_PER_SHRINK * float(np.finfo(refined.dtype).eps) * float(result.squares.max(initial=0.0))
        allowance = 2.0 * result.allowance + stored
        state.rounding = allowance * allowance  # which may leave the range: ** would raise
        with np.errstate(over="ignore", under="ignore"):
            high, values = result.high * unit * unit, result.values * unit * unit
            self._replace(refined, state.shrinkage * unit * unit, high, values)
        return True

    @reads
    def audit(self, rows: Readable, sample_weight: ArrayLike | None = None, *, accuracy: float = 0.01) -> Audit:
        """Measure the actual error of the sketch by reading the same rows again, several times, and return an Audit.

        Block Lanczos with one pass over the rows per step. ``error_bound`` is the guaranteed bound of the same error.

        Parameters
        ----------
        rows, sample_weight
            As for ``refine``.
        accuracy : float in (0, 1], default 0.01
            Passes end when the residual of the error found is at most this share of it, and the error has stopped
            growing.

        Returns
        -------
        Audit
            ``error``, which is a lower bound for certain, ``error_bound``, the ``accuracy`` reached, and ``passes``.

        Raises
        ------
        TypeError, ValueError
            If the rows have another number of columns, or the sketch has decayed rows or a compressor.

        Warns
        -----
        UserWarning
            If the rows are not those seen, in number or in squared norm; if the error exceeds the bound; or if
            `accuracy` is not reached.

        Notes
        -----
        Mostly 5 to 15 passes, at most 40, of 8 products with A'A each; memory 8 d numbers (float64) a pass.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((500, 40)) * np.arange(1, 41) ** -0.5
        >>> measured = fs.FrequentDirections(8, solver="gram").update(rows).audit(rows)
        >>> measured.error <= measured.error_bound, measured.accuracy <= 0.01
        (True, True)
        >>> round(measured.error / measured.error_bound, 1)
        1.0
        """
        accuracy = as_real(accuracy, "accuracy", 0.0, 1.0, low_open=True)
        self._rereadable("audit")
        engine, reading = self._seen_engine(), self._read()
        unit = ldexp(1.0, engine.exponent)
        again = RowsAgain(rows, self._basis_view(), sample_weight, feature_names=self._feature_names)
        vt, squares = by_column(engine, reading.vt.astype(np.float64)), (reading.s.astype(np.float64) / unit) ** 2
        # alpha - alpha0, without its digits that alpha0 rounds away
        shift = reading.shrinkage / 2 / unit / unit if self._method.regularises else 0.0
        same: bool | None = None

        def multiply(q: NDArray[np.float64]) -> NDArray[np.float64]:
            nonlocal same
            reread = again.multiply(q)
            if same is None:
                reduced = copy_to_read(engine)
                same = self._compare(
                    reread, "audit", "its error says nothing of the sketch", reduced, reduced.summary()
                )
            return reread.product - vt.T @ (squares[:, np.newaxis] * (vt @ q)) - shift * q

        floor = reading.rounding / unit / unit
        error, reached, passes = spectral_norm(multiply, engine.n_features, accuracy=accuracy, floor=floor)
        error, bound = error * unit * unit, self.error_bound
        if same and error > bound * (1 + OF_BOUND) + OF_NORM * self.squared_norm:
            warn_caller(
                f"audit has found an error of {error:.9g} beyond the bound of {bound:.9g}: these are not the rows that "
                "the sketch has seen",
                OtherRows,
            )
        return Audit(error, bound, reached, passes)

    def _compare(
        self,
        reread: Product,
        what: str,
        then: str,
        engine: AnyEngine,
        summary: SketchSummary,
        *,
        vt: NDArray[np.float64] | None = None,
    ) -> bool:
        """Return True if rows that were read again are those that the sketch has seen, else warn and return False.

        They are compared by number, squared norm and products. ValueError if there were no rows.

        `engine`: a clone that has been reduced to `summary`. `vt`: the directions whose products `reread` has; along
        them B'B and A'A may differ by no more than the certificate. `what` and `then` begin and end the warning.
        """
        if not reread.n_rows and self.n_rows:
            raise ValueError(f"{what} has read no rows, the sketch has seen {self.n_rows}")
        unit = ldexp(1.0, engine.exponent)
        slack = SAME_ROWS[engine.dtype.itemsize] * reread.magnitude
        same = reread.n_rows == self.n_rows and abs(reread.squared_norm - engine.squared_norm) <= slack
        if same and vt is not None and len(vt):
            b = (by_column(engine, summary.vt) @ vt.T) * np.sqrt(summary.squares)[:, np.newaxis]
            inside = vt @ reread.product
            off = np.linalg.eigvalsh((inside + inside.T) / 2 - b.T @ b)
            longest = float(summary.squares.max(initial=0.0))
            slack += engine.shrinkage + 4.0 * allowance(engine.dtype, engine.rounding, longest)
            same = bool(np.abs(off).max() <= slack)
        if not same:
            warn_caller(
                f"{what} has read {reread.n_rows} rows of squared norm {reread.squared_norm * unit * unit:.9g}, the "
                f"sketch has seen {self.n_rows} of {engine.squared_norm * unit * unit:.9g}: these are not the same "
                f"rows with the weights that update had; {then}",
                OtherRows,
            )
        return same

    def _rereadable(self, what: str) -> AnyEngine:
        self._check_rereadable(what)
        return self._seen_engine()

    def _check_rereadable(self, what: str) -> None:
        if self.compressor is not None:
            raise ValueError(f"{what} needs a sketch without compressor: it has not seen the rows themselves")
        if self.decay != 1.0:
            raise ValueError(f"{what} needs a sketch without decay, got decay={self.decay:g}: give weights to the rows")

    def _basis_view(self) -> StoredForm:
        """Return the dtype, mean and scale by which the sketch converts rows, as a StoredForm.
        A second pass converts the rows in the same way.
        """
        engine, reading = self._seen_engine(), self._last_reading()
        mean = np.zeros(engine.n_features) if reading.mean is None else by_column(engine, reading.mean)
        return StoredForm(engine.n_features, engine.dtype, mean, ldexp(1.0, -engine.exponent))

    # -- merges ----------------------------------------------------------------------------------------------------
    def _merge(self, other: Self) -> None:
        # alpha0 counts once; means and counts combine exactly
        engine, theirs, regained = self._seen_engine(), other._seen_engine(), self._regained + other._regained
        if not merges_in_place(engine, theirs):
            self._replace(merge_engines(engine.clone(), theirs), regained)
            return
        # copies of the arrays, to undo a failed merge: with few rows a clone takes several times as long
        before, certain = engine.arrays(copy=True), (self._regained, self._certain_high, self._estimates)
        try:
            self._replace(merge_engines(engine, theirs), regained)
        except BaseException:
            engine.restore(before)
            self._replace(engine, *certain)
            raise

    @changes
    def _merge_in_order(self, others: Sequence[Self]) -> None:
        """Merge several sketches into this one, in the given order, without the copies that ``merge`` makes.

        The result is bitwise identical to that of repeated calls of ``merge``. If an error occurs, some may have been
        merged.
        """
        for other in others:
            other._join(self)

    @reads
    def _join(self, whole: Self) -> None:
        mine, theirs = whole._engine, self._engine
        if (
            mine is None
            or theirs is None
            or not merges_in_place(mine, theirs)
            or (mine.n_features, mine.dtype) != (theirs.n_features, theirs.dtype)
            or self._values != whole._values
            or self._feature_names not in (None, whole._feature_names)
        ):
            whole._take(self)  # with all that it checks
        else:
            whole._replace(merge_engines(mine, theirs), whole._regained + self._regained)

    def _adopt(self, other: Self) -> None:
        super()._adopt(other)
        engine = self._engine
        if not (engine is None or isinstance(engine, MappedEngine)) and engine.setting.sketch_size < self.sketch_size:
            self._engine = engine.resized(self.sketch_size)

    def _must_agree(self) -> dict[str, Any]:
        compressor = self._setting.compressor
        if compressor is not None:
            compressor = replace(compressor, first_block=0)
        agree: dict[str, Any] = {"compressor": compressor}  # first: it explains other differences
        agree |= super()._must_agree()
        agree |= {"compressor": compressor, "beta": self._beta}
        if compressor is None:  # else l decides what the random map is
            del agree["sketch_size"]
        return agree

    def _in_order(self) -> str | None:
        return None if self.decay == 1.0 else f"with decay={self.decay:g} a row counts by those that come after it"

    def _state_bytes(self, n_features: int) -> int:
        setting, d, most = self._setting, n_features, self.sketch_size
        if (tolerance := setting.tolerance) is not None:
            # l grows no further: ||A||_F^2 holds at most 1 / tolerance eigenvalues that are larger than its share
            by_norm = ceil(tolerance.counts / tolerance.value) if tolerance.relative_to == "squared_norm" else d
            most = tolerance.bounded(by_norm + 1, d)
        rows = setting.of_size(most)
        exact = setting.solver == "exact" or (setting.solver == "auto" and exact_pays(d, most))
        if exact and setting.compressor is None:
            return 8 * d * (d + ExactEngine.capacity_for(rows) + 3)  # and the mean in three parts
        return 8 * d * (2 * most + (setting.buffer_size or 0))

    def _certificate(self) -> dict[str, float]:
        engine = self._engine
        if engine is None or isinstance(engine, MappedEngine):  # a map's error is in no certificate
            return {}
        bound = self._method.error_bound(engine.shrinkage)
        with np.errstate(over="ignore"):
            values = np.ldexp([bound, engine.squared_norm], 2 * engine.exponent)
        return dict(zip(("error_bound", "squared_norm"), values.tolist(), strict=True))

    def _check_passes(self, passes: int) -> None:
        if passes > 2:
            raise ValueError(f"passes must be 1 or 2, got {passes}")
        self._check_rereadable("passes=2")

    def _passes_again(self, passes: int) -> "Generator[SecondPass, SecondPass, Any]":
        return self if self._is_exact() else (yield SecondPass.of(self)).finish()

    def _for_part(self, part: int, first_block: int = 0) -> Self:
        compressor = self._setting.compressor
        if compressor is None:
            return super()._for_part(part, first_block)
        # no two parts map their blocks by the same random numbers
        place = compressor.first_block + (part << PART_BITS) + first_block
        parameters: dict[str, Any] = {**self.parameters, "compressor": replace(compressor, first_block=place)}
        return type(self)(**parameters)

    # -- files -----------------------------------------------------------------------------------------------------
    @property
    def _beta(self) -> float | None:
        return self._method.share_lowered if self.beta is None and self._method.takes_beta else self.beta

    def _resolved(self) -> dict[str, Any]:
        out: dict[str, Any] = {"beta": self._beta, "compressor": self._setting.compressor}
        if self.tolerance is None:
            out["tolerance_relative_to"] = None
        engine = self._engine
        if engine is not None:
            out.update(
                solver=engine.setting.solver,
                sketch_size=engine.setting.sketch_size,
                buffer_size=engine.capacity - engine.setting.sketch_size,
                dtype=engine.dtype,
                compressor=engine.compressor,
            )
        return out

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        engine = self._engine
        if engine is None:
            return {"engine": None}, {}
        about = {
            "kind": engine.kind,
            "solver": engine.setting.solver,
            "n_features": engine.n_features,
            "sketch_size": engine.setting.sketch_size,
            "buffer_size": engine.capacity - engine.setting.sketch_size,
            "dtype": engine.dtype.name,
        }
        arrays = engine.arrays()
        if self._regained:
            arrays["regained"] = np.array([self._regained])
        for name, array in (("certain_high", self._certain_high), ("estimates", self._estimates)):
            if array is not None:
                arrays[name] = array
        return {"engine": about}, arrays

    def _validate(self, state: dict[str, Any], arrays: Arrays) -> None:
        about = state["engine"]
        if about is None:
            checks.only(arrays)
            return
        setting = self._setting_of(about)
        engine = kind_for(setting, sparse=about["kind"] == SparseEngine.kind)
        if engine.kind != about["kind"]:
            raise ValueError(
                f"a sketch of these parameters has no {about['kind']!r} rows with solver {setting.solver!r}"
            )
        size = setting.sketch_size  # merges make it larger, a tolerance also smaller
        if self.max_sketch_size is not None and size > self.max_sketch_size:
            raise ValueError(f"its rows have sketch_size={size}, its parameters max_sketch_size={self.max_sketch_size}")
        if size < self.sketch_size and self.tolerance is None:
            raise ValueError(f"sketch_size must be at least that of its parameters, {self.sketch_size}, got {size}")
        for name, given, mine in (
            ("sketch_size", size, None if self.compressor is None else self.sketch_size),
            ("solver", setting.solver, None if self.solver == "auto" else self.solver),
            ("buffer_size", setting.buffer_size, None if setting.solver == "exact" else self.buffer_size),
            ("dtype", as_dtype(about["dtype"]), self.dtype),
        ):
            if mine is not None and given != mine:
                raise ValueError(f"its rows have {name}={given}, its parameters {name}={mine}")
        d = as_integer(about["n_features"], "n_features", 1, checks.MOST_COLUMNS)
        own = {name: array for name, array in arrays.items() if name not in CERTAIN}
        engine.validate(own, setting, d, dtype=as_dtype(about["dtype"]))
        validate_refined(arrays, setting.sketch_size)

    def _setting_of(self, about: dict[str, Any]) -> EngineSetting:
        # the buffer as it was, also where a later version has another default: a resume is to give the same bits
        least = 1 if self.center and self.compressor is None else 0  # centring needs one row
        solver = as_choice(about["solver"], "solver", ("gram", "svd", "exact"))
        size = as_integer(about["sketch_size"], "sketch_size", 2)
        setting = self._setting.of_size(size).resolved(solver)
        buffer_size = as_integer(about["buffer_size"], "buffer_size", least)
        engine = kind_for(setting, sparse=about["kind"] == SparseEngine.kind)
        if not issubclass(engine, MappedEngine) and engine.capacity_for(setting) == size + buffer_size:
            return setting  # which goes on growing as if it had not been saved
        if issubclass(engine, SparseEngine):
            wide = engine.for_features(setting, as_integer(about["n_features"], "n_features", 1))
            if engine.capacity_for(wide) == size + buffer_size:
                return wide
        return setting.resolved(solver, buffer_size)

    def _restore(self, state: dict[str, Any], arrays: Arrays) -> None:
        about = state["engine"]
        self._engine = self._reading = self._certain_high = self._estimates = None
        self._regained = 0.0
        if about is not None:
            setting = self._setting_of(about)
            kind = kind_for(setting, sparse=about["kind"] == SparseEngine.kind)
            engine = kind(setting, about["n_features"], dtype=as_dtype(about["dtype"]))
            engine.restore(arrays)
            self._engine = engine
            if "regained" in arrays:
                self._regained = float(arrays["regained"][0])
            self._certain_high, self._estimates = arrays.get("certain_high"), arrays.get("estimates")


class RobustFrequentDirections(FrequentDirections):
    """Sketch a stream of rows by Robust Frequent Directions, with half of the error bound of Frequent Directions.

    ``RobustFrequentDirections(l, alpha0)`` is ``FrequentDirections(l, method="rfd", alpha0=alpha0)``. The other
    parameters are the same, and the two merge. B'B + alpha I is positive definite as soon as a shrink has removed
    anything, and never worse conditioned than Frequent Directions' B'B + alpha0 I (RFD paper, Theorem 3, and the part
    of Theorem 4 that holds).

    Parameters
    ----------
    sketch_size, alpha0, beta, buffer_size, solver, center, decay, dtype, compressor
        As for FrequentDirections.
    tolerance, tolerance_relative_to, max_sketch_size
        As for FrequentDirections.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((500, 40))
    >>> s = fs.RobustFrequentDirections(16, solver="gram").update(rows)
    >>> x = s.solve(np.ones(40))
    >>> bool(np.allclose(s.operator() @ x, 1.0))
    True
    """

    alpha0: float = real(default=0.0, high=MOST, kw_only=False)
    method: MethodName = choice(("rfd",), default="rfd", init=False)


class SecondPass(MergeableModel):
    """A second pass over the rows of a sketch, in batches, that refines the sketch.

    The rows may come in batches, chunks of files, or partitions on other machines.

    ``SecondPass.of(sketch)`` begins the pass, ``update`` takes rows, and ``finish`` returns the refined sketch, which
    is that of ``FrequentDirections.refine``. Passes that began with the same sketch and have read different rows merge.
    A pass is saved and loaded like any model, unfinished ones too.

    Attributes
    ----------
    n_rows, n_features : int
        Number of rows read again so far, and of columns d; n_features is None without a sketch.
    notes : dict
        Anything that json can write; saved with the state.

    Notes
    -----
    Memory: in addition to the sketch its r directions and their products with A'A, (d, r) float64 each, briefly twice.
    Cost: 4 n d r flops. Only rounding depends on how rows are split into batches, and on the order of merges.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((500, 40)) * 0.8 ** np.arange(40)
    >>> sketch = fs.FrequentDirections(16, solver="gram").update(rows)
    >>> again = fs.sketching.SecondPass.of(sketch)
    >>> for part in np.array_split(rows, 5):
    ...     again = again.update(part)
    >>> values = again.finish().singular_values[:5]
    >>> bool(np.allclose(values, np.linalg.svd(rows, compute_uv=False)[:5], rtol=1e-3))
    True
    """

    def _begin(self) -> None:
        self._sketch: FrequentDirections | None = None
        self._vt = np.zeros((0, 0))
        self._view: StoredForm | None = None
        self._sum = Product.none(np.zeros((0, 0)))

    @classmethod
    def of(cls, model: "FrequentDirections") -> Self:
        """Begin a second pass over the rows of a sketch.

        Parameters
        ----------
        model : FrequentDirections
            A sketch that has seen rows, without decay and without compressor. It is copied.

        Returns
        -------
        SecondPass

        Raises
        ------
        TypeError, ValueError
            If the model is not such a sketch.
        """
        if not isinstance(model, FrequentDirections):
            raise TypeError(f"model must be a FrequentDirections, got {type(model).__name__}")
        model._rereadable("a second pass")
        own = model.copy()
        return cls._along(own, own._basis())

    @classmethod
    def _along(cls, sketch: "FrequentDirections", vt: NDArray[np.float64]) -> Self:
        """Return a new second pass over the rows A of a sketch. It will compute the products of A'A with the directions
        `vt` (r, d).
        """
        made = cls()
        made._start(sketch, vt)
        return made

    def _start(self, sketch: "FrequentDirections", vt: NDArray[np.float64]) -> None:
        self._sketch, self._vt, self._view = sketch, vt, sketch._basis_view()
        self._feature_names = sketch.feature_names
        self._sum = Product.none(vt.T)

    def _begun(self) -> "tuple[FrequentDirections, StoredForm]":
        if self._sketch is None or self._view is None:
            raise ValueError("there is no sketch: begin with SecondPass.of(sketch)")
        return self._sketch, self._view

    @changes
    def update(self, rows: Batch, sample_weight: ArrayLike | None = None) -> Self:
        """Read a batch of the sketch's rows again, and add it to the second pass.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), or scipy.sparse (n, d), table, or source
            Real and finite; rounded to the dtype of the sketch. Read as ``FrequentDirections.update`` reads them.
        sample_weight : array_like (n,) or float, optional
            The weights that they had.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If the rows are not a matrix of finite real numbers with as many columns as the sketch. None of them counts
            then.
        """
        return self._take_rows(rows, sample_weight)

    def _update(self, rows: Any, sample_weight: Any) -> None:
        _, view = self._begun()
        checked = as_rows(rows, view.n_features)
        checked, weights = rows_with_weight(checked, as_weights(sample_weight, checked.shape[0]))
        q = np.ascontiguousarray(self._vt.T)
        products = Product.none(q)
        for block, part, first in blocks_of(checked, weights, q.shape[1]):
            products = products.adding(view.multiply(block, part, q, offset=first, out=products.product))
        self._sum = self._sum.plus(products)

    @reads
    def finish(self) -> "FrequentDirections":
        """Return a refined copy of the sketch, computed from all rows read again so far.

        The result is that of ``FrequentDirections.refine``.

        Returns
        -------
        FrequentDirections

        Raises
        ------
        ValueError
            If no rows have been read again.

        Warns
        -----
        UserWarning
            If the rows are not those of the sketch, in number or in squared norm.
        """
        out = self._begun()[0].copy()
        if not self._sum.n_rows:
            raise ValueError("the second pass has read no rows: call update first")
        if not out._is_exact():
            out._take_products(self._vt, self._sum)
        return out

    @property
    @reads
    def sketch(self) -> "FrequentDirections":
        """Return a copy of the sketch of the first pass."""
        return self._begun()[0].copy()

    def _merge(self, other: Self) -> None:
        mine, theirs = self._begun()[0], other._begun()[0]
        if mine.n_rows != theirs.n_rows or not np.array_equal(self._vt, other._vt):
            raise ValueError("other reads the rows of another sketch again: they cannot be merged")
        self._sum = self._sum.plus(other._sum)

    def _for_part(self, part: int, first_block: int = 0) -> Self:
        return self.copy()  # all begin with the same sketch

    # -- required by the frame -------------------------------------------------------------------------------------
    @property
    def n_rows(self) -> int:
        """Return the number of rows read again so far."""
        return self._sum.n_rows

    @property
    def n_features(self) -> int | None:
        """Return the number of columns, or None if there is no sketch."""
        return None if self._sketch is None else self._sketch.n_features

    def _facts(self) -> dict[str, Any]:
        return {"rows_to_read": 0 if self._sketch is None else self._sketch.n_rows}

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        if self._sketch is None:
            return {"n_rows": 0}, {}
        sums = self._sum
        return {"n_rows": sums.n_rows}, {
            "sketch": np.frombuffer(self._sketch.to_bytes(), np.uint8),
            "vt": self._vt,
            "product": sums.product,
            "book": np.array([sums.squared_norm, sums.magnitude]),
        }

    def _validate(self, state: dict[str, Any], arrays: Arrays) -> None:
        n_rows = checks.as_count(state["n_rows"], "n_rows")
        if not arrays:
            checks.number_within(n_rows, "n_rows", 0, 0)
            return
        checks.only(arrays, "sketch", "vt", "product", "book")
        sketch = inner_model(arrays, "sketch", FrequentDirections)
        sketch._rereadable("a second pass")
        r, d = len(arrays["vt"]), sketch.n_features or 0
        checks.number_within(r, "directions", 0, d)
        vt = checks.finite(arrays, "vt", (r, d))
        if r and np.abs(vt @ vt.T - np.eye(r)).max() > ORTHONORMAL:
            raise ValueError("array 'vt' must hold orthonormal rows")
        checks.finite(arrays, "product", (d, r))
        checks.not_negative(arrays, "book", (2,))

    def _restore(self, state: dict[str, Any], arrays: Arrays) -> None:
        self._begin()
        if arrays:
            self._start(inner_model(arrays, "sketch", FrequentDirections), arrays["vt"])
            squared_norm, magnitude = arrays["book"].tolist()
            self._sum = Product(arrays["product"], squared_norm, state["n_rows"], magnitude)
