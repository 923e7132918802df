"""Ridge coefficients from normal equations, the choice of the penalty on held-out rows, and conformal quantiles."""

# pyright: reportPrivateUsage=false

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np

from fastsketch.ridge._gram_model import GramModel, GramSum, Matrix, Solver
from fastsketch.ridge._moments import TINY, Moments, times
from fastsketch.ridge._path import RIDGE_RATIO, best_step, hill_climb, standard_error
from fastsketch.sketching import FrequentDirections
from fastsketch.sketching._engines import columns_of

# Range of the ridges, in units of the mean squared length of a row.
MIN_RIDGE_RATIO, MAX_RIDGE_RATIO = 1e-14, 1e6
# Passes end at this residual, relative to X'y. A search for the ridge ends when a step lowers the error by less than
# this share. Both are `tol` of scikit-learn's Ridge and MLPRegressor.
TOLERANCE = 1e-4
# The ridges of the coarse grid are this many steps (factors of RIDGE_RATIO) apart.
COARSE_STEP = 4
# If a sketch lacks at most this share of the sums of squares, they are regarded as lost by rounding.
ROUNDING_LOSS = 1e-9
# Another preconditioner is used if the ridge is below this share of the mean squares lost by a sketch, and if there are
# fewer rows than this many times the columns.
SMALL_RIDGE_RATIO, MIN_ROWS_PER_COLUMN = 0.1, 2
# When a ridge is chosen, this many of the largest weights are cut to the smallest of them. Otherwise one or two rows
# would decide alone when weights decay.
MIN_ROWS = 20
# Newton steps for the factor on scores, and its upper limit relative to 1 / the largest score: for separable labels the
# log loss has no minimum.
NEWTON_STEPS, MAX_FACTOR = 50, 1e4


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
    """Fitted linear regression: coefficients (d, c) and intercepts (c,)."""

    coef: Matrix
    intercept: Matrix

    def predict(self, rows: Any) -> Matrix:
        """Predict the targets (n, c) of rows, dense or CSR."""
        return times(rows, self.coef) + self.intercept


class Rows(NamedTuple):
    """Held-out rows with targets and weights, on which predictions are measured."""

    x: Any  # array or CSR (n, d)
    y: Matrix  # (n, c)
    weight: Matrix  # (n,)

    def first(self, n: int) -> Self:
        """Return the first n held-out rows."""
        return type(self)(*(array[:n] for array in self))

    def clipped_weights(self) -> Matrix:
        """Return the weights (n,) of held-out rows in the choice of a ridge penalty, with mean 1.

        The MIN_ROWS largest weights are clipped to the smallest of them, so that a few rows cannot decide. With at most
        so many rows all weights are 1.
        """
        if len(self.weight) <= MIN_ROWS:
            return np.ones(len(self.weight))
        clip = np.partition(self.weight, -MIN_ROWS)[-MIN_ROWS]
        weights = np.minimum(self.weight, clip) / clip if clip > 0 else np.ones(len(self.weight))
        return weights / weights.mean()


class NormalEquations(NamedTuple):
    """Normal equations (A + ridge diag(penalty)) W = X'Y of ridge regression. A is X'X, or its approximation by a
    sketch.

    They are (A + ridge diag(penalty)) W = X'Y, where A is X'X or its approximation.
    """

    gram: GramSum | GramModel  # A
    moments: Moments
    scaled: bool

    def solver(self, ridge: float) -> Solver:
        """Return a function that solves the normal equations at a ridge penalty for any right-hand sides (d, c)."""
        penalty = ridge * penalty_diagonal(self.moments, scaled=self.scaled)
        if isinstance(self.gram, GramModel):  # the divisors must exceed rounding
            penalty = np.maximum(penalty, ROUNDING_LOSS * self.moments.squares - self.gram.lost * self.gram.unit)
        return self.gram.solver(penalty)

    def preconditioner(self, ridge: float, *, n_rows: int) -> Solver:
        """Return a function that solves the normal equations approximately, as a preconditioner of conjugate gradients.

        If the ridge is far below the squares that a sketch has lost, and there are few rows, the diagonal of these
        squares makes convergence slow, since it leads into directions that the rows do not determine. Then their mean
        replaces the diagonal, the same for all columns.
        """
        penalty = penalty_diagonal(self.moments, scaled=self.scaled)
        if isinstance(self.gram, GramModel) and n_rows < MIN_ROWS_PER_COLUMN * len(penalty):
            mean_loss = float((self.gram.lost / penalty).mean())
            if ridge < SMALL_RIDGE_RATIO * mean_loss * self.gram.unit:
                return self._replace(gram=self.gram._replace(lost=mean_loss * penalty)).solver(ridge)
        return self.solver(ridge)

    def coefficients(self, ridge: float, rank: int | None = None) -> Coefficients:
        """Solve the normal equations at a ridge penalty, and return coefficients and intercepts as ``Coefficients``.
        The coefficients are reduced to `rank` if it is given.
        """
        return with_intercepts(self.solver(ridge)(self.moments.cross), self.moments, rank)

    @property
    def is_complete(self) -> bool:
        """Return True if the Gram matrix has all of X'X, and False if it is a sketch that has lost a part.
        Predictions need no correction in the first case.
        """
        return isinstance(self.gram, GramSum) or not self.gram.lost.any()


