"""Linear models learned by adaptive subgradients, as scikit-learn has them."""

# scikit-learn has no types.
# pyright: basic

from typing import ClassVar

from numpy.random import RandomState

from fastsketch._keywords import named_keywords
from fastsketch._losses import OnlineLossName
from fastsketch.online import AdaptiveSubgradient
from fastsketch.online._adaptive import Form, Method, Penalty
from fastsketch.sklearn._linear import LinearClassifier, LinearRegressor


class _Adaptive:
    """Parameters, and the model that has them."""

    _RENAMED: ClassVar = {"eta": "learning_rate", "strength": "penalty_strength"}

    def __init__(
        self,
        sketch_size: int = 20,
        *,
        method: Method = "ada_ffd",
        form: Form = "mirror_descent",
        loss: OnlineLossName = "squared_hinge",
        learning_rate: float = 0.1,
        delta: float | None = None,
        penalty: Penalty = None,
        penalty_strength: float = 0.0,
        fit_intercept: bool = True,
        epochs: int = 1,
        random_state: int | RandomState | None = 0,
    ) -> None:
        self.sketch_size = sketch_size
        self.method: Method = method
        self.form: Form = form
        self.loss: OnlineLossName = loss
        self.learning_rate = learning_rate
        self.delta = delta
        self.penalty: Penalty = penalty
        self.penalty_strength = penalty_strength
        self.fit_intercept = fit_intercept
        self.epochs = epochs
        self.random_state = random_state

    def _make(self, seed: int) -> AdaptiveSubgradient:
        return AdaptiveSubgradient(
            self.sketch_size,
            method=self.method,
            form=self.form,
            loss=self.loss,
            learning_rate=self.learning_rate,
            delta=self.delta,
            penalty=self.penalty,
            penalty_strength=self.penalty_strength,
            fit_intercept=False,  # it is a column of theirs
            scale=None,
            calibrate=False,
            seed=seed,
        )


@named_keywords
class AdaptiveSubgradientClassifier(_Adaptive, LinearClassifier):
    """Linear classifier learned in one pass by adaptive subgradients, with H from a sketch of the gradients.

    Parameters
    ----------
    sketch_size, method, form, loss, learning_rate, delta, penalty, penalty_strength
        Those of fastsketch.AdaptiveSubgradient, with its defaults; with loss="logistic" there is ``predict_proba``.
        The penalty takes hold of the intercept too.
    fit_intercept : bool, default True
        By a feature that is always 1.
    epochs : int, default 1
        Passes of ``fit``; ``partial_fit`` makes one.
    random_state : int, RandomState or None, default 0
        Of the methods "ada_lr" and "radagrad"; an int is the seed itself.

    Attributes
    ----------
    classes_ : ndarray
    coef_ : ndarray (1, n_features_in_) for two classes, else (n_classes, n_features_in_): one against the rest
    intercept_ : ndarray (1,) or (n_classes,)
    models_ : list of fastsketch.AdaptiveSubgradient
    n_features_in_, n_iter_ : int

    Raises
    ------
    TypeError, ValueError
        From ``fit`` and ``partial_fit``, if a parameter is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch.sklearn import AdaptiveSubgradientClassifier
    >>> X = np.random.default_rng(0).standard_normal((500, 20))
    >>> y = np.where(X[:, 0] > 0.1, "yes", "no")
    >>> bool(AdaptiveSubgradientClassifier(epochs=2).fit(X, y).score(X, y) > 0.9)
    True
    """


@named_keywords
class AdaptiveSubgradientRegressor(_Adaptive, LinearRegressor):
    """Linear regression learned in one pass by adaptive subgradients, with H from a sketch of the gradients.

    Parameters
    ----------
    sketch_size, method, form, learning_rate, delta, penalty, penalty_strength, fit_intercept, random_state
        As for AdaptiveSubgradientClassifier.
    loss : {"square", "huber", "absolute"}, default "square"
    epochs : int, default 3

    Attributes
    ----------
    coef_ : ndarray (n_features_in_,)
    intercept_ : float
    models_ : list of one fastsketch.AdaptiveSubgradient, for targets moved and scaled to about [-1, 1]
    target_mean_, target_scale_ : float
        Mean of the first batch, and HEADROOM times its largest deviation.
    n_features_in_, n_iter_ : int

    Raises
    ------
    TypeError, ValueError
        From ``fit`` and ``partial_fit``, if a parameter is out of range.

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
        sketch_size: int = 20,
        *,
        method: Method = "ada_ffd",
        form: Form = "mirror_descent",
        loss: OnlineLossName = "square",
        learning_rate: float = 0.1,
        delta: float | None = None,
        penalty: Penalty = None,
        penalty_strength: float = 0.0,
        fit_intercept: bool = True,
        epochs: int = 3,
        random_state: int | RandomState | None = 0,
    ) -> None:
        super().__init__(
            sketch_size,
            method=method,
            form=form,
            loss=loss,
            learning_rate=learning_rate,
            delta=delta,
            penalty=penalty,
            penalty_strength=penalty_strength,
            fit_intercept=fit_intercept,
            epochs=epochs,
            random_state=random_state,
        )
