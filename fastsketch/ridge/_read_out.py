"""Ridge coefficients from normal equations, the choice of the penalty on held-out rows, and conformal quantiles."""

# pyright: reportPrivateUsage=false

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np

from fastsketch.ridge._gram_model import GramModel, GramSum, Matrix, Solver
from fastsketch.ridge._moments import TINY, Moments, times
from fastsketch.ridge._path import STEP, best_step, climbed, error_of
from fastsketch.sketching import FrequentDirections
from fastsketch.sketching._engines import columns_of

# Range of the ridges, in units of the mean squared length of a row.
LEAST, MOST = 1e-14, 1e6
# The search ends when a step lowers the error by less than this share; tol of scikit-learn's MLPRegressor.
GAIN = 1e-4
# Steps between the ridges of the coarse grid.
APART = 4
# A sketch that lacks at most this share of the squares has lost them by rounding.
LOST = 1e-9
# A ridge below this share of the mean squares lost by a sketch, and fewer rows than this many times the columns, have
# another preconditioner.
FAR_BELOW, TWICE = 0.1, 2
# The largest weights count equally in a choice, this many of them. Otherwise decay would leave it to one or two rows.
FEWEST = 20
# Steps to the factor of scores, and its limit in units of the largest score, since separable labels have no optimum.
NEWTON_STEPS, MOST_FACTOR = 50, 1e4


class RidgePath(NamedTuple):
    """Ridge penalties that were tried, with the cross-validated error of each.

    Attributes
    ----------
    ridge : float
        The ridge of least error, which is used.
    ridges : ndarray (p,)
        Ascending, in squared units of the weighted rows.
    errors : ndarray (p,)
        Mean error of each ridge: the squared error relative to the variance of each target, averaged over targets
        (about 1 - R2), by leave-one-out or on held-out rows; or the score of generalised cross-validation; or the log
        loss.
    standard_errors : ndarray (p,)
        Standard errors of these means; for generalised cross-validation sqrt(2 / n) times the score, as for n Gaussian
        residuals. The difference of two errors is known far better, as both are of the same rows.
    n_rows : int
        Number of rows by which the ridge was chosen.
    """

    ridge: float
    ridges: Matrix
    errors: Matrix
    standard_errors: Matrix
    n_rows: int


class Coefficients(NamedTuple):
    """Coefficients (d, c) and intercepts (c,) of a fitted linear regression."""

    coef: Matrix
    intercept: Matrix

    def predict(self, rows: Any) -> Matrix:
        """Predict the targets (n, c) of rows, dense or CSR."""
        return times(rows, self.coef) + self.intercept


class Rows(NamedTuple):
    """Held-out rows with their targets and weights."""

    x: Any  # array or CSR (n, d)
    y: Matrix  # (n, c)
    weight: Matrix  # (n,)

    def first(self, n: int) -> Self:
        """Return the first n held-out rows."""
        return type(self)(*(array[:n] for array in self))

    def counted(self) -> Matrix:
        """Return the weight of each row for choosing the ridge penalty, with the largest weights clipped.

        The weights are 1 on average. The FEWEST largest ones are cut to the smallest of them.
        """
        if len(self.weight) <= FEWEST:
            return np.ones(len(self.weight))
        top = np.partition(self.weight, -FEWEST)[-FEWEST]
        counts = np.minimum(self.weight, top) / top if top > 0 else np.ones(len(self.weight))
        return counts / counts.mean()


