"""Linear models learned by sketched online Newton steps, as scikit-learn has them."""

# scikit-learn has no types.
# pyright: basic

from typing import Any, ClassVar

from numpy.random import RandomState

from fastsketch._keywords import named_keywords
from fastsketch._losses import OnlineLossName
from fastsketch._model import Model
from fastsketch.online import SketchedNewton
from fastsketch.online._labels import ClassWeight
from fastsketch.online._newton import Constraint, Method
from fastsketch.sklearn._linear import LinearClassifier, LinearRegressor, Scale


class _Newton:
    """Parameters, and the model that has them."""

    _KIND: ClassVar[type[Model]] = SketchedNewton

    def __init__(
        self,
        sketch_size: int,
        *,
        method: Method,
        loss: OnlineLossName,
        loss_scale: float,
        alpha0: float | None,
        constraint: Constraint,
        beta: float | None,
        fit_intercept: bool,
        scale: Scale,
        epochs: int,
        random_state: int | RandomState | None,
    ) -> None:
        self.sketch_size = sketch_size
        self.method: Method = method
        self.loss: OnlineLossName = loss
        self.loss_scale = loss_scale
        self.alpha0 = alpha0
        self.constraint: Constraint = constraint
        self.beta = beta
        self.fit_intercept = fit_intercept
        self.scale: Scale = scale
        self.epochs = epochs
        self.random_state = random_state

    def _make(self, seed: int, **more: Any) -> SketchedNewton:
        return SketchedNewton(
            self.sketch_size,
            method=self.method,
            loss=self.loss,
            loss_scale=self.loss_scale,
            alpha0=self.alpha0,
            constraint=self.constraint,
            beta=self.beta,
            fit_intercept=self.fit_intercept,
            scale=self.scale,
            seed=seed,
            **more,
        )


@named_keywords
class SketchedNewtonClassifier(_Newton, LinearClassifier):
    """Linear classifier learned in one pass by sketched online Newton steps, without a learning rate.

    Parameters
    ----------
    sketch_size, method, loss, loss_scale, alpha0, constraint, beta
        Those of fastsketch.SketchedNewton, with its defaults.
    fit_intercept : bool, default True
        By a feature that is always 1.
    scale, calibrate, blend
        Those of the model too: features by their running moments, scores that are calibrated as rows come, and blended
        with those of a diagonal learner.
    class_weight : None, "balanced" or {label: weight}
        "balanced": n / (n_classes n_c) of the labels of y in ``fit``, of those so far in ``partial_fit``.
    epochs : int, default 1
        Passes of ``fit``; ``partial_fit`` makes one.
    random_state : int, RandomState or None, default 0
        Of the methods "rp" and "oja"; an int is the seed itself.

    Attributes
    ----------
    classes_ : ndarray
    coef_ : ndarray (1, n_features) for two classes, else (n_classes, n_features): one against the rest
    intercept_ : ndarray (1,) or (n_classes,)
    model_ : fastsketch.SketchedNewton
        What has learned, with these labels.
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

    def __init__(
        self,
        sketch_size: int = 20,
        *,
        method: Method = "rfd",
        loss: OnlineLossName = "logistic",
        loss_scale: float = 1.0,
        alpha0: float | None = None,
        constraint: Constraint = None,
        beta: float | None = None,
        fit_intercept: bool = True,
        scale: Scale = "moments",
        calibrate: bool = True,
        blend: bool | None = None,
        class_weight: ClassWeight = None,
        epochs: int = 1,
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
            scale=scale,
            epochs=epochs,
            random_state=random_state,
        )
        self.calibrate = calibrate
        self.blend = blend
        self.class_weight: ClassWeight = class_weight

    def _of_labels(self) -> dict[str, Any]:
        return {"calibrate": self.calibrate, "blend": self.blend}


@named_keywords
class SketchedNewtonRegressor(_Newton, LinearRegressor):
    """Linear regression learned in one pass by sketched online Newton steps, without a learning rate.

    Parameters
    ----------
    sketch_size, method, loss_scale, alpha0, constraint, beta, fit_intercept, scale, random_state
        As for SketchedNewtonClassifier.
    loss : {"square", "huber", "absolute"}, default "square"
    blend : bool, optional
        Whether scores are blended with those of a diagonal learner, as the model does for loss="square".
    epochs : int, default 1

    Attributes
    ----------
    coef_ : ndarray (n_features,)
    intercept_ : float
    model_ : fastsketch.SketchedNewton
    n_features_in_, n_iter_ : int

    Raises
    ------
    TypeError, ValueError
        From ``fit`` and ``partial_fit``, if a parameter is out of range.

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
        loss_scale: float = 1.0,
        alpha0: float | None = None,
        constraint: Constraint = None,
        beta: float | None = None,
        fit_intercept: bool = True,
        scale: Scale = "moments",
        blend: bool | None = None,
        epochs: int = 1,
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
            scale=scale,
            epochs=epochs,
            random_state=random_state,
        )
        self.blend = blend
