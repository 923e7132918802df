"""The public sketch objects."""

import warnings
from dataclasses import replace
from math import inf, ldexp, sqrt
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fastsketch._batches import Batch
from fastsketch._kernels.guard import changes, reads
from fastsketch._kernels.linalg.products import product
from fastsketch._kernels.sketching.state import ROUNDING_PER_SHRINK
from fastsketch._model import Arrays, MergeableModel
from fastsketch._parameters import choice, flag, float_dtype, integer, parameter, real
from fastsketch._validation import (
    as_choice,
    as_dtype,
    as_integer,
    as_real,
    as_rows,
    as_vector,
    as_weights,
    natural_dtype,
)
from fastsketch.io import _checks as checks
from fastsketch.sketching._audit import Audit, spectral_norm
from fastsketch.sketching._by_feature import ByFeature, by_feature
from fastsketch.sketching._engines import (
    AnyEngine,
    EngineSetting,
    ExactEngine,
    Growth,
    Known,
    MappedEngine,
    Reference,
    SolverName,
    SparseEngine,
    exact_pays,
    kind_for,
    make_engine,
    merge_engines,
    misses_tolerance,
    put_known,
    to_read,
    updated,
)
from fastsketch.sketching._methods import DEFAULT_BETAS, METHODS, MethodName, share_lowered
from fastsketch.sketching._operators import gram_operator, inverse_operator, solve_gram
from fastsketch.sketching._random_maps import Compressor, as_compressor
from fastsketch.sketching._reading import Reading, allowance, read_out
from fastsketch.sketching._rows_again import OtherRows, Product, Readable, RowsAgain, View
from fastsketch.sketching._second_pass import CERTAIN, nystrom, validate_refined
from fastsketch.sketching._sized_map import MapKind
from fastsketch.sketching._spectrum import Overview, Spectrum, overview_of

# Share of what the rows weigh by which sums over rows read twice may differ, by size of the dtype.
SAME_ROWS = {4: 1e-5, 8: 1e-9}
# Shares of the bound and of the squared norm by which an audit may be beyond the bound: its own rounding.
OF_BOUND, OF_NORM = 1e-9, 1e-12

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

MOST = float(np.finfo(np.float64).max)
# Blocks that a part of a job may have, as a power of two.
PART_BITS = 32
# l of a sketch that grows to a tolerance: a start costs little where it is too small, and much where it is too large.
START_SIZE = 4


