"""Linear models learned by adaptive subgradients, as scikit-learn has them."""

from fastsketch.online import AdaptiveSubgradient
from fastsketch.sklearn._linear import _LinearClassifier, _LinearRegressor


class _Adaptive:
    """Parameters, and the model that has them."""

    def __init__(
        self,
        sketch_size=20,
        *,
        method="ada-ffd",
        form="cmd",
        loss="squared_hinge",
        eta=0.1,
        delta=None,
        penalty=None,
        strength=0.0,
        fit_intercept=True,
        epochs=1,
        random_state=0,
    ):
        self.sketch_size = sketch_size
        self.method = method
        self.form = form
        self.loss = loss
        self.eta = eta
        self.delta = delta
        self.penalty = penalty
        self.strength = strength
        self.fit_intercept = fit_intercept
        self.epochs = epochs
        self.random_state = random_state

    def _model(self):
        return AdaptiveSubgradient(
            self.sketch_size,
            self.method,
            self.form,
            self.loss,
            self.eta,
            self.delta,
            penalty=self.penalty,
            strength=self.strength,
            seed=self.random_state,
        )


class AdaptiveSubgradientClassifier(_Adaptive, _LinearClassifier):
    """Linear classifier learned in one pass by adaptive subgradients, with H from a sketch of the gradients.

    Parameters
    ----------
    sketch_size, method, form, loss, eta, delta, penalty, strength
        Those of fastsketch.AdaptiveSubgradient; loss is "squared_hinge" (default), "logistic" (which has
        ``predict_proba``), "square", "huber" or "absolute". The penalty takes hold of the intercept too.
    fit_intercept : bool, default True
        By a feature that is always 1.
    epochs : int, default 1
        Passes of ``fit``; ``partial_fit`` makes one.
    random_state : int, default 0
        Of the methods "ada-lr" and "radagrad".

    Attributes
    ----------
    classes_ : ndarray
    coef_ : ndarray (1, n_features_in_) for two classes, else (n_classes, n_features_in_): one against the rest
    intercept_ : ndarray (1,) or (n_classes,)
    models_ : list of fastsketch.AdaptiveSubgradient
    n_features_in_, n_iter_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch.sklearn import AdaptiveSubgradientClassifier
    >>> X = np.random.default_rng(0).standard_normal((500, 20))
    >>> y = np.where(X[:, 0] > 0.1, "yes", "no")
    >>> bool(AdaptiveSubgradientClassifier(epochs=2).fit(X, y).score(X, y) > 0.9)
    True
    """


class AdaptiveSubgradientRegressor(_Adaptive, _LinearRegressor):
    """Linear regression learned in one pass by adaptive subgradients, with H from a sketch of the gradients.

    Parameters
    ----------
    sketch_size, method, form, loss, eta, delta, penalty, strength, fit_intercept, epochs, random_state
        As for AdaptiveSubgradientClassifier; loss is "absolute" (default), "huber" or "square".

    Attributes
    ----------
    coef_ : ndarray (n_features_in_,)
    intercept_ : float
    models_ : list of one fastsketch.AdaptiveSubgradient, for targets moved and scaled to about [-1, 1]
    target_mean_, target_scale_ : float
        What that takes, found in the first batch: its mean, and HEADROOM times its largest deviation.
    n_features_in_, n_iter_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch.sklearn import AdaptiveSubgradientRegressor
    >>> X = np.random.default_rng(0).standard_normal((1000, 20))
    >>> y = X[:, 0] - 2 * X[:, 1] + 0.5
    >>> bool(AdaptiveSubgradientRegressor(epochs=5).fit(X, y).score(X, y) > 0.95)
    True
    """

    CLIPPED = False

    def __init__(
        self,
        sketch_size=20,
        *,
        method="ada-ffd",
        form="cmd",
        loss="absolute",
        eta=0.1,
        delta=None,
        penalty=None,
        strength=0.0,
        fit_intercept=True,
        epochs=3,
        random_state=0,
    ):
        super().__init__(
            sketch_size,
            method=method,
            form=form,
            loss=loss,
            eta=eta,
            delta=delta,
            penalty=penalty,
            strength=strength,
            fit_intercept=fit_intercept,
            epochs=epochs,
            random_state=random_state,
        )