class Problem(NamedTuple):
    """Normal equations of ridge regression, with an exact or a sketched Gram matrix X'X.

    They are (A + ridge diag(penalty)) W = X'Y, where A is X'X or its approximation.
    """

    gram: GramSum | GramModel  # A
    moments: Moments
    scaled: bool

    def solver(self, ridge: float) -> Solver:
        """Return a function that solves the normal equations at a ridge penalty, for any right-hand sides."""
        penalty = ridge * penalty_of(self.moments, scaled=self.scaled)
        if isinstance(self.gram, GramModel):  # the divisors must exceed rounding
            penalty = np.maximum(penalty, LOST * self.moments.squares - self.gram.lost * self.gram.unit)
        return self.gram.solver(penalty)

    def preconditioner(self, ridge: float, *, n_rows: int) -> Solver:
        """Return a function that approximately solves the normal equations of all n_rows rows, as a preconditioner.

        If the ridge is far below the squares that a sketch has lost, and rows are few, a diagonal of these squares
        slows convergence down: it leads into directions of which the rows say nothing. Then the same mean is added for
        all columns.
        """
        penalty = penalty_of(self.moments, scaled=self.scaled)
        if isinstance(self.gram, GramModel) and n_rows < TWICE * len(penalty):
            level = float((self.gram.lost / penalty).mean())
            if ridge < FAR_BELOW * level * self.gram.unit:
                return self._replace(gram=self.gram._replace(lost=level * penalty)).solver(ridge)
        return self.solver(ridge)

    def coefficients(self, ridge: float, rank: int | None = None) -> Coefficients:
        """Solve the normal equations for the coefficients and intercepts at a ridge penalty."""
        return completed(self.solver(ridge)(self.moments.cross), self.moments, rank)

    @property
    def is_whole(self) -> bool:
        """Return True if the Gram matrix X'X is complete, not reduced by a lossy sketch."""
        return isinstance(self.gram, GramSum) or not self.gram.lost.any()


class Scorer(NamedTuple):
    """Error measure for predictions, with the rescaling of the coefficients that minimises it."""

    scoring: str
    moments: Moments  # of the rows learned
    is_whole: bool

    def factor(self, predicted: Matrix, rows: Rows) -> float:
        """Return the factor on the coefficients that minimises the squared error of held-out rows.

        It is 1 if nothing of X'X was lost.

        A sketch lacks a part of X'X but X'Y is complete, so coefficients are too long.
        """
        if self.is_whole:
            return 1.0
        predicted, wanted = predicted - self.moments.target_mean, rows.y - self.moments.target_mean
        by = rows.counted()[:, np.newaxis] * self.shares()
        above, below = float((by * predicted * wanted).sum()), float((by * predicted * predicted).sum())
        return above / below if above > 0 and below > 0 else 1.0

    def errors(self, predicted: Matrix, rows: Rows) -> Matrix:
        """Compute the error of each held-out row times its weight (n,), after the best rescaling of the predictions."""
        if self.scoring == "log_loss":
            errors = log_losses(predicted, rows.y, rows.counted())
        else:
            mean = self.moments.target_mean
            errors = (rows.y - mean - self.factor(predicted, rows) * (predicted - mean)) ** 2 @ self.shares()
        return errors * rows.counted()

    def relative_shares(self) -> Matrix:
        """Return the weight of each target's error, where errors are already divided by the target's variance.

        Shape (c,): 1 over the number of varying targets, or 0 for constant targets.
        """
        varies = self.moments.target_variance > 0
        return varies / max(1.0, float(np.count_nonzero(varies)))

    def shares(self) -> Matrix:
        """Return the weight of each target's squared error, inversely proportional to the target's variance.

        Shape (c,): 1 / (variance c), or 0 for constant targets.
        """
        variance = self.moments.target_variance
        return np.where(variance > 0, 1.0 / np.maximum(variance, TINY), 0.0) / max(1, np.count_nonzero(variance))


