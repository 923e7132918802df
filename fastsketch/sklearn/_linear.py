"""What the online linear models share as scikit-learn has them: passes, the intercept, labels, scores."""

# scikit-learn has no types.
# pyright: basic

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import expit
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from fastsketch._losses import OnlineLossName
from fastsketch._validation import Rows, as_integer
from fastsketch.online import AdaptiveSubgradient, SketchedNewton
from fastsketch.sklearn._begun import Begun, checked
from fastsketch.sklearn._random_state import seed_of

LinearModel = SketchedNewton | AdaptiveSubgradient
Floats = NDArray[np.float64]


class LinearEstimator(Begun):
    """Passes over the data, the intercept as a constant feature; a subclass has parameters and ``_make``."""

    _FREE = frozenset({"epochs"})

    loss: OnlineLossName
    fit_intercept: bool
    epochs: int
    random_state: int | RandomState | None
    models_: list[LinearModel]

    def _make(self, seed: int) -> LinearModel:
        """A model that has seen nothing."""
        raise NotImplementedError

    def _models(self, n: int) -> list[LinearModel]:
        """n models of one seed."""
        seed = seed_of(self.random_state)
        models = [self._make(seed) for _ in range(n)]
        self._fix_parameters()
        return models

    def _checked_rows(self, X: Any) -> Any:
        return checked(self, X, reset=False, dtype=np.float64)

    def _rows(self, X: Any) -> Any:
        if not self.fit_intercept:
            return X
        ones = np.ones((X.shape[0], 1))
        if sparse.issparse(X):
            blocks: list[Any] = [X, ones]
            return sparse.csr_array(sparse.hstack(blocks, format="csr"))
        return np.hstack([X, ones])

    def _learn(
        self, models: list[LinearModel], X: Any, *, targets: Sequence[Floats], sample_weight: Any, epochs: int
    ) -> list[LinearModel]:
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        rows = self._rows(X)
        for model, y in zip(models, targets, strict=True):
            for _ in range(epochs):
                model.update(rows, y, sample_weight=sample_weight)
        return models

    def _split(self) -> tuple[Floats, Floats]:
        """(coefficients (n_models, n_features), intercepts (n_models,))."""
        check_is_fitted(self, "models_")
        coef = np.stack([model.coef for model in self.models_])
        if self.fit_intercept:
            return coef[:, :-1], coef[:, -1]
        return coef, np.zeros(len(coef))

    @property
    def n_iter_(self) -> int:
        """Examples learned from, repeated ones counted."""
        check_is_fitted(self, "models_")
        return self.models_[0].n_rows

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _is_logistic(estimator: Any) -> bool:
    if estimator.loss != "logistic":
        raise AttributeError(f"predict_proba needs loss='logistic', this estimator has loss={estimator.loss!r}")
    return True


