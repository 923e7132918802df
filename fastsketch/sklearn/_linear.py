"""What the online linear models share as scikit-learn has them: passes, the intercept, labels, scores."""

import numpy as np
from scipy import sparse
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from fastsketch._validation import as_integer


class _Linear(BaseEstimator):
    """Passes over the data, the intercept as a constant feature; a subclass has parameters and ``_model``."""

    def _rows(self, X):
        if not self.fit_intercept:
            return X
        ones = np.ones((X.shape[0], 1))
        if sparse.issparse(X):
            return sparse.csr_array(sparse.hstack([X, ones], format="csr"))
        return np.hstack([X, ones])

    def _learn(self, models, X, targets, weights, epochs):
        rows = self._rows(X)
        for model, y in zip(models, targets, strict=True):
            for _ in range(epochs):
                model.update(rows, y, weights)
        return models

    def _weights(self, X, sample_weight):
        return (
            None
            if sample_weight is None
            else _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        )

    def _split(self, models):
        weights = np.stack([model.weights for model in models])
        if self.fit_intercept:
            return weights[:, :-1], weights[:, -1]
        return weights, np.zeros(len(weights))

    @property
    def n_iter_(self):
        """Examples learned from, repeated ones counted."""
        check_is_fitted(self, "models_")
        return self.models_[0].n_rounds

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _is_logistic(estimator):
    if estimator.loss != "logistic":
        raise AttributeError("predict_proba needs loss='logistic'")
    return True


class _LinearClassifier(ClassifierMixin, _Linear):
    """One model for two classes, else one against the rest for each."""

    def fit(self, X, y, sample_weight=None):
        """Forget everything and learn from X, array or sparse (n_samples, n_features), with labels y.

        sample_weight (n_samples,), nonnegative, multiplies the losses: not quite the same as repeating examples.
        """
        X, y = self._checked(X, y, reset=True)
        check_classification_targets(y)
        self._begin(np.unique(y))
        return self._take(X, y, sample_weight, as_integer(self.epochs, "epochs", 1))

    def partial_fit(self, X, y, classes=None, sample_weight=None):
        """Learn from one more batch; the first call needs all ``classes``."""
        first = not hasattr(self, "models_")
        X, y = self._checked(X, y, reset=first)
        if first:
            if classes is None:
                raise ValueError("classes must be given in the first call of partial_fit")
            check_classification_targets(y)
            self._begin(np.unique(classes))
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"classes must be those of the first call, {self.classes_}, got {classes}")
        return self._take(X, y, sample_weight, 1)

    def _checked(self, X, y, reset):
        return validate_data(self, X, y, reset=reset, accept_sparse="csr", dtype=np.float64)

    def _begin(self, classes):
        if len(classes) < 2:
            raise ValueError(f"y must hold at least two classes, got one class: {classes}")
        self.classes_ = classes
        self.models_ = [self._model() for _ in range(1 if len(classes) == 2 else len(classes))]

    def _take(self, X, y, sample_weight, epochs):
        unseen = np.setdiff1d(y, self.classes_)
        if unseen.size:
            raise ValueError(f"y holds labels that are not in classes: {unseen[:5]}")
        positive = self.classes_[1:] if len(self.models_) == 1 else self.classes_
        targets = [np.where(y == label, 1.0, -1.0) for label in positive]
        self.models_ = self._learn(
            [model.copy() for model in self.models_], X, targets, self._weights(X, sample_weight), epochs
        )
        return self

    @property
    def coef_(self):
        check_is_fitted(self, "models_")
        return self._split(self.models_)[0]

    @property
    def intercept_(self):
        check_is_fitted(self, "models_")
        return self._split(self.models_)[1]

    def decision_function(self, X):
        """Signed scores: (n_samples,) for two classes, else (n_samples, n_classes)."""
        check_is_fitted(self, "models_")
        X = validate_data(self, X, reset=False, accept_sparse="csr", dtype=np.float64)
        weights, intercept = self._split(self.models_)
        scores = np.asarray(X @ weights.T) + intercept
        return scores[:, 0] if len(self.models_) == 1 else scores

    def predict(self, X):
        """The class of the largest score for every row."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]

    @available_if(_is_logistic)
    def predict_proba(self, X):
        """Probabilities (n_samples, n_classes), for loss="logistic"; of more classes normalised one-against-rest."""
        scores = self.decision_function(X)
        p = expit(scores)
        if scores.ndim == 1:
            return np.stack([1 - p, p], axis=1)
        total = p.sum(axis=1, keepdims=True)
        return np.where(total > 0, p / np.where(total > 0, total, 1.0), 1.0 / p.shape[1])


class _LinearRegressor(RegressorMixin, _Linear):
    """One model, for targets moved and scaled into [-1, 1] by what the first batch tells."""

    # Targets of the first batch come to lie within 1 / HEADROOM.
    HEADROOM = 1.5
    # Whether later targets beyond [-1, 1] are cut.
    CLIPPED = True

    def fit(self, X, y, sample_weight=None):
        """Forget everything and learn from X, array or sparse (n_samples, n_features), with targets y.

        sample_weight (n_samples,), nonnegative, multiplies the losses: not quite the same as repeating examples.
        """
        X, y = self._checked(X, y, reset=True)
        models, epochs = [self._model()], as_integer(self.epochs, "epochs", 1)
        self._measure(y)
        self.models_ = self._learn(models, X, [self._scaled(y)], self._weights(X, sample_weight), epochs)
        return self

    def partial_fit(self, X, y, sample_weight=None):
        """Learn from one more batch of any size."""
        X, y = self._checked(X, y, reset=not hasattr(self, "models_"))
        if not hasattr(self, "models_"):
            models = [self._model()]
            self._measure(y)
        else:
            models = [model.copy() for model in self.models_]
        self.models_ = self._learn(models, X, [self._scaled(y)], self._weights(X, sample_weight), 1)
        return self

    def _measure(self, y):
        self.target_mean_ = float(y.mean())
        self.target_scale_ = self.HEADROOM * float(np.abs(y - self.target_mean_).max()) or 1.0

    def _scaled(self, y):
        scaled = (y - self.target_mean_) / self.target_scale_
        return np.clip(scaled, -1.0, 1.0) if self.CLIPPED else scaled

    def _checked(self, X, y, reset):
        return validate_data(self, X, y, reset=reset, accept_sparse="csr", dtype=np.float64, y_numeric=True)

    @property
    def coef_(self):
        check_is_fitted(self, "models_")
        return self._split(self.models_)[0][0] * self.target_scale_

    @property
    def intercept_(self):
        check_is_fitted(self, "models_")
        return float(self._split(self.models_)[1][0] * self.target_scale_ + self.target_mean_)

    def predict(self, X):
        """Predictions (n_samples,)."""
        check_is_fitted(self, "models_")
        X = validate_data(self, X, reset=False, accept_sparse="csr", dtype=np.float64)
        return np.asarray(X @ self.coef_) + self.intercept_