def log_losses(predicted: Matrix, labels: Matrix, weights: Matrix) -> Matrix:
    """Compute the log loss of each row, after multiplying all scores by the factor of the smallest mean loss.

    If each row of the labels (n, c) has exactly one 1, the loss is that of the softmax of the scores; otherwise it is
    the mean of c logistic losses. The factor is found by Newton's method.
    """
    n, c = labels.shape
    if c == 1 or ((labels > 0).sum(axis=1) != 1).any():  # each column has two classes
        scores, right = np.stack([predicted, -predicted], axis=-1).reshape(-1, 2) / 2, (labels < 0).ravel()
        weights = np.repeat(weights, c)
    else:
        scores, right = predicted, labels.argmax(axis=1)
    scores = scores - scores[np.arange(len(scores)), right.astype(np.intp)][:, np.newaxis]
    level = max(float(np.abs(scores).max(initial=0.0)), TINY)
    scores, factor = scores / level, 1.0
    for _ in range(NEWTON_STEPS):
        # first and second derivative of w'log sum exp(f s) by f
        share = np.exp(factor * scores - (factor * scores).max(axis=1, keepdims=True))
        share /= share.sum(axis=1, keepdims=True)
        mean = (share * scores).sum(axis=1)
        slope, curvature = float(weights @ mean), float(weights @ ((share * scores**2).sum(axis=1) - mean**2))
        old, factor = factor, min(max(factor - slope / max(curvature, TINY), factor / 4), factor * 4, MOST_FACTOR)
        if abs(factor - old) <= 1e-6 * old:
            break
    return np.logaddexp.reduce(factor * scores, axis=1).reshape(n, -1).mean(axis=1)


def penalty_of(moments: Moments, *, scaled: bool) -> Matrix:
    """Return the diagonal that a ridge penalty of 1 adds to X'X: column variances if `scaled`, else ones.

    A constant column has 1 in both cases.
    """
    variance = moments.variance if scaled else np.ones(len(moments.mean))
    return np.where(variance > 0, variance, 1.0)


def completed(coef: Matrix, moments: Moments, rank: int | None) -> Coefficients:
    """Return the coefficients with their intercepts, after reducing them to `rank` unless it is None."""
    coef = coef if rank is None else reduced(coef, moments.cross, rank)
    return Coefficients(coef, moments.target_mean - moments.mean @ coef)


def gram_of_sketch(sketch: FrequentDirections, squares: Matrix) -> GramModel:
    """Return an approximation of X'X: the sketch plus the diagonal that restores the columns' exact sums of squares."""
    reading = sketch._read()
    z, columns = reading.vt.T * reading.s, columns_of(sketch._seen_engine())
    # in units of a power of two, so that no product overflows
    unit = np.ldexp(1.0, int(np.frexp(np.abs(z).max(initial=0.0))[1]))
    z /= unit
    squares = squares / unit / unit
    lost = squares.copy()
    lost[columns] -= np.einsum("ij,ij->i", z, z)
    lost = np.maximum(lost, 0.0)
    if lost.sum() <= LOST * squares.sum():
        lost = np.zeros_like(lost)
    return GramModel(np.ascontiguousarray(z), np.eye(z.shape[1]), lost, float(unit * unit), columns)


class Choice(NamedTuple):
    """A chosen ridge penalty, with all penalties that were tried and their errors."""

    ridge: float
    path: RidgePath | None
    # the ridge at which residuals are measured, chosen by other rows (the same ridge for labels); None: not yet chosen
    apart: float | None


def least_of(ridges: Matrix, errors: Matrix, standard_errors: Matrix, n_rows: int) -> RidgePath:
    """Choose the ridge penalty of least error; among equal errors the largest penalty.

    The result is a ``RidgePath`` with this choice.
    """
    best = float(ridges[np.flatnonzero(errors == errors.min())[-1]])
    return RidgePath(best, ridges, errors, standard_errors, n_rows)


