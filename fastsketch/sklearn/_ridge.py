"""``SketchedRidge`` and ``SketchedRidgeClassifier``: ridge regression in one pass, as scikit-learn estimators."""

# scikit-learn has no types.
# pyright: basic, reportPrivateUsage=false

from collections.abc import Callable
from dataclasses import KW_ONLY
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from fastsketch._core.validation import Rows, as_integer, as_weights
from fastsketch.online._labels import ClassWeight, as_class_weight
from fastsketch.ridge import SketchedRidge as RidgeModel
from fastsketch.ridge._sketched_ridge import TOLERANCE, PredictionInterval
from fastsketch.sklearn._estimator import (
    Arrays,
    MergingEstimator,
    checked,
    checked_score,
    distinct_labels,
    estimator,
    refuse_labels,
    restored_on_error,
    seed_of,
    weights_of_fit,
)

Floats = NDArray[np.float64]


@estimator
class RidgeEstimator(MergingEstimator):
    """Base of ``SketchedRidge`` and ``SketchedRidgeClassifier``."""

    _MODEL: ClassVar = "model_"
    _KIND: ClassVar = RidgeModel
    # options for y of scikit-learn's validation
    _OF_TARGETS: ClassVar[dict[str, Any]] = {}

    sketch_size: int = 128
    _: KW_ONLY
    ridge: float | None = None
    rank: int | None = None
    scale: bool | None = None
    fit_intercept: bool = True
    scoring: Literal["squared_error", "log_loss"] = "squared_error"
    solver: Literal["auto", "gram", "exact"] = "auto"
    reservoir_size: int = 2000
    max_memory: int = 1 << 28
    decay: float = 1.0
    passes: int = 50
    random_state: int | RandomState | None = 0

    def _template(self, n_rows: int | None, n_features: int, dtype: Any) -> RidgeModel:
        shared = {name: value for name, value in self.get_params(deep=False).items() if name in self._KIND._declared}
        return RidgeModel(**shared, seed=seed_of(self.random_state))

    def _as_targets(self, y: Any, weights: Any, *, from_scratch: bool) -> tuple[Any, Any]:
        """Return (targets of the model, weights) for validated y; a classifier's targets are -1 and 1.

        `from_scratch` says that earlier rows are forgotten.
        """
        return y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y, weights

    def _learn(self, X: Any, y: Any, sample_weight: Any, *, from_scratch: bool) -> Self:
        """Learn validated rows and targets: in addition to earlier rows, or with `from_scratch` as a new model. Return
        self.

        The estimator is unchanged if that fails.

        A new model without an exact sum of products is refined by up to ``passes`` further passes.
        """
        with restored_on_error(self):
            first = from_scratch or not hasattr(self, "model_")
            rows, y = checked(self, X, y=y, reset=first, dtype=[np.float64, np.float32], **self._OF_TARGETS)
            given = (weights_of_fit if from_scratch else as_weights)(sample_weight, rows.shape[0])
            targets, weights = self._as_targets(y, given, from_scratch=from_scratch)
            model: RidgeModel = self._template(rows.shape[0], rows.shape[1], None) if first else self.model_
            if first:
                self._name_features(model)
                self._fix_parameters()
            self.model_: RidgeModel = model.update(rows, targets, sample_weight=weights)
            passes = as_integer(self.passes, "passes", 0)
            if from_scratch and passes and not model.is_exact and model.decay == 1.0:
                model._read_again(rows, weights, passes=passes, tolerance=TOLERANCE, if_better=True)
        return self

    def _answer(self, X: Any) -> Floats:
        """Return the model's predictions for rows, which are validated first."""
        return self._learner.predict(self._checked(X, reset=False))

    @property
    def coef_(self) -> Floats:
        """Return the coefficients, one row for each target; a vector for a single target of a regression.

        Shapes (n_features,) or (n_targets, n_features); (1, n_features) for two classes.
        """
        return self._learner.coef()

    @property
    def intercept_(self) -> Any:
        """Return the intercept of each target; a float for a single target of a regression."""
        return self._learner.intercept()

    @property
    def ridge_(self) -> float:
        """Return the ridge penalty in use, given or chosen."""
        return self._learner.facts()["ridge"]


