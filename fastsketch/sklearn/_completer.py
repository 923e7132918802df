"""``LowRankCompleter`` and ``LowRankFactors``: transformers for tables with missing entries."""

# scikit-learn has no types.
# pyright: basic

from dataclasses import KW_ONLY, fields
from statistics import NormalDist
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_array, check_is_fitted

from fastsketch._core.losses import LOSSES, LossName
from fastsketch._core.validation import Rows, as_choice, as_integer, as_real, is_masked, is_sparse
from fastsketch._frame.batches import Batch
from fastsketch._kernels.guard import changes
from fastsketch.data.files import _checks as checks
from fastsketch.data.names import IdMap
from fastsketch.data.names._triples import as_triples_of_estimator
from fastsketch.data.sources import Source, with_missing
from fastsketch.lowrank import LowRankModel
from fastsketch.lowrank._arguments import as_range
from fastsketch.lowrank._gap_moments import GapMoments, TableGaussian, dense_blocks, group_if_one_block, run_em
from fastsketch.ridge._sketched_ridge import PredictionInterval
from fastsketch.sklearn._column_units import ColumnUnits
from fastsketch.sklearn._estimator import (
    MergingEstimator,
    ModelEstimator,
    as_far_source,
    checked,
    consistent_rows,
    estimator,
    restored_on_error,
    seed_of,
)

UNITS = ("unit_mean", "unit_scale")  # names of arrays in state files
OF_NUMBERS = [name for name, about in LOSSES.items() if about.targets == "real"]
MOST = float(np.finfo(np.float64).max)