class Scorer(NamedTuple):
    """Error measure, squared error or log loss, by which ridge penalties are compared on held-out rows."""

    scoring: str
    moments: Moments  # of the rows learned
    is_complete: bool

    def score_factor(self, predicted: Matrix, rows: Rows) -> float:
        """Return the factor on predictions that minimises the squared error of held-out rows; 1 if X'X is complete.

        It is needed because a sketch loses a part of X'X while X'Y is complete, so that coefficients are too long.
        """
        if self.is_complete:
            return 1.0
        predicted, targets = predicted - self.moments.target_mean, rows.y - self.moments.target_mean
        weights = rows.clipped_weights()[:, np.newaxis] * self.target_weights()
        numerator, denominator = (
            float((weights * predicted * targets).sum()),
            float((weights * predicted * predicted).sum()),
        )
        return numerator / denominator if numerator > 0 and denominator > 0 else 1.0

    def errors(self, predicted: Matrix, rows: Rows) -> Matrix:
        """Return the weighted error (n,) of each held-out row, for predictions (n, c): squared error or log loss,
        according to ``scoring``.
        """
        if self.scoring == "log_loss":
            errors = log_losses(predicted, rows.y, rows.clipped_weights())
        else:
            mean = self.moments.target_mean
            errors = (
                rows.y - mean - self.score_factor(predicted, rows) * (predicted - mean)
            ) ** 2 @ self.target_weights()
        return errors * rows.clipped_weights()

    def relative_target_weights(self) -> Matrix:
        """Return the weight (c,) of each target in errors that are already divided by the target's variance.

        They are 1 / (number of targets that vary), and 0 for constant targets.
        """
        varies = self.moments.target_variance > 0
        return varies / max(1.0, float(np.count_nonzero(varies)))

    def target_weights(self) -> Matrix:
        """Return the weights (c,) of the targets' squared errors, inversely proportional to the targets' variances.

        They are 1 / (variance * number of targets that vary), and 0 for constant targets.
        """
        variance = self.moments.target_variance
        return np.where(variance > 0, 1.0 / np.maximum(variance, TINY), 0.0) / max(1, np.count_nonzero(variance))


def log_losses(predicted: Matrix, labels: Matrix, weights: Matrix) -> Matrix:
    """Return the log loss (n,) of each row, for scores that are first multiplied by the best common factor.

    The factor is the one that minimises the mean loss.
    """
    n, c = labels.shape
    if c == 1 or ((labels > 0).sum(axis=1) != 1).any():  # each column has two classes
        scores, true_class = np.stack([predicted, -predicted], axis=-1).reshape(-1, 2) / 2, (labels < 0).ravel()
        weights = np.repeat(weights, c)
    else:
        scores, true_class = predicted, labels.argmax(axis=1)
    scores = scores - scores[np.arange(len(scores)), true_class.astype(np.intp)][:, np.newaxis]
    largest = max(float(np.abs(scores).max(initial=0.0)), TINY)
    scores, factor = scores / largest, 1.0
    for _ in range(NEWTON_STEPS):
        # first and second derivative of w'log sum exp(f s) by f
        probabilities = np.exp(factor * scores - (factor * scores).max(axis=1, keepdims=True))
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        mean = (probabilities * scores).sum(axis=1)
        slope, curvature = float(weights @ mean), float(weights @ ((probabilities * scores**2).sum(axis=1) - mean**2))
        previous_factor, factor = (
            factor,
            min(max(factor - slope / max(curvature, TINY), factor / 4), factor * 4, MAX_FACTOR),
        )
        if abs(factor - previous_factor) <= 1e-6 * previous_factor:
            break
    return np.logaddexp.reduce(factor * scores, axis=1).reshape(n, -1).mean(axis=1)


