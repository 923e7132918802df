"""Linear models learned by sketched online Newton steps, as scikit-learn has them."""

from fastsketch.online import SketchedNewton
from fastsketch.sklearn._linear import _LinearClassifier, _LinearRegressor


class _Newton:
    """Parameters, and the model that has them."""

    def __init__(
        self,
        sketch_size=10,
        *,
        sketch="rfd",
        loss="squared_hinge",
        alpha0=0.0,
        projection="same",
        beta=None,
        fit_intercept=True,
        epochs=1,
        random_state=0,
    ):
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
        return SketchedNewton(
            self.sketch_size,
            self.sketch,
            self.loss,
            self.alpha0,
            self.projection,
            beta=self.beta,
            seed=self.random_state,
        )


class SketchedNewtonClassifier(_Newton, _LinearClassifier):
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


class SketchedNewtonRegressor(_Newton, _LinearRegressor):
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

    def __init__(
        self,
        sketch_size=10,
        *,
        sketch="rfd",
        loss="square",
        alpha0=1.0,
        projection="same",
        beta=None,
        fit_intercept=True,
        epochs=3,
        random_state=0,
    ):
        super().__init__(
            sketch_size,
            sketch=sketch,
            loss=loss,
            alpha0=alpha0,
            projection=projection,
            beta=beta,
            fit_intercept=fit_intercept,
            epochs=epochs,
            random_state=random_state,
        )
