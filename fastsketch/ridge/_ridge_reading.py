"""The reading part of a ridge regression: its ridge, coefficients, how far they are off, passes that refine them."""

# pyright: reportPrivateUsage=false

from collections.abc import Generator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.threads import one_blas_thread
from fastsketch._core.validation import as_real
from fastsketch._core.warning import warn_caller
from fastsketch.ridge._cross_validation import GeneralisedCrossValidation, LeaveOneOut
from fastsketch.ridge._gram_model import GramSum, Matrix
from fastsketch.ridge._moments import TINY, LeftOut, Moments, column_lengths
from fastsketch.ridge._path import STEP, error_of, is_as_good
from fastsketch.ridge._read_out import (
    FEWEST,
    Choice,
    Coefficients,
    Problem,
    Rows,
    Scorer,
    chosen,
    completed,
    gram_of_sketch,
    least_of,
    penalty_of,
)
from fastsketch.ridge._refining import ConjugateGradients, Krylov, MeasuredForm, Refined
from fastsketch.ridge._ridge_learning import DOUBLE, MOST_RIDGE, RidgeLearner
from fastsketch.sketching._frequent_directions import SecondPass
from fastsketch.sketching._rereading import Readable as Source
from fastsketch.sketching._rereading import RowsAgain

# Rows held out: a tenth of all measures residuals, and of a sketch another chooses the ridge, as `validation_fraction`
# of scikit-learn's models has it; none if both are below FEWEST.
ONE_OF = 5
# Rows that weigh something, at least, of which each can be predicted by the others; of the largest weight that is.
FEWEST_ALONE, LEAST_SHARE = 3, 1e-12
# Of the number of rows: so much below it, Kish's number is that of equal weights but for rounding.
SAME_WEIGHT = 1e-9
# Passes of a refinement from one look at the ridge to the next.
CHOOSE_EVERY = 4
# Of the passes of a refinement, at most, for the choice of a ridge.
TO_CHOOSE = 0.6
# Kept of the rows held out while a ridge is chosen: of very many targets fewer rows choose.
MOST_NUMBERS = 1 << 25
# Of what is left of X'y, where passes that nobody has asked a tolerance of end; that of scikit-learn's Ridge.
TOLERANCE = 1e-4


class FittedRidge(NamedTuple):
    """What was last read out."""

    fit: Coefficients
    choice: Choice