@estimator
class LowRankEstimator(TransformerMixin, ModelEstimator):
    """Base of the estimators that fit a low-rank model to tables with missing entries."""

    _MODEL: ClassVar = "model_"
    _KIND: ClassVar[Any] = LowRankModel

    rank: int = 10
    _: KW_ONLY
    loss: LossName = "square"
    refine: Literal["economic", "full", "none"] = "economic"
    max_refine_steps: int | None = 2
    biases: bool = True
    scaling: bool = True
    loss_parameter: float | None = None
    learning_rate: float = 0.7
    sweeps: int | None = None
    ridge: float | Literal["learned"] | None = None
    bias_ridge: float | None = None
    step_rule: Literal["line_search", "inverse_sqrt", "inverse"] = "line_search"
    step_size: float = 1.0
    inner_criterion: Literal["current", "previous"] = "current"
    inner_tolerance: float = 0.99
    max_inner_rank: int = 2
    max_power_iterations: int = 8
    power_tolerance: float = 1e-3
    clip: tuple[float, float] | None = None
    random_state: int | RandomState | None = 0

    def fit(self, X: Rows, y: Any = None) -> Self:
        """Fit a low-rank model to the observed entries of X.

        Parameters
        ----------
        X : array with NaN or sparse (n_samples, n_features), or a table by ids
        y : ignored
        """
        table = as_triples_of_estimator(X)
        rows: Any = self._checked(X, reset=True) if table is None else table
        shape = rows.shape if table is None else (len(table.user_ids), len(table.item_ids))
        return self._fit_low_rank(rows, shape, by_ids=table is not None)

    def _fit_low_rank(self, rows: Any, shape: tuple[int, ...], *, by_ids: bool) -> Self:
        parameters = {field.name: getattr(self, field.name) for field in fields(cast("Any", LowRankEstimator))}
        seed = seed_of(parameters.pop("random_state"))
        if isinstance(self.rank, int | np.integer):
            parameters["rank"] = min(self.rank, *shape)
        units = None
        if not by_ids and self.loss in OF_NUMBERS:
            units = ColumnUnits.of(rows, getattr(self, "feature_names_in_", None))
            if self.clip is not None:
                as_range(self.clip, "clip")
            rows, parameters["clip"] = units.into(rows), None
        self.model_: Any = LowRankModel(**parameters, seed=seed).fit(rows)
        self._units = units
        if by_ids:
            self._drop("feature_names_in_")
            self.n_features_in_ = shape[1]
        else:
            self._name_features(self.model_)
        self._fix_parameters()
        return self

    def _checked(self, X: Any, *, reset: bool) -> Any:
        if not reset:
            check_is_fitted(self, self._MODEL)
        options: dict[str, Any] = {"dtype": [np.float64, np.float32], "ensure_all_finite": "allow-nan"}
        if is_masked(X) and X.dtype.kind in "fiub":
            X = X.compute() if hasattr(X, "compute") else X  # a Dask array
            masked: Any = X.astype(X.dtype if X.dtype.kind == "f" else np.float64)
            X = masked.filled(np.nan)
        return checked(self, X, sum_duplicates=False, reset=reset, **options)

    @property
    def rank_(self) -> int:
        """Return the rank of the low-rank model that predictions use."""
        return cast("Any", self._low_rank("rank_")).selected_rank

    @property
    def column_ids_(self) -> IdMap | None:
        """Return the ids of the columns, or None if the model was not fitted to a table of ids."""
        return getattr(self._learner, "column_ids", None)

    @property
    def components_(self) -> NDArray[Any]:
        """Return the factors of the columns, shape (rank, n_features)."""
        return self._low_rank("components_").factors()[1].T

    def _low_rank(self, name: str) -> LowRankModel:
        """Return the fitted low-rank model; AttributeError, which names `name`, if a Gaussian was fitted instead."""
        if not isinstance(self._learner, LowRankModel):
            raise AttributeError(f"{name} is that of a low-rank model, and model_ is a Gaussian: method='low_rank'")
        return self._learner

    @property
    def mean_(self) -> NDArray[np.float64] | None:
        """Return the column means of the standardisation, or None if columns were not standardised."""
        return None if self._units_of() is None else self._units_of().mean

    @property
    def scale_(self) -> NDArray[np.float64] | None:
        """Return the standard deviations of the columns, or None if columns were not standardised."""
        return None if self._units_of() is None else self._units_of().scale

    def _own(self) -> dict[str, NDArray[Any]]:
        units = self._units_of()
        return {} if units is None else dict(zip(UNITS, (units.mean, units.scale), strict=True))

    def _restore_own(self, arrays: dict[str, NDArray[Any]]) -> None:
        self._units = None
        if arrays:
            shape = (self._learner.n_features,)
            mean = checks.finite(arrays, UNITS[0], shape)
            self._units = ColumnUnits(mean, checks.not_negative(arrays, UNITS[1], shape))

    def _units_of(self) -> Any:
        """Return the means and standard deviations by which columns were standardised, or None if they were not.

        That is so for a table by ids, for labels, and after ``from_model``.
        """
        self._learner  # noqa: B018  (refuses to answer before fit)
        return getattr(self, "_units", None)

    def _rows(self, X: Any) -> Any:
        table, units = as_triples_of_estimator(X), self._units_of()
        if table is not None:
            return table
        rows = self._checked(X, reset=False)
        return rows if units is None else units.into(rows)

    def _back(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Convert predicted rows from standardised units to the original units."""
        units = self._units_of()
        return rows if units is None else units.back(rows, self.clip)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


@estimator
class LowRankCompleter(OneToOneFeatureMixin, LowRankEstimator, MergingEstimator):
    """Fill the missing entries of a table by a Gaussian's conditional means, or by a low-rank model.

    Parameters
    ----------
    rank : int, default 10
        Largest rank of the low-rank model. A rank above min(n_samples, n_features) is reduced to that.
    loss, refine, max_refine_steps, biases, scaling, loss_parameter, learning_rate, sweeps, ridge, bias_ridge
        Parameters of fastsketch.LowRankModel, with its defaults.
    step_rule, step_size, inner_criterion, inner_tolerance, max_inner_rank, max_power_iterations, power_tolerance
        Likewise.
    clip : (low, high), optional
        Range to which filled entries are clipped.
    random_state : int, RandomState or None, default 0
        Seed of the low-rank model.
    method : {"auto", "gaussian", "low_rank"}, default "auto"
        "gaussian": a Gaussian that is estimated by expectation maximisation (EM). "low_rank": a
        ``fastsketch.LowRankModel``. "auto": the Gaussian if X is dense and has more rows than columns and at most
        `max_features` columns, and all parameters of the low-rank model except `clip` and `random_state` have their
        defaults; otherwise the low-rank model.
    max_features : int, default 500
        Largest number of columns for which "auto" uses the Gaussian, whose correlations are a matrix of n_features x
        n_features.
    max_iter : int, default 10
        Largest number of EM steps, each one pass over X. The default is that of scikit-learn's IterativeImputer.
    tol : float, default 1e-3
        EM ends when no mean, standard deviation or correlation changes by more than this, in standardised units. The
        default is that of IterativeImputer.

    Attributes
    ----------
    model_ : fastsketch.LowRankModel, or sums over the rows
        For the Gaussian, the sums from which means and correlations are computed.
    location_, covariance_ : ndarray (n_features,) and (n_features, n_features)
        Mean and covariance of the Gaussian.
    mean_, scale_ : ndarray (n_features,) or None
        Means and standard deviations with which the columns are standardised before the model is fitted. The scale of a
        constant column is 0. None for a table by ids, for labels, and after ``from_model``.
    n_iter_ : int
        Number of passes over X: the first, and one for each EM step.
    rank_ : int
        Rank of the low-rank model.
    components_ : ndarray (rank, n_features)
        Factors of the columns, of the low-rank model.
    n_features_in_ : int
    column_ids_ : fastsketch.data.IdMap or None
        Ids of the columns, if X was a table of them.

    Notes
    -----
    With the Gaussian, a missing entry is filled with its conditional mean given the observed entries of its row. Each
    EM step fills all rows in this way, and then computes means and covariances of the filled rows plus the conditional
    covariances of the missing entries. Correlations are shrunk towards zero by the intensity with the largest
    leave-one-out likelihood. Whether an entry is missing may depend on observed entries (missing at random).
    ``predict_interval`` returns an interval for each filled entry.

    ``partial_fit``, ``merge`` and ``fs.run`` sum the products of the pairs of entries that are observed in a row
    (available cases). Their matrix is projected to a correlation matrix when it is read, and shrunk by the intensity of
    oracle approximating shrinkage (OAS). That assumes that whether an entry is missing is independent of all entries
    (missing completely at random); docs/jobs/completing.md compares its error with that of EM.
    ``fs.run(..., passes=p)`` adds p - 1 steps of EM, on all workers. ``partial_fit`` after ``fit`` completes new rows
    by the Gaussian of ``fit``, one E step each.

    Every stored entry of a sparse X is an observation, zeros too; in a dense X NaN is missing, and so are the masked
    entries of a masked array, which ``transform`` fills. X may also be a source of rows (``fs.open_rows``), whose empty
    cells are gaps and which is read once for each pass, or, for the low-rank model, a table by
    ids, ``fastsketch.data.Triples`` or {row: {column: value}}: its rows are the samples, in ``transform`` in the
    order in which they appear. ``LowRankFactors`` gives the factors of rows.

    References
    ----------
    Dempster, Laird, Rubin, *Maximum likelihood from incomplete data via the EM algorithm*, JRSS B 1977; Little and
    Rubin, *Statistical Analysis with Missing Data*, chapter 11; Hoffbeck and Landgrebe, *Covariance matrix estimation
    and classification with limited training data*, IEEE PAMI 1996; Chen, Wiesel, Eldar and Hero, *Shrinkage algorithms
    for MMSE covariance estimation*, 2010; Rousseeuw and Molenberghs, *Transformation of non positive semidefinite
    correlation matrices*, 1993.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch.sklearn import LowRankCompleter
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal((400, 2)) @ rng.standard_normal((2, 5)) * [1, 10, 1e3, 1, 1] + [0, 50, 7, 0, 1]
    >>> X = np.where(rng.random(truth.shape) < 0.85, truth, np.nan)
    >>> filled = LowRankCompleter().fit_transform(X)
    >>> bool(np.abs((filled - truth) / truth.std(axis=0))[np.isnan(X)].mean() < 0.01)  # in standard deviations
    True
    """

    _KIND: ClassVar[Any] = (LowRankModel, GapMoments)
    _FREE: ClassVar = frozenset({"clip", "max_iter", "tol"})
    _GAPS: ClassVar = True  # fs.run hands over NaN

    _: KW_ONLY
    method: Literal["auto", "gaussian", "low_rank"] = "auto"
    max_features: int = 500
    max_iter: int = 10
    tol: float = 1e-3

    # -- learning --------------------------------------------------------------------------------------------------
    @changes
    def fit(self, X: Batch, y: Any = None) -> Self:
        """Fit a Gaussian or a low-rank model to X.

        An earlier fit is discarded.

        Parameters
        ----------
        X : array with NaN or sparse (n_samples, n_features), source, or table by ids
        y : ignored
        """
        self._check_own()
        table = as_triples_of_estimator(X)
        if table is None and (source := as_far_source(X)) is not None:
            return self._fit_source(source)
        with restored_on_error(self):
            if table is None:
                rows = self._checked(X, reset=True)
                if self._takes_gaussian(rows):
                    return self._fit_gaussian(rows)
                return self._fit_low_rank(rows, rows.shape, by_ids=False)
            if self.method == "gaussian":
                raise ValueError("method='gaussian' takes rows, and X is a table by ids: 'low_rank' takes it")
            return self._fit_low_rank(table, (len(table.user_ids), len(table.item_ids)), by_ids=True)

    def _check_own(self) -> None:
        as_choice(self.method, "method", ("auto", "gaussian", "low_rank"))
        as_integer(self.max_features, "max_features", 1)
        as_integer(self.max_iter, "max_iter", 1)
        as_real(self.tol, "tol", 0.0, MOST)
        if self.clip is not None:
            as_range(self.clip, "clip")

    def _takes_gaussian(self, rows: Any) -> bool:
        n, d = rows.shape
        if self._low_rank_parameter() is not None:
            return False
        return self.method == "gaussian" or (not is_sparse(rows) and n > d and d <= self.max_features)

    def _low_rank_parameter(self) -> str | None:
        """Return a parameter that only a low-rank model has, as text "name=value", or None if there is none."""
        if self.method != "auto":
            return "method='low_rank'" if self.method == "low_rank" else None
        for field in fields(cast("Any", LowRankEstimator)):
            value = getattr(self, field.name)
            if field.name not in ("clip", "random_state") and value is not field.default and value != field.default:
                return f"{field.name}={value!r}"
        return None

    def _fit_gaussian(self, rows: Any) -> Self:
        model = GapMoments()
        self._name_features(model)
        groups = group_if_one_block(rows)
        learn = lambda step: step._learn(rows, groups)  # noqa: E731
        self.model_, self._units = run_em(model.update(rows), learn, self.max_iter, self.tol), None
        self._fix_parameters()
        return self

    def _may_take_gaussian(self) -> bool:
        begun = isinstance(getattr(self, "model_", None), GapMoments)
        if not begun and (asks := self._low_rank_parameter()) is not None:
            raise AttributeError(f"partial_fit sums up what a Gaussian needs, and {asks} asks for a low-rank model")
        return True

    @available_if(_may_take_gaussian)
    @changes
    def partial_fit(self, X: Batch, y: Any = None) -> Self:
        """Update the Gaussian with one more batch of rows.

        Parameters
        ----------
        X : array_like with NaN or sparse (n_samples, n_features), or source
        y : ignored
        """
        self._check_own()
        if (source := as_far_source(X)) is not None:
            return self._partial_fit_source(with_missing(source))
        with self._atomic_batch():
            rows = self._checked_more(X)
            model = self._model_for(rows)
            if not isinstance(model, GapMoments):
                raise ValueError("learning began with a low-rank model, which cannot go on: method='gaussian' can")
            self._teach(model, rows, _units=None)
        return self

    def _template(self, n_rows: int | None, n_features: int, dtype: Any) -> GapMoments:
        """Return an empty Gaussian model, with which ``partial_fit`` starts.

        ValueError if the parameters require a low-rank model.
        """
        self._check_own()
        only = "partial_fit, sources and jobs learn a Gaussian"
        if (asks := self._low_rank_parameter()) is not None:
            raise ValueError(f"{only}, and {asks} asks for a low-rank model: call fit with the rows")
        if self.method == "auto" and n_features > self.max_features:
            raise ValueError(
                f"X has {n_features} columns, more than max_features={self.max_features}, and {only}: raise it, or "
                "call fit with the rows"
            )
        return GapMoments()

    def _fit_source(self, source: Source) -> Self:
        source = with_missing(source)
        model = self._template(source.n_rows, source.n_features, source.dtype)._take_rows(source)
        work: Any = clone(self)
        if source.repeatable:
            model = run_em(model, lambda step: step._take_rows(source), self.max_iter, self.tol)
        work._own_model(model)
        self._become(work)
        return self

    def _merged_model(self, other: Any) -> Any:
        for model in (self._learner, other):
            if not isinstance(model, GapMoments):
                raise ValueError("low-rank models do not merge: method='gaussian' does")
        return super()._merged_model(other)

    def _own_with(self, other: Any) -> dict[str, NDArray[Any]]:
        return self._own()

    # -- what was learned ------------------------------------------------------------------------------------------
    def _gaussian(self, name: str) -> TableGaussian:
        if not isinstance(self._learner, GapMoments):
            raise AttributeError(f"{name} is that of the Gaussian, and model_ is a low-rank model: method='gaussian'")
        return self._learner.gaussian()

    @property
    def location_(self) -> NDArray[np.float64]:
        """Return the mean of the fitted Gaussian, shape (n_features,)."""
        return self._gaussian("location_").location.copy()

    @property
    def covariance_(self) -> NDArray[np.float64]:
        """Return the covariance matrix of the fitted Gaussian, shape (n_features, n_features)."""
        found = self._gaussian("covariance_")
        return found.correlation * found.scale * found.scale[:, np.newaxis]

    @property
    def n_iter_(self) -> int:
        """Return the number of passes over the rows."""
        return 1 + getattr(self._learner, "steps", 0)

    @property
    def n_samples_seen_(self) -> int:
        """Return the number of rows that were learned."""
        return self._learner.n_rows

    def _units_of(self) -> Any:
        if not isinstance(self._learner, GapMoments):
            return super()._units_of()
        found = self._learner.gaussian()
        return ColumnUnits(found.location, found.scale)

    def _own(self) -> dict[str, NDArray[Any]]:
        return {} if isinstance(self._learner, GapMoments) else super()._own()

    # -- answers ---------------------------------------------------------------------------------------------------
    def transform(self, X: Rows) -> NDArray[Any]:
        """Fill the missing entries of rows with predictions.

        Observed entries stay as they are.

        Parameters
        ----------
        X : sparse (n_samples, n_features), array with NaN for missing entries, or table

        Returns
        -------
        ndarray (n_samples, n_features)
        """
        if isinstance(self._learner, GapMoments):
            rows = self._checked(X, reset=False)
            found = self._learner.gaussian()
            out = np.concatenate([found.fill(block) for block in dense_blocks(rows)])
            return self._clipped(out, rows).astype(rows.dtype, copy=False)
        model, rows = self._learner, self._rows(X)
        out = self._back(model.fold_in(rows).predict_block().astype(self.components_.dtype))
        as_given = rows if self._units_of() is None else self._checked(X, reset=False)
        model._validate_new_entries(as_given, None, 0)[0].write_to(out)
        return out

    def _clipped(self, filled: NDArray[np.float64], rows: Any) -> NDArray[np.float64]:
        if self.clip is None:
            return filled
        gaps = np.concatenate([np.isnan(block) for block in dense_blocks(rows)])
        return np.where(gaps, np.clip(filled, *self.clip), filled)

    def predict_interval(self, X: Rows, *, coverage: float = 0.9) -> PredictionInterval:
        """Predict an interval for each missing entry that contains it with probability `coverage`.

        The interval is the central one of the conditional normal distribution of the entry given the observed entries
        of its row. Its coverage is right for rows that are about normal; the uncertainty of the estimated means and
        correlations is not included. ``lower`` and ``upper`` of an observed entry are the entry itself.

        Parameters
        ----------
        X : sparse (n_samples, n_features), or array with NaN for missing entries
        coverage : float in (0, 1), default 0.9

        Returns
        -------
        PredictionInterval
            ``lower`` and ``upper``, (n_samples, n_features) float64 each.

        Raises
        ------
        ValueError
            If the model is a low-rank one.
        """
        coverage = as_real(coverage, "coverage", 0.0, 1.0, low_open=True, high_open=True)
        if not isinstance(self._learner, GapMoments):
            raise ValueError(
                "predict_interval is that of the Gaussian, and model_ is a low-rank model: method='gaussian'"
            )
        found = self._learner.gaussian()
        rows = self._checked(X, reset=False)
        pairs = [found.deviations(block) for block in dense_blocks(rows)]
        middle, deviation = (np.concatenate(each) for each in zip(*pairs, strict=True))
        half = NormalDist().inv_cdf(0.5 + coverage / 2) * deviation
        ends = (self._clipped(middle + sign * half, rows) for sign in (-1, 1))
        return PredictionInterval(*ends)


@estimator
class LowRankFactors(LowRankEstimator):
    """Transformer that replaces rows with missing entries by the few factors of each row in a low-rank model.

    Parameters
    ----------
    rank : int, default 10
        Largest rank. A rank above min(n_samples, n_features) is reduced to that.
    loss, refine, max_refine_steps, biases, scaling, loss_parameter, learning_rate, sweeps, ridge, bias_ridge
        Parameters of fastsketch.LowRankModel, with its defaults.
    step_rule, step_size, inner_criterion, inner_tolerance, max_inner_rank, max_power_iterations, power_tolerance, clip
        Likewise.
    random_state : int, RandomState or None, default 0
        Seed of the model.

    Attributes
    ----------
    model_ : fastsketch.LowRankModel
    rank_, components_, n_features_in_, column_ids_, mean_, scale_
        As for LowRankCompleter with a low-rank model.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch.sklearn import LowRankFactors
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal((200, 3)) @ rng.standard_normal((3, 40))
    >>> X = np.where(rng.random(truth.shape) < 0.5, truth, np.nan)
    >>> model = LowRankFactors(3, sweeps=10)
    >>> rows = model.fit_transform(X)
    >>> rows.shape, bool(np.abs(model.inverse_transform(rows) - truth).mean() < 0.1)
    ((200, 4), True)
    """

    @property
    def _n_features_out(self) -> int:
        return self.rank_ + 1

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the output feature names: lowrankfactors0, lowrankfactors1 and so on.

        Parameters
        ----------
        input_features : ignored
        """
        return ClassNamePrefixFeaturesOutMixin.get_feature_names_out(cast("Any", self), input_features)

    def transform(self, X: Rows) -> NDArray[Any]:
        """Compute the factors and the bias of each row from its observed entries.

        Parameters
        ----------
        X : sparse (n_samples, n_features), array with NaN for missing entries, or table

        Returns
        -------
        ndarray (n_samples, rank + 1)
            The last column has the biases.
        """
        folded = self._learner.fold_in(self._rows(X))
        return np.hstack([folded.factors, folded.biases[:, None]])

    def inverse_transform(self, X: Rows) -> NDArray[Any]:
        """Predict all entries of rows from their factors and biases.

        Parameters
        ----------
        X : array_like (n_samples, rank + 1)
            From ``transform``.

        Returns
        -------
        ndarray (n_samples, n_features)
        """
        model, rows = self._learner, check_array(consistent_rows(X))
        if rows.shape[1] != self.rank_ + 1:
            raise ValueError(f"X must have {self.rank_ + 1} columns, got {rows.shape[1]}")
        level, _, column = model.bias_terms()
        return self._back(
            model._scale().to_predictions(level + rows[:, -1:] + column + rows[:, :-1] @ self.components_)
        )
