"""Ridge regression from one pass over rows and targets."""

# pyright: reportPrivateUsage=false

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.validation import Rows as Readable
from fastsketch._core.validation import as_integer, as_real, as_rows, check_finite
from fastsketch._kernels.guard import changes, reads
from fastsketch.ridge._read_out import (
    TINY,
    RidgePath,
    penalty_of,
    quantile,
)
from fastsketch.ridge._refining import Refinement, column_lengths, residual_gap
from fastsketch.ridge._ridge_reading import RidgeReader
from fastsketch.sketching._rows_again import Readable as Source


class PredictionInterval(NamedTuple):
    """Ends of intervals, of the shape of predictions."""

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]


class SketchedRidge(RidgeReader):
    """Ridge regression from one pass over rows and targets, with a ridge that is chosen on rows held out.

    Coefficients W (d x c) minimise the weighted squares of y - x W - b, summed over rows, plus ridge times those of W.
    X'Y is kept as it is, X'X as it is where d is small, else as a sketch of at most l rows and what these lack of the
    diagonal. So one state has the answer at every ridge, and merges.

    Parameters
    ----------
    sketch_size : int, default 128
        l in [2, 2**16), rows of the sketch, of rows too wide for an exact sum.
    ridge : float >= 0, optional
        In squared units of the weighted rows, as ``alpha`` of scikit-learn's Ridge. If it is not given, it is chosen at
        the first read-out by its error on the rows in the reservoir, a fifth of all rows at most; of up to 500 rows, of
        which nothing is lost, by the error of each as all others predict it. Of one row or two it is the mean squared
        length of a row.
    rank : int, optional
        Of the coefficients: reduced-rank regression, for targets that have much in common.
    scale : bool, default False
        Whether the ridge counts in variances of the columns, as if each had been divided by its standard deviation.
    fit_intercept : bool, default True
        Whether there is an intercept, which the ridge does not shrink: rows and targets are centred, sparse ones too.
    scoring : {"squared_error", "log_loss"}, default "squared_error"
        By which error the ridge is chosen: the squared one, over the variance of each target; or, of labels that are -1
        and 1, the log loss of scores times the factor that makes it least: of the softmax where each row has a single
        1 among several targets, else of each target by itself.
    solver : {"auto", "gram", "exact"}, default "auto"
        Whether X'X is kept as it is ("exact") or as a sketch ("gram"): "auto" keeps it where it fits in `max_memory`.
    reservoir_size : int, default 2000
        Most rows that are kept as they are, a uniform sample. They choose the ridge, and are learned from in the end.
        How far predictions are off half of them measure, by a fit without them at the ridge that the others choose.
    max_memory : int, default 268_435_456
        Bytes of X'X (8 d^2) up to which it is kept as it is, and of X'Y (8 d c) beyond which targets are refused.
    decay : float in (0, 1], default 1.0
        Every new row multiplies the weight of all earlier rows by this. See also ``fade``.
    seed : int, default 0
        Of the rows in the reservoir.

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
    An update costs what it costs in FrequentDirections, and 2 c flops for each entry of a row. Memory: (l + b) d or
    d^2, 2 d c and the reservoir. A read-out takes a factor of d x d, or 2 d l^2 flops, for each ridge of five or so
    that it tries.

    Models of different rows merge. Which rows the reservoir holds depends on `seed`, on each row's place in its stream
    and on its targets: neither on batches nor on the order of merges. Answers do by rounding alone, and by what a
    sketch loses. Where it has lost something coefficients are multiplied by one factor, which the rows that choose the
    ridge want: X'Y is whole and X'X is not. (With "log_loss" they are not: labels need no length.)

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
        """Return intervals that hold the targets of new rows with a probability of `coverage`, each by itself.

        As wide for every row: split-conformal quantiles of what predictions are off for rows held out, of coefficients
        that have not seen them and whose ridge others have chosen (with scoring="log_loss" they had a say in it, by
        that loss). Of up to 500 rows each measures, by a fit to all others at the ridge that suits these; of few more
        rows than columns that holds less than it says (0.81 to 0.88 at 0.9 in ten rows of 8 columns). Rows to come must
        be like those seen (exchangeable): of weights other than 1 like rows drawn from them in proportion to their
        weights. A tenth of all rows measure; by weights they count as Kish's effective number, (sum w)^2 / sum w^2, or
        with decay as sum over largest.

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
        """Return the ridges that were tried, and the error of each on rows that were held out.

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
        (200, True)
        """
        path = self._fitted().choice.path
        if path is None:
            why = "ridge is given" if self.ridge is not None else f"{self._n} rows are too few to hold some out"
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
        >>> model = fs.SketchedRidge(32, ridge=10.0, max_memory=100_000).update(X, y)  # no exact sum
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
            penalty = refined.choice.ridge * penalty_of(moments, scaled=self.scale)
            gap = residual_gap(refined.steps, moments, self._n, float(penalty.max()))
            least = float(penalty.min())
            bound = (lengths + gap) / np.sqrt(least) if least else np.full(len(lengths), np.inf)
        return Refinement(refined.passes, relative, bound, bool((relative <= tolerance).all()))

    # -- facts -----------------------------------------------------------------------------------------------------
    def _resolved(self) -> dict[str, Any]:
        return {} if self._last is None else {"ridge": self._last.choice.ridge}

    def _facts(self) -> dict[str, Any]:
        if not self._n:
            return {}
        fitted = self._fitted()
        out = {"n_targets": self.n_targets, "is_exact": self.is_exact, "ridge": fitted.choice.ridge}
        if self._refined is not None:
            out["passes"] = self._refined.passes
        path = fitted.choice.path
        return out if path is None else {**out, "ridge_path": path._asdict()}
