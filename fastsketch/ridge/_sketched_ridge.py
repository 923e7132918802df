"""Ridge regression from one pass over rows and targets."""

# pyright: reportPrivateUsage=false

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.validation import Rows as Readable
from fastsketch._core.validation import as_integer, as_real, as_rows, check_finite
from fastsketch._kernels.guard import changes, reads
from fastsketch.ridge._moments import TINY, column_lengths
from fastsketch.ridge._read_out import (
    RidgePath,
    penalty_of,
    quantile,
)
from fastsketch.ridge._refining import Refinement, residual_gap
from fastsketch.ridge._ridge_reading import RidgeReader
from fastsketch.sketching._rereading import Readable as Source


class PredictionInterval(NamedTuple):
    """Ends of intervals, of the shape of predictions."""

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]


class SketchedRidge(RidgeReader):
    """Ridge regression from one pass over rows and targets, with the ridge chosen by cross-validation.

    Coefficients W (d x c) minimise the weighted sum of squares of y - x W - b plus ridge times the squares of W, by
    default of standardised columns. X'Y is kept exactly; X'X exactly where d is small, else as a sketch of at most l
    rows and the diagonal that they lack. So one state has the answer at every ridge, and states merge.

    Parameters
    ----------
    sketch_size : int, default 128
        l in [2, 2**16), rows of the sketch, of rows too wide for an exact sum.
    ridge : float >= 0, optional
        As ``alpha`` of scikit-learn's Ridge, on standardised columns unless `scale` is False. If it is not given, it is
        chosen at the first query, one ridge for all targets; see Notes. Of one row or two it is the mean squared length
        of a row.
    rank : int, optional
        Rank of the coefficients: reduced-rank regression, for targets that have much in common.
    scale : bool, optional
        Whether columns are standardised: the ridge then counts in variances of the columns, and the unit of a column
        changes no prediction. By default the columns of dense rows are and those of sparse rows are not, as the first
        batch has it. Coefficients are of the columns as they were given.
    fit_intercept : bool, default True
        Whether there is an intercept, which the ridge does not shrink: rows and targets are centred, sparse ones too.
    scoring : {"squared_error", "log_loss"}, default "squared_error"
        Error that chooses the ridge: the squared error relative to the variance of each target; or, for labels -1 and
        1, the log loss of the scores times the factor that minimises it: of the softmax where each row has a single 1
        among several targets, else of each target by itself.
    solver : {"auto", "gram", "exact"}, default "auto"
        Whether X'X is kept exactly ("exact") or as a sketch ("gram"): "auto" keeps it where it fits in `max_memory`.
    reservoir_size : int, default 2000
        Size of the reservoir, a uniform sample of rows that are kept as they are. Half of a fifth of all rows at most
        measure residuals for ``predict_interval``, by a fit without them; the other half chooses the ridge of a sketch.
        As long as all rows are in the reservoir, all of them choose and measure, by leave-one-out.
    max_memory : int, default 268_435_456
        Bytes of X'X (8 d^2) up to which it is kept exactly, and of X'Y (8 d c) beyond which targets are refused.
    decay : float in (0, 1], default 1.0
        Every new row multiplies the weight of all earlier rows by this. See also ``fade``.
    seed : int, default 0
        Seed of the reservoir.

    Attributes
    ----------
    n_rows, n_features, n_targets : int
        Rows seen, columns d and targets c; None before the first batch.
    notes : dict
        Anything that json can write; saved with the state.

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of range; the message names it.

    Notes
    -----
    The ridge, of a grid of four in each decade over all that eigenvalues can tell apart, is the one of the least

    - exact leave-one-out error, while the reservoir has all rows, as ``RidgeCV`` of scikit-learn has it (Allen 1974);
    - generalised cross-validation where X'X is exact and there are more rows (Golub, Heath, Wahba 1979). It needs sums
      alone, n, y'y, X'y and the eigenvalues of X'X, and takes the mean leverage for that of every row. Where the
      reservoir has a sample of rows, their own leverages correct it to the leave-one-out error of all rows, by a ratio
      estimate (Cochran 1977): a few rows that alone have a column nonzero, and are outliers, would else be missed. Of
      rows with decay, or without a reservoir, n is Kish's effective number, (sum w)^2 / sum w^2; near as few of them as
      columns it shrinks more than is best, and if they are no more than columns rows held out choose, as below.

    Generalised cross-validation cannot know what a sketch has lost: the trace of its hat matrix is that of another
    regulariser. Of a sketch the ridge is the one of the least error on a tenth of the rows, held out in the reservoir;
    so it is with a `rank` and with ``scoring="log_loss"``.

    An update costs what it costs in FrequentDirections, and 2 c flops for each entry of a row. Memory: (l + b) d or
    d^2, 2 d c and the reservoir. The first query takes an eigendecomposition of d x d; that of a sketch 2 d l^2 flops
    for each ridge of ten or so that it tries.

    Models of different rows merge. Which rows the reservoir holds depends on `seed`, on each row's place in its stream
    and on its targets: neither on batches nor on the order of merges. Answers do by rounding alone, and by what a
    sketch loses. Where it has lost something coefficients are multiplied by one factor, which minimises the error on
    the rows that choose the ridge: X'Y is whole and X'X is not. (With "log_loss" they are not: labels need no length.)

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((1000, 5))
    >>> y = X @ [3.0, 0.0, -2.0, 0.0, 1.0] + 0.1 * rng.standard_normal(1000)
    >>> model = fs.SketchedRidge().update(X, y)
    >>> model.coef().round(1) + 0.0
    array([ 3.,  0., -2.,  0.,  1.])
    """

    # -- answers ---------------------------------------------------------------------------------------------------
    @reads
    def predict(self, rows: Readable, *, ridge: float | None = None) -> NDArray[np.float64]:
        """Predict the targets of rows, (n,) or (n, c) float64.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), or scipy.sparse (n, d)
        ridge : float >= 0, optional
            In place of the ridge in use.

        Raises
        ------
        TypeError, ValueError
            If rows do not fit, or the model has seen none.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> X = np.random.default_rng(0).standard_normal((500, 5))
        >>> model = fs.SketchedRidge().update(X, X[:, :2])
        >>> model.predict(X[:1]).shape, bool(np.allclose(model.predict(X, ridge=0.0), X[:, :2]))
        ((1, 2), True)
        """
        fit = self._coefficients(ridge)
        return self._shaped(fit.predict(self._as_read(rows)))

    @reads
    def predict_interval(self, rows: Readable, *, coverage: float = 0.9) -> PredictionInterval:
        """Predict intervals that contain the targets of new rows with probability `coverage`, each target by itself.

        Split conformal prediction: a tenth of the rows, held out in the reservoir, measure the residuals of a fit that
        has not seen them and whose ridge the others have chosen (with scoring="log_loss" they had a say in it, by that
        loss), and their quantile is the half width for every row. While the reservoir has all rows these are the
        leave-one-out residuals of all of them, each at the ridge that is best for the others; of few more rows than
        columns such intervals hold less than they say (0.81 to 0.88 at 0.9 in ten rows of 8 columns). Rows to come must
        be exchangeable with those seen: if rows have weights, with rows drawn from them in proportion to these. By
        weights the rows that measure count as Kish's effective number, or with decay as sum over largest.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), or scipy.sparse (n, d)
        coverage : float in (0, 1), default 0.9

        Returns
        -------
        PredictionInterval
            ``lower`` and ``upper``, of the shape of ``predict``.

        Raises
        ------
        TypeError, ValueError
            If rows do not fit, or too few were held out for this coverage.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((2000, 5))
        >>> y = X[:, 0] + rng.standard_normal(2000)
        >>> lower, upper = fs.SketchedRidge().update(X[:1000], y[:1000]).predict_interval(X[1000:])
        >>> bool(0.86 < np.mean((lower <= y[1000:]) & (y[1000:] <= upper)) < 0.94)
        True
        """
        coverage = as_real(coverage, "coverage", 0.0, 1.0, low_open=True, high_open=True)
        middle = self._coefficients(None).predict(self._as_read(rows))
        half = quantile(*self._known_residuals(), coverage, aged=self.decay < 1.0)
        return PredictionInterval(self._shaped(middle - half), self._shaped(middle + half))

    @reads
    def coef(self, ridge: float | None = None) -> NDArray[np.float64]:
        """Return the coefficients, (d,) or (c, d) float64, of the columns as they came.

        Parameters
        ----------
        ridge : float >= 0, optional
            In place of the ridge in use.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> X = np.random.default_rng(0).standard_normal((500, 3))
        >>> model = fs.SketchedRidge().update(X, X @ [1.0, 0.0, -2.0])
        >>> (model.coef(ridge=0.0).round(6) + 0.0).tolist()
        [1.0, 0.0, -2.0]
        """
        coef = self._coefficients(ridge).coef.T
        return coef[0].copy() if self._flat else coef.copy()

    @reads
    def intercept(self, ridge: float | None = None) -> Any:
        """Return the intercept, a float or (c,) float64.

        Parameters
        ----------
        ridge : float >= 0, optional
            In place of the ridge in use.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> X = np.random.default_rng(0).standard_normal((500, 3))
        >>> round(fs.SketchedRidge().update(X, X @ [1.0, 0.0, -2.0] + 7.0).intercept(ridge=0.0), 6)
        7.0
        """
        intercept = self._coefficients(ridge).intercept
        return float(intercept[0]) if self._flat else intercept.copy()

    @reads
    def score_path(self) -> RidgePath:
        """Return the ridges that were tried, and the cross-validated error of each.

        Returns
        -------
        RidgePath
            ``ridge`` (taken), ``ridges``, ``errors``, ``standard_errors`` (p,) and ``n_rows``.

        Raises
        ------
        ValueError
            If the ridge is given, or the model has seen too few rows to hold some out.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((1000, 5))
        >>> path = fs.SketchedRidge().update(X, X[:, 0] + rng.standard_normal(1000)).score_path()
        >>> path.n_rows, path.ridge in path.ridges
        (1000, True)
        """
        path = self._fitted().choice.path
        if path is None:
            why = "ridge is given" if self.ridge is not None else f"{self._n} rows are too few for cross-validation"
            raise ValueError(f"no ridge has been tried: {why}")
        own = {name: getattr(path, name).copy() for name in ("ridges", "errors", "standard_errors")}
        return path._replace(**own)

    def _as_read(self, rows: Any) -> Any:
        self._require_columns(rows)
        x = as_rows(rows, self.n_features)
        check_finite(x)
        return x

    def _shaped(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return values[:, 0] if self._flat else values

    # -- reading the rows again ------------------------------------------------------------------------------------
    @changes
    def refine(
        self,
        rows: Source,
        targets: None = None,
        *,
        sample_weight: ArrayLike | None = None,
        passes: int = 50,
        tolerance: float = 1e-6,
    ) -> Refinement:
        """Refine the coefficients: come nearer to those of all rows in memory, by reading these again.

        The ridge, unless it is given, is chosen anew, by what products with X'X say of every ridge on the rows held
        out, whatever the `rank`: three fifths of the passes at most. The others are conjugate gradients on the normal
        equations, all targets together, with the sketch as their preconditioner. Predictions, coefficients and
        intervals are then those of the refined coefficients until more is learned. A later call goes on where this one
        ends, at its ridge.

        Parameters
        ----------
        rows : array_like (n, d), scipy.sparse (n, d), table, source, or file names
            All rows that ``update`` has had, in any order.
        targets : None
            The model has X'Y: targets are refused, so that nobody takes other ones for learned.
        sample_weight : array_like (n,) or float, optional
            The weights that they had.
        passes : int, default 50
            Over the rows, at most. One at least is made, and compares the rows with those seen. After one or two,
            coefficients can be a little worse than those of the sketch: ``Refinement.residual`` tells.
        tolerance : float in (0, 1), default 1e-6
            Of the residual of each target over ||X'Y||: no pass follows where all are below.

        Returns
        -------
        Refinement
            ``passes`` since the last update, ``residual``, ``bound`` and ``converged``.

        Raises
        ------
        TypeError, ValueError
            If these are not the rows that the model has seen, by their number and by the mean and the squares of each
            column, or it decays. The model is then as it was before the call.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((1000, 300)) * 0.98 ** np.arange(300)
        >>> y = X[:, :9].sum(axis=1) + rng.standard_normal(1000)
        >>> model = fs.SketchedRidge(32, ridge=10.0, scale=False, max_memory=100_000).update(X, y)  # no exact sum
        >>> result = model.refine(X)
        >>> exact = np.linalg.solve((X - X.mean(0)).T @ X + 10.0 * np.eye(300), (X - X.mean(0)).T @ y)
        >>> result.converged, bool(np.allclose(model.coef(), exact, atol=1e-5))
        (True, True)
        """
        if targets is not None:
            raise TypeError("refine takes rows alone, refine(X): targets are known; weights are sample_weight=")
        passes, tolerance = as_integer(passes, "passes", 1), as_real(tolerance, "tolerance", 0.0, 1.0, low_open=True)
        self._check_refinable()
        self._read_again(rows, sample_weight, passes=passes, tolerance=tolerance)
        return self._refinement_so_far(tolerance)

    def _refinement_so_far(self, tolerance: float) -> Refinement:
        moments, refined = self._known(), self._refined
        assert refined is not None
        lengths = column_lengths(refined.steps.residual[:, : self.n_targets])
        relative = lengths / np.maximum(column_lengths(moments.cross), TINY)
        with np.errstate(divide="ignore"):
            penalty = refined.choice.ridge * penalty_of(moments, scaled=self._scaled)
            gap = residual_gap(refined.steps, moments, self._n, float(penalty.max()))
            least = float(penalty.min())
            bound = (lengths + gap) / np.sqrt(least) if least else np.full(len(lengths), np.inf)
        return Refinement(refined.passes, relative, bound, bool((relative <= tolerance).all()))

    # -- facts -----------------------------------------------------------------------------------------------------
    def _resolved(self) -> dict[str, Any]:
        known = {} if self._moments is None else {"scale": self._scaled}
        return known if self._last is None else {**known, "ridge": self._last.choice.ridge}

    def _facts(self) -> dict[str, Any]:
        if not self._n:
            return {}
        fitted = self._fitted()
        out: dict[str, Any] = {"n_targets": self.n_targets, "is_exact": self.is_exact, "scale": self._scaled}
        out["ridge"] = fitted.choice.ridge
        if self._refined is not None:
            out["passes"] = self._refined.passes
        path = fitted.choice.path
        return out if path is None else {**out, "ridge_path": path._asdict()}
