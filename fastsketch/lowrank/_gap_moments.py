"""Mean and covariance of a table with missing entries, from available cases and by expectation maximisation (EM).

``GapMoments`` adds up counts, sums and products over the rows in which both columns of a pair are observed (available
cases), in one pass; models of different rows can be merged. If it is given a ``TableGaussian``, it adds up the expected
sums and products of complete rows under it instead: the E step of EM. In both cases ``gaussian()`` computes a Gaussian
from the sums, which after an E step is the M step.

Sources: Dempster, Laird, Rubin, *Maximum likelihood from incomplete data via the EM algorithm*, JRSS B 1977; Little and
Rubin, *Statistical Analysis with Missing Data*, chapter 11. Correlations are shrunk towards the identity: those of
available cases by oracle approximating shrinkage (Chen, Wiesel, Eldar and Hero, *Shrinkage algorithms for MMSE
covariance estimation*, 2010), those of an E step by the intensity with the largest leave-one-out likelihood (Hoffbeck
and Landgrebe, *Covariance matrix estimation and classification with limited training data*, IEEE PAMI 1996).
"""

# pyright: basic

from collections.abc import Callable, Generator
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.threads import one_blas_thread
from fastsketch._core.validation import as_rows, is_sparse
from fastsketch._frame.batches import Batch
from fastsketch._frame.model import Arrays, MergeableModel
from fastsketch._kernels.guard import changes, reads
from fastsketch.data.files import _checks as checks
from fastsketch.lowrank._gap_patterns import CompletedRows, PatternGroup, complete_rows, group_by_pattern

Floats = NDArray[np.float64]

# A column whose standard deviation is at most this share of its mean is regarded as constant, up to rounding.
CONSTANT_TOLERANCE = 64 * float(np.finfo(np.float64).eps)
# Bytes of a block of rows, which are standardised block by block.
BLOCK_BYTES = 1 << 24
# Arrays of a Gaussian in a state file.
GAUSSIAN_ARRAYS = ("location", "scale", "correlation", "raw")
# Least shrinkage intensity, against rounding: a matrix with a correlation of 1 has no inverse.
MIN_SHRINKAGE = float(np.sqrt(np.finfo(np.float64).eps))
# Shrinkage intensities whose leave-one-out likelihoods an E step adds up; each is about twice the previous one.
N_SHRINKAGES = 25
SHRINKAGE_GRID = np.geomspace(MIN_SHRINKAGE, 1.0, N_SHRINKAGES)


