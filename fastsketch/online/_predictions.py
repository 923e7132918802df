"""Base class OnlineLinear of the online linear models: scores, predictions, coefficients and metrics."""

from collections.abc import Sequence
from typing import Any, Literal, Self, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.losses import LOSSES, expected
from fastsketch._core.validation import (
    as_array,
    as_choice,
    as_integer,
    as_vector,
)
from fastsketch._frame.batches import FeatureNames
from fastsketch._kernels.features.columns import INTERCEPT
from fastsketch._kernels.guard import changes, reads
from fastsketch._kernels.online.numbers import BEFORE, THEIRS
from fastsketch.online._class_states import RowNotLearned, ScoreCalibration, n_states, probabilities
from fastsketch.online._decay_mix import DriftFigures
from fastsketch.online._labels import (
    ClassLabels,
)
from fastsketch.online._linear import OnlineLearner
from fastsketch.online._metrics import MetricFigures
from fastsketch.online._model_state import ModelState
from fastsketch.online._row_inputs import NAMED_ROWS_MESSAGE, score_rows
from fastsketch.online._state_arrays import Counts, Csr, Floats, LearnedState

S = TypeVar("S", bound=LearnedState)

# (name or column of a feature, its weight)
FeatureWeight = tuple[str | int, float]


def largest_features(
    weights: Floats, sizes: Floats, columns: Counts, n: int, *, names: Sequence[str] | None
) -> list[FeatureWeight]:
    """Return the n features with the largest `sizes` as pairs (name or column, weight), largest first.

    `weights`, `sizes` and `columns` have shape (m,). Features of weight or size 0 are excluded. Features of equal size
    are in the order of their columns.
    """
    candidates = np.flatnonzero((sizes > 0) & (weights != 0))
    if n < candidates.size:  # candidates for the first n
        candidates = candidates[sizes[candidates] >= np.partition(sizes[candidates], -n)[-n]]
    order = candidates[np.lexsort((columns[candidates], -sizes[candidates]))][:n]
    positions: list[int] = columns[order].tolist()
    names = names or ()  # columns that were added later may have no names
    features: list[str | int] = [names[column] if column < len(names) else column for column in positions]
    values: list[float] = weights[order].tolist()
    return list(zip(features, values, strict=True))


class OnlineProgress(MetricFigures):
    """Dict of the losses and metrics of all rows so far, each predicted before it was learned."""

    n_rows: int
    cumulative_loss: float
    mean_loss: float
    error_rate: float
    regret: float | None
    drift: DriftFigures | None