def chosen(
    predict: Callable[[float], Matrix], scorer: Scorer, rows: Rows, first: float, *, low: float, least: float = LEAST
) -> Choice:
    """Choose the ridge penalty with the least error on held-out rows.

    Parameters
    ----------
    predict : callable
        Returns the predictions for the held-out rows at a ridge.
    scorer, rows : Scorer and Rows
    first : float
        Largest ridge of the coarse grid, a factor STEP**APART apart, down to below `low`. Its best ridge starts the
        search, which goes up or down by factors of STEP until the error rises, and then tries half a step to both
        sides.
    least : float
        Smallest ridge that may be tried, as a share of `first`.

    Returns
    -------
    Choice
        ``apart`` is the best ridge for the first half of the rows, at which the residuals of the second half are
        measured.
    """
    of_half: dict[float, Matrix] = {}
    half = rows.first(len(rows.y) // 2)

    def scores(step: float) -> Matrix:
        predicted = predict(first * STEP**step)
        of_half[step] = -scorer.errors(predicted[: len(half.y)], half)
        return -scorer.errors(predicted, rows)

    # between the first ridge and `low` the error may have several minima
    n_apart = int(np.log(first / max(min(low, first), first * least)) / np.log(STEP) / APART) + 1
    coarse = (-float(APART * k) for k in range(n_apart + 1))
    start = best_step({step: scores(step) for step in coarse if STEP**step >= least})
    of_half.clear()
    tried = climbed(scores, least, MOST, start=start, gain=GAIN)
    best = best_step(tried)
    tried |= {step: scores(step) for step in (best - 0.5, best + 0.5)}
    steps = sorted(tried)
    errors, standard_errors = (np.array([of(-tried[step]) for step in steps]) for of in (np.mean, error_of))
    ridges = first * STEP ** np.array(steps)
    path = RidgePath(first * STEP ** best_step(tried), ridges, errors, standard_errors, len(rows.y))
    # the log loss leaves the length of scores open, so residuals need the same ridge
    apart = path.ridge if scorer.scoring == "log_loss" else first * STEP ** best_step(of_half)
    return Choice(path.ridge, path, apart)


def reduced(coef: Matrix, cross: Matrix, rank: int) -> Matrix:
    """Reduce coefficients to a given rank with the least loss of fit (reduced-rank regression).

    W is projected onto the leading eigenvectors of W'Z, where Z = `cross` is X'Y. With more targets than columns these
    are Q U, where Z' = Q R, and U are the eigenvectors of R (W Q).
    """
    if rank >= min(coef.shape):
        return coef
    if coef.shape[1] > len(coef):
        basis, triangle = np.linalg.qr(cross.T)
        leading = basis @ _leading(triangle @ (coef @ basis), rank)
    else:
        leading = _leading(coef.T @ cross, rank)
    return (coef @ leading) @ leading.T


def _leading(matrix: Matrix, rank: int) -> Matrix:
    """Return the leading eigenvectors of the symmetric part of a matrix, as columns."""
    return np.linalg.eigh((matrix + matrix.T) / 2)[1][:, ::-1][:, :rank]


def quantile(residuals: Matrix, weights: Matrix, coverage: float, *, aged: bool = False) -> Matrix:
    """Compute the split-conformal quantile of the absolute residuals of each target, shape (c,).

    It is the quantile of level `coverage` of the residuals and one more row, whose residual may have any size. That row
    weighs as much, on average, as a row drawn in proportion to the weights; with `aged`, as much as the heaviest row.

    Raises
    ------
    ValueError
        If there are too few rows for this coverage.
    """
    sizes, top = np.abs(residuals), float(weights.max(initial=0.0))
    weights = weights / top if top > 0 else weights
    # number of rows in units of the weight of a new one; without decay Kish's effective number
    m = float(weights.sum() if aged else weights.sum() ** 2 / (weights @ weights)) if top > 0 else 0.0
    if coverage > m / (m + 1) * (1 + 1e-12):
        least = int(np.ceil(coverage / (1 - coverage) - 1e-9))
        raise ValueError(
            f"coverage={coverage:g} needs the residuals of {least} rows that chose nothing, and there are {m:.3g}, a "
            "tenth of all rows, by weight: learn more rows, or raise reservoir_size"
        )
    order = np.argsort(sizes, axis=0, kind="stable")
    reached = np.cumsum(weights[order], axis=0) / (weights.sum() * (1 + 1 / m))
    place = np.minimum((reached < coverage * (1 - 1e-12)).sum(axis=0), len(sizes) - 1)
    return np.take_along_axis(sizes, np.take_along_axis(order, place[np.newaxis], 0), 0)[0]