class TableGaussian:
    """Multivariate normal distribution of the rows of a table. It fills missing entries with their conditional means,
    and returns conditional variances.

    Parameters
    ----------
    location, scale : (d,) arrays of float64
        Means and standard deviations of the columns. The scale of a constant column is 0.
    correlation : (d, d) array of float64
        Positive definite, with a diagonal of ones.
    raw : (d, d) array of float64, optional
        The correlations before shrinkage; by default `correlation`.
    n : float, default 1
        Number of rows from which they were estimated.
    """

    def __init__(
        self, location: Floats, scale: Floats, correlation: Floats, raw: Floats | None = None, n: float = 1.0
    ) -> None:
        self.location, self.scale, self.correlation = location, scale, correlation
        self.raw, self.n = correlation if raw is None else raw, n
        self.unit = np.where(scale > 0, scale, 1.0)

    @cached_property
    def precision(self) -> Floats:
        """Return the precision matrix, the inverse of the correlation matrix, shape (d, d)."""
        inverse = np.linalg.inv(self.correlation)
        return (inverse + inverse.T) / 2

    @cached_property
    def _leave_one_out_spectrum(self) -> tuple[Floats, Floats, Floats]:
        """Return (V (d, d), eigenvalues (d, s), weights (s,)), which give the covariance without any single row.

        The raw correlations without a row y are (n raw - y y') / (n - 1). Shrunk by one of s intensities, they are V
        diag(eigenvalues) V' - weight y y'.
        """
        values, vectors = np.linalg.eigh(self.raw)
        n = max(self.n, 2.0)
        row_weights = (1.0 - SHRINKAGE_GRID) / (n - 1.0)
        return vectors, np.maximum(values, 0.0)[:, np.newaxis] * (n * row_weights) + SHRINKAGE_GRID, row_weights

    def leave_one_out(self, completed: CompletedRows) -> Floats:
        """Return minus twice the leave-one-out log-likelihood of completed rows, for each of s shrinkage intensities.

        The result has shape (s,); the intensity with the smallest value is best. Source: Hoffbeck and Landgrebe 1996,
        equations 14 to 18, with an identity as the target.
        """
        vectors, values, row_weights = self._leave_one_out_spectrum
        squared_lengths = (completed.rows @ vectors) ** 2 @ (1.0 / values)
        remaining = np.maximum(1.0 - row_weights * squared_lengths, MIN_SHRINKAGE)
        uncertainty_terms = np.einsum("ij,ij->j", vectors, completed.uncertainty @ vectors) @ (1.0 / values)
        determinants = len(completed.rows) * np.log(values).sum(axis=0)
        return determinants + (np.log(remaining) + squared_lengths / remaining).sum(axis=0) + uncertainty_terms

    def standardise(self, rows: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """Return rows (n, d) in standardised units, with missing entries (NaN) set to 0, and the mask of missing
        entries.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            standardised = (rows - self.location) / self.unit
        is_missing = np.isnan(rows)
        standardised[is_missing] = 0.0
        check_range(standardised)
        return standardised, is_missing

    def complete(
        self, rows: Floats, groups: list[PatternGroup] | None = None, *, variances: bool = False
    ) -> CompletedRows:
        """Return rows (n, d), standardised, with conditional means for missing entries (NaN), as CompletedRows.
        It also has the sum of the conditional covariances of the filled entries.

        `groups` is the result of ``group_by_pattern`` for these rows if it has been computed. Constant columns have
        conditional covariance 0. With `variances` the variance of each entry is returned too.
        """
        standardised, is_missing = self.standardise(rows)
        completed = complete_rows(
            standardised,
            group_by_pattern(is_missing) if groups is None else groups,
            self.correlation,
            self.precision,
            variances=variances,
        )
        varies = (self.scale > 0).astype(np.float64)
        return completed._replace(uncertainty=completed.uncertainty * varies * varies[:, np.newaxis])

    def fill(self, rows: Floats) -> Floats:
        """Return rows with missing entries (NaN) replaced by their conditional means, in the original units."""
        return np.where(np.isnan(rows), self.complete(rows).rows * self.scale + self.location, rows)

    def deviations(self, rows: Floats) -> tuple[Floats, Floats]:
        """Return rows with missing entries filled, and the conditional standard deviation of each filled entry.

        Both results are (n, d), in the original units. Observed entries have the deviation 0.
        """
        completed = self.complete(rows, variances=True)
        assert completed.variances is not None
        filled = np.where(np.isnan(rows), completed.rows * self.scale + self.location, rows)
        return filled, np.sqrt(completed.variances) * self.scale

    def distance(self, other: "TableGaussian") -> float:
        """Return the largest difference of two Gaussians in any mean, scale or correlation, in standardised units."""
        differences = (self.location - other.location, self.scale - other.scale)
        largest = max(float(np.abs(difference / self.unit).max()) for difference in differences)
        return max(largest, float(np.abs(self.correlation - other.correlation).max()))


class PairSums(NamedTuple):
    """Counts, sums and products for each pair of columns, over the rows in which both columns are observed.

    The means and covariances of a Gaussian are computed from them.
    """

    shift: Floats  # (d,)
    unit: Floats  # (d,) positive
    counts: Floats  # (d, d) numbers of rows that have both columns
    sums: Floats  # (d, d) sums of the first column over the rows that have both
    products: Floats  # (d, d)

    @classmethod
    def zeros(cls, shift: Floats, unit: Floats) -> Self:
        """Return sums without rows, for columns that will be standardised by this shift and unit."""
        zeros = np.zeros((len(shift), len(shift)))
        return cls(shift, unit, zeros, zeros, zeros)

    def has_entries(self) -> NDArray[np.bool_]:
        """Return a mask (d,) of the columns that have at least one observed entry."""
        return self.counts.diagonal() > 0

    def rescale(self, shift: Floats, unit: Floats) -> Self:
        """Return the same sums for columns standardised by another shift and unit; the rows need not be read again.

        A standardised entry x becomes ratio x + delta.
        """
        ratio, delta = self.unit / unit, (self.shift - shift) / unit
        ratio, delta = (np.where(self.has_entries(), factor, 0.0) for factor in (ratio, delta))
        sums = ratio[:, np.newaxis] * self.sums
        products = self.products * ratio * ratio[:, np.newaxis] + sums * delta + (sums * delta).T
        products += self.counts * delta * delta[:, np.newaxis]
        return type(self)(shift, unit, self.counts, sums + self.counts * delta[:, np.newaxis], products)

    def add(self, other: Self) -> Self:
        """Return new sums over the rows of both objects; if the units of a column differ, the larger one is used."""
        has_first, has_second = self.has_entries(), other.has_entries()
        use_second = has_second & (~has_first | (other.unit > self.unit))
        unit, shift = np.where(use_second, other.unit, self.unit), np.where(has_first, self.shift, other.shift)
        rescaled, other_rescaled = self.rescale(shift, unit), other.rescale(shift, unit)
        sums = [term + other_term for term, other_term in zip(rescaled[2:], other_rescaled[2:], strict=True)]
        return type(self)(shift, unit, *sums)


class GapMoments(MergeableModel):
    """One-pass model of the means and correlations of a table with missing entries.

    Without ``given``, sums are over the observed pairs of entries (available cases). They are unbiased if entries are
    missing completely at random. With ``given`` they are the expected sums of complete rows under that Gaussian: the E
    step of EM.

    Attributes
    ----------
    n_rows, n_features : int
        Number of rows learned, and of columns d; n_features is None before the first row.
    given : TableGaussian or None
        The Gaussian of an E step.
    steps : int
        Number of the E step; 0 for available cases.
    notes : dict
        Anything that can be written as JSON. It is saved with the state.

    Notes
    -----
    Memory: three matrices d x d of float64, and three more with ``given``. Results for different batches of the same
    rows, or another order of merges, differ by rounding only.
    """

    def _begin(self) -> None:
        self._n, self.steps = 0, 0
        self.given: TableGaussian | None = None
        self._sums: PairSums | None = None
        self._scores = np.zeros(len(SHRINKAGE_GRID))  # of shares of shrinkage, where gaps were completed
        self._cached_gaussian: TableGaussian | None = None

    @classmethod
    def for_e_step(cls, gaussian: TableGaussian, step: int = 1) -> Self:
        """Return an empty model that collects the sums of E step number `step` of expectation maximisation (EM).

        Its updates fill missing entries by the given Gaussian before rows are summed.
        """
        model = cls()
        model.given, model.steps = gaussian, step
        model._sums = PairSums.zeros(gaussian.location, gaussian.unit)
        return model

    @changes
    def update(self, rows: Batch) -> Self:
        """Learn the rows of a batch, in which missing entries are NaN.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), scipy.sparse (n, d), table, or source
            Real numbers. NaN is missing, and so are entries that a sparse matrix does not store.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            For an infinite number, another number of columns, or a column whose squares overflow.
        """
        return self._take_rows(rows)

    def _update(self, rows: Any, sample_weight: Any = None) -> None:
        if sample_weight is not None:
            raise ValueError("sample_weight must be None: a GapMoments takes no weights")
        rows = as_rows(rows, self.n_features)
        check_not_infinite(rows)
        if rows.shape[0]:
            self._add_sums(rows.shape[0], *self._compute_sums(rows))
        else:
            self._sums = self._sums or PairSums.zeros(np.zeros(rows.shape[1]), np.ones(rows.shape[1]))

    def _learn(self, rows: Any, groups: list[PatternGroup] | None) -> None:
        """Learn rows that have been validated; `groups` is the result of ``group_if_one_block`` for them, or None."""
        self._add_sums(rows.shape[0], *self._compute_sums(rows, groups))

    def _add_sums(self, n: int, sums: PairSums, scores: Floats) -> None:
        sums = sums if self._sums is None else self._sums.add(sums)
        after = {"_sums": sums, "_scores": self._scores + scores, "_n": self._n + n, "_cached_gaussian": None}
        vars(self).update(after)  # in one step: an interrupt finds the state before or the state after

    @one_blas_thread
    def _compute_sums(self, rows: Any, groups: list[PatternGroup] | None = None) -> tuple[PairSums, Floats]:
        """Return (sums over validated rows, score of each shrinkage intensity); the model does not change.

        The sums are PairSums. The scores are leave-one-out log-likelihoods in an E step of EM, and zeros otherwise.
        """
        d = rows.shape[1]
        given, sums = self.given, self._sums
        if given is None:
            shift, unit, _ = column_means_and_deviations(rows)
            fallback = np.where(shift != 0, np.abs(shift), 1.0)
            unit = np.where(unit > 0, unit, fallback)
            if sums is not None:
                has_entries = sums.has_entries()
                shift, unit = np.where(has_entries, sums.shift, shift), np.where(has_entries, sums.unit, unit)
            standardiser = TableGaussian(shift, unit, np.eye(d))
        else:
            shift, unit, standardiser = given.location, given.unit, given
        counts, totals, products = (np.zeros((d, d)) for _ in range(3))
        scores = np.zeros(len(SHRINKAGE_GRID))
        for block in dense_blocks(rows):
            if given is None:
                standardised, is_missing = standardiser.standardise(block)
                is_observed = (~is_missing).astype(np.float64)
                counts += is_observed.T @ is_observed
                totals += standardised.T @ is_observed
                with np.errstate(over="ignore", invalid="ignore"):
                    products += standardised.T @ standardised
            else:
                completed = given.complete(block, groups)
                counts += len(block)
                totals += completed.rows.sum(axis=0)[:, np.newaxis]
                products += completed.rows.T @ completed.rows + completed.uncertainty
                scores += given.leave_one_out(completed)
        if not np.isfinite(products).all():
            raise_for_overflow(int(np.flatnonzero(~np.isfinite(products.diagonal()))[0]))
        return PairSums(shift, unit, counts, totals, products), scores

    # -- EM --------------------------------------------------------------------------------------------------------
    def _run_em_steps(self, max_iter: int, tol: float) -> Generator["GapMoments", Any, "GapMoments"]:
        """Run expectation maximisation (EM) as a generator that yields an empty model for each E step.

        The caller must send back each model after it has learned all rows. The generator returns the last of them. The
        steps end after `max_iter`, or when no mean, scale or correlation has changed by more than `tol` in standardised
        units. There is no step if no entry is missing.
        """
        model: GapMoments = self
        gaussian = model.gaussian()
        for step in range(1, 1 + (max_iter if self._n_missing() else 0)):
            model = yield GapMoments.for_e_step(gaussian, step)
            new_gaussian = model.gaussian()
            change, gaussian = gaussian.distance(new_gaussian), new_gaussian
            if change <= tol:
                break
        return model

    def _n_missing(self) -> int:
        """Return the number of missing entries of all rows learned, which is valid before the first E step only."""
        return int(round(self._n * self._require_sums().counts.shape[0] - self._require_sums().counts.diagonal().sum()))

    @reads
    def gaussian(self) -> TableGaussian:
        """Compute the Gaussian of the rows learned: means, scales and shrunk correlations.

        Raises
        ------
        ValueError
            If a column has no observed entry; the message names it.
        """
        return self._gaussian()

    @one_blas_thread
    def _gaussian(self) -> TableGaussian:
        if self._cached_gaussian is None:
            sums = self._require_sums()
            if not sums.has_entries().all():
                raise_for_empty_column(int(np.flatnonzero(~sums.has_entries())[0]), self._feature_names)
            shrinkage = None if self.given is None else float(SHRINKAGE_GRID[np.argmin(self._scores)])
            self._cached_gaussian = gaussian_from_sums(sums, shrinkage)
        return self._cached_gaussian

    def _require_sums(self) -> PairSums:
        if self._sums is None or not self._n:
            raise ValueError("no row has been learned: call update first")
        return self._sums

    # -- required by the frame -------------------------------------------------------------------------------------
    def _merge(self, other: Self) -> None:
        if other._sums is not None and other._n:
            self._add_sums(other._n, other._sums, other._scores)

    def _for_part(self, part: int, first_block: int = 0) -> Self:
        return type(self)() if self.given is None else type(self).for_e_step(self.given, self.steps)

    def _state_bytes(self, n_features: int) -> int:
        return 8 * 8 * n_features**2

    def _check_passes(self, passes: int) -> None:
        """Accept any number of passes over the rows, because each pass after the first is a step of EM."""

    def _passes_again(self, passes: int) -> Generator["GapMoments", Any, "GapMoments"]:
        return (yield from self._run_em_steps(passes, 0.0))

    @property
    def n_rows(self) -> int:
        """Return the number of rows learned."""
        return self._n

    @property
    def n_features(self) -> int | None:
        """Return the number of columns; None before the first row."""
        return None if self._sums is None else len(self._sums.shift)

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        arrays = {} if self._sums is None else dict(self._sums._asdict())
        if self.given is not None:
            arrays |= {name: getattr(self.given, name) for name in GAUSSIAN_ARRAYS}
            arrays |= {"scores": self._scores, "n": np.array([self.given.n])}
        return {"n_rows": self._n, "steps": self.steps}, arrays

    def _validate(self, state: dict[str, Any], arrays: Arrays) -> None:
        n_rows = checks.as_count(state["n_rows"], "n_rows")
        checks.as_count(state["steps"], "steps")
        if not arrays:
            checks.number_within(n_rows, "n_rows", 0, 0)
            return
        checks.only(arrays, *PairSums._fields, *GAUSSIAN_ARRAYS, "scores", "n")
        d = len(checks.array_of(arrays, "shift", arrays["shift"].shape[:1]))
        for name in ("shift", "unit"):
            checks.finite(arrays, name, (d,))
        for name in ("counts", "sums", "products"):
            checks.finite(arrays, name, (d, d))
        if d < 1 or not (arrays["unit"] > 0).all():
            raise ValueError("array 'unit' must hold a positive number for every column")
        counts = arrays["counts"]
        if (counts != counts.T).any() or (counts < 0).any() or (counts > n_rows).any():
            raise ValueError("array 'counts' must hold numbers of rows")
        if len(arrays) > len(PairSums._fields):
            checks.finite(arrays, "location", (d,))
            checks.not_negative(arrays, "scale", (d,))
            checks.finite(arrays, "scores", SHRINKAGE_GRID.shape)
            checks.not_negative(arrays, "n", (1,))
            for name in ("correlation", "raw"):
                matrix = checks.finite(arrays, name, (d, d))
                if (matrix != matrix.T).any() or (np.abs(matrix.diagonal() - 1) > CONSTANT_TOLERANCE).any():
                    raise ValueError(f"array {name!r} must be a correlation matrix")
            if not is_positive_definite(arrays["correlation"]):
                raise ValueError("array 'correlation' must have an inverse")

    def _restore(self, state: dict[str, Any], arrays: Arrays) -> None:
        self._begin()
        self._n, self.steps = int(state["n_rows"]), int(state["steps"])
        if arrays:
            self._sums = PairSums(*(arrays[name] for name in PairSums._fields))
        if "correlation" in arrays:
            location, scale, correlation, raw = (arrays[name] for name in GAUSSIAN_ARRAYS)
            self.given = TableGaussian(location, scale, correlation, raw, float(arrays["n"][0]))
            self._scores = arrays["scores"]


def run_em(model: GapMoments, learn: Callable[[GapMoments], Any], max_iter: int, tol: float) -> GapMoments:
    """Run expectation maximisation, starting from `model`, and return the model of the last E step.
    It is `model` itself if no entry is missing.

    `learn` is called with an empty model for each E step, and must update it with all rows. See ``_run_em_steps`` for
    `max_iter` and `tol`.
    """
    em_steps = model._run_em_steps(max_iter, tol)
    e_step: Any = None
    while True:
        try:
            e_step = em_steps.send(e_step)
        except StopIteration as end:
            return end.value
        e_step._feature_names = model._feature_names
        learn(e_step)


def gaussian_of_covariance(location: Floats, covariance: Floats, n: float) -> TableGaussian:
    """Return the Gaussian with this mean (d,) and covariance (d, d), where correlations are shrunk as if estimated from
    n rows.
    """
    counts = np.full_like(covariance, n)
    ones, zeros = np.ones(len(location)), np.zeros_like(covariance)
    return gaussian_from_sums(PairSums(location, ones, counts, zeros, n * covariance), None)


# -- rows --------------------------------------------------------------------------------------------------------------
def dense_blocks(rows: Any) -> Generator[Floats]:
    """Yield the rows of an array or CSR matrix in dense float64 blocks, with NaN for missing entries."""
    n, d = rows.shape
    block_rows = rows_per_block(d)
    for start in range(0, n, block_rows):
        block = rows[start : start + block_rows]
        if is_sparse(block):
            dense = np.full(block.shape, np.nan)
            dense[np.repeat(np.arange(block.shape[0]), np.diff(block.indptr)), block.indices] = block.data
            block = dense
        yield block.astype(np.float64, copy=False)


def group_if_one_block(rows: Any) -> list[PatternGroup] | None:
    """Return rows grouped by which entries are missing, for use in every E step; None if they exceed one block."""
    if rows.shape[0] > rows_per_block(rows.shape[1]):
        return None
    return group_by_pattern(np.isnan(next(dense_blocks(rows))))


def rows_per_block(d: int) -> int:
    """Return how many rows of a table with d columns are converted to a dense block at a time."""
    return max(1, BLOCK_BYTES // (8 * d))


def column_means_and_deviations(rows: Any) -> tuple[Floats, Floats, Floats]:
    """Return (mean, standard deviation, number of observed entries) of each column.

    A constant column has exactly its number as the mean, and deviation 0. A column without entries has zeros. Squares
    do not overflow.
    """
    d = rows.shape[1]
    minimum, maximum = np.full(d, np.inf), np.full(d, -np.inf)
    count, total, squares = (np.zeros(d) for _ in range(3))
    if is_sparse(rows):
        np.minimum.at(minimum, rows.indices, rows.data)
        np.maximum.at(maximum, rows.indices, rows.data)
    else:
        for block in dense_blocks(rows):
            is_missing = np.isnan(block)
            minimum = np.minimum(minimum, np.where(is_missing, np.inf, block).min(axis=0))
            maximum = np.maximum(maximum, np.where(is_missing, -np.inf, block).max(axis=0))
    largest = np.maximum(np.abs(minimum), np.abs(maximum))
    largest = np.where(np.isfinite(largest) & (largest > 0), largest, 1.0)
    if is_sparse(rows):
        entries, columns = rows.data / largest[rows.indices], rows.indices
        count = np.bincount(columns, minlength=d).astype(np.float64)
        mean = np.bincount(columns, entries, d) / np.maximum(count, 1)
        squares = np.bincount(columns, (entries - mean[columns]) ** 2, d)
    else:
        for block in dense_blocks(rows):
            count += (~np.isnan(block)).sum(axis=0)
            total += np.nansum(block / largest, axis=0)
        mean = total / np.maximum(count, 1)
        for block in dense_blocks(rows):
            squares += np.nansum((block / largest - mean) ** 2, axis=0)
    deviation = np.sqrt(squares / np.maximum(count, 1)) * largest
    mean = np.where(maximum > minimum, mean * largest, np.where(count > 0, minimum, 0.0))
    return mean, np.where(deviation > CONSTANT_TOLERANCE * np.abs(mean), deviation, 0.0), count


def gaussian_from_sums(sums: PairSums, shrinkage: float | None) -> TableGaussian:
    """Return the normal distribution whose means and covariances follow from sums over pairs of columns. Its
    correlations are multiplied by 1 - `shrinkage`.

    With None the intensity is that of oracle approximating shrinkage. It depends on the number of rows n because a
    correlation has variance 1 / n. If pairs of columns have different counts, n is their harmonic mean.
    """
    counts = np.maximum(sums.counts, 1.0)
    mean = sums.sums.diagonal() / counts.diagonal()
    cross_terms = sums.sums * mean
    covariance = (sums.products - cross_terms - cross_terms.T) / counts
    covariance += np.where(sums.counts > 0, mean * mean[:, np.newaxis], 0.0)
    scale = np.sqrt(np.maximum(covariance.diagonal(), 0.0))
    location = sums.shift + mean * sums.unit
    scale[scale * sums.unit <= CONSTANT_TOLERANCE * np.abs(location)] = 0.0
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    correlation = covariance * inverse * inverse[:, np.newaxis]
    correlation = (correlation + correlation.T) / 2
    np.fill_diagonal(correlation, 1.0)
    n = 1.0 / float(np.mean(1.0 / counts))
    if shrinkage is None:
        correlation = nearest_correlation(correlation)
        shrinkage = oracle_approximating_shrinkage(correlation, n)
    shrunk = shrink_correlations(correlation, shrinkage)
    if not is_positive_definite(shrunk):
        shrunk = shrink_correlations(nearest_correlation(correlation), shrinkage)
    return TableGaussian(location, scale * sums.unit, shrunk, correlation, n)


def oracle_approximating_shrinkage(correlation: Floats, n: float) -> float:
    """Return the oracle approximating shrinkage (OAS) intensity of correlations that were estimated from n rows.

    Source: Chen, Wiesel, Eldar and Hero 2010, equation 23.

    The terms 2 / d are omitted, as in scikit-learn.
    """
    d = len(correlation)
    squares = float(np.einsum("ij,ij->", correlation, correlation)) / d**2
    denominator = (n + 1) * (squares - 1 / d)
    return min((squares + 1) / denominator, 1.0) if denominator > 0 else 1.0


def shrink_correlations(correlation: Floats, shrinkage: float) -> Floats:
    shrunk = (1.0 - max(shrinkage, MIN_SHRINKAGE)) * correlation
    np.fill_diagonal(shrunk, 1.0)
    return shrunk


def nearest_correlation(matrix: Floats) -> Floats:
    """Return the positive semidefinite correlation matrix that is a projection of a symmetric matrix.
    The argument has a unit diagonal.

    Negative eigenvalues become 0, and the result is scaled to a diagonal of ones.

    Source: Rousseeuw and Molenberghs, *Transformation of non positive semidefinite correlation matrices*, 1993, the
    eigenvalue method.
    """
    values, vectors = np.linalg.eigh(matrix)
    if values[0] >= 0:
        return matrix
    projected = (vectors * np.maximum(values, 0.0)) @ vectors.T
    root = np.sqrt(projected.diagonal())
    projected /= root
    projected /= root[:, np.newaxis]
    projected = (projected + projected.T) / 2
    np.fill_diagonal(projected, 1.0)
    return projected


def is_positive_definite(matrix: Floats) -> bool:
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True


# -- errors ------------------------------------------------------------------------------------------------------------
def raise_for_empty_column(column: int, names: Any) -> None:
    """Raise a ValueError that names a column without observed entries."""
    name = column if names is None else repr(str(names[column]))
    raise ValueError(f"column {name} has no observed entry: leave it out, or give it a number (0, a mean)")


def check_not_infinite(rows: Any) -> None:
    entries = rows.data if is_sparse(rows) else rows
    if entries.dtype.kind == "f" and (infinite := np.isinf(entries)).any():
        if is_sparse(rows):
            first = int(np.flatnonzero(infinite)[0])
            row, column = int(np.searchsorted(rows.indptr, first, side="right")) - 1, int(rows.indices[first])
        else:
            row, column = np.argwhere(infinite)[0].tolist()
        raise ValueError(f"rows must be finite where they are observed: row {row} holds an infinity in column {column}")


def check_range(standardised: Floats) -> None:
    if not np.isfinite(standardised).all():
        raise_for_overflow(int(np.argwhere(~np.isfinite(standardised))[0][1]))


def raise_for_overflow(column: int) -> None:
    raise ValueError(f"column {column} has numbers that are too far apart for float64: scale it, or leave it out")