@estimator
class SketchedRidge(MultiOutputMixin, RegressorMixin, RidgeEstimator):
    """Ridge regression learned in one pass, with the penalty chosen by cross-validation.

    Parameters
    ----------
    sketch_size, ridge, rank, scale, fit_intercept, scoring, solver, reservoir_size, max_memory, decay
        See ``fastsketch.SketchedRidge``; the defaults are the same. ``ridge`` corresponds to ``alpha`` of
        scikit-learn's Ridge: after a StandardScaler for dense X, without one for sparse X (``scale``).
    passes : int, default 50
        Largest number of further passes of ``fit`` over rows that are too wide for an exact X'X. They refine the
        coefficients to those of scikit-learn's Ridge (``model_.refine``); the coefficients of the sketch are kept if
        their error on held-out rows is smaller. With 0, and after ``partial_fit``, the coefficients are those of the
        sketch.
    random_state : int, RandomState or None, default 0
        Seed of the model.

    Attributes
    ----------
    coef_ : ndarray (n_features,) or (n_targets, n_features)
    intercept_ : float or ndarray (n_targets,)
    ridge_ : float
        The ridge in use, given or chosen.
    model_ : fastsketch.SketchedRidge
        The fitted model, for instance for ``model_.score_path()`` and ``model_.refine(X)``.
    n_features_in_, n_samples_seen_ : int

    Raises
    ------
    TypeError, ValueError
        From ``fit`` and ``partial_fit``, if a parameter is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch.sklearn import SketchedRidge
    >>> X = np.random.default_rng(0).standard_normal((1000, 20))
    >>> Y = X @ np.random.default_rng(1).standard_normal((20, 3)) + 0.5
    >>> model = SketchedRidge()
    >>> for rows, targets in zip(np.array_split(X, 4), np.array_split(Y, 4)):
    ...     model = model.partial_fit(rows, targets)
    >>> model.coef_.shape, bool(model.score(X, Y) > 0.99)
    ((3, 20), True)
    """

    score: ClassVar[Callable[..., float]] = checked_score(RegressorMixin)

    _OF_TARGETS: ClassVar = {"y_numeric": True, "multi_output": True}

    def fit(self, X: Rows, y: ArrayLike, *, sample_weight: ArrayLike | None = None) -> Self:
        """Fit a ridge regression to rows X with targets y.

        Anything learned before is forgotten.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features)
        y : array_like (n_samples,) or (n_samples, n_targets)
            Targets.
        sample_weight : array_like (n_samples,), optional
            Nonnegative factors on the squared errors.

        Returns
        -------
        self
        """
        return self._learn(X, y, sample_weight, from_scratch=True)

    def partial_fit(self, X: Rows, y: ArrayLike, *, sample_weight: ArrayLike | None = None) -> Self:
        """Update the regression with one more batch, which may have any number of rows.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features)
        y : array_like (n_samples,) or (n_samples, n_targets)
            Targets.
        sample_weight : array_like (n_samples,), optional
            Nonnegative factors on the squared errors.

        Returns
        -------
        self
        """
        self._check_parameters()
        return self._learn(X, y, sample_weight, from_scratch=False)

    def predict(self, X: Rows) -> Floats:
        """Predict the targets of rows.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features)

        Returns
        -------
        ndarray float64 (n_samples,) or (n_samples, n_targets)
        """
        return self._answer(X)

    def predict_interval(self, X: Rows, *, coverage: float = 0.9) -> PredictionInterval:
        """Predict intervals that contain new targets with probability `coverage`.

        The method is split conformal prediction.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features)
        coverage : float in (0, 1), default 0.9
            Probability that the interval of a new row contains its target, for each target separately.

        Returns
        -------
        PredictionInterval
            ``lower`` and ``upper``, of the shape of ``predict``. See ``fastsketch.SketchedRidge.predict_interval``.

        Raises
        ------
        ValueError
            If too few rows measure residuals for this coverage.

        Examples
        --------
        >>> import numpy as np
        >>> from fastsketch.sklearn import SketchedRidge
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((2000, 5))
        >>> y = X[:, 0] + rng.standard_normal(2000)
        >>> lower, upper = SketchedRidge().fit(X[:1000], y[:1000]).predict_interval(X[1000:])
        >>> bool(0.86 < np.mean((lower <= y[1000:]) & (y[1000:] <= upper)) < 0.94)
        True
        """
        return self._learner.predict_interval(self._checked(X, reset=False), coverage=coverage)