class OnlineLinear(OnlineLearner[S], abstract=True):
    """Abstract base of linear models that score a row x by w'x and learn one example after the other."""

    # -- coefficients ----------------------------------------------------------------------------------------------
    def _prepared_coef(self) -> Floats:
        """Return the coefficients for scaled rows, which are cached; ValueError before the first row.

        They are in the order of `classes`; for sparse models by slot. The cache is `_coef`.
        """
        if self._model_state is None:
            raise ValueError("the model has seen no rows: call update first")
        if self._coef is None:
            self._coef = self._model_state.in_class_order(self._model_state.coefs())
        return self._coef

    @property
    @reads
    def coef(self) -> NDArray[np.float64]:
        """Return the coefficients of the unscaled features, without the intercept.

        Shape (d,) float64; for more than two classes (n_classes, d), in the order of ``classes``.

        With scale="moments" the score of a sparse row is w'x divided by a length: about that of the scaled row itself
        for texts, the mean length of rows for tables. For real targets, columns that every row has are already divided
        by that length here.
        """
        w, model_state = self._prepared_coef(), cast("ModelState[S]", self._model_state)
        w, _ = model_state.inputs.to_feature_coefficients(w)
        return model_state.columns.by_column(w) if model_state.inputs.sparse else w.copy()

    @property
    @reads
    def intercept(self) -> float | NDArray[np.float64]:
        """Return the intercept of the score, or for more than two classes an array with one intercept per class."""
        w, model_state = self._prepared_coef(), cast("ModelState[S]", self._model_state)
        _, added = model_state.inputs.to_feature_coefficients(w)
        if model_state.inputs.sparse:
            added = added + model_state.columns.intercept(w)
        if self._calibrates():
            constants = model_state.intercepts(w, in_order=self._in_time_order())
            added = added + (constants if w.ndim > 1 else constants[0])
        return float(added) if w.ndim == 1 else added

    # -- scores and predictions ------------------------------------------------------------------------------------
    def _rows_to_score(self, rows: Any) -> Any:
        n_rows = self.n_rows
        if self._names.reads(rows, n_rows):
            return self._names.find(rows, n_rows)
        if self._names.is_named(n_rows):
            raise ValueError(NAMED_ROWS_MESSAGE)
        self._require_columns(rows)
        return self._as_rows(rows)

    def _scores(self, x: Any) -> Floats:
        """Return the scores of rows that have already been checked.

        Shape (n,) or (n, n_classes). Sparse rows are scored by slots.
        """
        w, model_state = self._prepared_coef(), cast("ModelState[S]", self._model_state)
        batch = model_state.look_up_columns(x, w.shape[-1])
        try:
            batch = model_state.inputs.scaled(batch, w.shape[-1])
        except RowNotLearned as refused:
            raise FloatingPointError(f"rows: the squares of row {refused.row} leave the range of numbers") from None
        scores = score_rows(batch, w) if isinstance(batch, Csr) else np.asarray(batch @ w.T, np.float64)
        return scores + model_state.intercepts(w, in_order=self._in_time_order()) if self._calibrates() else scores

    @reads
    def decision_function(self, rows: Any) -> NDArray[np.float64]:
        """Compute the score of every row; with two classes, a positive score means the last of the sorted classes.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), or scipy.sparse (n, d), or rows with names
            As those that were learned from; names that have not been seen count nothing.

        Returns
        -------
        ndarray (n,) float64, or (n, n_classes) for more than two classes

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((1000, 5))
        >>> y = np.where(X @ [3.0, 0.0, -2.0, 0.0, 1.0] > 0, "yes", "no")
        >>> model = fs.SketchedNewton().update(X, y)
        >>> model.decision_function([[1.0, 0, 0, 0, 0], [0, 0, 1.0, 0, 0]]) > 0
        array([ True, False])
        """
        return self._scores(self._rows_to_score(rows))

    @reads
    def predict(self, rows: Any) -> NDArray[Any]:
        """Predict the class label or real target of every row.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), or scipy.sparse (n, d), or rows with names
            As those that were learned from; names that have not been seen count nothing.

        Returns
        -------
        ndarray (n,)
            Labels for loss="logistic" and "squared_hinge": the last of two sorted classes where the score is above 0,
            and for more classes the one of the largest score. For other losses the score itself.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((1000, 5))
        >>> y = np.where(X @ [3.0, 0.0, -2.0, 0.0, 1.0] > 0, "yes", "no")
        >>> model = fs.SketchedNewton().update(X, y)
        >>> model.predict([[1.0, 0, 0, 0, 0], [0, 0, 1.0, 0, 0]])
        array(['yes', 'no'], dtype='<U3')
        """
        scores = self.decision_function(rows)
        classes = self._known_classes()
        if classes is None:
            return scores
        if len(classes) == 0:
            raise ValueError("the model has seen no labels: call update first")
        if len(classes) == 1:
            return np.repeat(classes, len(scores))
        return classes[(scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)]

    @reads
    def predict_proba(self, rows: Any, *, prior: Literal["observed"] | None = None) -> NDArray[np.float64]:
        """Compute the class probabilities of every row, for classification losses.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), or scipy.sparse (n, d), or rows with names
            As those that were learned from; names that have not been seen count nothing.
        prior : "observed", optional
            With ``class_weight``, probabilities are those for classes that are as frequent as their weights imply: for
            "balanced" equally frequent. "observed" corrects them to the class frequencies of the rows that were learned
            (Elkan 2001). ``predict`` is the class of the largest probability without this correction.

        Returns
        -------
        ndarray (n, n_classes) float64
            In the order of ``classes``. For more than two classes the softmax of the scores with ``calibrate``, else
            the probability of each class against the rest, divided by their sum.

        Raises
        ------
        ValueError
            If the loss takes real targets, or the weight of a class is 0 and prior="observed".

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((1000, 5))
        >>> y = np.where(X @ [3.0, 0.0, -2.0, 0.0, 1.0] > 0, "yes", "no")
        >>> model = fs.SketchedNewton().update(X, y)
        >>> model.predict_proba([[1.0, 0, 0, 0, 0], [0, 0, 0, 0, 0]]).round(1)
        array([[0. , 1. ],
               [0.5, 0.5]])
        """
        if LOSSES[self.loss].targets != "label":
            raise ValueError(f"predict_proba needs a loss of labels, this model has loss={self.loss!r}")
        if prior is not None:
            as_choice(prior, "prior", ("observed",))
        scores, labels = self.decision_function(rows), cast(ClassLabels, self._labels())
        n_classes = len(labels.known)
        p = probabilities(scores) if self._calibrates() else _probability(self.loss, scores)
        if n_classes <= 1:
            return np.ones((len(p), n_classes))
        if p.ndim == 1:
            p = np.stack([1.0 - p, p], axis=1)
            if prior is None:
                return p
        if prior is not None:
            p = p * labels.observed_factors(self.class_weight)
        total = p.sum(axis=1, keepdims=True)
        return np.where(total > 0, p / np.where(total > 0, total, 1.0), 1.0 / n_classes)

    def _temper(self, factor: float) -> None:
        """Multiply the scores of a calibrated classification model by a factor, from now on; the model changes."""
        model_state = self._model_state
        if factor != 1.0 and model_state is not None and isinstance(model_state.states.readout, ScoreCalibration):
            model_state.states.readout.readout_weights *= factor
            self._coef = None

    # -- features --------------------------------------------------------------------------------------------------
    @property
    @reads
    def feature_names(self) -> FeatureNames | None:
        """Return the column names, from the first data frame or from rows with names; None without names."""
        known = self._names.known(self.n_rows)
        return tuple(known) if known else self._feature_names

    @property
    @reads
    def vocabulary(self) -> dict[str, int] | None:
        """Return a dict {feature name: column}; None for numbered or hashed columns."""
        known = self._names.known(self.n_rows)
        return None if known is None else {name: column for column, name in enumerate(known)}

    @reads
    def top_features(self, n: int = 10, label: Any = None) -> "list[FeatureWeight] | dict[Any, list[FeatureWeight]]":
        """List the features whose weights are largest in absolute value.

        Parameters
        ----------
        n : int, default 10
            Maximum number of features; those of weight 0 are excluded.
        label : optional
            One of ``classes``; positive weights favour it. None: the last of two classes, or each of more classes.

        Returns
        -------
        list of (name or column, weight)
            Largest first. With scale="moments" features are ordered by weight times the divisor of the feature, its
            root mean square (for dense rows its standard deviation): its usual effect on the score. Weights are those
            of ``coef``. Features have names if rows have them and ``hash_bits`` is not given. For more than two classes
            and label=None, a dict {label: list}.

        Raises
        ------
        ValueError
            If the model has seen no rows, or the label is none of its classes.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rng = np.random.default_rng(0)
        >>> rows = [{"colour": colour, "size": rng.random()} for colour in rng.choice(["red", "blue"], 500)]
        >>> bought = [row["colour"] == "red" for row in rows]
        >>> model = fs.SketchedNewton().update(rows, bought)
        >>> [(name, weight > 0) for name, weight in model.top_features(2, label=True)]
        [('colour=red', True), ('colour=blue', False)]
        """
        n = as_integer(n, "n", 1)
        w, model_state, classes = self._prepared_coef(), cast("ModelState[S]", self._model_state), self._known_classes()
        # weights for unscaled and for scaled features, which are equal without scaling
        feature_weights, scaled_weights = (
            np.atleast_2d(model_state.inputs.to_feature_coefficients(w)[0]),
            np.atleast_2d(w),
        )
        m = feature_weights.shape[1]
        columns = model_state.columns.array(m) if model_state.inputs.sparse else cast("Counts", np.arange(m))
        is_feature = cast(NDArray[np.bool_], columns != INTERCEPT)
        names = self.feature_names

        def features_of_class(number: int) -> list[FeatureWeight]:
            k, sign = (number, 1.0) if len(feature_weights) > 1 else (0, 1.0 if number else -1.0)
            return largest_features(
                sign * feature_weights[k, is_feature],
                np.abs(scaled_weights[k, :m][is_feature]),
                columns[is_feature],
                n,
                names=names,
            )

        if classes is None:
            if label is not None:
                raise ValueError(f"label: loss={self.loss!r} takes real targets, and this model has no classes")
            return features_of_class(1)
        labels: list[Any] = classes.tolist()
        if label is not None:
            if label not in labels:
                raise ValueError(f"label must be one of {labels}, got {label!r}")
            # a single class is the positive one
            return features_of_class(labels.index(label) if len(labels) > 1 else 1)
        return (
            features_of_class(1)
            if len(labels) <= 2
            else {one: features_of_class(number) for number, one in enumerate(labels)}
        )

    # -- regret and metrics ----------------------------------------------------------------------------------------
    @changes
    def compare_with(self, comparator: ArrayLike) -> Self:
        """Start to measure regret against fixed coefficients; earlier rows do not count.

        Parameters
        ----------
        comparator : array_like (d,)
            For two classes, positive scores mean the last of the sorted classes.

        Returns
        -------
        self
            ``progress["regret"]`` is the model's loss minus the comparator's, on the rows that follow.

        Raises
        ------
        ValueError
            If it is not a finite vector of the width of the rows, or there are more than two classes.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((1000, 5))
        >>> y = np.where(X @ [3.0, 0.0, -2.0, 0.0, 1.0] > 0, "yes", "no")
        >>> model = fs.SketchedNewton(classes=["no", "yes"]).compare_with([3.0, 0.0, -2.0, 0.0, 1.0]).update(X, y)
        >>> progress = model.progress
        >>> progress["regret"] < progress["cumulative_loss"]
        True
        """
        if self._names.is_open and self._model_state is not None:
            raise ValueError("comparator: it is a vector for numbered columns, and this model learns from names")
        fixed = as_vector(
            comparator, self.n_features or len(np.atleast_1d(as_array(comparator, "comparator"))), "comparator"
        )
        if fixed.ndim != 1:
            raise ValueError(f"comparator must be a vector, got shape {fixed.shape}")
        labels = self._labels()
        if labels is not None and n_states(len(labels.known)) > 1:
            raise ValueError(f"comparator: one vector is for two classes, and there are {len(labels.known)}")
        if self._model_state is not None:
            model_state = self._model_state.copied()
            scalar = model_state.states.main_learners[0].scalar
            scalar[THEIRS], scalar[BEFORE] = 0.0, model_state.states.totals()[1]
            self._model_state = model_state
        self._comparator = fixed.astype(np.float64)
        return self

    @property
    @reads
    def progress(self) -> OnlineProgress:
        """Return a dict of losses, errors and metrics so far (progressive validation).

        Each row counts by its prediction before it was learned. An entry is None if it does not apply to the loss.

        - n_rows, cumulative_loss, mean_loss: for more than two classes the loss of a row is the sum over one against
          the rest for each class.
        - error_rate: share of rows whose score has the wrong sign, or for more than two classes, whose class has not
          the largest score.
        - regret: see ``compare_with``; None without a comparator.
        - log_loss (probabilities are clipped to [2^-52, 1 - 2^-52]), accuracy, and for two classes auc (of scores
          rounded to seven significant bits, which changes it by at most 2e-4), for labels; mean_absolute_error and
          root_mean_squared_error for real targets. These weight rows by sample_weight and decay^age.
        - drift, with decay="auto": a dict of the half_life in rows of the learner with the largest weight (None: no
          decay), that weight, and gain: by how much its mean loss over about the last 1 / decay_share rows was lower
          than that of the first learner, in nats a row. cumulative_loss, mean_loss and regret are those of the first
          learner.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((1000, 5))
        >>> y = np.where(X @ [3.0, 0.0, -2.0, 0.0, 1.0] > 0, "yes", "no")
        >>> progress = fs.SketchedNewton().update(X, y).progress
        >>> progress["n_rows"], progress["accuracy"] > 0.9, progress["auc"] > 0.95
        (1000, True, True)
        """
        model_state = self._model_state
        n_rows, loss, mistakes = (0, 0.0, 0) if model_state is None else model_state.states.totals()
        regret = None
        if model_state is not None and self._comparator is not None:
            scalar = model_state.states.main_learners[0].scalar
            regret = float(loss - scalar[BEFORE] - scalar[THEIRS])
        return {
            "n_rows": n_rows,
            "cumulative_loss": loss,
            "mean_loss": loss / max(n_rows, 1),
            "error_rate": mistakes / max(n_rows, 1),
            "regret": regret,
            "drift": None
            if model_state is None or model_state.states.mix is None
            else model_state.states.mix.summary(),
            **(self._metrics() if model_state is None else model_state.metrics).summary(),
        }

    def _seen(self) -> str:
        if self._model_state is None or self.n_features is not None:
            return super()._seen()
        return f"{self.n_rows} rows with {self._model_state.n_slots() - self.fit_intercept} features so far"

    def _facts(self) -> dict[str, Any]:
        return {name: value for name, value in self.progress.items() if name != "n_rows" and value is not None}


def _probability(loss: str, z: Floats) -> Floats:
    """Return the probability of the positive class, or of each class against the rest, for uncalibrated scores."""
    if loss == "squared_hinge":
        return 0.5 + 0.5 * np.clip(z, -1.0, 1.0)  # the expected loss is smallest for the score 2 p - 1
    return expected(loss, z)
