"""Linear models learned by sketched online Newton steps, as scikit-learn has them."""

# scikit-learn has no types.
# pyright: basic

from typing import ClassVar

from numpy.random import RandomState

from fastsketch._keywords import named_keywords
from fastsketch._losses import OnlineLossName
from fastsketch.online import SketchedNewton
from fastsketch.online._newton import Constraint, Method
from fastsketch.sklearn._linear import LinearClassifier, LinearRegressor


class _Newton:
    """Parameters, and the model that has them."""

    _RENAMED: ClassVar = {"sketch": "method", "projection": "constraint"}

    def __init__(
        self,
        sketch_size: int = 20,
        *,
        method: Method = "rfd",
        loss: OnlineLossName = "squared_hinge",
        loss_scale: float = 1.0,
        alpha0: float | None = None,
        constraint: Constraint = "current",
        beta: float | None = None,
        fit_intercept: bool = True,
        epochs: int = 1,
        random_state: int | RandomState | None = 0,
    ) -> None:
        self.sketch_size = sketch_size
        self.method: Method = method
        self.loss: OnlineLossName = loss
        self.loss_scale = loss_scale
        self.alpha0 = alpha0
        self.constraint: Constraint = constraint
        self.beta = beta
        self.fit_intercept = fit_intercept
        self.epochs = epochs
        self.random_state = random_state

    def _make(self, seed: int) -> SketchedNewton:
        return SketchedNewton(
            self.sketch_size,
            method=self.method,
            loss=self.loss,
            loss_scale=self.loss_scale,
            alpha0=self.alpha0,
            constraint=self.constraint,
            beta=self.beta,
            fit_intercept=False,  # it is a column of theirs
            scale=None,
            calibrate=False,
            seed=seed,
        )


@named_keywords
class SketchedNewtonClassifier(_Newton, LinearClassifier):
    """Linear classifier learned in one pass by sketched online Newton steps, without a learning rate.

    Parameters
    ----------
    sketch_size, method, loss, loss_scale, alpha0, constraint, beta
        Those of fastsketch.SketchedNewton, with its defaults. For probabilities take loss="logistic",
        constraint=None, alpha0=1.0: the constraint keeps scores within [-1, 1].
    fit_intercept : bool, default True
        By a feature that is always 1.
    epochs : int, default 1
        Passes of ``fit``; ``partial_fit`` makes one.
    random_state : int, RandomState or None, default 0
        Of the methods "rp" and "oja"; an int is the seed itself.

    Attributes
    ----------
    classes_ : ndarray
    coef_ : ndarray (1, n_features_in_) for two classes, else (n_classes, n_features_in_): one against the rest
    intercept_ : ndarray (1,) or (n_classes,)
    models_ : list of fastsketch.SketchedNewton
    n_features_in_, n_iter_ : int

    Raises
    ------
    TypeError, ValueError
        From ``fit`` and ``partial_fit``, if a parameter is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch.sklearn import SketchedNewtonClassifier
    >>> X = np.random.default_rng(0).standard_normal((500, 20)) / 4
    >>> y = np.where(X[:, 0] > 0.1, "yes", "no")
    >>> bool(SketchedNewtonClassifier().fit(X, y).score(X, y) > 0.9)
    True
    """


@named_keywords
class SketchedNewtonRegressor(_Newton, LinearRegressor):
    """Linear regression learned in one pass by sketched online Newton steps, without a learning rate.

    Parameters
    ----------
    sketch_size, method, alpha0, constraint, beta, fit_intercept, random_state
        As for SketchedNewtonClassifier.
    loss : {"square", "huber", "absolute"}, default "square"
    loss_scale : float, default 8.0
        Factor on the loss of targets that are scaled into [-1, 1]: their slopes are short, and H, which grows with the
        squares of slopes, would be too small for its steps.
    epochs : int, default 3

    Attributes
    ----------
    coef_ : ndarray (n_features_in_,)
    intercept_ : float
    models_ : list of one fastsketch.SketchedNewton, for targets moved and scaled into [-1, 1]
    target_mean_, target_scale_ : float
        Mean of the first batch, and HEADROOM times its largest deviation.
    n_features_in_, n_iter_ : int

    Raises
    ------
    TypeError, ValueError
        From ``fit`` and ``partial_fit``, if a parameter is out of range.

    Notes
    -----
    Predictions for the rows of training stay within target_mean_ +- target_scale_ (constraint "current"), and later
    targets beyond that are clipped: the first batch should span the range of the targets.

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
        sketch_size: int = 20,
        *,
        method: Method = "rfd",
        loss: OnlineLossName = "square",
        loss_scale: float = 8.0,
        alpha0: float | None = None,
        constraint: Constraint = "current",
        beta: float | None = None,
        fit_intercept: bool = True,
        epochs: int = 3,
        random_state: int | RandomState | None = 0,
    ) -> None:
        super().__init__(
            sketch_size,
            method=method,
            loss=loss,
            loss_scale=loss_scale,
            alpha0=alpha0,
            constraint=constraint,
            beta=beta,
            fit_intercept=fit_intercept,
            epochs=epochs,
            random_state=random_state,
        )
