"""Online linear models as scikit-learn has them: sketched online Newton steps, and adaptive subgradients."""

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
from fastsketch.sklearn._online_base import LinearClassifier, LinearEstimator, LinearRegressor


@estimator
class NewtonEstimator(LinearEstimator):
    """Learn by sketched online Newton steps: the parameters of both targets."""

    _KIND: ClassVar = SketchedNewton

    _: KW_ONLY
    method: NewtonMethod = "rfd"
    loss_scale: float = 1.0
    alpha0: float | None = None
    constraint: Constraint = None
    beta: float | None = None


@estimator
class AdaptiveEstimator(LinearEstimator):
    """Learn by adaptive subgradients: the parameters of both targets."""

    _KIND: ClassVar = AdaptiveSubgradient

    _: KW_ONLY
    method: AdaptiveMethod = "ada_ffd"
    form: Form = "mirror_descent"
    learning_rate: float | None = None
    delta: float | None = None
    penalty: Penalty = None
    penalty_strength: float = 0.0


@estimator
class SketchedNewtonClassifier(LinearClassifier, NewtonEstimator):
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
    decay : float in (0, 1] or "auto", default 1.0
        Of the model: what every row leaves of the weight of those before it; "auto" finds it out as rows come. Below 1,
        or "auto", rows are learned from in the order in which they come, which is to be that of time.
    epochs : int or "auto", default "auto"
        Passes of ``fit``; ``partial_fit`` makes one. "auto": one of 10,000 rows or more, and of rows that are not
        shuffled; of fewer rows 1, 2, 3, 5 or 10, the next of these as long as rows that are held out are predicted
        better by more than one standard error, by less where there are fewer than 500; calibrated scores are then
        multiplied by the factor, 1 or less, that these rows ask for. Rows of uneven weights, those of classes among
        them, count as fewer, (sum w)^2 / sum w^2, if they are fewer than 100,000. Finding out takes the time of two
        passes at least; ``n_iter_`` is the number that was made in the end.
    shuffle : bool, default True
        Whether ``fit`` learns from the rows in a random order, another in each epoch: files are often sorted by label,
        and a model of one pass forgets what came first. ``partial_fit`` learns in the order that rows come in.
    random_state : int, RandomState or None, default 0
        Of that order; an int is the seed itself.

    Attributes
    ----------
    classes_ : ndarray
    coef_ : ndarray (1, n_features) for two classes, else (n_classes, n_features): one against the rest
    intercept_ : ndarray (1,) or (n_classes,)
    model_ : fastsketch.SketchedNewton
        What has learned, with these labels.
    n_iter_ : int
        Passes that the last ``fit`` made over its rows; 1 after ``partial_fit``.
    n_features_in_, n_samples_seen_ : int

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


@estimator
class SketchedNewtonRegressor(LinearRegressor, NewtonEstimator):
    """Linear regression learned in one pass by sketched online Newton steps, without a learning rate.

    Parameters
    ----------
    sketch_size, method, loss_scale, alpha0, constraint, beta, fit_intercept, scale
        As for SketchedNewtonClassifier.
    loss : {"square", "huber", "absolute"}, default "square"
    blend : bool, optional
        Whether scores are blended with those of a diagonal learner, as the model does for loss="square".
    decay : float in (0, 1] or "auto", default 1.0
        As for SketchedNewtonClassifier.
    epochs : int or "auto", default "auto"
        Passes of ``fit``, as for SketchedNewtonClassifier.
    shuffle, random_state
        Whether ``fit`` learns in a random order, and its seed, as for the classifier.

    Attributes
    ----------
    coef_ : ndarray (n_features,)
    intercept_ : float
    model_ : fastsketch.SketchedNewton
    n_iter_ : int
        Passes that the last ``fit`` made over its rows; 1 after ``partial_fit``.
    n_features_in_, n_samples_seen_ : int

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


@estimator
class AdaptiveSubgradientClassifier(LinearClassifier, AdaptiveEstimator):
    """Linear classifier learned in one pass by adaptive subgradients, with H from a sketch of the gradients.

    Parameters
    ----------
    sketch_size, method, form, loss, learning_rate, delta, penalty, penalty_strength
        Those of fastsketch.AdaptiveSubgradient, with its defaults. The penalty takes hold of the intercept too.
    fit_intercept : bool, default True
        By a feature that is always 1.
    scale, calibrate, blend
        Those of the model too: features by their running moments, scores that are calibrated as rows come, and blended
        with those of a diagonal learner.
    class_weight : None, "balanced" or {label: weight}
        "balanced": n / (n_classes n_c) of the labels of y in ``fit``, of those so far in ``partial_fit``.
    decay : float in (0, 1] or "auto", default 1.0
        Of the model: what every row leaves of the weight of those before it; "auto" finds it out as rows come. Below 1,
        or "auto", rows are learned from in the order in which they come, which is to be that of time.
    epochs : int or "auto", default "auto"
        Passes of ``fit``; ``partial_fit`` makes one. "auto": one of 10,000 rows or more, and of rows that are not
        shuffled; of fewer rows 1, 2, 3, 5 or 10, the next of these as long as rows that are held out are predicted
        better by more than one standard error, by less where there are fewer than 500; calibrated scores are then
        multiplied by the factor, 1 or less, that these rows ask for. Rows of uneven weights, those of classes among
        them, count as fewer, (sum w)^2 / sum w^2, if they are fewer than 100,000. Finding out takes the time of two
        passes at least; ``n_iter_`` is the number that was made in the end.
    shuffle : bool, default True
        Whether ``fit`` learns from the rows in a random order, another in each epoch: files are often sorted by label,
        and a model of one pass forgets what came first. ``partial_fit`` learns in the order that rows come in.
    random_state : int, RandomState or None, default 0
        Of that order; an int is the seed itself.

    Attributes
    ----------
    classes_ : ndarray
    coef_ : ndarray (1, n_features) for two classes, else (n_classes, n_features): one against the rest
    intercept_ : ndarray (1,) or (n_classes,)
    model_ : fastsketch.AdaptiveSubgradient
        What has learned, with these labels.
    n_iter_ : int
        Passes that the last ``fit`` made over its rows; 1 after ``partial_fit``.
    n_features_in_, n_samples_seen_ : int

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


@estimator
class AdaptiveSubgradientRegressor(LinearRegressor, AdaptiveEstimator):
    """Linear regression learned in one pass by adaptive subgradients, with H from a sketch of the gradients.

    Parameters
    ----------
    sketch_size, method, form, learning_rate, delta, penalty, penalty_strength, fit_intercept, scale
        As for AdaptiveSubgradientClassifier.
    loss : {"square", "huber", "absolute"}, default "square"
    blend : bool, optional
        Whether scores are blended with those of a diagonal learner, as the model does for loss="square".
    decay : float in (0, 1] or "auto", default 1.0
        As for SketchedNewtonClassifier.
    epochs : int or "auto", default "auto"
        Passes of ``fit``, as for SketchedNewtonClassifier.
    shuffle, random_state
        Whether ``fit`` learns in a random order, and its seed, as for the classifier.

    Attributes
    ----------
    coef_ : ndarray (n_features,)
    intercept_ : float
    model_ : fastsketch.AdaptiveSubgradient
    n_iter_ : int
        Passes that the last ``fit`` made over its rows; 1 after ``partial_fit``.
    n_features_in_, n_samples_seen_ : int

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
