"""Linear models learned by sketched online Newton steps, as scikit-learn has them."""

import numpy as np
from scipy import sparse
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from fastsketch._validation import as_integer
from fastsketch.online import SketchedNewton


class _Newton(BaseEstimator):
    """What classifier and regressor share: parameters, passes over the data, the intercept as a constant feature."""

    def __init__(self, sketch_size=10, *, sketch="rfd", loss="squared_hinge", alpha0=0.0, projection="same", beta=None,
                 fit_intercept=True, epochs=1, random_state=0):
        self.sketch_size = sketch_size
        self.sketch = sketch
        self.loss = loss
        self.alpha0 = alpha0
        self.projection = projection
        self.beta = beta
        self.fit_intercept = fit_intercept
        self.epochs = epochs
        self.random_state = random_state

    def _model(self):
        return SketchedNewton(self.sketch_size, self.sketch, self.loss, self.alpha0, self.projection, beta=self.beta,
                              seed=self.random_state)

    def _rows(self, X):
        if not self.fit_intercept:
            return X
        ones = np.ones((X.shape[0], 1))
        if sparse.issparse(X):
            return sparse.csr_array(sparse.hstack([X, ones], format="csr"))
        return np.hstack([X, ones])

    def _learn(self, models, X, targets, epochs):
        rows = self._rows(X)
        for model, y in zip(models, targets, strict=True):
            for _ in range(epochs):
                model.update(rows, y)
        return models

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


class SketchedNewtonClassifier(ClassifierMixin, _Newton):
    """Linear classifier learned in one pass by sketched online Newton steps, without a learning rate.

    Parameters
    ----------
    sketch_size, sketch, loss, alpha0, projection, beta
        Those of fastsketch.SketchedNewton; loss is one of "squared_hinge" (default: the most accurate without anything
        to tune), "logistic", "square", "huber", "absolute". For probabilities take loss="logistic",
        projection="none", alpha0=1.0: the projection keeps scores within [-1, 1].
    fit_intercept : bool, default True
        By a feature that is always 1.
    epochs : int, default 1
        Passes of ``fit``; ``partial_fit`` makes one.
    random_state : int, default 0
        Of the sketches "rp" and "oja".

    Attributes
    ----------
    classes_ : ndarray
    coef_ : ndarray (1, n_features_in_) for two classes, else (n_classes, n_features_in_): one against the rest
    intercept_ : ndarray (1,) or (n_classes,)
    models_ : list of fastsketch.SketchedNewton
    n_features_in_, n_iter_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch.sklearn import SketchedNewtonClassifier
    >>> X = np.random.default_rng(0).standard_normal((500, 20)) / 4
    >>> y = np.where(X[:, 0] > 0.1, "yes", "no")
    >>> bool(SketchedNewtonClassifier().fit(X, y).score(X, y) > 0.9)
    True
    """

    def fit(self, X, y):
        """Forget everything and learn from X, array or sparse (n_samples, n_features), with labels y."""
        X, y = self._checked(X, y, reset=True)
        check_classification_targets(y)
        self._begin(np.unique(y))
        return self._take(X, y, as_integer(self.epochs, "epochs", 1))

    def partial_fit(self, X, y, classes=None):
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
        return self._take(X, y, 1)

    def _checked(self, X, y, reset):
        return validate_data(self, X, y, reset=reset, accept_sparse="csr", dtype=np.float64)

    def _begin(self, classes):
        if len(classes) < 2:
            raise ValueError(f"y must hold at least two classes, got one class: {classes}")
        self.classes_ = classes
        self.models_ = [self._model() for _ in range(1 if len(classes) == 2 else len(classes))]

    def _take(self, X, y, epochs):
        unseen = np.setdiff1d(y, self.classes_)
        if unseen.size:
            raise ValueError(f"y holds labels that are not in classes: {unseen[:5]}")
        positive = self.classes_[1:] if len(self.models_) == 1 else self.classes_
        targets = [np.where(y == label, 1.0, -1.0) for label in positive]
        self.models_ = self._learn([model.copy() for model in self.models_], X, targets, epochs)
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


class SketchedNewtonRegressor(RegressorMixin, _Newton):
    """Linear regression learned in one pass by sketched online Newton steps, without a learning rate.

    Parameters
    ----------
    sketch_size, sketch, loss, alpha0, projection, beta, fit_intercept, epochs, random_state
        As for SketchedNewtonClassifier; loss is "square" (default), "huber" or "absolute". Defaults are alpha0 = 1 and
        3 epochs: with alpha0 = 0 the first steps, made when H has hardly any rank, are too long for real targets.

    Attributes
    ----------
    coef_ : ndarray (n_features_in_,)
    intercept_ : float
    models_ : list of one fastsketch.SketchedNewton, for targets moved and scaled into [-1, 1]
    target_mean_, target_scale_ : float
        What that takes, found in the first batch: its mean, and HEADROOM times its largest deviation.
    n_features_in_, n_iter_ : int

    Notes
    -----
    Predictions for the rows of training stay within target_mean_ +- target_scale_ (projection "same"), and later
    targets beyond that are clipped: let the first batch be one that tells the range.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch.sklearn import SketchedNewtonRegressor
    >>> X = np.random.default_rng(0).standard_normal((1000, 20))
    >>> y = X[:, 0] - 2 * X[:, 1] + 0.5
    >>> bool(SketchedNewtonRegressor(epochs=3).fit(X, y).score(X, y) > 0.95)
    True
    """

    # Targets of the first batch come to lie within 1 / HEADROOM.
    HEADROOM = 1.5

    def __init__(self, sketch_size=10, *, sketch="rfd", loss="square", alpha0=1.0, projection="same", beta=None,
                 fit_intercept=True, epochs=3, random_state=0):
        super().__init__(sketch_size, sketch=sketch, loss=loss, alpha0=alpha0, projection=projection, beta=beta,
                         fit_intercept=fit_intercept, epochs=epochs, random_state=random_state)

    def fit(self, X, y):
        """Forget everything and learn from X, array or sparse (n_samples, n_features), with targets y."""
        X, y = self._checked(X, y, reset=True)
        models, epochs = [self._model()], as_integer(self.epochs, "epochs", 1)
        self._measure(y)
        self.models_ = self._learn(models, X, [self._scaled(y)], epochs)
        return self

    def partial_fit(self, X, y):
        """Learn from one more batch of any size."""
        X, y = self._checked(X, y, reset=not hasattr(self, "models_"))
        if not hasattr(self, "models_"):
            models = [self._model()]
            self._measure(y)
        else:
            models = [model.copy() for model in self.models_]
        self.models_ = self._learn(models, X, [self._scaled(y)], 1)
        return self

    def _measure(self, y):
        self.target_mean_ = float(y.mean())
        self.target_scale_ = self.HEADROOM * float(np.abs(y - self.target_mean_).max()) or 1.0

    def _scaled(self, y):
        return np.clip((y - self.target_mean_) / self.target_scale_, -1.0, 1.0)

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
