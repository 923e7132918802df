"""Base classes of the online linear estimators: passes over the rows, class labels, scores."""

# scikit-learn has no types.
# pyright: basic

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, field
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from fastsketch._core.losses import LOSSES, OnlineLossName
from fastsketch._core.random import Key, raw_numbers
from fastsketch._core.validation import (
    Rows,
    as_flag,
    as_integer,
    as_weights,
    is_sparse,
    require_array_like,
    to_numpy,
)
from fastsketch.data.files import _checks as checks
from fastsketch.online import AdaptiveSubgradient, SketchedNewton
from fastsketch.online._labels import ClassWeight
from fastsketch.sklearn._estimator import (
    Arrays,
    ModelEstimator,
    checked,
    checked_score,
    distinct_labels,
    estimator,
    refuse_labels,
    restored_on_error,
    seed_of,
)
from fastsketch.sklearn._passes import Learner, Places, choose_passes, effective_weights, fit_temperature

LinearModel = SketchedNewton | AdaptiveSubgradient
Floats = NDArray[np.float64]
Scale = Literal["moments"] | None
# Size in bytes of the blocks in which shuffled rows are copied before they are learned.
COPIED = 1 << 23
# If no target is larger than this, squares underflow.
SMALLEST = 1e-145


class _RowsInEpochs:
    """Rows and targets of a fit, which a model learns in several passes (epochs).

    Each pass has a new random order, unless there is no seed.
    """

    def __init__(self, X: Any, targets: Any, weights: Any, seed: int | None, mean_weight: float) -> None:
        self.X, self.targets, self.weights, self.seed, self.n = X, targets, weights, seed, X.shape[0]
        self.mean_weight = mean_weight
        size = X.data.nbytes if is_sparse(X) else X.nbytes
        self._some = max(1, COPIED * self.n // max(size, 1))

    def learn(self, model: LinearModel, epoch: int, among: Places | None = None) -> None:
        """Let a model learn all rows once, or those with the indices `among`, in the random order of this epoch."""
        if self.seed is None:
            model._learn_table(self.X, self.targets, self.weights, self.mean_weight)
            return
        order = np.argsort(raw_numbers(self.seed, Key.EPOCH, epoch, 0, self.n), kind="stable")
        if among is not None:
            order = order[np.isin(order, among)]
        for at in self._blocks(order):
            weights = None if self.weights is None else self.weights[at]
            model._learn_table(self.X[at], self.targets[at], weights, self.mean_weight)

    def plan(self, model: LinearModel, seed: int) -> tuple[int, float]:
        """Return (number of passes, factor for calibrated scores), both chosen by cross-validation."""
        weights, classes, numbers = np.ones(self.n) if self.weights is None else self.weights, None, None
        if LOSSES[model.loss].targets == "label":
            classes = cast("NDArray[Any]", model._known_classes())
            numbers = np.searchsorted(classes, self.targets)
            if isinstance(model.class_weight, dict):
                weights = weights * np.array([model.class_weight.get(one, 1.0) for one in classes.tolist()])[numbers]
        even, calibrated = effective_weights(weights), model._calibrates()

        def learner() -> Learner:
            one = model.copy()

            def scores(places: Places) -> Floats:
                return np.concatenate([one.decision_function(self.X[at]) for at in self._blocks(places)])

            return lambda epoch, places: self.learn(one, epoch, places), scores

        def losses(scores: Floats, places: Places) -> Floats:
            return losses_of(model.loss, scores, self.targets[places], classes)

        passes, held, scores = choose_passes(learner, losses, even, seed=seed, classes=numbers, hasty=calibrated)
        if numbers is None or not calibrated or not len(held):
            return passes, 1.0
        return passes, fit_temperature(scores, numbers[held], even[held])

    def _blocks(self, places: Places) -> Iterator[Places]:
        """Yield consecutive pieces of an array of row indices, small enough to copy the rows of each."""
        for first in range(0, len(places), self._some):
            yield places[first : first + self._some]


def _selected(X: Any, targets: Any, weights: Floats, chosen: Any, name: str) -> tuple[Any, Any, Floats]:
    """Return the rows, targets and weights that a mask or indices select. ValueError if none are selected."""
    if chosen.all():
        return X, targets, weights
    if not chosen.any():
        raise ValueError(f"{name} must be positive for some rows: it is zero for all {len(weights)}")
    return X[np.flatnonzero(chosen)], targets[chosen], weights[chosen]


def losses_of(name: str, scores: Floats, targets: Any, classes: Any) -> Floats:
    """Return the loss of each row, given its score and its target.

    For labels it is the sum over classes of the loss of one against the rest, for real targets the squared error
    (name="square") or the absolute one.
    """
    loss = LOSSES[name]
    if loss.targets == "real":
        error = np.abs(scores - targets)
        return error**2 if name == "square" else error
    if scores.ndim == 1:
        scores, classes = scores[:, None], classes[1:]
    return loss.value(scores, np.where(targets[:, None] == classes, 1.0, -1.0), 0.0).sum(axis=1)


@estimator
class LinearEstimator(ModelEstimator):
    """Base of the online linear estimators, which learn rows one after another."""

    _FREE: ClassVar = frozenset({"epochs", "shuffle", "random_state"})
    _MODEL: ClassVar = "model_"

    sketch_size: int = 20
    _: KW_ONLY
    fit_intercept: bool = True
    scale: Scale = "moments"
    blend: bool | None = None
    decay: float | Literal["auto"] = 1.0
    epochs: int | Literal["auto"] = "auto"
    shuffle: bool = True
    random_state: int | RandomState | None = 0

    # keyword arguments for scikit-learn's check of y
    _OF_TARGETS: ClassVar[dict[str, Any]] = {}
    # meta-estimators that the error for several targets recommends
    _FOR_SEVERAL: ClassVar = "sklearn.multiclass.OneVsRestClassifier or sklearn.multioutput.MultiOutputClassifier"

    n_iter_: int = field(init=False)

    def _new(self, **more: Any) -> LinearModel:
        """Return a new model with the parameters of this estimator. Keyword arguments override them.

        The parameters are recorded as those with which learning begins.
        """
        own = vars(self)
        shared = {name: own[name] for name in self._KIND._declared if name in own}
        model: Any = self._KIND(**{**shared, **more})
        self._name_features(model)
        self._fix_parameters()
        return model

    @classmethod
    def _require_loss(cls, model: LinearModel, targets: str) -> None:
        if (LOSSES[model.loss].targets == "label") != (targets == "labels"):
            raise ValueError(f"model must have a loss of {targets}, it has loss={model.loss!r}")

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any]:
        y = to_numpy(y, "y")
        require_array_like(y, "y")
        try:
            shape = y.shape if hasattr(y, "shape") else np.asarray(y).shape
        except ValueError:  # lists of different lengths
            shape = (len(y), 2)
        if len(shape) > 1 and shape[1] != 1:
            raise ValueError(
                f"y must be one target for each row, got several: {self._FOR_SEVERAL} around this estimator fits one "
                "for each"
            )
        self._refuse_targets(y)
        rows, targets = checked(self, X, y=y, reset=reset, dtype=np.float64, **self._OF_TARGETS)
        return rows, targets

    def _refuse_targets(self, y: Any) -> None:
        """Raise TypeError for invalid targets, if scikit-learn's error would not name the faulty row."""

    def _checked_rows(self, X: Any) -> Any:
        return checked(self, X, reset=False, dtype=np.float64)

    @staticmethod
    def _with_weight(X: Any, targets: Any, sample_weight: Any) -> tuple[Any, Any, Floats | None]:
        """Validate the weights. Return rows, targets and weights without the rows of weight 0."""
        if sample_weight is None:
            return X, targets, None
        weights: Any = as_weights(sample_weight, X.shape[0])
        return _selected(X, targets, weights, weights > 0, "sample_weight")

    def _fit(
        self, model: LinearModel, X: Any, targets: Any, weights: Floats | None, class_factors: Floats | None = None
    ) -> Self:
        """Let a new model learn rows of positive weight, store it in this estimator, and return self.
        The parameter ``epochs`` gives the number of passes.

        Weights times class_factors (n,), the class weights given by the user, are divided by their mean.
        """
        if class_factors is not None:
            ones = np.ones(len(class_factors)) if weights is None else weights
            chosen = class_factors > 0
            X, targets, ones = _selected(X, targets, ones, chosen, "class_weight")
            weights = None if weights is None else ones
            class_factors = class_factors[chosen]
        mean_weight = 1.0
        if weights is not None or class_factors is not None:
            product = np.multiply(1.0 if weights is None else weights, 1.0 if class_factors is None else class_factors)
            mean_weight = float((product / product.max()).mean() * product.max())
        rows = _RowsInEpochs(X, targets, weights, self._order_seed(model), mean_weight)
        passes, factor = self._plan(model, rows)
        for epoch in range(passes):
            rows.learn(model, epoch)
        model._temper(factor)
        self.model_, self.n_iter_ = model, passes
        return self

    def _learn(self, model: LinearModel, X: Any, targets: Any, sample_weight: Any) -> Self:
        """Let `model` learn a batch, store it as this estimator's model, and return self.

        `model` must be a new model or a copy.
        """
        model.update(X, targets, sample_weight=sample_weight)
        self.model_, self.n_iter_ = model, 1
        return self

    def _order_seed(self, model: LinearModel) -> int | None:
        """Return the seed by which rows are shuffled, or None if rows are learned in the given order."""
        shuffled = as_flag(self.shuffle, "shuffle") and model.decay == 1.0
        return seed_of(self.random_state) if shuffled else None

    def _plan(self, model: LinearModel, rows: "_RowsInEpochs") -> tuple[int, float]:
        """Return (number of passes over the rows of a fit, factor by which calibrated scores are then multiplied).

        With epochs="auto" both are chosen on held-out rows.
        """
        if not isinstance(self.epochs, str):
            return as_integer(self.epochs, "epochs", 1), 1.0
        if self.epochs != "auto":
            raise ValueError(f'epochs must be "auto" or an integer of at least 1, got {self.epochs!r}')
        return (1, 1.0) if rows.seed is None else rows.plan(model, rows.seed)

    def _split(self) -> tuple[Floats, Floats]:
        """Return (coefficients as a matrix with one row per class, intercepts as a vector).

        Shapes (k, n_features) and (k,), where k is 1 except for more than two classes.
        """
        model = self._learner
        return np.atleast_2d(model.coef), np.atleast_1d(model.intercept)

    @property
    def n_samples_seen_(self) -> int:
        """Return the number of rows learned; a row counts once for each pass."""
        return self._learner.n_rows

    def _own(self) -> Arrays:
        return {"passes": np.array([float(self.n_iter_)])}

    def _restore_own(self, arrays: Arrays) -> None:
        self.n_iter_ = int(checks.not_negative(arrays, "passes", (1,))[0]) if arrays else 1


