"""Coefficients out of moments and a sketch: tail and ridge chosen on rows held out, and how far predictions are off."""

# pyright: reportPrivateUsage=false

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np

from fastsketch.ridge._gram_model import GramModel, GramSum, Matrix, Solver
from fastsketch.ridge._moments import TINY, Moments, times
from fastsketch.ridge._path import STEP, best_step, climbed, error_of
from fastsketch.sketching import FrequentDirections
from fastsketch.sketching._engines import columns_of

# How far a path may go from the mean squared length of a row, where it begins.
LEAST, MOST = 1e-14, 1e6
# Share of the error that a step of a path gains at least, or it is the last.
GAIN = 1e-4
# Steps between the ridges of which the best begins a path.
APART = 4
# Share of the squares that a sketch may lose by rounding.
LOST = 1e-9
# Of what a sketch has lost, on average over columns, a ridge that is far below; rows over columns that hold all of it.
FAR_BELOW, TWICE = 0.1, 2
# Rows of the largest weights that count the same in a choice, or decay would leave it to the latest one or two.
FEWEST = 20
# To the factor of scores, and beyond the inverse of the largest of them: labels that are told apart want no end of it.
NEWTON_STEPS, MOST_FACTOR = 50, 1e4


class RidgePath(NamedTuple):
    """Ridge penalties of the grid, and the cross-validated error of each.

    Attributes
    ----------
    ridge : float
        The one that is taken: that of the least error.
    ridges : ndarray (p,)
        Ascending, in squared units of the weighted rows.
    errors : ndarray (p,)
        Mean squared error relative to the variance of each target, mean over targets (1 - R2 about), of leave-one-out
        or of rows held out; the score of generalised cross-validation; or the log loss.
    standard_errors : ndarray (p,)
        Of these means; of generalised cross-validation sqrt(2 / n) of the score, as for n Gaussian residuals. The
        difference of two of them is far better known, as both are of the same rows.
    n_rows : int
        Rows by which the ridge was chosen.
    """

    ridge: float
    ridges: Matrix
    errors: Matrix
    standard_errors: Matrix
    n_rows: int


class Coefficients(NamedTuple):
    """Coefficients (d, c) and intercepts (c,)."""

    coef: Matrix
    intercept: Matrix

    def predict(self, rows: Any) -> Matrix:
        """Compute X W + b (n, c)."""
        return times(rows, self.coef) + self.intercept


class Rows(NamedTuple):
    """Rows held out, with their targets."""

    x: Any  # array or CSR (n, d)
    y: Matrix  # (n, c)
    weight: Matrix  # (n,)

    def first(self, n: int) -> Self:
        """Return the first n of them."""
        return type(self)(*(array[:n] for array in self))

    def counted(self) -> Matrix:
        """Return what each row counts in a choice (n,), 1 on average: by weight, but the largest FEWEST the same."""
        if len(self.weight) <= FEWEST:
            return np.ones(len(self.weight))
        top = np.partition(self.weight, -FEWEST)[-FEWEST]
        counts = np.minimum(self.weight, top) / top if top > 0 else np.ones(len(self.weight))
        return counts / counts.mean()


