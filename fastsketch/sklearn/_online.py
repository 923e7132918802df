"""Online linear classifiers and regressors: sketched online Newton steps, and adaptive subgradient methods."""

# scikit-learn has no types.
# pyright: basic

from dataclasses import KW_ONLY
from typing import ClassVar

from fastsketch.online import AdaptiveSubgradient, SketchedNewton
from fastsketch.online._adaptive_subgradient import Form, Penalty
from fastsketch.online._adaptive_subgradient import Method as AdaptiveMethod
from fastsketch.online._sketched_newton import Constraint
from fastsketch.online._sketched_newton import Method as NewtonMethod
from fastsketch.sklearn._estimator import estimator
from fastsketch.sklearn._online_base import LinearClassifier, LinearRegressor


@estimator
class SketchedNewtonClassifier(LinearClassifier):
    """Linear classifier learned online by sketched Newton steps, without a learning rate.

    Parameters
    ----------
    sketch_size, method, loss, loss_scale, alpha0, constraint, beta
        As for fastsketch.SketchedNewton, with its defaults.
    fit_intercept : bool, default True
        Whether to learn an intercept, as the weight of an additional column of ones.
    scale, calibrate, blend
        As for the model: scale features by running moments, calibrate scores online, and blend them with those of a
        diagonal learner.
    class_weight : None, "balanced" or {label: weight}
        "balanced": n / (n_classes n_c), counted on y in ``fit``, and on all labels so far in ``partial_fit``.
    decay : float in (0, 1] or "auto", default 1.0
        As for the model: factor by which every new row multiplies the weight of all earlier rows; "auto" adapts it to
        the stream. Below 1, and with "auto", rows are learned in the given order, which must be that of time.
    epochs : int or "auto", default "auto"
        Number of passes of ``fit``; ``partial_fit`` always makes one. "auto" is one pass for 10,000 rows or more, and
        if rows are not shuffled. For fewer rows it is 1, 2, 3, 5 or 10: the next of these as long as held-out rows are
        predicted better by more than one standard error, or by less for fewer than 500 rows. Calibrated scores are then
        multiplied by a factor of at most 1, chosen on the held-out rows. With uneven weights, including those of
        classes, the number of rows is (sum w)^2 / sum w^2 if there are fewer than 100,000. The choice takes the time of
        at least two passes; ``n_iter_`` is the number of passes.
    shuffle : bool, default True
        Whether ``fit`` learns the rows in a random order, a new one in each epoch. Files are often sorted by label, and
        a model of one pass depends most on the last rows. ``partial_fit`` learns rows in the given order.
    random_state : int, RandomState or None, default 0
        Seed of that order.

    Attributes
    ----------
    classes_ : ndarray
    coef_ : ndarray (1, n_features) for two classes, else (n_classes, n_features): one against the rest
    intercept_ : ndarray (1,) or (n_classes,)
    model_ : fastsketch.SketchedNewton
        The fitted model.
    n_iter_ : int
        Number of passes of the last ``fit``; 1 after ``partial_fit``.
    n_features_in_, n_samples_seen_ : int

    Raises
    ------
    TypeError, ValueError
        In ``fit`` and ``partial_fit``, if a parameter is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch.sklearn import SketchedNewtonClassifier
    >>> X = np.random.default_rng(0).standard_normal((500, 20)) / 4
    >>> y = np.where(X[:, 0] > 0.1, "yes", "no")
    >>> bool(SketchedNewtonClassifier().fit(X, y).score(X, y) > 0.9)
    True
    """

    _KIND: ClassVar = SketchedNewton

    _: KW_ONLY
    method: NewtonMethod = "rfd"
    loss_scale: float = 1.0
    alpha0: float | None = None
    constraint: Constraint = None
    beta: float | None = None


@estimator
class SketchedNewtonRegressor(LinearRegressor):
    """Linear regression learned online by sketched Newton steps, without a learning rate.

    Parameters
    ----------
    sketch_size, method, loss_scale, alpha0, constraint, beta, fit_intercept, scale
        As for SketchedNewtonClassifier.
    loss : {"square", "huber", "absolute"}, default "square"
    blend : bool, optional
        Whether to blend scores with those of a diagonal learner; the default is that of the model.
    decay : float in (0, 1] or "auto", default 1.0
        As for SketchedNewtonClassifier.
    epochs : int or "auto", default "auto"
        Passes of ``fit``, as for SketchedNewtonClassifier.
    shuffle, random_state
        Whether ``fit`` learns rows in a random order, and its seed, as for the classifier.

    Attributes
    ----------
    coef_ : ndarray (n_features,)
    intercept_ : float
    model_ : fastsketch.SketchedNewton
    n_iter_ : int
        Number of passes of the last ``fit``; 1 after ``partial_fit``.
    n_features_in_, n_samples_seen_ : int

    Raises
    ------
    TypeError, ValueError
        In ``fit`` and ``partial_fit``, if a parameter is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch.sklearn import SketchedNewtonRegressor
    >>> X = np.random.default_rng(0).standard_normal((1000, 20))
    >>> y = X[:, 0] - 2 * X[:, 1] + 0.5
    >>> bool(SketchedNewtonRegressor(epochs=3).fit(X, y).score(X, y) > 0.95)
    True
    """

    _KIND: ClassVar = SketchedNewton

    _: KW_ONLY
    method: NewtonMethod = "rfd"
    loss_scale: float = 1.0
    alpha0: float | None = None
    constraint: Constraint = None
    beta: float | None = None