@estimator
class LinearClassifier(ClassifierMixin, LinearEstimator):
    """Base of the online linear classifiers.

    Two classes have one linear model, more classes one each (one against the rest).
    """

    score: ClassVar[Callable[..., float]] = checked_score(ClassifierMixin)

    _: KW_ONLY
    loss: OnlineLossName = "logistic"
    calibrate: bool = True
    class_weight: ClassWeight = None

    def fit(self, X: Rows, y: ArrayLike, *, sample_weight: ArrayLike | None = None) -> Self:
        """Fit a linear classifier to rows X with labels y.

        X is array-like or sparse, (n_samples, n_features).

        Rows are shuffled for each epoch (``shuffle``), unless ``decay`` is below 1 or "auto".
        sample_weight (n_samples,), nonnegative, multiplies the losses, which is not quite the same as repeating rows.
        Weights are divided by their mean, so that only their ratios matter. Rows of weight 0 are ignored, and so are
        labels that occur only in them. class_weight="balanced" counts the labels of y.
        """
        with restored_on_error(self):
            rows, labels = self._checked(X, y, reset=True)
            check_classification_targets(labels)
            rows, labels, weights = self._with_weight(rows, labels, sample_weight)
            classes, class_weight, factors = np.unique(labels), self.class_weight, None
            if isinstance(class_weight, str) and class_weight == "balanced":
                balanced = compute_class_weight("balanced", classes=classes, y=labels)
                class_weight = dict(zip(classes.tolist(), balanced.tolist(), strict=True))
            model = self._begin(classes, class_weight)
            if class_weight is self.class_weight and isinstance(model.class_weight, dict):
                of_classes = np.array([model.class_weight.get(label, 1.0) for label in classes.tolist()])
                factors = of_classes[np.searchsorted(classes, labels)]
            self._fit(model, rows, labels, weights, factors)
            self.classes_ = classes
        return self

    def partial_fit(
        self, X: Rows, y: ArrayLike, *, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Update the classifier with one more batch, in the order of its rows.

        The first call needs all ``classes``.

        Shuffle the rows first if they are sorted by label: the model warns once if labels come in runs.
        class_weight="balanced" counts the labels so far.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features)
        y : array_like (n_samples,)
            Labels.
        classes : array_like, optional
            All labels that may occur.
        sample_weight : array_like (n_samples,), optional
            Nonnegative.
        """
        with restored_on_error(self):
            first = not hasattr(self, "model_")
            if not first:
                self._check_parameters()
            rows, labels = self._checked(X, y, reset=first)
            if first:
                if classes is None:
                    raise ValueError("classes must be given in the first call of partial_fit")
                check_classification_targets(labels)
                known = distinct_labels(classes, "classes")
                model = self._begin(known, self.class_weight)
            else:
                known = self.classes_
                if classes is not None and not np.array_equal(distinct_labels(classes, "classes"), known):
                    raise ValueError(f"classes must be those of the first call, {known}, got {classes}")
                model = self.model_.copy()
            self._learn(model, rows, labels, sample_weight)
            self.classes_ = known
        return self

    def _refuse_targets(self, y: Any) -> None:
        refuse_labels(y)

    @classmethod
    def _parameters_for(cls, model: LinearModel) -> dict[str, Any]:
        cls._require_loss(model, "labels")
        return super()._parameters_for(model)

    def _restore_own(self, arrays: Any) -> None:
        classes = self.model_._known_classes()
        if classes is None or len(classes) < 2:
            raise ValueError("the model must have seen labels of two classes at least")
        super()._restore_own(arrays)
        self.classes_ = classes

    def _begin(self, classes: NDArray[Any], class_weight: ClassWeight) -> LinearModel:
        if len(classes) < 2:
            raise ValueError(f"y must hold at least two classes, got one class: {classes}")
        return self._new(classes=classes.tolist(), class_weight=class_weight)

    @property
    def coef_(self) -> Floats:
        """Return the coefficients: (1, n_features) for two classes, else (n_classes, n_features)."""
        return self._split()[0]

    @property
    def intercept_(self) -> Floats:
        """Return the intercepts: (1,) for two classes, else (n_classes,)."""
        return self._split()[1]

    def decision_function(self, X: Rows) -> Floats:
        """Compute signed scores: (n_samples,) for two classes, else (n_samples, n_classes).

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features)
        """
        return self._learner.decision_function(self._checked_rows(X))

    def predict(self, X: Rows) -> NDArray[Any]:
        """Predict the class of the largest score for each row.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features)
        """
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]

    def predict_proba(self, X: Rows, *, prior: Literal["observed"] | None = None) -> Floats:
        """Predict the probability of each class for each row, shape (n_samples, n_classes).

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features)
        prior : "observed", optional
            With ``class_weight``, probabilities are those for classes that are as frequent as their weights imply: for
            "balanced" equally frequent. "observed" corrects them to the class frequencies of the rows that were learned
            (Elkan 2001). ``predict`` is the class of the largest probability without this correction.
        """
        return self._learner.predict_proba(self._checked_rows(X), prior=prior)


@estimator
class LinearRegressor(RegressorMixin, LinearEstimator):
    """Base of the online linear regressors."""

    score: ClassVar[Callable[..., float]] = checked_score(RegressorMixin)

    _OF_TARGETS: ClassVar = {"y_numeric": True}
    _FOR_SEVERAL: ClassVar = "sklearn.multioutput.MultiOutputRegressor"

    _: KW_ONLY
    loss: OnlineLossName = "square"

    @classmethod
    def _parameters_for(cls, model: LinearModel) -> dict[str, Any]:
        cls._require_loss(model, "real targets")
        return super()._parameters_for(model)

    def fit(self, X: Rows, y: ArrayLike, *, sample_weight: ArrayLike | None = None) -> Self:
        """Fit a linear regression to rows X with targets y.

        X is array-like or sparse, (n_samples, n_features).

        Rows are shuffled for each epoch (``shuffle``), unless ``decay`` is below 1 or "auto".
        sample_weight (n_samples,), nonnegative, multiplies the losses, which is not quite the same as repeating rows.
        Weights are divided by their mean, so that only their ratios matter. Rows of weight 0 are ignored.
        """
        with restored_on_error(self):
            rows, targets = self._checked(X, y, reset=True)
            rows, targets, weights = self._with_weight(rows, targets, sample_weight)
            largest = float(np.abs(targets).max(initial=0.0))
            if 0.0 < largest < SMALLEST:
                raise ValueError(
                    f"y must not be so small that its squares underflow, but its largest value is {largest:g}: "
                    "multiply y by a constant"
                )
            return self._fit(self._new(), rows, targets, weights)

    def partial_fit(self, X: Rows, y: ArrayLike, *, sample_weight: ArrayLike | None = None) -> Self:
        """Update the regression with one more batch, in the order of its rows.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features)
        y : array_like (n_samples,)
            Targets.
        sample_weight : array_like (n_samples,), optional
            Nonnegative.
        """
        with restored_on_error(self):
            first = not hasattr(self, "model_")
            if not first:
                self._check_parameters()
            rows, targets = self._checked(X, y, reset=first)
            model = self._new() if first else self.model_.copy()
            return self._learn(model, rows, targets, sample_weight)

    @property
    def coef_(self) -> Floats:
        """Return the coefficients, shape (n_features,)."""
        return self._split()[0][0]

    @property
    def intercept_(self) -> float:
        """Return the intercept."""
        return float(self._split()[1][0])

    def predict(self, X: Rows) -> Floats:
        """Predict the targets of rows, shape (n_samples,).

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features)
        """
        return self._learner.predict(self._checked_rows(X))