@estimator
class SketchedRidgeClassifier(ClassifierMixin, RidgeEstimator):
    """Classifier by ridge regression on targets -1 and 1, learned in one pass.

    Two classes have one target. More classes have one target each, one against the rest.

    Parameters
    ----------
    sketch_size, ridge, rank, scale, fit_intercept, scoring, solver, reservoir_size, max_memory, decay
        See ``fastsketch.SketchedRidge``. The defaults are the same except scoring="log_loss". ``ridge`` corresponds to
        ``alpha`` of scikit-learn's RidgeClassifier, for dense X after a StandardScaler (``scale``).
    passes : int, default 50
        Largest number of further passes of ``fit`` over rows that are too wide for an exact X'X. They refine the
        coefficients to those of scikit-learn's RidgeClassifier (``model_.refine``); the coefficients of the sketch are
        kept if their error on held-out rows is smaller. With 0, and after ``partial_fit``, the coefficients are those
        of the sketch.
    class_weight : None, "balanced" or {label: weight}
        "balanced" weights class c by n / (n_classes n_c); only in ``fit``. With sample_weight n and n_c are sums of
        weights, so that a row of weight k counts as k rows; RidgeClassifier counts every row once.
    random_state : int, RandomState or None, default 0
        Seed of the model.

    Attributes
    ----------
    classes_ : ndarray
    coef_ : ndarray (1, n_features) for two classes, else (n_classes, n_features)
    intercept_ : ndarray (1,) or (n_classes,)
    ridge_ : float
        The ridge in use, given or chosen.
    model_ : fastsketch.SketchedRidge
        The fitted model of the targets -1 and 1.
    n_features_in_, n_samples_seen_ : int

    Raises
    ------
    TypeError, ValueError
        From ``fit`` and ``partial_fit``, if a parameter is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch.sklearn import SketchedRidgeClassifier
    >>> X = np.random.default_rng(0).standard_normal((500, 20))
    >>> y = np.where(X[:, 0] > 0.1, "yes", "no")
    >>> bool(SketchedRidgeClassifier().fit(X, y).score(X, y) > 0.9)
    True
    """

    score: ClassVar[Callable[..., float]] = checked_score(ClassifierMixin)

    _: KW_ONLY
    scoring: Literal["squared_error", "log_loss"] = "log_loss"
    class_weight: ClassWeight = None

    def fit(self, X: Rows, y: ArrayLike, *, sample_weight: ArrayLike | None = None) -> Self:
        """Fit a ridge classifier to rows X with labels y.

        Anything learned before is forgotten.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features)
        y : array_like (n_samples,)
            Labels.
        sample_weight : array_like (n_samples,), optional
            Nonnegative factors on the squared errors, in addition to class_weight.

        Returns
        -------
        self
        """
        with restored_on_error(self):
            self.classes_ = distinct_labels(y, "y")
            return self._learn(X, y, sample_weight, from_scratch=True)

    def partial_fit(
        self, X: Rows, y: ArrayLike, *, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Update the classifier with one more batch, which may have any number of rows.

        The first call needs all ``classes``.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features)
        y : array_like (n_samples,)
            Labels.
        classes : array_like, optional
            All labels that may occur in this or later batches.
        sample_weight : array_like (n_samples,), optional
            Nonnegative factors on the squared errors.

        Returns
        -------
        self
        """
        first = not hasattr(self, "model_")
        if self.class_weight == "balanced":
            raise ValueError("class_weight='balanced' is of fit: give partial_fit a weight for each label")
        if first and classes is None:
            raise ValueError("classes must be given in the first call of partial_fit")
        known = self.classes_ if classes is None else distinct_labels(classes, "classes")
        if not first and not np.array_equal(known, self.classes_):
            raise ValueError(f"classes must be those of the first call, {self.classes_}, got {classes!r}")
        self._check_parameters()
        refuse_labels(y)
        with restored_on_error(self):
            self.classes_ = known
            return self._learn(X, y, sample_weight, from_scratch=False)

    def _as_targets(self, y: Any, weights: Any, *, from_scratch: bool) -> tuple[Any, Any]:
        check_classification_targets(y)
        is_unknown = ~np.isin(y, self.classes_)
        if is_unknown.any():
            raise ValueError(f"y must hold the classes {self.classes_}, got {y[is_unknown][0]!r}")
        kept = slice(None) if weights is None else weights > 0
        if from_scratch:  # a label that only rows of weight 0 have is not a class
            self.classes_ = self.classes_[np.isin(self.classes_, y[kept])]
        classes = self.classes_
        if len(classes) < 2:
            raise ValueError(f"y must hold at least two classes, got one class: {classes}")
        if self.class_weight is not None:
            by_class = self._class_weights(y[kept], None if weights is None else weights[kept])
            weights = np.ones(len(y)) if weights is None else weights.copy()
            weights[kept] *= by_class[np.searchsorted(classes, y[kept])]
        return np.where(y[:, None] == (classes[1:] if len(classes) == 2 else classes), 1.0, -1.0), weights

    def _class_weights(self, y: Any, weights: Any) -> Floats:
        """Return the weight of each class, as the parameter `class_weight` defines it.

        With "balanced" a row of weight w counts w times.
        """
        asked, classes = as_class_weight(self.class_weight, "class_weight"), self.classes_
        if asked != "balanced":
            return compute_class_weight(asked, classes=classes, y=y)
        counts = np.bincount(np.searchsorted(classes, y), weights)
        return counts.sum() / (len(classes) * counts)

    # -- files, merges, models from elsewhere ----------------------------------------------------------------------
    def _job(self, source: Any) -> Any:
        raise TypeError("a job learns fs.SketchedRidge of targets -1 and 1: from_model makes a classifier of it")

    def _own(self) -> Arrays:
        classes = self.classes_  # pandas has strings as objects, which a state file cannot hold
        return {"classes": classes.astype(str) if classes.dtype == object else classes}

    def _own_with(self, other: Any) -> Arrays:
        if not np.array_equal(self.classes_, other.classes_):
            raise ValueError(f"other has the classes {other.classes_}, this estimator {self.classes_}")
        return self._own()

    def _restore_own(self, arrays: Arrays) -> None:
        n = self.model_.n_targets or 0
        self.classes_ = arrays.get("classes", np.array([-1.0, 1.0]) if n == 1 else np.arange(n))
        if len(np.unique(self.classes_)) != max(n, 2):
            raise ValueError(f"{n} targets do not fit {len(self.classes_)} classes")

    # -- answers ---------------------------------------------------------------------------------------------------
    def decision_function(self, X: Rows) -> Floats:
        """Compute the signed score of each row, for each class if there are more than two.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features)

        Returns
        -------
        ndarray float64 (n_samples,) for two classes, else (n_samples, n_classes)
        """
        scores = self._answer(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Rows) -> NDArray[Any]:
        """Predict the class of the largest score for each row.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features)

        Returns
        -------
        ndarray (n_samples,)
        """
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]