class LinearClassifier(ClassifierMixin, LinearEstimator):
    """One model for two classes, else one against the rest for each."""

    classes_: NDArray[Any]

    def fit(self, X: Rows, y: ArrayLike, *, sample_weight: ArrayLike | None = None) -> Self:
        """Forget everything and learn from X, array or sparse (n_samples, n_features), with labels y.

        sample_weight (n_samples,), nonnegative, multiplies the losses: not quite the same as repeating examples.
        """
        rows, labels = self._checked(X, y, reset=True)
        check_classification_targets(labels)
        self._begin(np.unique(labels))
        return self._take(rows, labels, sample_weight=sample_weight, epochs=as_integer(self.epochs, "epochs", 1))

    def partial_fit(
        self, X: Rows, y: ArrayLike, *, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Learn from one more batch; the first call needs all ``classes``."""
        first = not hasattr(self, "models_")
        if not first:
            self._check_parameters()
        rows, labels = self._checked(X, y, reset=first)
        if first:
            if classes is None:
                raise ValueError("classes must be given in the first call of partial_fit")
            check_classification_targets(labels)
            self._begin(np.unique(classes))
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"classes must be those of the first call, {self.classes_}, got {classes}")
        return self._take(rows, labels, sample_weight=sample_weight, epochs=1)

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any]:
        rows, labels = checked(self, X, y=y, reset=reset, dtype=np.float64)
        return rows, labels

    def _begin(self, classes: NDArray[Any]) -> None:
        if len(classes) < 2:
            raise ValueError(f"y must hold at least two classes, got one class: {classes}")
        models = self._models(1 if len(classes) == 2 else len(classes))
        self.classes_, self.models_ = classes, models

    def _take(self, X: Any, y: Any, *, sample_weight: Any, epochs: int) -> Self:
        unknown = np.setdiff1d(y, self.classes_)
        if unknown.size:
            raise ValueError(f"y holds labels that are not in classes: {unknown[:5]}")
        positive = self.classes_[1:] if len(self.models_) == 1 else self.classes_
        targets = [np.where(y == label, 1.0, -1.0) for label in positive]
        copies = [model.copy() for model in self.models_]
        self.models_ = self._learn(copies, X, targets=targets, sample_weight=sample_weight, epochs=epochs)
        return self

    @property
    def coef_(self) -> Floats:
        """(1, n_features) for two classes, else (n_classes, n_features)."""
        return self._split()[0]

    @property
    def intercept_(self) -> Floats:
        """(1,) or (n_classes,)."""
        return self._split()[1]

    def decision_function(self, X: Rows) -> Floats:
        """Signed scores: (n_samples,) for two classes, else (n_samples, n_classes)."""
        check_is_fitted(self, "models_")
        rows = self._checked_rows(X)
        coef, intercept = self._split()
        scores = np.asarray(rows @ coef.T) + intercept
        return scores[:, 0] if len(self.models_) == 1 else scores

    def predict(self, X: Rows) -> NDArray[Any]:
        """The class of the largest score for every row."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]

    @available_if(_is_logistic)
    def predict_proba(self, X: Rows) -> Floats:
        """Probabilities (n_samples, n_classes), for loss="logistic"; of more classes normalised one-against-rest."""
        scores = self.decision_function(X)
        p = expit(scores)
        if scores.ndim == 1:
            return np.stack([1 - p, p], axis=1)
        total = p.sum(axis=1, keepdims=True)
        return np.where(total > 0, p / np.where(total > 0, total, 1.0), 1.0 / p.shape[1])


class LinearRegressor(RegressorMixin, LinearEstimator):
    """One model, for targets moved and scaled into [-1, 1] by the range of the first batch."""

    # Targets of the first batch come to lie within 1 / HEADROOM.
    HEADROOM = 1.5
    # Whether later targets beyond [-1, 1] are cut.
    CLIPPED = True

    target_mean_: float
    target_scale_: float

    def fit(self, X: Rows, y: ArrayLike, *, sample_weight: ArrayLike | None = None) -> Self:
        """Forget everything and learn from X, array or sparse (n_samples, n_features), with targets y.

        sample_weight (n_samples,), nonnegative, multiplies the losses: not quite the same as repeating examples.
        """
        rows, targets = self._checked(X, y, reset=True)
        models, epochs = self._models(1), as_integer(self.epochs, "epochs", 1)
        self._measure(targets)
        return self._take(models, rows, targets=targets, sample_weight=sample_weight, epochs=epochs)

    def partial_fit(self, X: Rows, y: ArrayLike, *, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from one more batch of any size."""
        first = not hasattr(self, "models_")
        if not first:
            self._check_parameters()
        rows, targets = self._checked(X, y, reset=first)
        if first:
            models = self._models(1)
            self._measure(targets)
        else:
            models = [model.copy() for model in self.models_]
        return self._take(models, rows, targets=targets, sample_weight=sample_weight, epochs=1)

    def _take(self, models: list[LinearModel], rows: Any, *, targets: Floats, sample_weight: Any, epochs: int) -> Self:
        scaled = [self._scaled(targets)]
        self.models_ = self._learn(models, rows, targets=scaled, sample_weight=sample_weight, epochs=epochs)
        return self

    def _measure(self, y: Floats) -> None:
        self.target_mean_ = float(y.mean())
        self.target_scale_ = self.HEADROOM * float(np.abs(y - self.target_mean_).max()) or 1.0

    def _scaled(self, y: Floats) -> Floats:
        scaled = (y - self.target_mean_) / self.target_scale_
        return np.clip(scaled, -1.0, 1.0) if self.CLIPPED else scaled

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any]:
        rows, targets = checked(self, X, y=y, reset=reset, dtype=np.float64, y_numeric=True)
        return rows, targets

    @property
    def coef_(self) -> Floats:
        """(n_features,)."""
        return self._split()[0][0] * self.target_scale_

    @property
    def intercept_(self) -> float:
        """The constant term."""
        return float(self._split()[1][0] * self.target_scale_ + self.target_mean_)

    def predict(self, X: Rows) -> Floats:
        """Predictions (n_samples,)."""
        check_is_fitted(self, "models_")
        return np.asarray(self._checked_rows(X) @ self.coef_) + self.intercept_