class FrequentDirections(MergeableModel):
    """Sketch B (at most l x d) of a stream of rows A (n x d) with B'B close to A'A and a certificate.

    Parameters
    ----------
    sketch_size : int, default 64
        l >= 2, the most rows the sketch keeps. With l > d nothing is ever removed: the sketch is exact. With a
        tolerance, where l starts, by default at 4.
    method : {"rfd", "fd", "pfd", "tfd", "cfd", "isvd"}, default "rfd"
        Robust FD: Frequent Directions whose ``alpha`` grows by half of each shrink's delta, which halves the error
        of B'B + alpha I; plain Frequent Directions, B'B <= A'A; its parameterized form (the top
        l - floor(beta l) rows keep their length); Tracked FD, which spares as many rows, those that hold most of A by a
        ledger that ``spectrum`` reads (docs/read-outs.md); the compensative read-out; iterative SVD (nothing is
        subtracted, no a-priori guarantee). B is the same for "rfd" and "fd".
    alpha0 : float, default 0.0
        Initial regulariser of "rfd": the target is A'A + alpha0 I. In units of squared rows.
    beta : float in [0, 1], optional
        Share of rows that "pfd" and "tfd" shrink; if not given 0.2 and 0.45.
    buffer_size : int, optional
        Rows b collected between shrinks beyond l: default l (the doubled buffer), 6 l for sparse streams; 48 l, for
        eight shrinks, for sparse streams of 131,072 features or more. 0 shrinks at every row, as the papers' basic
        algorithms do.
    solver : {"auto", "gram", "svd", "exact"}, default "auto"
        How a shrink is computed: from the Gram matrix of the buffer; by LAPACK's gesdd; or not at all: "exact"
        accumulates A'A (d x d, float64) and shrinks once, at read-out. "auto" takes "exact" up to d = 11 l + 300,
        where it is faster, else "gram".
    center : bool, default False
        Subtract the mean of all rows seen, exactly and online, so that B'B is close to (A - mu)'(A - mu).
    decay : float in (0, 1], default 1.0
        Every new row multiplies the weight of all earlier rows by this. See also ``fade``.
    dtype : float32 or float64, optional
        Of the sketch; by default that of the first batch (float32 stays, everything else becomes float64).
    compressor : fs.Compressor or its kind ("srht", "countsketch", "sparse", "gaussian", "sampling"), optional
        A random map that turns every m rows into q before they reach the sketch (q = ``sketch_size`` unless given):
        with "srht" Fast Frequent Directions of FROSH, Algorithm 2. Several times faster than a sketch without, and on
        most rows several times less accurate, far more where few directions hold nearly all; the bound then covers
        the shrinks, not the error of the random map, and ``squared_norm`` is an estimate.
    tolerance : float in (0, 1), optional
        A precision instead of a size: l grows while rows come, so that at any moment ``error_bound`` is at most this
        share of what it is relative to, and ``sketch()`` has the fewest rows that meet it. Not with a compressor.
    tolerance_relative_to : {"squared_norm", "largest_eigenvalue"}, default "squared_norm"
        ||A||_F^2, or the largest eigenvalue of A'A: its certified lower end, so that what is said is true. The former
        bounds l by about 1 / tolerance ("rfd": half of that), whatever the rows; the latter by d alone, and merges of
        parts whose leading directions differ may use it up (a UserWarning says so).
    max_sketch_size : int, optional
        Bound on l for a tolerance, at least ``sketch_size``. Where it is reached before the tolerance is met, one
        UserWarning says so, and ``error_bound`` what holds instead.

    Attributes
    ----------
    n_rows, n_features : int
        Rows seen (weights do not count) and columns d; n_features is None before the first batch.
    notes : dict
        Anything that json can write; saved with the state.

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of range; the message names it.

    Notes
    -----
    Guarantee, at any moment and after any merges, with Delta = ``shrinkage``: 0 <= A'A - B'B <= Delta I for "fd",
    "pfd", "tfd" and "isvd"; an error within [-Delta, Delta] for "cfd" and within [-Delta/2, Delta/2] of B'B + alpha I
    for "rfd". For "fd", "cfd" and "rfd" Delta <= ||A - A_k||_F^2 / (l - k) for every k < l; for "pfd" and "tfd" the
    same with floor(beta l) in place of l.

    Cost: about 7 d l flops a row; memory (l + b) d + 3 (l + b)^2 elements. An update that spans more than eight
    buffers keeps a copy of the buffer while it runs, from which it is undone if it is refused or interrupted; a
    shorter one runs to its end before an interrupt is seen. While one thread updates a model, other threads that update
    or read it get a RuntimeError.

    Parameters read as they were given; ``resolved`` has the sketch_size, solver, buffer_size, dtype and compressor in
    use. Sketches that differ in sketch_size alone merge, into the larger (not with a compressor).

    With a tolerance, a shrink that would take more than nine tenths of what the rows so far allow is not made: l grows
    by at least 15%, and nothing is lost. The rest is for the read-out. solver="auto" goes over to "exact" where l has
    grown so far that it is faster; solver="exact" has nothing to grow, and its read-out chooses l.

    References
    ----------
    Liberty 2013; Ghashami, Liberty, Phillips, Woodruff 2016; Desai, Ghashami, Phillips 2016; RFD: Luo, Chen, Zhang,
    Li, Zhang, JMLR 20 (2019), Algorithms 1, 2, 4, 5 and 8. Centring: FROSH Algorithm 1, step 7.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((500, 40))
    >>> s = fs.FrequentDirections(16, solver="gram").update(rows)
    >>> error = np.linalg.norm(rows.T @ rows - s.sketch().T @ s.sketch() - s.alpha * np.eye(40), 2)
    >>> bool(error <= s.error_bound), s.n_rows
    (True, 500)
    """

    sketch_size: int = integer(default=64, at_least=2, kw_only=False)
    method: MethodName = choice(tuple(METHODS), default="rfd")
    alpha0: float = real(default=0.0, high=MOST)
    beta: float | None = real(default=None, high=1.0)
    buffer_size: int | None = integer(default=None)
    solver: SolverName = choice(("auto", "gram", "svd", "exact"), default="auto")
    center: bool = flag(default=False)
    decay: float = real(default=1.0, high=1.0, low_open=True)
    dtype: DTypeLike | None = float_dtype(default=None)
    compressor: Compressor | MapKind | None = parameter(as_compressor, default=None)

    tolerance: float | None = real(default=None, high=1.0, low_open=True, high_open=True)
    tolerance_relative_to: Reference = choice(("squared_norm", "largest_eigenvalue"), default="squared_norm")
    max_sketch_size: int | None = integer(default=None, at_least=2)

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
        if self.beta is not None and self.method not in DEFAULT_BETAS:
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
        # read in every update: plain attributes cost less than parameters do
        self._method = METHODS[self.method]
        self._setting = EngineSetting(
            self.sketch_size,
            share_lowered=share_lowered(self.method, beta=self.beta),
            ledger=self._method.tracks,
            buffer_size=self.buffer_size,
            solver=self.solver,
            center=self.center,
            decay=self.decay,
            compressor=Compressor(self.compressor) if isinstance(self.compressor, str) else self.compressor,
            growth=self._growth(),
        )
        self._warned = False
        self._engine: AnyEngine | None = None
        self._reading: Reading | None = None
        # of a second pass, in squared units of the rows: the part of Delta that the kept directions have not lost;
        # upper ends of the leading eigenvalues of A'A, and estimates, which hold until more comes in
        self._regained = 0.0
        self._certain_high: NDArray[np.float64] | None = None
        self._estimates: NDArray[np.float64] | None = None

    def _growth(self) -> Growth | None:
        if self.tolerance is None:
            return None
        return Growth(
            self.tolerance,
            self.tolerance_relative_to,
            counts=METHODS[self.method].error_bound(1.0),
            largest=self.max_sketch_size,
            chooses=self.solver == "auto",
        )

    # -- taking rows in --------------------------------------------------------------------------------------------
    @changes
    def update(self, rows: Batch, sample_weight: ArrayLike | None = None) -> Self:
        """Add one row or many.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), or scipy.sparse (n, d), table, or source
            Real and finite. Sparse rows are never made dense as a whole; explicit zeros are harmless. Tables, sources
            (``fs.open_rows``) and arrays that lie elsewhere (h5py, Zarr, Dask, memory maps) are read in chunks.
        sample_weight : array_like (n,) or float, optional
            Finite, >= 0: a row of weight w counts as sqrt(w) times itself.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            For anything that is no matrix of finite real numbers of the width seen before. The sketch is then as it
            was before the call.

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
        weights = as_weights(sample_weight, checked.shape[0])
        if engine is None or not engine.n_rows:  # or has seen no row that could decide
            dtype = natural_dtype(checked.dtype) if self.dtype is None else np.dtype(self.dtype)
            engine = make_engine(self._setting, checked, dtype=dtype)
        self._reading = None
        if self._certain_high is not None or self._estimates is not None:
            engine = self._update_refined(engine, checked, weights)
        elif engine.setting.growth is None:
            engine.update(checked, weights)
        else:
            engine = updated(engine, checked, weights)
        self._engine = engine
        if self.max_sketch_size is not None and misses_tolerance(engine):
            self._say_that_it_misses(self._at_most(), stacklevel=5)

    def _at_most(self) -> str:
        return f"max_sketch_size={self.max_sketch_size} is reached; raise max_sketch_size or the tolerance"

    def _say_that_it_misses(self, why: str, *, stacklevel: int = 3) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"the tolerance of {self.tolerance:g} is not met: {why}; error_bound says what holds instead",
                stacklevel=stacklevel,
            )

    def _update_refined(self, engine: AnyEngine, rows: Any, weights: NDArray[np.float64] | None) -> AnyEngine:
        certain, before = (self._certain_high, self._estimates), engine.n_rows
        try:
            self._certain_high = self._estimates = None
            return updated(engine, rows, weights)
        except BaseException:
            if engine.n_rows == before:
                self._certain_high, self._estimates = certain
            raise

    @changes
    def fade(self, factor: float) -> Self:
        """Multiply the weight of everything seen so far by a factor in (0, 1]: decay per batch, or per day.

        Parameters
        ----------
        factor : float

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

    def _merge(self, other: Self) -> None:
        # alpha0 counts once; means and counts combine exactly
        engine = self._seen_engine().clone()
        engine = merge_engines(engine, other._seen_engine().clone())
        self._replace(engine, self._regained + other._regained)

    def _replace(
        self,
        engine: AnyEngine,
        regained: float,
        certain_high: NDArray[np.float64] | None = None,
        estimates: NDArray[np.float64] | None = None,
    ) -> None:
        """Take another engine, and what is known beside it, all at once."""
        known = regained, certain_high, estimates
        (self._engine, self._reading), (self._regained, self._certain_high, self._estimates) = (engine, None), known

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
        setting = self._setting
        exact = setting.solver == "exact" or (setting.solver == "auto" and exact_pays(n_features, setting.sketch_size))
        if exact and setting.compressor is None:
            return 8 * n_features * n_features
        most = setting.sketch_size if setting.growth is None else setting.growth.largest or 4 * setting.sketch_size
        return 8 * n_features * (2 * most + (setting.buffer_size or 0))

    def _certificate(self) -> dict[str, float]:
        engine = self._engine
        if engine is None or isinstance(engine, MappedEngine):  # a map's error is in no certificate
            return {}
        bound = self._method.error_bound(engine.shrinkage)
        with np.errstate(over="ignore"):
            known = np.ldexp([bound, engine.squared_norm], 2 * engine.exponent)
        return dict(zip(("error_bound", "squared_norm"), known.tolist(), strict=True))

    def _check_second_pass(self) -> None:
        self._check_rereadable("passes=2")

    def _for_part(self, part: int, first_block: int = 0) -> Self:
        compressor = self._setting.compressor
        if compressor is None:
            return super()._for_part(part, first_block)
        # no two parts map their blocks by the same random numbers
        place = compressor.first_block + (part << PART_BITS) + first_block
        parameters: dict[str, Any] = {**self.parameters, "compressor": replace(compressor, first_block=place)}
        return type(self)(**parameters)

    # -- reading: never changes the state --------------------------------------------------------------------------
    def _seen_engine(self) -> AnyEngine:
        if self._engine is None:
            raise ValueError("the sketch has seen no rows: call update first")
        return self._engine

    @reads
    def _read(self) -> Reading:
        return self._last_reading()

    def _last_reading(self) -> Reading:
        engine = self._seen_engine()
        if self._reading is None:
            self._reading = read_out(engine, compensates=self._method.compensates, regained=self._regained)
            if engine.setting.growth is not None:
                self._hold_to_tolerance(engine.setting.growth, self._reading)
        return self._reading

    def _hold_to_tolerance(self, growth: Growth, reading: Reading) -> None:
        longest = float(reading.s[0]) if len(reading.s) else 0.0
        top = longest * longest - reading.rounding - (reading.shrinkage if self._method.compensates else 0.0)
        bound = self._method.error_bound(reading.shrinkage) + reading.rounding
        if not bound <= growth.allowed(reading.squared_norm, top) and bound > 0.0:
            bounded = self.max_sketch_size is not None and len(reading.s) >= self.max_sketch_size - 1
            self._say_that_it_misses(
                self._at_most()
                if bounded
                else "merges, or the rounding of the dtype, have used it up; raise the tolerance"
            )

    def sketch(self) -> NDArray[Any]:
        """B, a new array (r, d) with r <= sketch_size: orthogonal rows, longest first, every row seen included.

        With a tolerance, r is the smallest number of rows that meets it.

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
        reading = self._read()
        return np.multiply(reading.s[:, np.newaxis], reading.vt, order="C")

    @property
    def singular_values(self) -> NDArray[Any]:
        """Lengths of the rows of ``sketch()``, descending, (r,): at most those of A, which ``spectrum`` estimates."""
        return self._read().s.copy()

    @property
    def components(self) -> NDArray[Any]:
        """Orthonormal directions of the rows of ``sketch()``, (r, d); the largest entry of each is positive."""
        return self._read().vt.copy()

    @property
    def shrinkage(self) -> float:
        """Delta, the sum of the squared singular values removed, for ``sketch()`` as it is now (squared units)."""
        return 0.0 if self._engine is None else self._read().shrinkage

    @property
    @reads
    def error_bound(self) -> float:
        """Bound on the spectral norm of A'A - B'B (of A'A + alpha0 I - B'B - alpha I for "rfd"), from one pass.

        Delta (half of it for "rfd") plus an allowance for the rounding of shrinks and read-out, which matters in
        float32 when Delta is within about 1e-5 of ||A||_2^2. It is relative to the spread of centred rows, not to
        their mean. Infinite where squares leave the range of a double, and with a compressor: of what a random map does
        to A nothing is certain (``shrinkage`` is about the mapped rows).

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
        """Regulariser that goes with ``sketch()``: alpha0 + Delta / 2 for "rfd", else 0."""
        return self.alpha0 + self.shrinkage / 2 if self._method.regularises else 0.0

    @property
    def mean(self) -> NDArray[np.float64] | None:
        """Weighted mean of the rows, (d,) float64; None unless ``center``."""
        found = None if self._engine is None or not self.center else self._read().mean
        return None if found is None else found.copy()

    @property
    @reads
    def squared_norm(self) -> float:
        """||A||_F^2 of the weighted, decayed and (with ``center``) centred rows; of mapped ones with a compressor."""
        engine = self._engine
        if engine is None:
            return 0.0
        if self.center or self.compressor is not None:
            return self._read().squared_norm
        unit = ldexp(1.0, engine.exponent)
        return engine.squared_norm * unit * unit

    @property
    def total_weight(self) -> float:
        """Sum of the (decayed) weights of all rows: n_rows if neither weights nor decay are used."""
        return 0.0 if self._engine is None else self._engine.weight

    @property
    def n_rows(self) -> int:
        """Rows seen."""
        return 0 if self._engine is None else self._engine.n_rows

    @property
    def n_features(self) -> int | None:
        """Columns d of the rows; None before the first batch."""
        return None if self._engine is None else self._engine.n_features

    @reads
    def gram(self) -> NDArray[np.float64]:
        """The d x d matrix that stands for A'A, float64: B'B + alpha I, or A'A itself with solver="exact".

        Memory d^2. With "exact" its error is that of rounding; ``error_bound`` is about ``sketch()``.

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

    # -- the spectrum of the rows ----------------------------------------------------------------------------------
    @reads
    def spectrum(self) -> Spectrum:
        """Estimates of the leading eigenvalues of A'A (squared singular values of A), each with an interval.

        Returns
        -------
        Spectrum
            ``values`` (r,), ``vectors`` (r, d), ``low`` and ``high`` (r,) with r <= min(sketch_size, d), float64, in
            squared units of the rows; A is weighted, decayed and centred. The intervals hold on every stream, their
            rounding included; eigenvalues that are not listed lie between 0 and the certificate (Delta and rounding).
            Values lie in their intervals: they are exact with solver="exact" and as long as nothing was removed, nearly
            so after ``refine``, best with method="tfd"; for "fd", "cfd" and "rfd" they are the upper ends, for "pfd"
            and "isvd" the lower ones.
            With a compressor values are about the mapped rows, and the intervals, from 0 to infinity, say nothing.

        Raises
        ------
        ValueError
            If the sketch has seen no rows.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((500, 40)) * np.arange(1, 41) ** -0.5
        >>> found = fs.FrequentDirections(16, solver="gram", method="tfd").update(rows).spectrum()
        >>> for value, low, high in zip(found.values[:3].round(), found.low[:3].round(), found.high[:3].round()):
        ...     print(f"{value:.0f} in [{low:.0f}, {high:.0f}]")
        519 in [519, 577]
        248 in [248, 307]
        155 in [154, 213]
        >>> np.linalg.eigvalsh(rows.T @ rows)[::-1][:3].round()
        array([519., 248., 156.])
        """
        return self._overview().spectrum

    @reads
    def _overview(self, most: int | None = None) -> Overview:
        """The spectrum and what belongs to it by one read-out; of an exact sum, `most` pairs."""
        return overview_of(
            self._seen_engine(),
            self._method,
            regained=self._regained,
            certain_high=self._certain_high,
            estimates=self._estimates,
            most=most,
        )

    @reads
    def _by_feature(self, most: int | None = None) -> ByFeature:
        """What stands for A'A with a row for each feature, in the dtype of the sketch; of an exact sum `most` pairs."""
        return by_feature(self._seen_engine(), self._method, most=most)

    @changes
    def _begin_with(self, engine: AnyEngine, certain_high: NDArray[np.float64] | None = None) -> None:
        """Take an engine of this setting that has seen rows elsewhere; nothing that it kept has lost length."""
        unit = ldexp(1.0, engine.exponent)
        with np.errstate(over="ignore", under="ignore"):
            regained = engine.shrinkage * unit * unit
        self._replace(engine, regained, certain_high)

    @property
    def singular_value_interval(self) -> NDArray[np.float64]:
        """(r, 2): the i-th largest singular value of A lies between the two numbers of row i, as in ``spectrum``.

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
        found = self.spectrum()
        return np.sqrt(np.column_stack([found.low, found.high]))

    @changes
    def refine(self, rows: Readable, sample_weight: ArrayLike | None = None) -> Self:
        """Read the same rows once more: singular values and directions come out nearly exact.

        B becomes the Nystrom approximation Y (V Y)^-1 Y' of A'A with Y = A'A V', V the directions of the sketch. It
        keeps B'B <= A'A <= B'B + Delta I, with a Delta that is at most the old one, and ``spectrum`` gets upper ends
        that are nearly as near, until more rows come in.

        Parameters
        ----------
        rows : as for ``update``, or path, folder or glob, or several of them, as ``fs.open_rows`` takes them
            All rows that the sketch has seen, in any order. They are rounded to its dtype, as ``update`` does.
        sample_weight : array_like (n,) or float, optional
            The weights that ``update`` had.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If the rows have another width, or the sketch has decayed rows or a compressor. It is then as it was.

        Warns
        -----
        UserWarning
            If the rows differ from those seen, in number, in squared norm, or along the directions that the sketch
            keeps by more than its certificate allows: it stays as it was then. So it does, with another warning, if
            float32 rows are given to a sketch that has seen float64 ones.

        Notes
        -----
        Cost 4 n d l flops, memory d l more (float64). Each further call is one more step of subspace iteration. With
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
            warnings.warn("refine has float32 rows for a sketch of float64 rows: it stays as it was", stacklevel=3)
        elif not self._is_exact():
            vt = self._basis()[0]
            self._take_products(vt, again.multiply(vt.T))
        return self

    def _basis(self) -> tuple[NDArray[np.float64], View]:
        """The directions of the sketch, and how it stores rows."""
        return to_read(self._seen_engine()).known().vt, self._basis_view()

    def _take_products(self, vt: NDArray[np.float64], found: Product) -> None:
        """The second half of a second pass: from the products of all rows with the directions."""
        refined = to_read(self._seen_engine())
        known, unit = refined.known(), ldexp(1.0, refined.exponent)
        if not self._compare(found, "refine", "the sketch stays as it was", refined, known, vt=vt):
            return
        assert not isinstance(refined, MappedEngine)  # it has no compressor
        state = refined.state
        shrinkage = state.shrinkage + sqrt(state.rounding)
        result = nystrom(found, vt, shrinkage=shrinkage)
        put_known(refined, Known(result.squares, result.vt, np.diag(result.squares), result.leaked, result.lost))
        state.shrinkage = min(shrinkage, result.lost)
        stored = ROUNDING_PER_SHRINK * float(np.finfo(refined.dtype).eps) * float(result.squares.max(initial=0.0))
        allowance = 2.0 * result.allowance + stored
        state.rounding = allowance * allowance  # which may leave the range: ** would raise
        with np.errstate(over="ignore", under="ignore"):
            high, values = result.high * unit * unit, result.values * unit * unit
            self._replace(refined, state.shrinkage * unit * unit, high, values)

    @reads
    def audit(self, rows: Readable, sample_weight: ArrayLike | None = None, *, accuracy: float = 0.01) -> Audit:
        """Measure the error that ``error_bound`` bounds, by block Lanczos steps, one pass over the same rows each.

        Parameters
        ----------
        rows, sample_weight
            As for ``refine``.
        accuracy : float in (0, 1], default 0.01
            Relative: passes end when the error found is that near to an eigenvalue, and has stopped to grow.

        Returns
        -------
        Audit
            ``error``, a lower bound for certain, ``error_bound``, ``accuracy`` reached and ``passes``.

        Raises
        ------
        TypeError, ValueError
            If the rows have another width, or the sketch has decayed rows or a compressor.

        Warns
        -----
        UserWarning
            If the rows differ from those seen, in number or in squared norm, the error is beyond the bound, or
            `accuracy` is not reached.

        Notes
        -----
        Mostly 5 to 15 passes, at most 40, of 8 products with A'A each; memory 8 d numbers (float64) a pass.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((500, 40)) * np.arange(1, 41) ** -0.5
        >>> found = fs.FrequentDirections(8, solver="gram").update(rows).audit(rows)
        >>> found.error <= found.error_bound, found.accuracy <= 0.01
        (True, True)
        >>> round(found.error / found.error_bound, 1)
        1.0
        """
        accuracy = as_real(accuracy, "accuracy", 0.0, 1.0, low_open=True)
        self._rereadable("audit")
        engine, reading = self._seen_engine(), self._read()
        unit = ldexp(1.0, engine.exponent)
        again = RowsAgain(rows, self._basis_view(), sample_weight, feature_names=self._feature_names)
        vt, squares = reading.vt.astype(np.float64), (reading.s.astype(np.float64) / unit) ** 2
        # alpha - alpha0, without its digits that alpha0 rounds away
        shift = reading.shrinkage / 2 / unit / unit if self._method.regularises else 0.0
        same: bool | None = None

        def multiply(q: NDArray[np.float64]) -> NDArray[np.float64]:
            nonlocal same
            found = again.multiply(q)
            if same is None:
                reduced = to_read(engine)
                same = self._compare(found, "audit", "its error says nothing of the sketch", reduced, reduced.known())
            return found.product - vt.T @ (squares[:, np.newaxis] * (vt @ q)) - shift * q

        floor = reading.rounding / unit / unit
        error, reached, passes = spectral_norm(multiply, engine.n_features, accuracy=accuracy, floor=floor)
        error, bound = error * unit * unit, self.error_bound
        if same and error > bound * (1 + OF_BOUND) + OF_NORM * self.squared_norm:
            warnings.warn(
                f"audit has found an error of {error:.9g} beyond the bound of {bound:.9g}: these are not the rows that "
                "the sketch has seen",
                OtherRows,
                stacklevel=3,
            )
        return Audit(error, bound, reached, passes)

    def _compare(
        self,
        found: Product,
        what: str,
        then: str,
        engine: AnyEngine,
        known: Known,
        *,
        vt: NDArray[np.float64] | None = None,
    ) -> bool:
        """Whether the rows that have been read may be those seen; warns if not, raises ValueError if there are none.

        `engine`: a clone that has been reduced to `known`; `vt`: directions of which `found` has the products, along
        which B'B and A'A differ by at most the certificate.
        """
        if not found.n_rows and self.n_rows:
            raise ValueError(f"{what} has read no rows, the sketch has seen {self.n_rows}")
        unit = ldexp(1.0, engine.exponent)
        slack = SAME_ROWS[engine.dtype.itemsize] * found.magnitude
        same = found.n_rows == self.n_rows and abs(found.squared_norm - engine.squared_norm) <= slack
        if same and vt is not None and len(vt):
            b = (known.vt @ vt.T) * np.sqrt(known.squares)[:, np.newaxis]
            inside = vt @ found.product
            off = np.linalg.eigvalsh((inside + inside.T) / 2 - b.T @ b)
            slack += engine.shrinkage + 4.0 * allowance(engine, float(known.squares.max(initial=0.0)))
            same = bool(np.abs(off).max() <= slack)
        if not same:
            warnings.warn(
                f"{what} has read {found.n_rows} rows of squared norm {found.squared_norm * unit * unit:.9g}, the "
                f"sketch has seen {self.n_rows} of {engine.squared_norm * unit * unit:.9g}: these are not the same "
                f"rows with the weights that update had; {then}",
                OtherRows,
                stacklevel=5,
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

    def _is_exact(self) -> bool:
        return self._seen_engine().setting.solver == "exact"

    def _basis_view(self) -> View:
        """How the sketch stores rows."""
        engine, reading = self._seen_engine(), self._last_reading()
        mean = np.zeros(engine.n_features) if reading.mean is None else reading.mean
        return View(engine.n_features, engine.dtype, mean, ldexp(1.0, -engine.exponent))

    # -- using it --------------------------------------------------------------------------------------------------
    def operator(self, *, inverse: bool = False, alpha: float | None = None) -> "LinearOperator":
        """B'B + alpha I, or its inverse, as a scipy.sparse.linalg.LinearOperator (d, d).

        Parameters
        ----------
        inverse : bool, default False
            The inverse serves as the preconditioner ``M`` of scipy.sparse.linalg.cg.
        alpha : float, optional
            Regulariser in place of the sketch's own ``alpha``.

        Returns
        -------
        LinearOperator
            Of float64; O(d l) a vector.

        Raises
        ------
        ValueError
            If the inverse of a singular matrix is asked for.

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
        """(B'B + alpha I)^-1 v in O(d l) a vector (Woodbury).

        Parameters
        ----------
        v : array_like (d,) or (d, k)
            Finite right-hand sides.
        alpha : float, optional
            Regulariser in place of the sketch's own ``alpha``; needed where that is 0 and B'B is singular.

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
        reading = self._read()
        alpha = self.alpha if alpha is None else as_real(alpha, "alpha", 0.0, MOST)
        if inverse and alpha == 0 and len(reading.s) < reading.vt.shape[1]:
            raise ValueError("alpha must be positive: the sketch alone is singular (method='rfd' brings its own alpha)")
        return reading.s.astype(np.float64), reading.vt.astype(np.float64), alpha

    # -- required by the frame -------------------------------------------------------------------------------------
    @property
    def _beta(self) -> float | None:
        return DEFAULT_BETAS.get(self.method) if self.beta is None else self.beta

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
        least = 1 if self.center and self.compressor is None else 0  # centring needs a row of its own
        solver = as_choice(about["solver"], "solver", ("gram", "svd", "exact"))
        size = as_integer(about["sketch_size"], "sketch_size", 2)
        setting = self._setting.of_size(size).resolved(solver)
        buffer_size = as_integer(about["buffer_size"], "buffer_size", least)
        engine = kind_for(setting, sparse=about["kind"] == SparseEngine.kind)
        if not issubclass(engine, MappedEngine) and engine.capacity_for(setting) == size + buffer_size:
            return setting  # which a growth continues as if it had not been saved
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
    """Frequent Directions whose regulariser alpha grows by half of each shrink's delta: half the error bound.

    ``RobustFrequentDirections(l, alpha0)`` is ``FrequentDirections(l, method="rfd", alpha0=alpha0)``; the other
    parameters are the same, and the two merge. B'B + alpha I is positive definite as soon as anything was removed, and
    never worse conditioned than A'A + alpha0 I (RFD paper, Theorems 3 and 4).

    Parameters
    ----------
    sketch_size, alpha0, beta, buffer_size, solver, center, decay, dtype, compressor
        Those of FrequentDirections.
    tolerance, tolerance_relative_to, max_sketch_size
        Likewise.

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