def penalty_diagonal(moments: Moments, *, scaled: bool) -> Matrix:
    """Return the diagonal (d,) that a ridge penalty of 1 adds to X'X: the column variances if `scaled`, else ones.

    The entry of a constant column is 1 in both cases.
    """
    variance = moments.variance if scaled else np.ones(len(moments.mean))
    return np.where(variance > 0, variance, 1.0)


def with_intercepts(coef: Matrix, moments: Moments, rank: int | None) -> Coefficients:
    """Return the coefficients (d, c), reduced to `rank` unless it is None, and their intercepts as ``Coefficients``."""
    coef = coef if rank is None else reduce_rank(coef, moments.cross, rank)
    return Coefficients(coef, moments.target_mean - moments.mean @ coef)


def gram_of_sketch(sketch: FrequentDirections, squares: Matrix) -> GramModel:
    """Return an approximation of X'X made from a sketch and a diagonal, as a ``GramModel``.
    The diagonal restores the exact sums of squares of the columns (d,).
    """
    decomposition = sketch._read()
    z, columns = decomposition.vt.T * decomposition.s, columns_of(sketch._seen_engine())
    # in units of a power of two, so that no product overflows
    unit = np.ldexp(1.0, int(np.frexp(np.abs(z).max(initial=0.0))[1]))
    z /= unit
    squares = squares / unit / unit
    lost = squares.copy()
    lost[columns] -= np.einsum("ij,ij->i", z, z)
    lost = np.maximum(lost, 0.0)
    if lost.sum() <= ROUNDING_LOSS * squares.sum():
        lost = np.zeros_like(lost)
    return GramModel(np.ascontiguousarray(z), np.eye(z.shape[1]), lost, float(unit * unit), columns)


class Choice(NamedTuple):
    """Result of choosing a ridge penalty: the penalty, and the errors of all penalties that were tried."""

    ridge: float
    path: RidgePath | None
    # the ridge at which residuals are measured, chosen on other rows (for labels it is `ridge`); None: not chosen yet
    residual_ridge: float | None


def choose_least_error(ridges: Matrix, errors: Matrix, standard_errors: Matrix, n_rows: int) -> RidgePath:
    """Return a RidgePath whose choice is the penalty with the least error; among equal ones the largest."""
    best_ridge = float(ridges[np.flatnonzero(errors == errors.min())[-1]])
    return RidgePath(best_ridge, ridges, errors, standard_errors, n_rows)