class Problem(NamedTuple):
    """Normal equations (A + ridge diag(penalty)) W = Z of some rows."""

    gram: GramSum | GramModel  # A
    moments: Moments
    scaled: bool

    def solver(self, ridge: float) -> Solver:
        """Return what solves the equations at a ridge for any right-hand sides."""
        penalty = ridge * penalty_of(self.moments, scaled=self.scaled)
        if isinstance(self.gram, GramModel):  # what is divided by is more than rounding
            penalty = np.maximum(penalty, LOST * self.moments.squares - self.gram.lost * self.gram.unit)
        return self.gram.solver(penalty)

    def preconditioner(self, ridge: float, *, n_rows: int) -> Solver:
        """Return what solves the equations nearly, of n_rows rows.

        Far below the ridge that a sketch has lost its diagonal leads into what rows say nothing about, and out of it
        again slowly; the same mass on all columns stays in the space of the rows, where the solution is.
        """
        penalty = penalty_of(self.moments, scaled=self.scaled)
        if isinstance(self.gram, GramModel) and n_rows < TWICE * len(penalty):
            level = float((self.gram.lost / penalty).mean())
            if ridge < FAR_BELOW * level * self.gram.unit:
                return self._replace(gram=self.gram._replace(lost=level * penalty)).solver(ridge)
        return self.solver(ridge)

    def coefficients(self, ridge: float, rank: int | None = None) -> Coefficients:
        """Solve at a ridge."""
        return completed(self.solver(ridge)(self.moments.cross), self.moments, rank)

    @property
    def is_whole(self) -> bool:
        """Return whether nothing of X'X is lost."""
        return isinstance(self.gram, GramSum) or not self.gram.lost.any()


class Scorer(NamedTuple):
    """Errors of predictions by one of the ways to score them, and the factor that they want."""

    scoring: str
    moments: Moments  # of the rows that were learned
    is_whole: bool

    def factor(self, predicted: Matrix, rows: Rows) -> float:
        """Return the factor on coefficients that rows which the problem has not seen want.

        A sketch lacks some of X'X, and X'Y does not: what it gives is too long. Where nothing is lost the factor is 1.
        """
        if self.is_whole:
            return 1.0
        predicted, wanted = predicted - self.moments.target_mean, rows.y - self.moments.target_mean
        by = rows.counted()[:, np.newaxis] * self.shares()
        above, below = float((by * predicted * wanted).sum()), float((by * predicted * predicted).sum())
        return above / below if above > 0 and below > 0 else 1.0

    def errors(self, predicted: Matrix, rows: Rows) -> Matrix:
        """Compute the error of predictions for every row (n,), weighted, at the factor that rows want."""
        if self.scoring == "log_loss":
            errors = log_losses(predicted, rows.y, rows.counted())
        else:
            mean = self.moments.target_mean
            errors = (rows.y - mean - self.factor(predicted, rows) * (predicted - mean)) ** 2 @ self.shares()
        return errors * rows.counted()

    def relative_shares(self) -> Matrix:
        """Return what the share of its variance that is left counts for each target (c,): 1 / c, or 0 if it is 0."""
        varies = self.moments.target_variance > 0
        return varies / max(1.0, float(np.count_nonzero(varies)))

    def shares(self) -> Matrix:
        """Return what a squared error counts for each target (c,): 1 / (variance c), nothing if that is 0."""
        variance = self.moments.target_variance
        return np.where(variance > 0, 1.0 / np.maximum(variance, TINY), 0.0) / max(1, np.count_nonzero(variance))


def log_losses(predicted: Matrix, labels: Matrix, weights: Matrix) -> Matrix:
    """Compute the log loss of each row (n,) by scores whose common factor is the best: labels need no length.

    Of labels (n, c) with a single 1 in each row that of the softmax of the scores, else the mean of c logistic ones.
    """
    n, c = labels.shape
    if c == 1 or ((labels > 0).sum(axis=1) != 1).any():  # two classes in each column
        scores, right = np.stack([predicted, -predicted], axis=-1).reshape(-1, 2) / 2, (labels < 0).ravel()
        weights = np.repeat(weights, c)
    else:
        scores, right = predicted, labels.argmax(axis=1)
    scores = scores - scores[np.arange(len(scores)), right.astype(np.intp)][:, np.newaxis]
    level = max(float(np.abs(scores).max(initial=0.0)), TINY)
    scores, factor = scores / level, 1.0
    for _ in range(NEWTON_STEPS):
        # d/df of w'log sum exp(f s), and again
        share = np.exp(factor * scores - (factor * scores).max(axis=1, keepdims=True))
        share /= share.sum(axis=1, keepdims=True)
        mean = (share * scores).sum(axis=1)
        slope, curvature = float(weights @ mean), float(weights @ ((share * scores**2).sum(axis=1) - mean**2))
        old, factor = factor, min(max(factor - slope / max(curvature, TINY), factor / 4), factor * 4, MOST_FACTOR)
        if abs(factor - old) <= 1e-6 * old:
            break
    return np.logaddexp.reduce(factor * scores, axis=1).reshape(n, -1).mean(axis=1)


