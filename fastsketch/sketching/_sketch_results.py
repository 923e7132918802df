"""Results of a sketch: its matrix, the certificate, the spectrum of the rows, and linear operators."""

from math import inf, ldexp
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.validation import as_flag, as_real, as_vector
from fastsketch._core.warning import warn_caller
from fastsketch._kernels.guard import reads
from fastsketch._kernels.linalg.products import product
from fastsketch.sketching._engines import ExactEngine, SparseEngine, Tolerance, by_column
from fastsketch.sketching._operators import gram_operator, inverse_operator, solve_gram
from fastsketch.sketching._read_out import SketchReadOut, read_out
from fastsketch.sketching._sketch_model import MOST, SketchModel
from fastsketch.sketching._spectrum import Spectrum, SpectrumOverview, overview_of

if TYPE_CHECKING:
    from scipy.sparse import csr_array
    from scipy.sparse.linalg import LinearOperator


class SketchResults(SketchModel, abstract=True):
    """A sketch that can be read: its matrix, its certificate, the spectrum of its rows. No method here changes it."""

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
        """Return B, a new array (r, d) with r <= sketch_size: orthogonal rows, longest first, every row seen included.

        With a tolerance, r is the smallest number of rows that meets it.

        Parameters
        ----------
        sparse : bool, default False
            Return a scipy.sparse.csr_array, of a sketch of sparse rows in the memory and time of the columns that have
            occurred: with millions of columns B itself may be too large. ``components`` are its rows divided by
            ``singular_values``.

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
        """Return the lengths of the rows of ``sketch()``, descending, (r,): at most those of A (see ``spectrum``)."""
        return self._read().s.copy()

    @property
    def components(self) -> NDArray[Any]:
        """Return orthonormal directions of the rows of ``sketch()``, (r, d); the largest entry of each is positive."""
        return by_column(self._seen_engine(), self._read().vt.copy())

    @property
    def shrinkage(self) -> float:
        """Return Delta, the sum of the squared singular values removed, for ``sketch()`` as it is now (squared)."""
        return 0.0 if self._engine is None else self._read().shrinkage

    @property
    @reads
    def error_bound(self) -> float:
        """Return a bound on the spectral norm of A'A - B'B ("rfd": A'A + alpha0 I - B'B - alpha I), from one pass.

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
        """Return the regulariser that goes with ``sketch()``: alpha0 + Delta / 2 for "rfd", else 0."""
        return self.alpha0 + self.shrinkage / 2 if self._method.regularises else 0.0

    @property
    def mean(self) -> NDArray[np.float64] | None:
        """Return the weighted mean of the rows, (d,) float64; None unless ``center``."""
        mean = None if self._engine is None or not self.center else self._read().mean
        return None if mean is None else by_column(self._seen_engine(), mean.copy())

    @property
    @reads
    def squared_norm(self) -> float:
        """Return ||A||_F^2 of the weighted, decayed, with ``center`` centred rows; of mapped ones with a compressor."""
        engine = self._engine
        if engine is None:
            return 0.0
        if self.center or self.compressor is not None:
            return self._read().squared_norm
        unit = ldexp(1.0, engine.exponent)
        return engine.squared_norm * unit * unit

    @property
    def total_weight(self) -> float:
        """Return the sum of the (decayed) weights of all rows: n_rows if neither weights nor decay are used."""
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
        """Estimate the leading eigenvalues of A'A (squared singular values of A), each with an interval.

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
        """Return the spectrum and what belongs to it by one read-out; of an exact sum, `most` pairs."""
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
        """Return (r, 2): the i-th largest singular value of A lies between the numbers of row i, as in ``spectrum``.

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
        """Return the d x d matrix that stands for A'A, float64: B'B + alpha I, or A'A itself with solver="exact".

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

    def operator(self, *, inverse: bool = False, alpha: float | None = None) -> "LinearOperator":
        """Return B'B + alpha I, or its inverse, as a scipy.sparse.linalg.LinearOperator (d, d).

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
        """Return (B'B + alpha I)^-1 v in O(d l) a vector (Woodbury).

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
        engine = self._seen_engine()
        if inverse and alpha == 0 and len(reading.s) < engine.n_features:
            raise ValueError("alpha must be positive: the sketch alone is singular (method='rfd' brings its own alpha)")
        return reading.s.astype(np.float64), by_column(engine, reading.vt.astype(np.float64)), alpha