def search_ridge(
    predict: Callable[[float], Matrix],
    scorer: Scorer,
    rows: Rows,
    first_ridge: float,
    *,
    low_ridge: float,
    min_ratio: float = MIN_RIDGE_RATIO,
) -> Choice:
    """Search for the ridge penalty with the least error on held-out rows, and return it as a ``Choice``.

    The search starts at the best ridge of a coarse grid. It goes up or down by factors of RIDGE_RATIO until the error
    rises, and then tries half a step to both sides.

    Parameters
    ----------
    predict : callable
        Maps a ridge to the predictions (n, c) for the held-out rows.
    scorer, rows : Scorer and Rows
    first_ridge : float
        Largest ridge of the coarse grid, whose ridges differ by factors of RIDGE_RATIO**COARSE_STEP.
    low_ridge : float
        The grid goes down to a ridge below this.
    min_ratio : float
        Smallest ridge that may be tried, as a share of `first_ridge`.

    Returns
    -------
    Choice
        ``residual_ridge`` is the best ridge for the first half of the rows, at which the residuals of the second half
        are measured.
    """
    scores_of_half: dict[float, Matrix] = {}
    first_half = rows.first(len(rows.y) // 2)

    def scores(step: float) -> Matrix:
        predicted = predict(first_ridge * RIDGE_RATIO**step)
        scores_of_half[step] = -scorer.errors(predicted[: len(first_half.y)], first_half)
        return -scorer.errors(predicted, rows)

    # between the first ridge and `low_ridge` the error may have several minima
    n_coarse_steps = (
        int(
            np.log(first_ridge / max(min(low_ridge, first_ridge), first_ridge * min_ratio))
            / np.log(RIDGE_RATIO)
            / COARSE_STEP
        )
        + 1
    )
    coarse_steps = (-float(COARSE_STEP * k) for k in range(n_coarse_steps + 1))
    start = best_step({step: scores(step) for step in coarse_steps if RIDGE_RATIO**step >= min_ratio})
    scores_of_half.clear()
    scores_by_step = hill_climb(scores, min_ratio, MAX_RIDGE_RATIO, first_step=start, min_relative_gain=TOLERANCE)
    best = best_step(scores_by_step)
    scores_by_step |= {step: scores(step) for step in (best - 0.5, best + 0.5)}
    steps = sorted(scores_by_step)
    errors, standard_errors = (
        np.array([statistic(-scores_by_step[step]) for step in steps]) for statistic in (np.mean, standard_error)
    )
    ridges = first_ridge * RIDGE_RATIO ** np.array(steps)
    path = RidgePath(
        first_ridge * RIDGE_RATIO ** best_step(scores_by_step), ridges, errors, standard_errors, len(rows.y)
    )
    # the log loss leaves the length of scores open, so residuals need the same ridge
    residual_ridge = (
        path.ridge if scorer.scoring == "log_loss" else first_ridge * RIDGE_RATIO ** best_step(scores_of_half)
    )
    return Choice(path.ridge, path, residual_ridge)


def reduce_rank(coef: Matrix, cross: Matrix, rank: int) -> Matrix:
    """Return coefficients (d, c) of lower rank that fit the targets best (reduced-rank regression).

    The full coefficients W are projected onto the leading eigenvectors of W'Z, where Z = `cross` (d, c) is X'Y. With
    more targets than columns these eigenvectors are Q U, where Z' = Q R, and U are the eigenvectors of R (W Q).
    """
    if rank >= min(coef.shape):
        return coef
    if coef.shape[1] > len(coef):
        basis, triangle = np.linalg.qr(cross.T)
        leading = basis @ leading_eigenvectors(triangle @ (coef @ basis), rank)
    else:
        leading = leading_eigenvectors(coef.T @ cross, rank)
    return (coef @ leading) @ leading.T


def leading_eigenvectors(matrix: Matrix, rank: int) -> Matrix:
    """Return the `rank` leading eigenvectors of the symmetric part of a matrix, as columns."""
    return np.linalg.eigh((matrix + matrix.T) / 2)[1][:, ::-1][:, :rank]


def conformal_quantile(residuals: Matrix, weights: Matrix, coverage: float, *, decayed: bool = False) -> Matrix:
    """Return the half-width (c,) of a prediction interval for each target, a split-conformal quantile of residuals.

    The quantile of level `coverage` is taken over the absolute residuals (n, c) of the rows and that of one new row,
    which may have any size. The new row has the expected weight of a row drawn in proportion to the weights (n,), or
    with `decayed` the largest weight.

    Raises
    ------
    ValueError
        If there are too few rows for this coverage.
    """
    absolute_residuals, largest_weight = np.abs(residuals), float(weights.max(initial=0.0))
    weights = weights / largest_weight if largest_weight > 0 else weights
    # number of rows in units of the weight of a new one; without decay Kish's effective number
    n_effective = (
        float(weights.sum() if decayed else weights.sum() ** 2 / (weights @ weights)) if largest_weight > 0 else 0.0
    )
    if coverage > n_effective / (n_effective + 1) * (1 + 1e-12):
        n_required = int(np.ceil(coverage / (1 - coverage) - 1e-9))
        raise ValueError(
            f"coverage={coverage:g} needs the residuals of {n_required} rows that chose nothing, and there are "
            f"{n_effective:.3g}, a tenth of all rows, by weight: learn more rows, or raise reservoir_size"
        )
    order = np.argsort(absolute_residuals, axis=0, kind="stable")
    cumulative_weights = np.cumsum(weights[order], axis=0) / (weights.sum() * (1 + 1 / n_effective))
    position = np.minimum((cumulative_weights < coverage * (1 - 1e-12)).sum(axis=0), len(absolute_residuals) - 1)
    return np.take_along_axis(absolute_residuals, np.take_along_axis(order, position[np.newaxis], 0), 0)[0]