class RidgeReader(RidgeLearner, abstract=True):
    """Reading part of a ridge regression, from what was learned and from rows that are read again."""

    # -- reading out -----------------------------------------------------------------------------------------------
    def _coefficients(self, ridge: float | None) -> Coefficients:
        fitted = self._fitted()
        if ridge is None or as_real(ridge, "ridge", 0.0, MOST_RIDGE) == fitted.choice.ridge:
            return fitted.fit
        if self._refined is not None and not self.is_exact:
            warn_caller(
                f"coefficients at ridge={ridge:g} are those of the sketch: rows were read again for ridge="
                f"{fitted.choice.ridge:g}; a model of this ridge can refine them"
            )
        return self._solved(ridge)

    @one_blas_thread
    def _solved(self, ridge: float, *, measured: bool = False, trial: Problem | None = None) -> Coefficients:
        """Solve at a ridge, of all rows, or without those that measure residuals; `trial`: without all held out."""
        measuring, whole = self._measuring(), self._problem(self._measuring() if measured else slice(0, 0))
        fit, n = whole.coefficients(ridge, self.rank), measuring.start if measured else measuring.stop
        if self.is_exact or not n or self.scoring != "squared_error":
            return fit
        trial, rows = trial or self._problem(slice(0, measuring.stop)), self._rows_of(slice(0, n))
        factor = self._scorer(trial).factor(trial.coefficients(ridge, self.rank).predict(rows.x), rows)
        return completed(factor * fit.coef, whole.moments, None)

    def _fitted(self) -> FittedRidge:
        if self._last is None:
            moments = self._require_rows()
            if self._refined is None:
                self._last = self._read_out()
            else:
                coef = self._refined.steps.solution[:, : self.n_targets]
                self._last = FittedRidge(completed(coef, moments, self.rank), self._refined.choice)
            self._residuals = None
        return self._last

    @one_blas_thread
    def _read_out(self) -> FittedRidge:
        choice, trial = self._settled_choice(), None
        if choice is None:
            trial = self._problem(slice(0, self._measuring().stop))
            choice = self._chosen_by(trial)
        weigh = self._known().n_effective if self.ridge is None and self.decay < 1.0 else np.inf
        if weigh < min(FEWEST, len(self._known().mean)):
            warn_caller(
                f"decay={self.decay:g} leaves the weight of {weigh:.3g} rows to choose a ridge for "
                f"{self.n_features} columns, which may be far from the best: give ridge=, or a decay nearer to 1"
            )
        return FittedRidge(self._solved(choice.ridge, trial=trial), choice)

    @one_blas_thread
    def _chosen_by(self, trial: Problem) -> Choice:
        """Choose the ridge of a problem without the rows held out, by these."""
        rows, scorer = self._rows_of(slice(0, self._measuring().stop)), self._scorer(trial)
        first, low = self._first_ridge(trial.moments), self._low_ridge(trial.moments)
        return chosen(lambda ridge: trial.coefficients(ridge, self.rank).predict(rows.x), scorer, rows, first, low=low)

    def _require_rows(self) -> Moments:
        if not self._n:
            raise ValueError("the model has seen no rows: call update first")
        return self._known()

    def _settled_choice(self) -> Choice | None:
        """Return the choice of a ridge for which no rows are held out: given, or by cross-validation."""
        if self.ridge is not None:
            return Choice(self.ridge, None, self.ridge)
        rows, moments = self._rows_at_hand(), self._known()
        if rows is not None:
            of_rows = self._leave_one_out(rows)
            errors = of_rows.errors(Scorer(self.scoring, moments, is_whole=True), rows)
            standard_errors = np.array([error_of(of_ridge) for of_ridge in errors])
            path = least_of(of_rows.ridges, errors.mean(axis=1), standard_errors, len(rows.y))
            return Choice(path.ridge, path, path.ridge)
        if self._is_validated_by_sums():
            return self._generalised(slice(0, 0))
        if self._measuring().stop:
            return None
        ridge = self._first_ridge(moments)
        return Choice(ridge, None, ridge)

    def _is_validated_by_sums(self) -> bool:
        """Return whether generalised cross-validation has all that it needs.

        That is X'X, squared errors, coefficients of full rank, and if rows weigh unequally more of them by Kish's
        number than coefficients: else small ridges would leave less than nothing of it, but much of the targets.
        """
        if not self.is_exact or self.scoring != "squared_error" or self.rank is not None or self._n < FEWEST_ALONE:
            return False
        moments = self._known()
        weighs_equally = moments.n_effective >= (1.0 - SAME_WEIGHT) * self._n
        return weighs_equally or moments.n_effective >= len(moments.mean) + self.fit_intercept + 1

    @one_blas_thread
    def _generalised(self, left_out: slice) -> Choice:
        """Choose the ridge by cross-validation of all rows but some of those held out, by sums over these."""
        n = self._n - (left_out.stop - left_out.start)
        problem = self._problem(left_out)
        assert isinstance(problem.gram, GramSum)
        moments = problem.moments
        penalty = penalty_of(moments, scaled=problem.scaled)
        gcv = GeneralisedCrossValidation(problem.gram.gram, moments, penalty, n=n, center=self.fit_intercept)
        shares = Scorer(self.scoring, moments, is_whole=True).relative_shares()
        sample = np.delete(np.arange(len(self._known_held())), left_out)
        if self.decay < 1.0 or not len(sample):  # of a sample of all times hardly a row weighs something
            errors = gcv.scores(shares)
        else:
            errors = gcv.leave_one_out(shares, self._rows_of(sample))
        path = least_of(gcv.ridges, errors, errors * (2.0 / moments.n_effective) ** 0.5, n)
        return Choice(path.ridge, path, None)

    def _ridge_apart(self, choice: Choice) -> float:
        """Return the ridge at which residuals are measured, which the rows that measure them have not chosen."""
        if choice.apart is not None:
            return choice.apart
        measuring = self._measuring()
        return self._generalised(measuring).ridge if len(self._rows_of(measuring).weight) else choice.ridge

    def _rows_at_hand(self) -> Rows | None:
        """Return all rows that have a weight if the reservoir has all of them, as they came, and nothing is lost."""
        weight = self._known_held().weight
        if self.decay < 1 or self.rank is not None or not 0 < len(weight) == self._n:
            return None
        weighs = np.flatnonzero(weight > LEAST_SHARE * weight.max())
        if len(weighs) < FEWEST_ALONE or not (self.is_exact or len(weight) <= self.sketch_size):
            return None
        return self._rows_of(weighs)

    @one_blas_thread
    def _leave_one_out(self, rows: Rows) -> LeaveOneOut:
        moments = self._known()
        return LeaveOneOut(rows, moments, penalty_of(moments, scaled=self._scaled), center=self.fit_intercept)

    def _scorer(self, trial: Problem) -> Scorer:
        return Scorer(self.scoring, trial.moments, trial.is_whole)

    def _first_ridge(self, moments: Moments) -> float:
        """Return the mean squared length of a row, as it is weighted: the ridge of as much noise as there is signal."""
        length = float((moments.variance / penalty_of(moments, scaled=self._scaled)).sum())
        if moments.weight > 0:  # of what a unit of weight has: sum(w^2) / sum(w)
            length *= moments.weight_norm * (moments.weight_norm / moments.weight)
        return length if length > 0 else 1.0

    def _low_ridge(self, moments: Moments) -> float:
        """Return the first ridge of columns that had their geometric mean of squares: one in large units counts less.

        Far above it every ridge of a path predicts the mean alone, and none says where to go.
        """
        squares = moments.variance / penalty_of(moments, scaled=self._scaled)
        squares = squares[squares > 0]
        if not len(squares):
            return self._first_ridge(moments)
        share = np.exp(np.log(squares).mean()) / squares.mean()
        return float(share) * self._first_ridge(moments)

    def _measuring(self) -> slice:
        """Return which of the rows held out measure residuals: the second half of those that choose."""
        n = min(len(self._known_held()), self._n // ONE_OF) // 2
        return slice(n, 2 * n) if 2 * n >= FEWEST else slice(0, 0)

    def _rows_of(self, which: slice | NDArray[np.int64]) -> Rows:
        """Return some of the rows held out."""
        held = self._known_held().chosen(which)
        return Rows(*self._split(held), held.weight)

    def _problem(self, left_out: slice) -> Problem:
        """Return the normal equations of all rows but some of those held out."""
        rest, out = self._rest(left_out)
        if self.is_exact:
            gram = self._sketch.gram()
            return Problem(GramSum(gram - out.times(np.eye(len(gram))) if left_out.stop else gram), rest, self._scaled)
        held = self._known_held()
        sketch = self._eat(self._sketch.copy(), held.chosen(np.delete(np.arange(len(held)), left_out)))
        return Problem(gram_of_sketch(sketch, rest.squares), rest, self._scaled)

    def _rest(self, left_out: slice) -> tuple[Moments, LeftOut]:
        """Return the moments of all rows but some of those held out, and what these take from X'X."""
        moments, rows = self._known(), self._rows_of(left_out)
        rest = moments
        if len(rows.weight):
            rest = moments.without(Moments.of(*rows, center=self.fit_intercept))
        return rest, LeftOut(moments, rest, rows.x, rows.weight)

    def _known_residuals(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return residuals (m, c) of rows that chose nothing, and their weights."""
        fitted = self._fitted()
        if self._residuals is None:
            self._residuals = self._measured(fitted)
        return self._residuals

    def _measured(self, fitted: FittedRidge) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        at_hand = self._rows_at_hand()
        if at_hand is not None:
            of_rows = self._leave_one_out(at_hand)
            if self.ridge is not None:
                return at_hand.y - of_rows.predict(self.ridge), at_hand.weight
            scorer = Scorer(self.scoring, self._known(), is_whole=True)
            return of_rows.residuals(scorer, at_hand), at_hand.weight
        measuring = self._measuring()
        rows = self._rows_of(measuring)
        if not len(rows.weight):
            return rows.y, rows.weight
        if self._refined is None:
            fit = self._solved(self._ridge_apart(fitted.choice), measured=True)
        else:
            coef = np.ascontiguousarray(self._refined.steps.solution[:, self.n_targets :])
            fit = completed(coef, self._rest(measuring)[0], self.rank)
        return rows.y - fit.predict(rows.x), rows.weight

    # -- reading the rows again ------------------------------------------------------------------------------------
    def _check_refinable(self) -> None:
        if self.decay != 1.0:
            raise ValueError(f"refine needs a model without decay, got decay={self.decay:g}: give weights to the rows")

    def _read_again(
        self, rows: Source, sample_weight: Any, *, passes: int, tolerance: float, if_better: bool = False
    ) -> None:
        """Refine; with `if_better` only if the error on rows held out is smaller then."""
        moments, steps = self._require_rows(), self._refinement(passes, tolerance, if_better=if_better)
        view = MeasuredForm(len(moments.mean), DOUBLE, moments.mean, 1.0, self.fit_intercept, [moments.faded(0.0)])
        again = RowsAgain(rows, view, sample_weight, feature_names=self._feature_names)
        image: Any = None  # of nothing, at the start
        try:
            while True:
                read = again.multiply(steps.send(image))
                view.require(moments, self._n, read.n_rows)
                image = read.product
        except StopIteration as end:
            self._refined, self._last, self._residuals = end.value, None, None

    def _refinement(
        self, passes: int, tolerance: float, *, if_better: bool
    ) -> Generator[Matrix, Matrix, Refined | None]:
        """Yield vectors (d, m) whose products with X'X of all rows are wanted next; at last return what came of it."""
        moments, refined, made, problem = self._known(), self._refined, 0, None
        choice = of_sketch = self._settled_choice() if refined is None else refined.choice
        if choice is None:
            made, choice = yield from self._choice_again(int(TO_CHOOSE * passes))
            if if_better:
                problem = self._problem(slice(0, self._measuring().stop))
                of_sketch = self._chosen_by(problem)
                if least_error(of_sketch) < least_error(choice):
                    return None
        choice = choice._replace(apart=self._ridge_apart(choice))
        rest, out = self._rest(self._measuring())
        if problem is None:  # without the rows held out a sketch is as good a preconditioner
            problem = self._problem(slice(0, 0 if self.is_exact else self._measuring().stop))
        c, penalty = len(moments.target_mean), penalty_of(moments, scaled=self._scaled)[:, np.newaxis]
        added = choice.ridge * penalty, self._ridge_apart(choice) * penalty

        def images(right: Matrix) -> Generator[Matrix, Matrix, Matrix]:
            image = yield right
            image[:, :c] += added[0] * right[:, :c]
            image[:, c:] += added[1] * right[:, c:]
            image[:, c:] -= out.times(np.ascontiguousarray(right[:, c:]))  # of rows that measure residuals
            return image

        # the second half are the coefficients of all rows but those that measure how far predictions are off
        right = np.hstack([moments.cross, rest.cross])
        lengths = np.maximum(column_lengths(right), TINY)
        solve = one_blas_thread(problem.preconditioner(choice.ridge, n_rows=self._n))
        steps = ConjugateGradients.start(right, solve) if refined is None else refined.steps
        for k in range(passes - made):
            if (column_lengths(steps.residual) <= tolerance * lengths).all():
                if k or made:
                    break
                # there is nothing to refine: what is left is computed anew, of the rows
                remaining = right - (yield from images(steps.solution))
                steps = steps._replace(residual=remaining, passes=steps.passes + 1)
            else:
                steps = steps.step((yield from images(steps.direction)), solve)
        if if_better and (column_lengths(steps.residual) > tolerance * lengths).any():
            by_sketch = self._errors_apart(None, self._ridge_apart(of_sketch or choice))
            behind = by_sketch - self._errors_apart(steps.solution[:, c:])
            if len(behind) and is_as_good(behind):
                return None
        return Refined(steps, choice, made if refined is None else refined.to_choose)

    def _errors_apart(self, coef: Matrix | None, ridge: float = 0.0) -> Matrix:
        """Return the errors of rows that chose nothing: by coefficients (d, c) without them, or by the sketch."""
        rows, (rest, _) = self._rows_of(self._measuring()), self._rest(self._measuring())
        if not len(rows.weight):
            return np.zeros(0)
        if coef is None:
            fit = self._solved(ridge, measured=True)
        else:
            fit = completed(np.ascontiguousarray(coef), rest, self.rank)
        return Scorer(self.scoring, rest, is_whole=True).errors(fit.predict(rows.x), rows)

    def _choice_again(self, passes: int) -> Generator[Matrix, Matrix, tuple[int, Choice]]:
        """Choose the ridge by what all rows but those held out say: (passes made, choice)."""
        n = self._measuring().stop
        if self.is_exact or not passes:
            return 0, self._read_out().choice
        rest, out = self._rest(slice(0, n))
        first, scorer = self._first_ridge(rest), Scorer(self.scoring, rest, is_whole=True)
        most = max(FEWEST, MOST_NUMBERS // (passes * len(rest.target_mean)))
        rows = self._rows_of(slice(0, n)).first(most)
        krylov = Krylov(rest, penalty_of(rest, scaled=self._scaled), rows.x)
        made = 0
        while True:
            made, right = made + 1, krylov.direction
            krylov.take((yield right) - out.times(right))
            if made % CHOOSE_EVERY and made < passes:
                continue
            path = krylov.path()
            least = path.least(first)
            begin = max(first, least * STEP)
            choice = chosen(path.predict, scorer, rows, begin, low=self._low_ridge(rest), least=least / begin)
            # ends where smaller ridges, known as well, are worse, down to that of a row at least
            if made >= passes or least * STEP <= min(choice.ridge, first):
                return made, choice

    def _check_passes(self, passes: int) -> None:
        self._check_refinable()

    def _passes_again(self, passes: int) -> Generator[SecondPass, SecondPass, Any]:
        """Refine by the parts of a job: the vectors of a pass as orthonormal ones, and what these are made of."""
        if self.is_exact:
            return self
        sketch = self._eat(self._sketch.copy(), self._known_held())  # which knows the mean of all rows
        steps = self._refinement(passes, TOLERANCE, if_better=True)
        image: Any = None  # of nothing, at the start
        while True:
            try:
                q, turn = np.linalg.qr(steps.send(image))
            except StopIteration as end:
                self._refined, self._last, self._residuals = end.value, None, None
                return self
            read = yield SecondPass._along(sketch, np.ascontiguousarray(q.T))
            image = read._sum.product / read._begun()[1].scale ** 2 @ turn


def least_error(choice: Choice) -> float:
    """Return the error of the ridge on rows held out, infinite where none was tried."""
    return np.inf if choice.path is None else float(choice.path.errors.min())