@estimator
class AdaptiveSubgradientClassifier(LinearClassifier):
    """Linear classifier learned online by adaptive subgradients, preconditioned by a sketch of the gradients.

    Parameters
    ----------
    sketch_size, method, form, loss, learning_rate, delta, penalty, penalty_strength
        As for fastsketch.AdaptiveSubgradient, with its defaults. The penalty includes the intercept.
    fit_intercept : bool, default True
        Whether to learn an intercept, as the weight of an additional column of ones.
    scale, calibrate, blend
        As for the model: scale features by running moments, calibrate scores online, and blend them with those of a
        diagonal learner.
    class_weight : None, "balanced" or {label: weight}
        "balanced": n / (n_classes n_c), counted on y in ``fit``, and on all labels so far in ``partial_fit``.
    decay : float in (0, 1] or "auto", default 1.0
        As for the model: factor by which every new row multiplies the weight of all earlier rows; "auto" adapts it to
        the stream. Below 1, and with "auto", rows are learned in the given order, which must be that of time.
    epochs : int or "auto", default "auto"
        Number of passes of ``fit``; ``partial_fit`` always makes one. "auto" is one pass for 10,000 rows or more, and
        if rows are not shuffled. For fewer rows it is 1, 2, 3, 5 or 10: the next of these as long as held-out rows are
        predicted better by more than one standard error, or by less for fewer than 500 rows. Calibrated scores are then
        multiplied by a factor of at most 1, chosen on the held-out rows. With uneven weights, including those of
        classes, the number of rows is (sum w)^2 / sum w^2 if there are fewer than 100,000. The choice takes the time of
        at least two passes; ``n_iter_`` is the number of passes.
    shuffle : bool, default True
        Whether ``fit`` learns the rows in a random order, a new one in each epoch. Files are often sorted by label, and
        a model of one pass depends most on the last rows. ``partial_fit`` learns rows in the given order.
    random_state : int, RandomState or None, default 0
        Seed of that order.

    Attributes
    ----------
    classes_ : ndarray
    coef_ : ndarray (1, n_features) for two classes, else (n_classes, n_features): one against the rest
    intercept_ : ndarray (1,) or (n_classes,)
    model_ : fastsketch.AdaptiveSubgradient
        The fitted model.
    n_iter_ : int
        Number of passes of the last ``fit``; 1 after ``partial_fit``.
    n_features_in_, n_samples_seen_ : int

    Raises
    ------
    TypeError, ValueError
        In ``fit`` and ``partial_fit``, if a parameter is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch.sklearn import AdaptiveSubgradientClassifier
    >>> X = np.random.default_rng(0).standard_normal((500, 20))
    >>> y = np.where(X[:, 0] > 0.1, "yes", "no")
    >>> bool(AdaptiveSubgradientClassifier(epochs=2).fit(X, y).score(X, y) > 0.9)
    True
    """

    _KIND: ClassVar = AdaptiveSubgradient

    _: KW_ONLY
    method: AdaptiveMethod = "ada_ffd"
    form: Form = "mirror_descent"
    learning_rate: float | None = None
    delta: float | None = None
    penalty: Penalty = None
    penalty_strength: float = 0.0


@estimator
class AdaptiveSubgradientRegressor(LinearRegressor):
    """Linear regression learned online by adaptive subgradients, preconditioned by a sketch of the gradients.

    Parameters
    ----------
    sketch_size, method, form, learning_rate, delta, penalty, penalty_strength, fit_intercept, scale
        As for AdaptiveSubgradientClassifier.
    loss : {"square", "huber", "absolute"}, default "square"
    blend : bool, optional
        Whether to blend scores with those of a diagonal learner; the default is that of the model.
    decay : float in (0, 1] or "auto", default 1.0
        As for SketchedNewtonClassifier.
    epochs : int or "auto", default "auto"
        Passes of ``fit``, as for SketchedNewtonClassifier.
    shuffle, random_state
        Whether ``fit`` learns rows in a random order, and its seed, as for the classifier.

    Attributes
    ----------
    coef_ : ndarray (n_features,)
    intercept_ : float
    model_ : fastsketch.AdaptiveSubgradient
    n_iter_ : int
        Number of passes of the last ``fit``; 1 after ``partial_fit``.
    n_features_in_, n_samples_seen_ : int

    Raises
    ------
    TypeError, ValueError
        In ``fit`` and ``partial_fit``, if a parameter is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch.sklearn import AdaptiveSubgradientRegressor
    >>> X = np.random.default_rng(0).standard_normal((1000, 20))
    >>> y = X[:, 0] - 2 * X[:, 1] + 0.5
    >>> bool(AdaptiveSubgradientRegressor(epochs=5).fit(X, y).score(X, y) > 0.95)
    True
    """

    _KIND: ClassVar = AdaptiveSubgradient

    _: KW_ONLY
    method: AdaptiveMethod = "ada_ffd"
    form: Form = "mirror_descent"
    learning_rate: float | None = None
    delta: float | None = None
    penalty: Penalty = None
    penalty_strength: float = 0.0
