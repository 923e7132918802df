"""Second reads of the rows of a sketch: a refined sketch, or a measured error."""

from math import ldexp, sqrt
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.validation import as_real
from fastsketch._core.warning import warn_caller
from fastsketch._kernels.guard import changes, reads
from fastsketch._kernels.sketching.state import ROUNDING_PER_SHRINK
from fastsketch.sketching._audit import Audit, spectral_norm
from fastsketch.sketching._block_krylov import block_krylov
from fastsketch.sketching._engines import AnyEngine, Known, MappedEngine, SparseEngine, by_column, put_known, to_read
from fastsketch.sketching._read_out import allowance
from fastsketch.sketching._rows_again import OtherRows, Product, Readable, RowsAgain, StoredForm
from fastsketch.sketching._second_pass import nystrom
from fastsketch.sketching._sketch_results import SketchResults

# Share of what the rows weigh by which sums over rows read twice may differ, by size of the dtype.
SAME_ROWS = {4: 1e-5, 8: 1e-9}
# Directions of a pass beyond those that are wanted: n_oversamples of scikit-learn's randomized_svd.
OVERSAMPLING = 10
# Shares of the bound and of the squared norm by which an audit may be beyond the bound: its own rounding.
OF_BOUND, OF_NORM = 1e-9, 1e-12


class SecondReads(SketchResults, abstract=True):
    """Second reads of the rows that a sketch has seen: ``refine`` and ``audit``."""

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
            warn_caller("refine has float32 rows for a sketch of float64 rows: it stays as it was")
        elif not self._is_exact():
            vt = self._basis()
            self._take_products(vt, again.multiply(vt.T))
        return self

    def _refine_leading(
        self, rows: Readable, sample_weight: ArrayLike | None, k: int, *, most_passes: int, accuracy: float
    ) -> tuple[int, float]:
        """Refine the sketch by passes of a block Krylov method; return their number, and the residual of k pairs."""
        self._rereadable("refine")
        again = RowsAgain(rows, self._basis_view(), sample_weight, feature_names=self._feature_names)
        width = min(k + OVERSAMPLING, self.resolved["sketch_size"])
        space = block_krylov(again.multiply, self._basis(), k, width=width, most_passes=most_passes, accuracy=accuracy)
        self._take_products(space.basis, space.products)
        return space.passes, space.residual

    def _basis(self) -> NDArray[np.float64]:
        """Return the directions of the sketch, (r, d)."""
        engine = to_read(self._seen_engine())
        return by_column(engine, engine.known().vt)

    def _take_products(self, vt: NDArray[np.float64], reread: Product) -> None:
        """Refine the sketch by the products of all rows with its directions."""
        refined = to_read(self._seen_engine())
        known, unit = refined.known(), ldexp(1.0, refined.exponent)
        if not self._compare(reread, "refine", "the sketch stays as it was", refined, known, vt=vt):
            return
        assert not isinstance(refined, MappedEngine)  # it has no compressor
        state = refined.state
        shrinkage = state.shrinkage + sqrt(state.rounding)
        result = nystrom(reread, vt, shrinkage=shrinkage, most=self.resolved["sketch_size"])
        directions = refined.in_slots(result.vt) if isinstance(refined, SparseEngine) else result.vt
        seen, d = np.diag(result.squares), refined.n_features
        put_known(refined, Known(result.squares, directions, seen, result.leaked, result.lost, d))
        state.shrinkage = min(shrinkage + result.dropped, result.lost)
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
                reduced = to_read(engine)
                same = self._compare(reread, "audit", "its error says nothing of the sketch", reduced, reduced.known())
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
        known: Known,
        *,
        vt: NDArray[np.float64] | None = None,
    ) -> bool:
        """Return whether the rows read may be those seen; warn if not, raise ValueError if there are none.

        `engine`: a clone that has been reduced to `known`; `vt`: directions of which `reread` has the products, along
        which B'B and A'A differ by at most the certificate.
        """
        if not reread.n_rows and self.n_rows:
            raise ValueError(f"{what} has read no rows, the sketch has seen {self.n_rows}")
        unit = ldexp(1.0, engine.exponent)
        slack = SAME_ROWS[engine.dtype.itemsize] * reread.magnitude
        same = reread.n_rows == self.n_rows and abs(reread.squared_norm - engine.squared_norm) <= slack
        if same and vt is not None and len(vt):
            b = (by_column(engine, known.vt) @ vt.T) * np.sqrt(known.squares)[:, np.newaxis]
            inside = vt @ reread.product
            off = np.linalg.eigvalsh((inside + inside.T) / 2 - b.T @ b)
            longest = float(known.squares.max(initial=0.0))
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
        """Return how the sketch stores rows."""
        engine, reading = self._seen_engine(), self._last_reading()
        mean = np.zeros(engine.n_features) if reading.mean is None else by_column(engine, reading.mean)
        return StoredForm(engine.n_features, engine.dtype, mean, ldexp(1.0, -engine.exponent))