def penalty_of(moments: Moments, *, scaled: bool) -> Matrix:
    """Return what one unit of ridge adds to the diagonal (d,): 1, or the variance of the column."""
    variance = moments.variance if scaled else np.ones(len(moments.mean))
    return np.where(variance > 0, variance, 1.0)


def completed(coef: Matrix, moments: Moments, rank: int | None) -> Coefficients:
    """Return coefficients that solve the equations, of a rank, with their intercepts."""
    coef = coef if rank is None else reduced(coef, moments.cross, rank)
    return Coefficients(coef, moments.target_mean - moments.mean @ coef)


def gram_of_sketch(sketch: FrequentDirections, squares: Matrix) -> GramModel:
    """Return a model of X'X of the rows in a sketch, whose columns have these sums of squares."""
    reading = sketch._read()
    z, columns = reading.vt.T * reading.s, columns_of(sketch._seen_engine())
    # in a power of two, so that no product leaves the range of numbers
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
    """A ridge, and how it was found."""

    ridge: float
    path: RidgePath | None
    # at which residuals are measured: chosen by rows that measure none; of labels the same ridge; None: not yet chosen
    apart: float | None


def least_of(ridges: Matrix, errors: Matrix, standard_errors: Matrix, n_rows: int) -> RidgePath:
    """Return the path of ridges with their errors, at the least error; of equal ones the largest ridge is taken."""
    best = float(ridges[np.flatnonzero(errors == errors.min())[-1]])
    return RidgePath(best, ridges, errors, standard_errors, n_rows)


def chosen(
    predict: Callable[[float], Matrix], scorer: Scorer, rows: Rows, first: float, *, low: float, least: float = LEAST
) -> Choice:
    """Choose the ridge by the error on rows that were not learned of what `predict` gives at a ridge.

    The path begins at the best of a few ridges from `first` to below `low`, and stays above `least` of `first`.
    """
    of_half: dict[float, Matrix] = {}
    half = rows.first(len(rows.y) // 2)

    def scores(step: float) -> Matrix:
        predicted = predict(first * STEP**step)
        of_half[step] = -scorer.errors(predicted[: len(half.y)], half)
        return -scorer.errors(predicted, rows)

    # between the ridges of rows and of columns in ordinary units errors may fall, rise and fall again
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
    # a log loss leaves the length of scores open, and how far they are off would be that of another length
    apart = path.ridge if scorer.scoring == "log_loss" else first * STEP ** best_step(of_half)
    return Choice(path.ridge, path, apart)


def reduced(coef: Matrix, cross: Matrix, rank: int) -> Matrix:
    """Return the best coefficients of a rank: W projected on the leading eigenvectors of W'Z.

    Of more targets than columns these are Q U, with Z' = Q R and U the eigenvectors of R (W Q).
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
    """Return the leading eigenvectors as columns."""
    return np.linalg.eigh((matrix + matrix.T) / 2)[1][:, ::-1][:, :rank]


def quantile(residuals: Matrix, weights: Matrix, coverage: float, *, aged: bool = False) -> Matrix:
    """Return, of each column of residuals (m, c), the split-conformal quantile of their sizes (c,).

    That of weight `coverage` among the rows and one more, which may be of any size. It weighs as much as a row that is
    drawn in proportion to the weights does on average; where rows have `aged`, as much as the heaviest.

    Raises
    ------
    ValueError
        If there are too few rows for this coverage.
    """
    sizes, top = np.abs(residuals), float(weights.max(initial=0.0))
    weights = weights / top if top > 0 else weights
    # in rows of the weight of a new one (without age: Kish's effective number of rows)
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
